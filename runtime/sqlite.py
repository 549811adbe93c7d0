"""The SQLite store: events, log index and view rows of one transaction, in one file or in memory."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, closing, contextmanager, nullcontext
from typing import Any

from ..domain.envelope import Recorded
from ..domain.errors import BreadError, InvalidInput, StoreUnavailable, StoreUnreadable
from ..transport.codec import stored_form
from .sql import SqlTransaction
from .sqlite_log import LOCK_TIMEOUT, SQLiteEventLog, connect
from .tail import Tail
from .unit import Collision, Spoiled

TAIL_SECONDS = 0.05
ROWS = 1000  # a statement; SQLite takes 32,766 values
SCRUB_WAIT_MS = 100
VACUUM_BYTES = 1 << 28  # 256 MB take 1 to 2 seconds; what is larger is left to whoever runs the store


class SQLiteTransaction(SqlTransaction):
    """The write transaction of a file or of memory; `first` and `last` are the positions that it has given."""

    def __init__(self, cursor: sqlite3.Cursor) -> None:
        super().__init__(cursor)
        self.first: int | None = None
        self.last = 0
        self.erased = False

    def insert(self, events: Sequence[Recorded]) -> list[Recorded]:
        positions: list[int] = []
        try:
            for chunk in _chunks([(e.stream, e.version, *stored_form(e)) for e in events]):
                columns = "stored_events (originator_id, originator_version, topic, state)"
                positions += [row[0] for row in self._insert(columns, chunk, "RETURNING rowid")]
        except sqlite3.IntegrityError as error:
            raise (Spoiled if positions else Collision) from error
        placed = [
            Recorded(e.stream, e.version, e.event, e.meta, position)
            for e, position in zip(events, positions, strict=True)
        ]
        for chunk in _chunks([(e.meta.root, e.meta.seq, e.position) for e in placed if e.meta.root is not None]):
            self._insert("bread_log (root, seq, position)", chunk)
        self.first = self.first or placed[0].position
        self.last = placed[-1].position
        self.wrote = True
        return placed

    def _insert(self, columns: str, rows: Sequence[tuple[Any, ...]], returning: str = "") -> list[Any]:
        # Many rows a statement: at the end of each one this thread may have to wait for the interpreter.
        places = ",".join([f"({','.join('?' * len(rows[0]))})"] * len(rows))
        values = [value for row in rows for value in row]
        self._execute(f"INSERT INTO {columns} VALUES {places} {returning}", values)  # noqa: S608
        return self.cursor.fetchall()

    def erase(self, stream: str, below: int) -> None:
        if not self.erased:
            self._execute("INSERT OR IGNORE INTO bread_scrub (due) VALUES (1)")
            self.erased = True
        super().erase(stream, below)


def _chunks(rows: Sequence[tuple[Any, ...]]) -> Iterator[Sequence[tuple[Any, ...]]]:
    return (rows[start : start + ROWS] for start in range(0, len(rows), ROWS))


class SQLiteStore:
    """One database. Gives one write transaction at a time, and read transactions to any thread."""

    def __init__(self, database: str, log: SQLiteEventLog) -> None:
        self.database, self.log = database, log
        self.in_memory = "mode=memory" in database
        self._own: deque[tuple[int, int]] = deque()
        self.residue = not self.in_memory  # a process that died may have left what it had erased
        self._writer = connect(database)
        self._writing = threading.Lock()
        # Connections to shared memory exclude each other; readers of a file need no lock.
        self._reading: AbstractContextManager[Any] = self._writing if self.in_memory else nullcontext()
        self._local = threading.local()
        self._readers: list[sqlite3.Connection] = []

    @contextmanager
    def write(self) -> Iterator[SQLiteTransaction]:
        # A cursor that is left open in the middle of its rows would stand in the way of VACUUM.
        with translated(), self._writing, closing(self._writer.cursor()) as cursor:
            _begin_immediate(cursor)
            tx = SQLiteTransaction(cursor)
            try:
                yield tx
                cursor.execute("COMMIT" if tx.wrote else "ROLLBACK")
            except BaseException:
                if self._writer.in_transaction:
                    cursor.execute("ROLLBACK")
                raise
            if tx.first is not None and not self.in_memory:
                self._own.append((tx.first, tx.last))  # not before: what fails to commit leaves its places to others
            if tx.erased and not self.in_memory:
                self.residue = True
                self._briefly(cursor, _truncate_log, 0)

    def scrub(self) -> None:
        """Remove what erasure leaves behind: copies in the slack of pages that SQLite merged, and the log's frames.

        Where somebody is in the way it is left for the next time, and `residue` says so.
        """
        with translated(), self._writing, closing(self._writer.cursor()) as cursor:
            due = cursor.execute("SELECT 1 FROM bread_scrub").fetchone() is not None
            if due and not self._briefly(cursor, self._vacuum, SCRUB_WAIT_MS):
                return
            self.residue = not self._briefly(cursor, _truncate_log, SCRUB_WAIT_MS)
            if due and not self.residue:
                cursor.execute("DELETE FROM bread_scrub")

    def _vacuum(self, cursor: sqlite3.Cursor) -> bool:
        pages, size = (cursor.execute(f"PRAGMA {name}").fetchone()[0] for name in ("page_count", "page_size"))
        if pages * size <= VACUUM_BYTES:
            cursor.execute("VACUUM")
        return True

    def _briefly(self, cursor: sqlite3.Cursor, work: Callable[[sqlite3.Cursor], bool], wait_ms: int) -> bool:
        # Who is in the way is hardly waited for: others want to write meanwhile.
        cursor.execute(f"PRAGMA busy_timeout = {wait_ms}")
        try:
            return work(cursor)
        except sqlite3.OperationalError as error:
            if not is_busy(error):
                raise
            return False
        finally:
            cursor.execute(f"PRAGMA busy_timeout = {LOCK_TIMEOUT * 1000}")

    @contextmanager
    def read(self) -> Iterator[sqlite3.Cursor]:
        with translated(), self._reading:
            connection: sqlite3.Connection | None = getattr(self._local, "connection", None)
            if connection is None:
                connection = self._local.connection = connect(self.database)
                self._readers.append(connection)
            cursor = connection.cursor()
            cursor.execute("BEGIN")
            try:
                yield cursor
            finally:
                cursor.execute("ROLLBACK")

    def explain(self, error: BaseException) -> BaseException:
        ours = _in_our_terms(error)
        if ours is None:
            return error
        ours.__cause__ = error
        return ours

    def skip_own(self, position: int) -> int:
        """The position before the next event after `position` that another process wrote, as far as is known."""
        while self._own and self._own[0][0] <= position + 1:
            position = max(position, self._own.popleft()[1])
        return position

    def tail(self, worker: str) -> Tail | None:
        return None if self.in_memory else FileTail(self, worker)

    def close(self) -> None:
        for connection in (self._writer, *self._readers):
            connection.close()
        self.log.close()


class FileTail(Tail):
    """Looks at the file's data_version, which is another one whenever another connection has written."""

    def __init__(self, store: SQLiteStore, worker: str) -> None:
        super().__init__(store, worker)
        self._own = store

    def _skip_own(self) -> None:
        self._position = self._own.skip_own(self._position)

    def _follow(self, loop: asyncio.AbstractEventLoop) -> None:
        connection = connect(self._own.database)
        seen = None
        try:
            while not self._stop.wait(TAIL_SECONDS):
                try:
                    version = connection.execute("PRAGMA data_version").fetchone()[0]
                    if version != seen and self._hand_over(loop):
                        seen = version
                    self._is_deaf(None)
                except (sqlite3.Error, StoreUnreadable) as error:
                    self._is_deaf(error)
        except RuntimeError:
            return  # the loop is gone
        finally:
            connection.close()


