"""A barrier for answers, and what becomes of them."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from bread import Bread, BreadError
from bread.domain.envelope import SYSTEM

WON, LOST = "won", "CHECKPOINT_NOT_FOUND"


class Door:
    """A barrier in front of the journal: all have looked and found the question pending before the first one claims."""

    def __init__(self, bread: Bread, count: int) -> None:
        self.journal, self.count, self.arrived = bread._running().journal, count, 0
        self.commit: Callable[..., Awaitable[Any]] = self.journal.commit
        self.opened = asyncio.Event()
        self.journal.commit = self.held

    async def held(self, decide: Any, *, by: Any, **context: Any) -> Any:
        if by != SYSTEM and self.arrived < self.count:
            self.arrived += 1
            if self.arrived == self.count:
                self.opened.set()
            await self.opened.wait()
        return await self.commit(decide, by=by, **context)

    def remove(self) -> None:
        self.journal.commit = self.commit  # type: ignore[assignment]


async def outcome(work: Awaitable[Any]) -> str:
    try:
        await work
    except BreadError as error:
        return error.code
    return WON
