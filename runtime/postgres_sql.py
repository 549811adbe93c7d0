"""PostgreSQL's words for the statements of sql.py, its tables, and a cursor that takes those statements."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any

import psycopg
from psycopg import errors
from psycopg.pq import PipelineStatus, TransactionStatus

from ..domain.errors import BreadError, InvalidInput, StoreUnavailable, StoreUnreadable
from .postgres_watch import touch, was_cut
from .sql import INDEXES, UNIQUE_KEY, VIEWS
from .unit import Spoiled, Undone

SCHEMA_VERSION = 1
_PLACES = {"TEXT": 'TEXT COLLATE "C"', "INTEGER": "BIGINT", "REAL": "DOUBLE PRECISION", "rowid": "notification_id"}
_WORDS = re.compile(r"\b(TEXT|INTEGER|REAL|rowid)\b")
_NAMED = re.compile(r"(?<!:):(\w+)")

# The library's columns, with its names; ids compare as bytes, as they do on SQLite. Vacuum is the server's own.
EVENTS = """CREATE TABLE stored_events (
    originator_id TEXT NOT NULL, originator_version INTEGER NOT NULL, topic TEXT NOT NULL, state BYTEA NOT NULL,
    rowid BIGSERIAL UNIQUE,
    PRIMARY KEY (originator_id, originator_version))"""
WORKERS = """CREATE TABLE bread_workers (
    worker TEXT PRIMARY KEY, beat TIMESTAMPTZ NOT NULL, published INTEGER NOT NULL DEFAULT 0)"""


@lru_cache(maxsize=512)
def translated(sql: str, named: bool = False) -> str:
    """A statement of sql.py as PostgreSQL and its driver take it; its values are `named`, or in order."""
    sql = sql.replace("%", "%%")
    sql = _NAMED.sub(r"%(\1)s", sql) if named else sql.replace("?", "%s")
    return _WORDS.sub(lambda word: _PLACES[word[1]], sql)


def create_events() -> list[str]:
    return [translated(EVENTS), translated(WORKERS)]


def create_views() -> list[str]:
    tables = [f"CREATE TABLE {name} {columns}" for name, columns in VIEWS.items()]
    indexes = [f"CREATE INDEX {index}" for index in INDEXES]
    return [translated(statement) for statement in (*tables, *indexes, f"CREATE UNIQUE INDEX {UNIQUE_KEY}")]


class PostgresCursor:
    """Implements sql.Cursor. `begin` is called ahead of the first statement. On a connection in pipeline mode a
    statement is waited for when its rows are asked for."""

    def __init__(self, connection: psycopg.Connection[Any], begin: Callable[[], object] | None = None) -> None:
        self.connection, self._begin = connection, begin
        self._last = connection.cursor(binary=True)

    def execute(self, sql: str, values: Sequence[Any] | Mapping[str, Any] = (), /) -> PostgresCursor:
        return self.native(translated(sql, isinstance(values, Mapping)), values)

    def native(self, statement: Any, values: Sequence[Any] | Mapping[str, Any] = ()) -> PostgresCursor:
        """A statement in PostgreSQL's own words."""
        if self._begin is not None:
            begin, self._begin = self._begin, None
            begin()
        touch(self.connection)
        try:
            # A cursor each, since what others have not fetched yet is theirs.
            self._last = self.connection.cursor(binary=True)
            self._last.execute(statement, values)
        except psycopg.Error as error:
            raise failure(error, self.connection) from error
        return self

    def executemany(self, sql: str, rows: Sequence[Sequence[Any]], /) -> None:
        for row in rows:
            self.execute(sql, row)

    def fetchone(self) -> Any:
        try:
            return self._last.fetchone()
        except psycopg.Error as error:
            raise failure(error, self.connection) from error

    def fetchall(self) -> list[Any]:
        try:
            return self._last.fetchall()
        except psycopg.Error as error:
            raise failure(error, self.connection) from error


def failure(error: psycopg.Error, connection: psycopg.Connection[Any]) -> Exception:
    """What a failed statement means for its transaction, of which nothing is committed."""
    if was_cut(connection):
        return StoreUnavailable("the database is silent")
    if connection.closed or isinstance(error, errors.DeadlockDetected | errors.SerializationFailure):
        return Undone(f"the database went away: {_said(error)}")
    ours = in_our_terms(error)
    if isinstance(ours, StoreUnavailable):
        return ours
    pgconn = connection.pgconn
    if pgconn.pipeline_status == PipelineStatus.ABORTED or pgconn.transaction_status == TransactionStatus.INERROR:
        return Spoiled()  # the server takes nothing more of this transaction
    return ours or error


def in_our_terms(error: BaseException | None) -> BreadError | None:
    """The driver's errors as ours: undecided (STORE_UNAVAILABLE), or a value that cannot be looked for."""
    if isinstance(error, UnicodeEncodeError | OverflowError | psycopg.DataError):
        return InvalidInput("INPUT_INVALID", f"the store cannot look for such a value: {_said(error)}")
    if isinstance(error, errors.ProgramLimitExceeded):
        return InvalidInput("INPUT_INVALID", f"this is more than the store takes in one piece: {_said(error)}")
    if isinstance(error, errors.LockNotAvailable):
        return StoreUnavailable("another process held the log for too long")
    if isinstance(error, errors.InsufficientPrivilege):
        return StoreUnavailable(f"the database user lacks a right: {_said(error)}")
    if isinstance(error, errors.UndefinedTable | errors.UndefinedColumn):
        return StoreUnreadable("STORE_INVALID", f"the database lacks bread's tables: {_said(error)}")
    if isinstance(error, errors.DataCorrupted | errors.IndexCorrupted):
        return StoreUnreadable("STORE_INVALID", f"the database is damaged: {_said(error)}")
    if isinstance(error, psycopg.OperationalError | psycopg.InterfaceError | psycopg.InternalError):
        return StoreUnavailable(f"the database does not work: {_said(error)}")
    return None


def _said(error: BaseException) -> str:
    return " ".join(str(error).split())[:300] or type(error).__name__