def _truncate_log(cursor: sqlite3.Cursor) -> bool:
    return not cursor.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[0]


def _begin_immediate(cursor: sqlite3.Cursor) -> None:
    # SQLite's own waiting gives up after its timeout; a busy file is undecided, never a verdict.
    deadline = time.monotonic() + LOCK_TIMEOUT
    while True:
        try:
            cursor.execute("BEGIN IMMEDIATE")
        except sqlite3.OperationalError as error:
            if not is_busy(error) or time.monotonic() > deadline:
                raise
        else:
            return


def is_busy(error: sqlite3.Error) -> bool:
    return getattr(error, "sqlite_errorcode", 0) & 0xFF in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)


@contextmanager
def translated() -> Iterator[None]:
    """The driver's errors in our terms: undecided (STORE_UNAVAILABLE), or a file that cannot be read."""
    try:
        yield
    except Exception as error:
        cause = error.__cause__ or error.__context__
        from_library = type(error).__module__ == "eventsourcing.persistence" and isinstance(cause, sqlite3.Error)
        ours = _in_our_terms(cause if from_library else error)
        if ours is None:
            raise
        raise ours from error


def _in_our_terms(error: BaseException | None) -> BreadError | None:
    if isinstance(error, UnicodeEncodeError | OverflowError) or str(error).startswith("Error binding parameter"):
        return InvalidInput("INPUT_INVALID", f"the store cannot look for such a value: {error}")
    if not isinstance(error, sqlite3.Error):
        return None
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF
    if code in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB):
        return StoreUnreadable("STORE_INVALID", f"the database is damaged or not one of bread's: {error}")
    if code == sqlite3.SQLITE_TOOBIG:
        return InvalidInput("INPUT_INVALID", f"this is more than the store takes in one piece: {error}")
    if is_busy(error):
        return StoreUnavailable(f"another process held the database for more than {LOCK_TIMEOUT} s")
    return StoreUnavailable(f"the database does not work: {error}")
