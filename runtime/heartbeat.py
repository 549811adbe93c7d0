"""Who is alive, on PostgreSQL: each executing process beats by the database's clock, from a thread of its own.

A worker whose beat is old counts as dead, and its runs are taken. So before each effect a worker looks, by its own
monotonic clock, whether its last acknowledged beat is young enough: where it is not, others may count it as dead.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Collection
from typing import Any

import psycopg

from ..domain.errors import InvalidInput, StoreUnavailable
from .liveness import Published
from .postgres_url import Address
from .postgres_watch import watched

logger = logging.getLogger("bread")
RETRY_SECONDS = 0.5

# One statement: everybody's age as of this beat, and how far they got with publishing.
BEAT = """WITH mine AS (
        INSERT INTO bread_workers (worker, beat, published) VALUES (%(worker)s, clock_timestamp(), %(published)s)
        ON CONFLICT (worker) DO UPDATE SET beat = excluded.beat, published = excluded.published)
    SELECT worker, extract(epoch FROM clock_timestamp() - beat)::float8, published
    FROM bread_workers WHERE worker <> %(worker)s"""
LOOK = "SELECT worker, extract(epoch FROM clock_timestamp() - beat)::float8, published FROM bread_workers"
ALIVE = """SELECT worker FROM bread_workers
    WHERE worker = ANY(%s) AND extract(epoch FROM clock_timestamp() - beat)::float8 < %s"""
# Whoever leaves with something unpublished leaves its row, as old as can be; so does whoever dies. It goes when the
# rest is published, or after a day where nobody publishes.
LEAVE = "UPDATE bread_workers SET beat = 'epoch', published = %s WHERE worker = %s"
GONE = "DELETE FROM bread_workers WHERE worker = %s"
PRUNE = "DELETE FROM bread_workers WHERE beat < clock_timestamp() - interval '1 day' AND beat > 'epoch'"
LEASE = "SELECT pg_try_advisory_lock(%s, hashtext(current_schema()))"
LEASE_CLASS = 0x72656C61  # "rela"


class Heartbeats:
    """Implements liveness.Liveness. One that has not joined only looks."""

    def __init__(self, address: Address, worker: str, *, every: float, stale: float) -> None:
        if not 0 < every < stale:
            raise InvalidInput("INPUT_INVALID", f"heartbeat: expected 0 < {every} < {stale} seconds")
        self._address, self._worker, self._every, self._stale = address, worker, every, stale
        self.publishes: Published | None = None
        self._leases = False
        self._left: dict[str, int] = {}
        self._buried: list[str] = []
        self._revived: Callable[[], object] = lambda: None
        self._lapsed = False
        self._acknowledged = 0.0
        self._ages: dict[str, float] = {}
        self._looked = 0.0
        self._asked: dict[str, float] = {}
        self._beats = False
        self._news, self._done, self._stop = threading.Event(), threading.Event(), threading.Event()
        self._thread: threading.Thread | None = None

    def join(self) -> None:
        self._beats = True
        self.look()

    def look(self) -> None:
        self._start()
        self._done.wait(self._every)

    def leave(self) -> None:
        """Its runs are given back by now: nobody has to wait until its beat is old."""
        if self._thread is not None:
            self._stop.set()
            self._news.set()
            self._thread.join(self._every)

    def may_act(self) -> bool:
        # Whoever was once held back is told when it may go on: by the beat that arrives next.
        self._lapsed |= time.monotonic() - self._acknowledged >= self._stale - self._every
        return not self._lapsed

    def on_revived(self, call: Callable[[], object]) -> None:
        self._revived = call

    def revived(self) -> None:
        self._lapsed = False

    def is_alive(self, worker: str) -> bool:
        if worker == self._worker:
            return self.may_act()
        self._start()
        age = self._ages.get(worker)
        if age is not None:
            return age < self._stale
        # Never seen: dead if it was not there either when somebody looked after this was asked first.
        asked = self._asked.setdefault(worker, time.monotonic())
        if self._looked > asked:
            return False
        self._news.set()
        return True

    def dead_among(self, workers: Collection[str]) -> set[str]:
        dead = {worker for worker in workers if not self.is_alive(worker)}
        # The row of one that died may be gone by now: it goes when what it left is published.
        strangers = {*workers} - dead - self._ages.keys() - {self._worker}
        return dead | self._dead_now(strangers) if strangers else dead

    def is_dead_now(self, worker: str) -> bool:
        return worker in self._dead_now([worker])

    def _dead_now(self, workers: Collection[str]) -> set[str]:
        """Without a row, too: whoever owns a run has had one since before, and keeps it while it lives."""
        try:
            with self._address.connect() as connection, watched(connection, self._every):
                alive = connection.execute(ALIVE, ([*workers], self._stale)).fetchall()
        except psycopg.Error as error:
            raise StoreUnavailable(f"{self._address.shown} does not say who is alive") from error
        return {*workers} - {worker for (worker,) in alive}

    def _start(self) -> None:
        if self._thread is None:
            self._thread = threading.Thread(target=self._beat_forever, name="bread-heart", daemon=True)
            self._thread.start()

    # --- for the relay

    def left_behind(self) -> dict[str, int]:
        """Workers that are gone, and up to where of the log they had published; only for who holds the lease."""
        return dict(self._left) if self._leases else {}

    def bury(self, worker: str) -> None:
        """Everything that a worker has left is published."""
        self._left.pop(worker, None)
        self._buried.append(worker)
        self._news.set()

    # --- in the thread

    def _beat_forever(self) -> None:
        connection: psycopg.Connection[Any] | None = None
        silent = False
        while not self._stop.is_set():
            began = time.monotonic()
            self._news.clear()
            try:
                if connection is None or connection.closed:
                    self._leases = False
                    connection = self._address.connect()
                # One that takes so long is given up while there is time for another, on a new connection.
                with watched(connection, (self._stale - self._every) / 3):
                    self._beat(connection, began)
                silent = False
            except (psycopg.Error, StoreUnavailable) as error:
                if not silent:
                    logger.warning("the heart does not beat: %s", error)
                silent = True
            self._done.set()
            self._news.wait(RETRY_SECONDS if silent else max(0.0, began + self._every - time.monotonic()))
        if connection is not None and not connection.closed:
            self._leave(connection)

    def _beat(self, connection: psycopg.Connection[Any], began: float) -> None:
        if self._beats:
            values = {"worker": self._worker, "published": self.publishes.published_upto if self.publishes else 0}
            rows = connection.execute(BEAT, values).fetchall()
            # Its age counts from when it was sent: the database has it at that time or later.
            self._lapsed |= 0 < self._acknowledged <= began - (self._stale - self._every)
            self._acknowledged = began
            if self._lapsed:
                self._revived()
        else:
            rows = connection.execute(LOOK).fetchall()
        while self._buried:
            connection.execute(GONE, (self._buried[-1],))
            self._buried.pop()
        self._ages = {worker: age for worker, age, _ in rows}
        self._looked = began
        if self.publishes is not None:
            # Held by this session: whoever dies lets go of it.
            self._leases = self._leases or connection.execute(LEASE, (LEASE_CLASS,)).fetchone() == (True,)
            self._left = {worker: upto for worker, age, upto in rows if age >= self._stale}

    def _leave(self, connection: psycopg.Connection[Any]) -> None:
        try:
            if self._beats:
                with watched(connection, self._every):
                    if self.publishes is not None and not self.publishes.is_done:
                        connection.execute(LEAVE, (self.publishes.published_upto, self._worker))
                    else:
                        connection.execute(GONE, (self._worker,))
                    connection.execute(PRUNE)
            connection.close()
        except psycopg.Error as error:
            logger.warning("the heart could not say that it ends: %s", error)
