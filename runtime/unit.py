"""One decision's view of the streams, and what a store has to do inside a write transaction."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Protocol

from ..domain import checkpoint as questions
from ..domain import run_state as runs
from ..domain import session as sessions
from ..domain.checkpoint import CheckpointState
from ..domain.envelope import Meta, Recorded, Stamp
from ..domain.errors import StoreUnavailable
from ..domain.events import Event
from ..domain.ports import Logged
from ..domain.run_state import RunState
from ..domain.session import SessionState, session_stream
from ..projections.render import subject_of
from .folds import fold_checkpoint, fold_run, fold_session

Place = tuple[int, str | None]
"""The next seq of a root's log, and the root's tenant; None for a root that is new."""


class Undone(StoreUnavailable):
    """The store went away under a transaction of which nothing is written: it may be tried again at once."""


class Spoiled(Exception):
    """A decision failed after it had begun to write: its whole transaction has to go."""


class Collision(Spoiled):
    """The store already holds an event at that (stream, version)."""


class WriteTransaction(Protocol):
    """What a store does inside its one write transaction. All of it under the lock, all of it synchronous."""

    def since(self, position: int | None, expected: Collection[str] = ()) -> tuple[set[str], int]:
        """The streams that have events after a position, and where the log ends; None asks for the end alone.

        `expected` are streams that are likely to be read, for a store that rather reads them all at once.
        """

    def read(self, stream: str, after: int) -> list[Recorded]: ...

    def read_one(self, stream: str, version: int) -> Recorded | None: ...

    def place(self, root: str) -> Place: ...

    def insert(self, events: Sequence[Recorded]) -> list[Recorded]:
        """Append, giving positions. Raises Collision, here or when the transaction ends."""

    def erase(self, stream: str, below: int) -> None: ...

    def forget(self, kind: str, ids: Iterable[str]) -> None:
        """Remove view rows of erased streams; kind is run, checkpoint or session."""

    def put_run(self, state: RunState, events: Sequence[Recorded]) -> None: ...

    def put_checkpoint(self, state: CheckpointState, events: Sequence[Recorded]) -> None: ...

    def put_session(self, state: SessionState, events: Sequence[Recorded]) -> None: ...

    def run_of_key(self, tenant: str, key: str) -> str | None: ...

    def active_roots(self, session: str) -> list[str]: ...

    def pending(self, root: str) -> list[tuple[str, str]]:
        """The open questions of a root's children, oldest first: checkpoint and run."""

    def has_other_roots(self, session: str, run_id: str) -> bool: ...

    def last_activity(self, session: str) -> float: ...

    def owned(self, session: str) -> tuple[list[str], list[str]]: ...


