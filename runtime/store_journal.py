"""The journal over a store: the writer, a few readers, and the tail that hears other processes."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar

from ..domain.envelope import Recorded
from ..domain.errors import StoreUnavailable
from ..domain.ports import Logged
from . import journal, reads, rebuild
from .journal import Fault, GroupCommit
from .rebuild import Report
from .sql import SqlTransaction
from .tail import Tail
from .unit import Undone

T = TypeVar("T")
P = ParamSpec("P")
READERS = 4


class Store(journal.Store, Protocol):
    """What the journal needs of a database."""

    def write(self) -> AbstractContextManager[SqlTransaction]: ...

    def read(self) -> AbstractContextManager[Any]:
        """A cursor (sql.Cursor) in a read transaction: one view of everything. For any thread."""

    def tail(self, worker: str) -> Tail | None:
        """What hears other processes; None where there cannot be any."""

    def close(self) -> None: ...


class StoreJournal:
    """Implements the Journal port on a store."""

    def __init__(
        self,
        store: Store,
        worker: str,
        *,
        clock: Callable[[], float] = time.time,
        fault: Fault | None = None,
        always_replay: bool = False,
    ) -> None:
        self.worker, self.store = worker, store
        self.writer = GroupCommit(store, worker, clock=clock, fault=fault, always_replay=always_replay)
        self.commit = self.writer.commit
        self.on_foreign: Callable[[list[Logged]], None] = lambda events: None
        self.queries = 0
        self.heard = 0
        self._readers = ThreadPoolExecutor(max_workers=READERS, thread_name_prefix="bread-reader")
        self._tail = store.tail(worker)

    async def open(self) -> None:
        self.writer.open()
        if self._tail is not None:
            self.heard = await self.ask(reads.last_position)
            self._tail.start(self.heard, lambda foreign, position: self._tell(foreign, position))

    async def close(self) -> None:
        await self.writer.close()
        if self._tail is not None:
            await self._tail.stop()
        await asyncio.to_thread(self._readers.shutdown)
        await asyncio.to_thread(self.store.close)

    async def ask(self, question: Callable[Concatenate[Any, P], T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run one of the functions of `reads` in a reader thread, in one read transaction."""

        def answer() -> T:
            self.queries += 1
            for _ in range(READERS + 1):  # of connections that a restarted server has left behind
                try:
                    with self.store.read() as cursor:
                        return question(cursor, *args, **kwargs)
                except Undone as error:
                    gone = error
            raise gone

        return await self._in_reader(answer)

    async def events(self, stream: str, after: int = 0) -> list[Recorded]:
        return await self.ask(reads.stream, stream, after)

    async def log(self, root: str, after: int, limit: int) -> list[Logged]:
        return await self.ask(reads.log, root, after, limit)

    async def check(self) -> Report:
        """Compare the log with itself and the views with the log."""
        return await self.ask(rebuild.check)

    async def rebuild(self) -> int:
        """Replace the views by what the log gives; gives the number of streams."""
        return await self._in_reader(lambda: rebuild.rebuild(self.store))

    async def _in_reader(self, work: Callable[[], T]) -> T:
        try:
            answered = asyncio.get_running_loop().run_in_executor(self._readers, work)
        except RuntimeError as error:
            raise StoreUnavailable("the store is closed") from error
        return await answered

    def _tell(self, foreign: list[Logged], position: int) -> None:
        # Up to `heard` the loop has been told of everything that others have written.
        self.on_foreign(foreign)
        self.heard = position
