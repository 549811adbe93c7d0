"""The event log on SQLite, as an application of the `eventsourcing` library.

Ours are a table whose notification ids are never used twice, and the pragmas.
"""

from __future__ import annotations

import sqlite3
from typing import Any

from eventsourcing.sqlite import (
    SQLiteApplicationRecorder,
    SQLiteConnection,
    SQLiteConnectionPool,
    SQLiteCursor,
    SQLiteFactory,
)
from eventsourcing.utils import Environment, EnvType

from .event_log import EventLog
from .sql import INDEXES, UNIQUE_KEY, VIEWS

APPLICATION_ID = 0x62726561  # "brea", in the header of every file of ours
SCHEMA_VERSION = 2
LOCK_TIMEOUT = 30

EVENTS = """CREATE TABLE IF NOT EXISTS stored_events (
    rowid INTEGER PRIMARY KEY AUTOINCREMENT,
    originator_id TEXT NOT NULL, originator_version INTEGER NOT NULL, topic TEXT NOT NULL, state BLOB NOT NULL,
    UNIQUE (originator_id, originator_version))"""


def create_views() -> list[str]:
    """The statements that make what is missing of the views, and mark the file as one of this schema."""
    tables = [f"CREATE TABLE IF NOT EXISTS {name} {columns} WITHOUT ROWID" for name, columns in VIEWS.items()]
    indexes = [f"CREATE INDEX IF NOT EXISTS {index}" for index in INDEXES]
    unique = f"CREATE UNIQUE INDEX IF NOT EXISTS {UNIQUE_KEY}"
    marks = [f"PRAGMA application_id = {APPLICATION_ID}", f"PRAGMA user_version = {SCHEMA_VERSION}"]
    return [*tables, *indexes, unique, *marks]


PRAGMAS = (
    "PRAGMA synchronous = FULL",
    "PRAGMA secure_delete = ON",
    "PRAGMA read_uncommitted = ON",  # for memory shared by connections; without effect on files
)


def connect(database: str) -> sqlite3.Connection:
    """A connection of our own, in autocommit mode, for one thread at a time."""
    connection = sqlite3.connect(
        database, uri=True, check_same_thread=False, isolation_level=None, timeout=LOCK_TIMEOUT
    )
    for pragma in PRAGMAS:
        connection.execute(pragma)
    return connection


class Pool(SQLiteConnectionPool):
    """The library's connections, with our pragmas."""

    def _create_connection(self) -> SQLiteConnection:
        connection = super()._create_connection()
        for pragma in PRAGMAS:
            connection.cursor().execute(pragma)
        return connection


class EventRecorder(SQLiteApplicationRecorder):
    """The library's recorder over our table, whose notification ids are never used twice."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.insert_events_statement = (
            f"INSERT INTO {self.events_table_name} (originator_id, originator_version, topic, state) VALUES (?,?,?,?)"  # noqa: S608
        )

    def construct_create_table_statements(self) -> list[str]:
        return [EVENTS, "CREATE TABLE IF NOT EXISTS bread_scrub (due INTEGER PRIMARY KEY)", *create_views()]

    def _create_table(self, c: SQLiteCursor) -> None:
        # Nothing is written where everything is there: many processes may open one file at once. The views of an
        # older file are made anew by runtime/rebuild.py.
        c.execute("PRAGMA user_version")
        if c.fetchone()[0] == 0:
            super()._create_table(c)


class EventFactory(SQLiteFactory):
    application_recorder_class = EventRecorder

    def __init__(self, env: Environment | EnvType | None) -> None:
        super().__init__(env)
        old = self.datastore.pool
        self.datastore.pool = Pool(db_name=old.db_name, lock_timeout=old.lock_timeout, pool_size=5, max_overflow=20)
        old.close()


class SQLiteEventLog(EventLog):
    factory_class = EventFactory

    def __init__(self, database: str) -> None:
        super().__init__(
            {"SQLITE_DBNAME": database, "SQLITE_LOCK_TIMEOUT": str(LOCK_TIMEOUT), "ORIGINATOR_ID_TYPE": "text"}
        )
