"""Listeners: functions that hear what streams show, after the commit. One that raises is logged and harms nobody."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from inspect import isawaitable
from typing import TYPE_CHECKING, Any, Literal

from ..domain.errors import BreadError
from ..domain.ports import Logged
from ..projections.crumbs import Crumb, HumanRequired
from ..transport.cursor import Cursor
from . import reads
from .observer import Observer

if TYPE_CHECKING:
    from .engine import Engine

Listener = Callable[[Any], Awaitable[None] | None]
logger = logging.getLogger("bread")


class Listeners:
    """One observer for each tree that something happens in, for as long as it does; what it sees goes to everybody."""

    def __init__(self, engine: Callable[[], Engine]) -> None:
        self._engine = engine
        self._by_event: dict[str, list[Listener]] = {"crumb": [], "human:required": []}
        self._latest: dict[str, int] = {}

    def add(self, event: Literal["crumb", "human:required"], listener: Listener) -> Callable[[], None]:
        if event not in self._by_event:
            raise BreadError("INPUT_INVALID", f"no event {event!r}: expected crumb or human:required")
        listeners = self._by_event[event]
        listeners.append(listener)
        return lambda: listeners.remove(listener) if listener in listeners else None

    def hear(self, entries: list[Logged]) -> None:
        """Events were committed, here or elsewhere."""
        if not any(self._by_event.values()):
            return
        for entry in entries:
            root, seq = entry.recorded.meta.root, entry.recorded.meta.seq
            if root is None:
                continue
            if root not in self._latest:
                self._engine().spawn(self._follow(root, seq - 1), f"listen {root}")
            self._latest[root] = max(seq, self._latest.get(root, 0))

    async def _follow(self, root: str, after: int) -> None:
        try:
            while self._latest[root] > after:
                info = await self._engine().journal.ask(reads.run_info, root)
                observer = Observer(self._engine(), info, Cursor(after), at_rest=True)
                async for crumb in observer.crumbs():
                    await self._call(crumb)
                after = observer.seq
        except BreadError as error:
            if error.code not in ("RUN_NOT_FOUND", "NOT_OPEN"):
                raise
        finally:
            self._latest.pop(root, None)

    async def _call(self, crumb: Crumb) -> None:
        heard = list(self._by_event["crumb"])
        if isinstance(crumb, HumanRequired):
            heard += self._by_event["human:required"]
        for listener in heard:
            try:
                result = listener(crumb)
                if isawaitable(result):
                    await result
            except Exception:
                logger.exception("a listener failed on %s", type(crumb).__name__)
