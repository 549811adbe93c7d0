"""Listeners: functions that hear what streams show, after the commit. One that raises is logged and harms nobody."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator
from contextlib import aclosing, suppress
from dataclasses import dataclass, field
from inspect import isawaitable
from typing import TYPE_CHECKING, Any, Concatenate, Literal, ParamSpec, TypeVar

from ..domain.checkpoint import CheckpointDiscarded
from ..domain.errors import BreadError, InvalidInput, StoreUnavailable
from ..domain.events import Erased
from ..domain.ports import Logged
from ..projections.crumbs import AgentError, Crumb, HumanRequired
from ..projections.render import RunInfo, crumb_of, run_of
from ..transport.cursor import Cursor
from . import reads, tree_reads
from .observer import Observer

if TYPE_CHECKING:
    from .engine import Engine

T = TypeVar("T")
P = ParamSpec("P")
Listener = Callable[[Any], Awaitable[None] | None]
logger = logging.getLogger("bread")
TOLD = 1024
RETRY_SECONDS = 0.2


@dataclass(slots=True)
class Told:
    """How far the listeners have heard the log of a root."""

    seq: int
    info: RunInfo | None = None


@dataclass(slots=True)
class Followed:
    """A root whose log is being read for the listeners. `latest` is the last event that is known to be there."""

    latest: int = 0
    observer: Observer | None = None
    calling: bool = False
    last_words: list[Logged] = field(default_factory=list)

    moved: asyncio.Event = field(default_factory=asyncio.Event)
    ended: bool = False

    async def heard(self, seq: int) -> None:
        """Wait until the listeners have heard everything up to `seq`, or will hear no more."""
        while not self.ended and (self.observer is None or self.observer.seq < seq or self.calling):
            self.moved.clear()
            await self.moved.wait()


class Listeners:
    """One observer for each tree that something happens in, for as long as it does; what it sees goes to everybody.

    Own commits are told at once and those of other processes a moment later, so events may be heard of out of order.
    How far a root has been told is kept for the last roots that rested, longer than such a moment.
    """

    def __init__(self) -> None:
        self._by_event: dict[str, list[Listener]] = {"crumb": [], "human:required": []}
        self._followed: dict[str, Followed] = {}
        self._told: dict[str, Told] = {}

    def add(self, event: Literal["crumb", "human:required"], listener: Listener) -> Callable[[], None]:
        if event not in self._by_event:
            raise InvalidInput("INPUT_INVALID", f"no event {event!r}: expected crumb or human:required")
        listeners = self._by_event[event]
        listeners.append(listener)
        return lambda: listeners.remove(listener) if listener in listeners else None

    def hear(self, engine: Engine, entries: list[Logged]) -> None:
        """Events were committed, here or elsewhere."""
        if not any(self._by_event.values()):
            return
        for entry in entries:
            root, seq = entry.recorded.meta.root, entry.recorded.meta.seq
            if root is None:
                continue
            followed = self._followed.get(root)
            if followed is None:
                told = self._told.pop(root, None)
                if told is not None and told.seq >= seq:
                    self._remember(root, told)
                    continue
                followed = self._followed[root] = Followed()
                engine.spawn(self._follow(engine, root, followed, told, seq, engine.journal.heard), f"listen {root}")
            followed.latest = max(seq, followed.latest)
            if isinstance(entry.recorded.event, CheckpointDiscarded | Erased):
                followed.last_words.append(entry)

    async def drain(self, seconds: float) -> None:
        """Wait until everything that was committed by now has been heard, but not longer than that."""
        followed = list(self._followed.values())
        until = [one.latest for one in followed]
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                for one, seq in zip(followed, until, strict=True):
                    await one.heard(seq)

    def _remember(self, root: str, told: Told) -> None:
        self._told[root] = told
        if len(self._told) > TOLD:
            del self._told[next(iter(self._told))]

    async def _follow(
        self, engine: Engine, root: str, followed: Followed, told: Told | None, seq: int, position: int
    ) -> None:
        try:
            if told is None:
                # What others have committed to it and this process has not been told of yet comes first.
                foreign = await self._read(engine, reads.first_foreign, root, position, seq, engine.worker)
                told = Told((foreign or seq) - 1)
            cursor, cut_off = Cursor(told.seq), False
            while cut_off or followed.latest > told.seq:
                told.info = await self._read(engine, tree_reads.run_info, root)
                observer = followed.observer = Observer(engine, told.info, cursor, at_rest=True)
                observer.moved = followed.moved
                try:
                    cut_off = False
                    if await self._tell(followed, observer):
                        return
                except StoreUnavailable as error:
                    cut_off = True
                    logger.warning("listeners wait for the store: %s", error)
                    await asyncio.sleep(RETRY_SECONDS)
                finally:
                    cursor = observer.cursor
                    told.seq = cursor.seq
        except BreadError as error:
            if error.code == "RUN_NOT_FOUND" and told is not None:
                # It was deleted while nobody followed it: what there is to show of that was told with the commit.
                for crumb in _shown(followed.last_words, root, told):
                    await self._call(followed, crumb)
            elif error.code != "NOT_OPEN":
                logger.error("listeners are not told of %s: %s", root, error)
        finally:
            del self._followed[root]
            followed.ended = True
            followed.moved.set()
            if told is not None:
                self._remember(root, told)

    async def _tell(self, followed: Followed, observer: Observer) -> bool:
        """Everything that an observer sees, to its end; whether that was the end of all."""
        async with aclosing(observer.crumbs()) as crumbs:
            async for crumb in crumbs:
                await self._call(followed, crumb)
                if isinstance(crumb, AgentError) and crumb.code == "SESSION_DELETED":
                    return True
        return False

    async def _read(
        self, engine: Engine, question: Callable[Concatenate[Any, P], T], *args: P.args, **more: P.kwargs
    ) -> T:
        """An answer of the store, however long it does not answer."""
        while True:
            try:
                return await engine.journal.ask(question, *args, **more)
            except StoreUnavailable as error:
                if engine.closing:
                    raise
                logger.warning("listeners wait for the store: %s", error)
                await asyncio.sleep(RETRY_SECONDS)

    async def _call(self, followed: Followed, crumb: Crumb) -> None:
        heard = list(self._by_event["crumb"])
        if isinstance(crumb, HumanRequired):
            heard += self._by_event["human:required"]
        followed.calling = True
        for listener in heard:
            try:
                result = listener(crumb)
                if isawaitable(result):
                    await result
            except asyncio.CancelledError:
                if (task := asyncio.current_task()) is None or task.cancelling():
                    raise
                logger.exception("a listener failed on %s", type(crumb).__name__)
            except Exception:
                logger.exception("a listener failed on %s", type(crumb).__name__)
        followed.calling = False
        followed.moved.set()


def _shown(entries: list[Logged], root: str, told: Told) -> Iterator[Crumb]:
    for entry in entries:
        meta = entry.recorded.meta
        info = told.info or RunInfo(root, root, meta.session or "", "")
        if meta.seq > told.seq and run_of(entry) is not None:
            told.seq = meta.seq
            crumb = crumb_of(entry, info, str(meta.seq))
            if crumb is not None:
                yield crumb
