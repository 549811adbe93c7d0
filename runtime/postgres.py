"""The PostgreSQL store: events, log index and view rows of one transaction, shared by any number of processes."""

from __future__ import annotations

import asyncio
import logging
import os
import select
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psycopg
from psycopg import sql as psql
from psycopg_pool import ConnectionPool, PoolTimeout

from ..domain.errors import StoreUnavailable, StoreUnreadable
from .postgres_log import PostgresEventLog
from .postgres_sql import PostgresCursor, failure, in_our_terms
from .postgres_url import Address
from .postgres_watch import was_cut, watched
from .postgres_wire import together
from .postgres_write import LOCK, ROLLBACK, PostgresTransaction
from .tail import Tail
from .unit import Spoiled, Undone

logger = logging.getLogger("bread")
READERS = 4
PATIENCE = 10.0  # how long a request waits for a server that is away
RECONNECT_SECONDS = 0.2
LOOK_SECONDS = 5.0  # how often to look for what nobody has told of


class PostgresStore:
    """One database. Gives one write transaction at a time, and read transactions to any thread."""

    residue = False  # what was erased is freed by the server's vacuum

    def __init__(self, address: Address, schema: str, worker: str) -> None:
        self.address, self.schema, self.worker = address, schema, worker
        self.channel = f"bread_{schema}"[:63]
        self._writing = threading.Lock()
        self._writer: psycopg.Connection[Any] | None = None
        self._since, self._silent = 0.0, -1.0  # when it was made, and when one was last silent for too long
        self._pool = ConnectionPool(
            address.full,
            kwargs={"autocommit": True},
            min_size=1,
            max_size=READERS + 1,  # and the tail
            timeout=PATIENCE,
            reconnect_timeout=PATIENCE,
            num_workers=1,
            name="bread",
            open=True,
        )
        self._closed = False

    def scrub(self) -> None:
        return

    def event_log(self) -> PostgresEventLog:
        """The log with the library's API, on connections of its own."""
        return PostgresEventLog(self.address, self.schema)

    # --- writing

    @contextmanager
    def write(self) -> Iterator[PostgresTransaction]:
        with self._writing:
            connection = self._connected()
            try:
                with watched(connection):
                    yield from self._written(connection)
            finally:
                if was_cut(connection):
                    self._give_up()

    def _written(self, connection: psycopg.Connection[Any]) -> Iterator[PostgresTransaction]:
        tx = PostgresTransaction(connection, self.channel, self.worker)
        try:
            yield tx
        except BaseException:
            self._roll_back(connection)
            raise
        try:
            tx.end()
        except Exception as error:
            if not connection.closed:
                self._roll_back(connection)
                raise
            if tx.wrote:
                self._settle(tx, error)

    def _settle(self, tx: PostgresTransaction, lost: Exception) -> None:
        """The connection went away with the answer to COMMIT: look whether the log has what was written."""
        stream, version, state = tx.written
        connection = self._connected()
        try:
            # The lock is there when the old transaction is over, one way or the other.
            with watched(connection), connection.transaction():
                connection.execute(LOCK)
                found = connection.execute(
                    "SELECT state FROM stored_events WHERE originator_id = %s AND originator_version = %s",
                    (stream, version),
                ).fetchone()
        except psycopg.Error as error:
            raise StoreUnavailable("the database went away while it committed: undecided") from error
        if found is None or bytes(found[0]) != state:
            raise Undone("the database went away before it had committed") from lost
        logger.info("the database went away after it had committed, which the log shows")

    def _connected(self) -> psycopg.Connection[Any]:
        """The writer's connection, or a new one; a server that is away is waited for a while."""
        deadline = time.monotonic() + PATIENCE
        while True:
            if self._writer is not None and not self._writer.closed:
                if self._since > self._silent:
                    return self._writer
                self._writer.close()
            try:
                self._since = time.monotonic()
                self._writer = self.address.connect()
            except StoreUnavailable:
                if self._closed or time.monotonic() > deadline:
                    raise
                time.sleep(RECONNECT_SECONDS)

    def _roll_back(self, connection: psycopg.Connection[Any]) -> None:
        try:
            if not connection.closed:
                together(connection, (ROLLBACK, ()))  # the driver's own would take all prepared statements with it
        except psycopg.Error:
            connection.close()  # the server rolls back what nobody ends

    # --- reading

    @contextmanager
    def read(self) -> Iterator[PostgresCursor]:
        connection: psycopg.Connection[Any] | None = None
        try:
            with self._pool.connection() as connection, watched(connection), connection.pipeline():
                cursor = PostgresCursor(connection)
                cursor.native("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
                try:
                    yield cursor
                finally:
                    if not connection.closed:
                        cursor.native("ROLLBACK")
        except Spoiled as error:
            raise self.explain(error.__cause__ or error) from error
        except PoolTimeout as error:
            raise StoreUnavailable(f"{self.address.shown} does not answer") from error
        except psycopg.Error as error:
            if connection is None:
                raise StoreUnavailable(f"{self.address.shown} does not answer: the store is closed") from error
            raise failure(error, connection) from error
        finally:
            if connection is not None and was_cut(connection):
                self._give_up()

    def _give_up(self) -> None:
        """One connection was silent for too long. The others go the same way: nobody has to find out of each."""
        self._silent = time.monotonic()
        self._pool.drain()

    def explain(self, error: BaseException) -> BaseException:
        ours = in_our_terms(error)
        if ours is None:
            return error
        ours.__cause__ = error
        return ours

    def tail(self, worker: str) -> Tail:
        return NotifyTail(self, worker)

    def close(self) -> None:
        self._closed = True
        self._pool.close()
        if self._writer is not None:
            self._writer.close()


class NotifyTail(Tail):
    """Listens to what each commit says: who wrote, and up to which position."""

    def __init__(self, store: PostgresStore, worker: str) -> None:
        super().__init__(store, worker)
        self._address, self._channel = store.address, store.channel
        self._woken, self._waker = os.pipe()

    async def stop(self) -> None:
        os.write(self._waker, b"x")
        await super().stop()
        os.close(self._woken)
        os.close(self._waker)

    def _follow(self, loop: asyncio.AbstractEventLoop) -> None:
        while not self._stop.is_set():
            try:
                with self._address.connect() as connection:
                    with watched(connection):
                        connection.execute(psql.SQL("LISTEN {}").format(psql.Identifier(self._channel)))
                    self._listen(connection, loop)
            except (psycopg.Error, StoreUnavailable, StoreUnreadable) as error:
                self._is_deaf(error)
                self._stop.wait(RECONNECT_SECONDS)
            except RuntimeError:
                return  # the loop is gone

    def _listen(self, connection: psycopg.Connection[Any], loop: asyncio.AbstractEventLoop) -> None:
        # What was written while nobody listened, then whenever there is news, and now and then all the same.
        behind = not self._hand_over(loop)
        self._is_deaf(None)
        while not self._stop.is_set():
            wait = RECONNECT_SECONDS if behind else LOOK_SECONDS
            ready, _, _ = select.select([connection.fileno(), self._woken], [], [], wait)
            news = behind or not ready
            if not ready:
                with watched(connection, LOOK_SECONDS):
                    connection.execute("SELECT 1")  # is this still the way to hear?
            for notify in connection.notifies(timeout=0):
                writer, _, last = notify.payload.partition(" ")
                if writer == self._worker and not news:
                    self._position = max(self._position, int(last))  # all before it has been told of
                elif int(last) > self._position:
                    news = True
            if news:
                behind = not self._hand_over(loop)
