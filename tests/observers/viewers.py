"""Who is on the stage: the processes, what they have of the log, and who observes them, await by await."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Generator
from contextlib import suppress
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, TypeVar, cast

from bread.domain.errors import run_not_found
from bread.domain.ports import Logged
from bread.domain.run_state import status_of
from bread.projections.crumbs import Crumb
from bread.projections.render import RunInfo
from bread.runtime import reads, tree_reads
from bread.runtime.observer import Observer
from bread.transport.cursor import parse_cursor
from bread.transport.local import LocalHub

from .clients import LAST, Client, Wire

if TYPE_CHECKING:
    from .stage import Stage

T = TypeVar("T")
ROOT, SESSION, AGENT = "run_1", "s1", "publisher"
INFO = RunInfo(ROOT, ROOT, SESSION, AGENT)
NOTHING: frozenset[str] = frozenset()


class Step:
    """A place where a reader waits for the world: `await` it, and whoever drives may do something else first."""

    def __await__(self) -> Generator[Step, None, None]:
        yield self


class Readings:
    """The journal of an observer: each answer is of one moment, some steps after the question and before its use."""

    def __init__(self, stage: Stage) -> None:
        self._stage = stage

    async def log(self, root: str, after: int, limit: int) -> list[Logged]:
        return await self._answer(lambda: [e for e in self._stage.present() if e.recorded.meta.seq > after][:limit])

    async def ask(self, question: Callable[..., T], *args: Any, **more: Any) -> T:
        known: dict[Any, Callable[[], Any]] = {
            tree_reads.run_info: self._info,
            reads.standing: self._standing,
        }
        return cast(T, await self._answer(known[question]))

    def _info(self) -> RunInfo:
        if self._stage.run.status == "erased":
            raise run_not_found(ROOT)
        return INFO

    def _standing(self) -> reads.Standing:
        if self._stage.run.status == "erased":
            return reads.Standing(None, 0, False)
        return reads.Standing(status_of(self._stage.run), self._stage.log[-1].recorded.meta.seq, self._stage.run.parked)

    async def _answer(self, read: Callable[[], T]) -> T:
        await Step()
        found = read()
        await Step()
        return found


@dataclass
class Attempt:
    """A model attempt in a process: it speaks until it has said all, fails, or learns that it was replaced."""

    base: int
    seq: int
    left: deque[str]
    said: str = ""


@dataclass
class Process:
    """What an executing process has: a hub, frames on their way to it, and what it knows of the run."""

    worker: str
    hub: LocalHub = field(default_factory=LocalHub)
    own: deque[list[Logged]] = field(default_factory=deque)
    foreign: deque[list[Logged]] = field(default_factory=deque)
    known: int = 0
    attempt: Attempt | None = None
    over: list[int] = field(default_factory=list)
    begun: set[int] = field(default_factory=set)


class Viewer:
    """A client and its present connection, if it has one."""

    def __init__(self, stage: Stage, *, rest_from: int | None = None, past_rests: bool = False) -> None:
        self.stage, self.client, self.rest_from, self.past_rests = stage, Client(), rest_from, past_rests
        self.from_rest = stage.last_rest() if past_rests else 0
        self.process: Process | None = None
        self.done = self.gone = False
        self._crumbs: AsyncIterator[Crumb] | None = None
        self._waiting: Coroutine[Any, Any, Crumb] | None = None
        self._on: Any = None

    def connect(self, process: Process) -> None:
        if self.stage.run.status == "erased":
            self.done = self.gone = True  # RUN_NOT_FOUND
            return
        cursor = self.client.cursor if self.rest_from is None else str(self.rest_from)
        engine: Any = SimpleNamespace(hub=process.hub, journal=Readings(self.stage), families={})
        to_rest = self.rest_from is not None
        observer = Observer(engine, INFO, parse_cursor(cursor), at_rest=to_rest, past_rests=self.past_rests)
        self._crumbs, self.process = observer.crumbs(), process

    def can_step(self) -> bool:
        if self.done or self.process is None:
            return False
        return not isinstance(self._on, asyncio.Future) or self._on.done()

    def step(self) -> None:
        """To the next await of the observer, or to its next crumb."""
        assert self._crumbs is not None
        if self._waiting is None:
            self._waiting = cast("Coroutine[Any, Any, Crumb]", _as_coroutine(anext(self._crumbs)))
        self._on = None
        try:
            self._on = self._waiting.send(None)
        except StopIteration as shown:
            self._waiting = None
            self.client.take(shown.value.wire())
        except StopAsyncIteration:
            self._waiting = self._crumbs = self.process = None
            self._ended()
        except BaseException:
            self._waiting = None
            raise

    def _ended(self) -> None:
        if self.rest_from is not None:
            self.done = True
            return
        last = self.client.crumbs[-1]
        assert last["type"] in LAST, f"a stream that ended with {last}"
        # Whoever saw a run fail that then went on comes back.
        self.done = is_deletion(last) or last["seq"] == self.stage.crumbs()[-1]["seq"]

    def leave(self) -> None:
        """Go away in the middle of whatever it is: what was not handed out by now is not seen."""
        closing: Any = self._waiting
        if closing is not None:
            try:
                closing.throw(asyncio.CancelledError())
            except asyncio.CancelledError:
                pass
            else:
                raise AssertionError("a cancelled observer went on")
        elif self._crumbs is not None:
            with suppress(StopIteration):
                cast(Any, self._crumbs).aclose().send(None)
        self._crumbs = self._waiting = self._on = self.process = None


async def _as_coroutine(awaitable: Awaitable[T]) -> T:
    return await awaitable


def is_deletion(crumb: Wire) -> bool:
    return (crumb["type"], crumb.get("code")) == ("agent:error", "SESSION_DELETED")
