"""The SQLite store: events, log index and view rows of one transaction, in one file or in memory."""

from __future__ import annotations

import sqlite3
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, closing, contextmanager, nullcontext
from typing import Any

from ..domain.checkpoint import CheckpointState
from ..domain.envelope import Recorded
from ..domain.errors import BreadError, InvalidInput, StoreUnavailable, StoreUnreadable
from ..domain.run_state import RunState
from ..domain.session import SessionState
from ..projections.rows import (
    CHECKPOINT_COLUMNS,
    RUN_COLUMNS,
    SESSION_COLUMNS,
    checkpoint_row,
    delegation_row,
    run_row,
    session_row,
    tag_rows,
)
from ..transport.codec import decode_event, stored_form
from .sqlite_log import LOCK_TIMEOUT, EventLog, connect
from .unit import Collision, Spoiled

ROWS = 1000  # a statement; SQLite takes 32,766 values
SCRUB_WAIT_MS = 100
VACUUM_BYTES = 1 << 28  # 256 MB take 1 to 2 seconds; what is larger is left to whoever runs the store


def _upsert(table: str, columns: Sequence[str], changing: Sequence[str]) -> str:
    places = ", ".join(f":{column}" for column in columns)
    changes = ", ".join(f"{column} = excluded.{column}" for column in changing)
    return f"INSERT INTO {table} ({', '.join(columns)}) VALUES ({places}) ON CONFLICT (id) DO UPDATE SET {changes}"  # noqa: S608


PUT_RUN = _upsert("bread_runs", RUN_COLUMNS, ("status", "owner", "code", "updated"))
PUT_CHECKPOINT = _upsert("bread_checkpoints", CHECKPOINT_COLUMNS, ("status", "settled"))
PUT_SESSION = _upsert("bread_sessions", SESSION_COLUMNS, ("created",))


