"""What a decision over several streams may see and do."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from .checkpoint import CheckpointState
from .events import Event
from .run_state import RunState
from .session import SessionState


class Streams(Protocol):
    """States as of the commit, and appending. `at` is the commit time, unix seconds."""

    @property
    def at(self) -> float: ...

    def run(self, run_id: str) -> RunState: ...

    def checkpoint(self, checkpoint_id: str) -> CheckpointState: ...

    def session(self, session_id: str) -> SessionState: ...

    def append(self, stream: str, *events: Event, root: str | None, session: str) -> None: ...

    def erase(self, stream: str, keep: int) -> None:
        """Remove the events of a stream but the last `keep`, which are its tombstone."""

    def latest(self, root: str) -> Event | None:
        """The last event that this decision has appended to a tree."""

    def performer(self, agent: str) -> str | None:
        """The worker that performs a run of this agent which this commit makes due; None leaves it to others."""

    def pending(self, root: str) -> Sequence[tuple[str, str]]:
        """The open questions of a tree, those of the root first, else the oldest first: checkpoint and run."""

    def run_of_key(self, key: str) -> str | None:
        """The root run that was started with an idempotency key."""

    def active_roots(self, session_id: str) -> Sequence[str]:
        """The root runs of a session that have not ended."""

    def last_activity(self, session_id: str) -> float:
        """When something last happened in a session, unix seconds."""

    def owned(self, session_id: str) -> tuple[Sequence[str], Sequence[str]]:
        """Every run and every checkpoint of a session, children included."""
