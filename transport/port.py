"""The transport port: telling other processes what happens here, and hearing what happens there.

A transport brings liveness, never truth: what it loses, repeats or delays is read from the store. So it may drop
frames, but not keep anybody waiting. A bus is a transport that also keeps crumbs for programs outside of bread.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from .frames import Heard, Message
from .local import Frame


class Transport(Protocol):
    """Carries frames between the processes of one store. All calls come on the event loop."""

    async def open(self, heard: Callable[[str, Frame], None]) -> None:
        """Begin; `heard` is to be called, on the event loop, with the root and the frame that another process told."""

    def tell(self, root: str, frame: Frame) -> None:
        """An event of this process, after its commit and in order for each root, or something live. Returns at once."""

    async def close(self) -> None: ...


class NotKept(Exception):
    """A message may or may not have been kept: it is to be sent again, with the same id."""


class NeverKept(NotKept):
    """A message that will not be kept as it is, however often it is sent."""


@dataclass(frozen=True, slots=True)
class Job:
    """A run that is ready, for whoever has its agent. `version` is that of its stream: the same job is kept once."""

    agent: str
    root: str
    run_id: str
    tenant: str = "default"
    version: int = 0


class Delivery(Protocol):
    """A job that was given to this process. Each call raises NotKept where it may not have arrived."""

    @property
    def job(self) -> Job: ...

    async def done(self) -> None:
        """It is not to be given to anybody again."""

    async def again(self, seconds: float) -> None:
        """It is to be given to somebody, after a while."""

    async def working(self) -> None:
        """Somebody is at work on it: for half a minute it is given to nobody else."""


class WorkQueue(Protocol):
    """Hands ready runs to workers, each to one at a time. It may lose or repeat what it likes."""

    @property
    def is_up(self) -> bool: ...

    async def until_up(self) -> None:
        """Until there is a server to ask."""

    async def offer(self, job: Job) -> None:
        """Have a job kept for a worker. Raises NotKept."""

    async def fetch(self, agent: str) -> Delivery | None:
        """The next job for an agent, or none within a few seconds. Raises NotKept."""

    async def withdraw(self) -> None:
        """Ask for nothing more: what has come by now is still given to who is fetching, what comes goes to others."""


@runtime_checkable
class Bus(Transport, Protocol):
    """A transport that keeps crumbs for whoever has nothing else, for as long as it is set to.

    `on_gap` is called where frames of others may have been missed; `on_mark` with how far others have kept a root;
    `on_live` with the tenant, the root and the frames of this process that were just sent, pieces of text put together.
    """

    on_gap: Callable[[], None]
    on_mark: Callable[[str, int], None]
    on_live: Callable[[str, str, Sequence[Heard]], None]
    work: WorkQueue

    @property
    def is_up(self) -> bool: ...

    @property
    def limit(self) -> int:
        """How many bytes a message may have."""

    async def until_up(self) -> None: ...

    async def keep(self, message: Message) -> int:
        """Have a message kept, and give its number there. Raises NotKept; one that is kept already is kept once."""

    def show(self, message: Message) -> None:
        """Send a message to who listens now. Returns at once; it may be lost."""

    def mark(self, tenant: str, root: str, seq: int) -> None:
        """Tell other processes that everything of a root up to `seq` is kept."""

    async def purge(self, tenant: str, session: str, root: str) -> None:
        """Remove everything of a tree that is kept. Raises NotKept where that is undecided."""

    async def remove(self, numbers: Iterable[int]) -> None:
        """Remove single messages, by their numbers. Raises NotKept where that is undecided."""


class InProcess:
    """No other process is told anything: those on the same file hear of each other by the store."""

    async def open(self, heard: Callable[[str, Frame], None]) -> None:
        return

    def tell(self, root: str, frame: Frame) -> None:
        return

    async def close(self) -> None:
        return