class SQLiteTransaction:
    """Implements journal.WriteTransaction on one connection that holds the write lock."""

    def __init__(self, cursor: sqlite3.Cursor) -> None:
        self.cursor = cursor
        self._execute = cursor.execute
        self.first: int | None = None
        self.last = 0
        self.wrote = False
        self.erased = False

    def read(self, stream: str, after: int) -> list[Recorded]:
        return select_events(self.cursor, "originator_id = ? AND originator_version > ?", (stream, after))

    def read_one(self, stream: str, version: int) -> Recorded | None:
        found = select_events(self.cursor, "originator_id = ? AND originator_version = ?", (stream, version))
        return found[0] if found else None

    def version(self, stream: str) -> int:
        self._execute("SELECT MAX(originator_version) FROM stored_events WHERE originator_id = ?", (stream,))
        return self.cursor.fetchone()[0] or 0

    def place(self, root: str) -> tuple[int, str | None]:
        self._execute(
            "SELECT (SELECT MAX(seq) FROM bread_log WHERE root = ?), (SELECT tenant FROM bread_runs WHERE id = ?)",
            (root, root),
        )
        seq, tenant = self.cursor.fetchone()
        return (seq or 0) + 1, tenant

    def insert(self, events: Sequence[Recorded]) -> list[Recorded]:
        rows = [(e.stream, e.version, *stored_form(e)) for e in events]
        positions: list[int] = []
        try:
            for chunk in _chunks(rows):
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
        self._execute("DELETE FROM stored_events WHERE originator_id = ? AND originator_version < ?", (stream, below))
        if not self.erased:
            self._execute("INSERT OR IGNORE INTO bread_scrub (due) VALUES (1)")
            self.erased = True

    def forget(self, kind: str, ids: Iterable[str]) -> None:
        for one in ids:
            if kind == "run":
                self._execute("DELETE FROM bread_runs WHERE id = ?", (one,))
                self._execute("DELETE FROM bread_checkpoints WHERE run = ? AND kind = 'delegation'", (one,))
                self._execute("DELETE FROM bread_log WHERE root = ?", (one,))
            elif kind == "checkpoint":
                self._execute("DELETE FROM bread_checkpoints WHERE id = ?", (one,))
            else:
                self._execute("DELETE FROM bread_sessions WHERE id = ?", (one,))
                self._execute("DELETE FROM bread_tags WHERE session = ?", (one,))

    def put_run(self, state: RunState, events: Sequence[Recorded]) -> None:
        self._execute(PUT_RUN, run_row(state, events[0], events[-1]))
        if state.children and state.kind == "agent":
            self._execute("DELETE FROM bread_checkpoints WHERE run = ? AND kind = 'delegation'", (state.id,))
            if (waits := delegation_row(state, events[0], events[-1])) is not None:
                self._execute(PUT_CHECKPOINT, waits)

    def put_checkpoint(self, state: CheckpointState, events: Sequence[Recorded]) -> None:
        self._execute(PUT_CHECKPOINT, checkpoint_row(state, events[0], events[-1]))

    def put_session(self, state: SessionState, events: Sequence[Recorded]) -> None:
        if events[0].version == 1:
            self._execute(PUT_SESSION, session_row(state, events[0]))
            if not state.tags:
                return
        self._execute("DELETE FROM bread_tags WHERE session = ?", (state.id,))
        self.cursor.executemany("INSERT INTO bread_tags (key, value, session) VALUES (?,?,?)", tag_rows(state))

    def run_of_key(self, tenant: str, key: str) -> str | None:
        self._execute("SELECT id FROM bread_runs WHERE tenant = ? AND idempotency_key = ?", (tenant, key))
        row = self.cursor.fetchone()
        return row[0] if row else None

    def active_roots(self, session: str) -> list[str]:
        self._execute(
            "SELECT id FROM bread_runs WHERE session = ? AND parent IS NULL"
            " AND status IN ('running', 'waiting', 'suspended')",
            (session,),
        )
        return [row[0] for row in self.cursor.fetchall()]

    def pending(self, root: str) -> list[tuple[str, str]]:
        self._execute(
            "SELECT id, run FROM bread_checkpoints"
            " WHERE root = ? AND run <> root AND status = 'pending' AND kind <> 'delegation' ORDER BY position",
            (root,),
        )
        return [(row[0], row[1]) for row in self.cursor.fetchall()]

    def has_other_roots(self, session: str, run_id: str) -> bool:
        self._execute(
            "SELECT 1 FROM bread_runs WHERE session = ? AND id <> ? AND parent IS NULL LIMIT 1", (session, run_id)
        )
        return self.cursor.fetchone() is not None

    def last_activity(self, session: str) -> float:
        self._execute(
            "SELECT MAX(at) FROM (SELECT updated AS at FROM bread_runs WHERE session = ?"
            " UNION ALL SELECT created FROM bread_sessions WHERE id = ?)",
            (session, session),
        )
        return float(self.cursor.fetchone()[0] or 0.0)

    def owned(self, session: str) -> tuple[list[str], list[str]]:
        self._execute("SELECT id FROM bread_runs WHERE session = ? ORDER BY id", (session,))
        run_ids = [row[0] for row in self.cursor.fetchall()]
        self._execute(
            "SELECT id FROM bread_checkpoints WHERE session = ? AND kind <> 'delegation' ORDER BY id", (session,)
        )
        return run_ids, [row[0] for row in self.cursor.fetchall()]


def _chunks(rows: Sequence[tuple[Any, ...]]) -> Iterator[Sequence[tuple[Any, ...]]]:
    return (rows[start : start + ROWS] for start in range(0, len(rows), ROWS))


def select_events(cursor: sqlite3.Cursor, where: str, values: Sequence[Any], limit: int = -1) -> list[Recorded]:
    """Recorded events in log order; `where` is ours, the values are bound."""
    cursor.execute(
        "SELECT originator_id, originator_version, topic, state, rowid FROM stored_events"  # noqa: S608
        f" WHERE {where} ORDER BY rowid LIMIT ?",
        (*values, limit),
    )
    return [decode_event(*row) for row in cursor.fetchall()]


class SQLiteStore:
    """One database. Gives one write transaction at a time, and read transactions to any thread."""

    def __init__(self, database: str, log: EventLog) -> None:
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

    def close(self) -> None:
        for connection in (self._writer, *self._readers):
            connection.close()
        self.log.close()


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