class Unit:
    """One decision's view of the streams: what it read, what it appends. Implements domain.streams.Streams.

    `cache` has states, and `places` the next seq and the tenant of roots, that are those of the log at this moment.
    """

    def __init__(
        self,
        tx: WriteTransaction,
        cache: Mapping[str, RunState],
        places: Mapping[str, Place],
        stamp: Stamp,
        *,
        performs: Callable[[str], bool] = lambda agent: False,
    ) -> None:
        self.at = stamp.at
        self._performs = performs
        self._tx, self._cache, self._stamp = tx, cache, stamp
        self.runs: dict[str, RunState] = {}
        self.history: dict[str, list[Recorded]] = {}
        self.checkpoints: dict[str, CheckpointState] = {}
        self.sessions: dict[str, SessionState] = {}
        self.appended: list[Recorded] = []
        self.erasures: list[tuple[str, int]] = []
        self.places = dict(places)
        self._latest: dict[str, Event] = {}

    # --- Streams

    def run(self, run_id: str) -> RunState:
        state = self.runs.get(run_id)
        if state is None:
            state = self._cache.get(run_id)
            if state is None:
                self.history[run_id] = self._tx.read(run_id, 0)
                state = fold_run(run_id, self.history[run_id])
            self.runs[run_id] = state
        return state

    def checkpoint(self, checkpoint_id: str) -> CheckpointState:
        state = self.checkpoints.get(checkpoint_id)
        if state is None:
            state = fold_checkpoint(checkpoint_id, self._tx.read(checkpoint_id, 0))
            self.checkpoints[checkpoint_id] = state
        return state

    def session(self, session_id: str) -> SessionState:
        state = self.sessions.get(session_id)
        if state is None:
            state = fold_session(session_id, self._tx.read(session_stream(session_id), 0))
            self.sessions[session_id] = state
        return state

    def append(self, stream: str, *events: Event, root: str | None, session: str) -> None:
        is_run, is_session = stream in self.runs, stream == session_stream(session)
        for event in events:
            if is_session:
                version = self.session(session).version + 1
                self.sessions[session] = sessions.evolve(self.sessions[session], event)
            elif is_run:
                version = self.runs[stream].version + 1
                self.runs[stream] = runs.evolve(self.runs[stream], event)
            else:
                version = self.checkpoint(stream).version + 1
                self.checkpoints[stream] = questions.evolve(self.checkpoints[stream], event)
            self.appended.append(Recorded(stream, version, event, self._meta(root, session)))
            if root is not None:
                self._latest[root] = event

    def _meta(self, root: str | None, session: str) -> Meta:
        s = self._stamp
        if root is None:
            return Meta(s.at, s.by, s.commit, 0, None, session, s.cause, s.worker, s.tenant, s.traceparent)
        # Whoever commits to a tree, what is committed belongs to the tenant that started it.
        is_new = self.history.get(root) == []
        seq, tenant = self.places.get(root) or ((1, None) if is_new else self._tx.place(root))
        tenant = tenant or s.tenant
        self.places[root] = (seq + 1, tenant)
        return Meta(s.at, s.by, s.commit, seq, root, session, s.cause, s.worker, tenant, s.traceparent)

    def erase(self, stream: str, keep: int) -> None:
        self.erasures.append((stream, keep))

    def latest(self, root: str) -> Event | None:
        return self._latest.get(root)

    def performer(self, agent: str) -> str | None:
        return self._stamp.worker if self._performs(agent) else None

    def pending(self, root: str) -> Sequence[tuple[str, str]]:
        """What the root asks, then what the views say of its children, as this decision has changed it."""
        found = dict.fromkeys(self.run(root).questions, root) | dict(self._tx.pending(root))
        for checkpoint_id, state in self.checkpoints.items():
            if state.question is not None and state.question.root == root and state.status == "pending":
                found.setdefault(checkpoint_id, state.question.run)
            elif state.status != "pending":
                found.pop(checkpoint_id, None)
        return list(found.items())

    def run_of_key(self, key: str) -> str | None:
        return self._tx.run_of_key(self._stamp.tenant, key)

    def active_roots(self, session_id: str) -> Sequence[str]:
        return self._tx.active_roots(session_id) if self.session(session_id).version else ()

    def last_activity(self, session_id: str) -> float:
        return self._tx.last_activity(session_id)

    def owned(self, session_id: str) -> tuple[Sequence[str], Sequence[str]]:
        return self._tx.owned(session_id)

    # --- writing

    def write(self) -> list[Recorded]:
        """Append, then erase, then the view rows. Gives the events with their positions."""
        if not self.appended:
            return []
        events = self._tx.insert(self.appended)
        erased = {stream for stream, _ in self.erasures}
        by_stream: dict[str, list[Recorded]] = {}
        for recorded in events:
            by_stream.setdefault(recorded.stream, []).append(recorded)
        for stream, keep in self.erasures:
            self._tx.erase(stream, by_stream[stream][-keep].version)
        for run_id, run in self.runs.items():
            if run_id in by_stream and run_id not in erased:
                self._tx.put_run(run, by_stream[run_id])
        for checkpoint_id, checkpoint in self.checkpoints.items():
            if checkpoint_id in by_stream and checkpoint_id not in erased:
                self._tx.put_checkpoint(checkpoint, by_stream[checkpoint_id])
        for session_id, session in self.sessions.items():
            stream = session_stream(session_id)
            if stream in by_stream and stream not in erased:
                self._tx.put_session(session, by_stream[stream])
        if erased:
            self._tx.forget("run", erased & self.runs.keys())
            self._tx.forget("checkpoint", erased & self.checkpoints.keys())
            self._tx.forget("session", [s for s in self.sessions if session_stream(s) in erased])
        return events

    def logged(self, events: Sequence[Recorded]) -> list[Logged]:
        """The events with the payloads that they point to, so that observers here need not read the store."""
        here = {(recorded.stream, recorded.version): recorded for recorded in events}
        entries = []
        for recorded in events:
            where = subject_of(recorded)
            subject = (here.get(where) or self._tx.read_one(*where)) if where else None
            entries.append(Logged(recorded, subject))
        return entries
