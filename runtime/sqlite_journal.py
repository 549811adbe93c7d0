"""The journal on SQLite: the writer, a small pool of readers, and the tail that hears other processes."""

from __future__ import annotations

import asyncio
import logging
import sqlite3
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Concatenate, ParamSpec, TypeVar

from ..domain.envelope import Principal, Recorded
from ..domain.errors import StoreUnavailable, StoreUnreadable
from ..domain.ports import Commit, Decision, Logged
from . import reads, rebuild
from .journal import Fault, GroupCommit
from .rebuild import Report
from .sqlite import SQLiteStore
from .sqlite_log import connect
from .sqlite_open import open_sqlite

T = TypeVar("T")
P = ParamSpec("P")
logger = logging.getLogger("bread")
TAIL_SECONDS = 0.05
TAIL_PAGE = 500


class SQLiteJournal:
    """Implements the Journal port. `path` None keeps everything in memory, for as long as this object lives."""

    def __init__(
        self,
        path: str | None,
        worker: str,
        *,
        clock: Callable[[], float] = time.time,
        fault: Fault | None = None,
        always_replay: bool = False,
    ) -> None:
        self.worker, self.path = worker, path
        self.store: SQLiteStore = open_sqlite(path, worker)
        rebuild.upgrade(self.store)
        self.writer = GroupCommit(self.store, worker, clock=clock, fault=fault, always_replay=always_replay)
        self.on_foreign: Callable[[list[Logged]], None] = lambda events: None
        self.queries = 0
        self._readers = ThreadPoolExecutor(max_workers=4, thread_name_prefix="bread-reader")
        self._stop = threading.Event()
        self._tail: threading.Thread | None = None
        self._position = 0
        self.heard = 0

    async def open(self) -> None:
        self.writer.open()
        if self.path is not None:
            self._position = self.heard = await self.ask(reads.last_position)
            loop = asyncio.get_running_loop()
            self._tail = threading.Thread(target=self._follow, args=(loop,), name="bread-tail", daemon=True)
            self._tail.start()

    async def close(self) -> None:
        await self.writer.close()
        self._stop.set()
        if self._tail is not None:
            await asyncio.to_thread(self._tail.join)
        await asyncio.to_thread(self._readers.shutdown)
        self.store.close()

    async def commit(
        self,
        decide: Decision[T],
        *,
        by: Principal,
        cause: str | None = None,
        tenant: str = "default",
        traceparent: str | None = None,
    ) -> Commit[T]:
        return await self.writer.commit(decide, by=by, cause=cause, tenant=tenant, traceparent=traceparent)

    async def ask(self, question: Callable[Concatenate[Any, P], T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run one of the functions of `reads` in a reader thread, in one read transaction."""

        def answer() -> T:
            self.queries += 1
            with self.store.read() as cursor:
                return question(cursor, *args, **kwargs)

        try:
            answered = asyncio.get_running_loop().run_in_executor(self._readers, answer)
        except RuntimeError as error:
            raise StoreUnavailable("the store is closed") from error
        return await answered

    async def events(self, stream: str, after: int = 0) -> list[Recorded]:
        return await self.ask(reads.stream, stream, after)

    async def log(self, root: str, after: int, limit: int) -> list[Logged]:
        return await self.ask(reads.log, root, after, limit)

    def _follow(self, loop: asyncio.AbstractEventLoop) -> None:
        """Hear commits of other processes: a change of data_version, then what came after the last known position."""
        connection = connect(self.store.database)
        seen, deaf = None, False
        try:
            while not self._stop.wait(TAIL_SECONDS):
                try:
                    version = connection.execute("PRAGMA data_version").fetchone()[0]
                    if version != seen and self._hand_over(loop):
                        seen = version
                    deaf = False
                except (sqlite3.Error, StoreUnreadable) as error:
                    if not deaf:  # for the moment, not for good
                        logger.error("other processes are not heard: %s", error)
                    deaf = True
        except RuntimeError:
            return  # the loop is gone
        finally:
            connection.close()

    def _hand_over(self, loop: asyncio.AbstractEventLoop) -> bool:
        """Tell what others have written so far; False if the store did not answer, and is to be asked again."""
        while True:
            self._position = self.store.skip_own(self._position)
            try:
                with self.store.read() as cursor:
                    page, position, unknown = reads.since(cursor, self._position, TAIL_PAGE)
            except StoreUnavailable:
                return False
            if position == self._position:
                return True
            self._position = position
            for what in unknown:
                logger.error("another process wrote what this release cannot read: %s", what)
            foreign = [entry for entry in page if entry.recorded.meta.worker != self.worker]
            if foreign:
                loop.call_soon_threadsafe(self._tell, foreign, position)

    def _tell(self, foreign: list[Logged], position: int) -> None:
        # Up to `heard` the loop has been told of everything that others have written.
        self.on_foreign(foreign)
        self.heard = position

    async def check(self) -> Report:
        """Compare the log with itself and the views with the log."""
        return await self.ask(rebuild.check)

    async def rebuild(self) -> int:
        """Replace the views by what the log gives; gives the number of streams."""
        return await asyncio.get_running_loop().run_in_executor(self._readers, rebuild.rebuild, self.store)
