"""The tail of a store: a thread that hears what other processes have written."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any, Protocol

from ..domain.errors import StoreUnavailable
from ..domain.ports import Logged
from . import reads

logger = logging.getLogger("bread")
TAIL_PAGE = 500


class Readable(Protocol):
    def read(self) -> AbstractContextManager[Any]: ...


class Tail:
    """Reads on from a position whenever the store has news, and tells of what others wrote. Stores say when that is."""

    def __init__(self, store: Readable, worker: str) -> None:
        self._store, self._worker = store, worker
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self._deaf = False
        self._tell: Callable[[list[Logged], int], None] = lambda foreign, position: None
        self._position = 0

    def start(self, position: int, tell: Callable[[list[Logged], int], None]) -> None:
        """Begin; `tell` is called on the event loop with what others wrote, and up to where that is all of it."""
        self._position, self._tell = position, tell
        loop = asyncio.get_running_loop()
        self._thread = threading.Thread(target=self._follow, args=(loop,), name="bread-tail", daemon=True)
        self._thread.start()

    async def stop(self) -> None:
        self._stop.set()
        if self._thread is not None:
            await asyncio.to_thread(self._thread.join)

    def _follow(self, loop: asyncio.AbstractEventLoop) -> None:
        """Until it is stopped: wait for news, and hand them over."""
        raise NotImplementedError

    def _skip_own(self) -> None:
        """Move on over what this process has written itself, as far as that is known without reading it."""

    def _is_deaf(self, error: Exception | None) -> None:
        if error is not None and not self._deaf:  # for the moment, not for good
            logger.error("other processes are not heard: %s", error)
        self._deaf = error is not None

    def _hand_over(self, loop: asyncio.AbstractEventLoop) -> bool:
        """Tell what others have written so far; False if the store did not answer, and is to be asked again."""
        while True:
            self._skip_own()
            try:
                with self._store.read() as cursor:
                    page, position, unknown = reads.since(cursor, self._position, TAIL_PAGE)
            except StoreUnavailable:
                return False
            if position == self._position:
                return True
            self._position = position
            for what in unknown:
                logger.error("another process wrote what this release cannot read: %s", what)
            foreign = [entry for entry in page if entry.recorded.meta.worker != self._worker]
            if foreign:
                loop.call_soon_threadsafe(self._tell, foreign, position)
