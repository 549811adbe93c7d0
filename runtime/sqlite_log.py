"""The event log on SQLite, as an application of the `eventsourcing` library.

Its table, mapper, recorder, notification log and repository stand here under the library's names, so that auditors have
that library's API. Ours are the mapper, a table whose notification ids are never used twice, and the pragmas.
"""

from __future__ import annotations

import sqlite3
from typing import Any

from eventsourcing.application import Application
from eventsourcing.persistence import ApplicationRecorder, InfrastructureFactory, StoredEvent, Transcoder
from eventsourcing.persistence import Mapper as LibraryMapper
from eventsourcing.sqlite import (
    SQLiteApplicationRecorder,
    SQLiteConnection,
    SQLiteConnectionPool,
    SQLiteCursor,
    SQLiteFactory,
)
from eventsourcing.utils import Environment, EnvType

from ..domain.envelope import Recorded
from ..transport.codec import decode_event, stored_form

APPLICATION_ID = 0x62726561  # "brea", in the header of every file of ours
SCHEMA_VERSION = 2
LOCK_TIMEOUT = 30

EVENTS = """CREATE TABLE IF NOT EXISTS stored_events (
    rowid INTEGER PRIMARY KEY AUTOINCREMENT,
    originator_id TEXT NOT NULL, originator_version INTEGER NOT NULL, topic TEXT NOT NULL, state BLOB NOT NULL,
    UNIQUE (originator_id, originator_version))"""
VIEWS = {
    "bread_log": "(root TEXT, seq INTEGER, position INTEGER NOT NULL, PRIMARY KEY (root, seq)) WITHOUT ROWID",
    "bread_runs": """(id TEXT PRIMARY KEY, root TEXT NOT NULL, parent TEXT, slot TEXT, link TEXT,
        kind TEXT NOT NULL, session TEXT NOT NULL, tenant TEXT NOT NULL, agent TEXT NOT NULL, status TEXT NOT NULL,
        owner TEXT, idempotency_key TEXT, code TEXT, created REAL NOT NULL, updated REAL NOT NULL) WITHOUT ROWID""",
    "bread_checkpoints": """(id TEXT PRIMARY KEY, run TEXT NOT NULL, root TEXT NOT NULL, session TEXT NOT NULL,
        tenant TEXT NOT NULL, agent TEXT NOT NULL, tool TEXT NOT NULL, kind TEXT NOT NULL, status TEXT NOT NULL,
        deadline REAL, position INTEGER NOT NULL, created REAL NOT NULL, settled REAL) WITHOUT ROWID""",
    "bread_sessions": "(id TEXT PRIMARY KEY, tenant TEXT NOT NULL, created REAL NOT NULL) WITHOUT ROWID",
    "bread_tags": "(key TEXT, value TEXT, session TEXT, PRIMARY KEY (key, value, session)) WITHOUT ROWID",
}
INDEXES = (
    "bread_runs_session ON bread_runs (session, id)",
    "bread_runs_children ON bread_runs (root, id) WHERE parent IS NOT NULL",
    "bread_runs_status ON bread_runs (status, id)",
    "bread_loops ON stored_events (rowid) WHERE topic = 'run.loop_started@1'",
    "bread_checkpoints_session ON bread_checkpoints (session)",
    "bread_delegations ON bread_checkpoints (run) WHERE kind = 'delegation'",
    "bread_pending ON bread_checkpoints (tenant, position) WHERE status = 'pending'",
    "bread_pending_agent ON bread_checkpoints (tenant, agent, position) WHERE status = 'pending'",
    "bread_pending_children ON bread_checkpoints (root, position) WHERE status = 'pending' AND run <> root",
    "bread_pending_tool ON bread_checkpoints (tenant, tool, position) WHERE status = 'pending'",
    "bread_pending_deadline ON bread_checkpoints (deadline) WHERE status = 'pending' AND deadline IS NOT NULL",
    "bread_tags_session ON bread_tags (session)",
)
UNIQUE_KEY = "bread_runs_key ON bread_runs (tenant, idempotency_key) WHERE idempotency_key IS NOT NULL"


def create_views() -> list[str]:
    """The statements that make what is missing of the views, and mark the file as one of this schema."""
    tables = [f"CREATE TABLE IF NOT EXISTS {name} {columns}" for name, columns in VIEWS.items()]
    indexes = [f"CREATE INDEX IF NOT EXISTS {index}" for index in INDEXES]
    unique = f"CREATE UNIQUE INDEX IF NOT EXISTS {UNIQUE_KEY}"
    marks = [f"PRAGMA application_id = {APPLICATION_ID}", f"PRAGMA user_version = {SCHEMA_VERSION}"]
    return [*tables, *indexes, unique, *marks]


class PlainTranscoder(Transcoder):
    """Our mapper does its own coding; the library wants a transcoder all the same."""

    def encode(self, obj: Any) -> bytes:
        return bytes(obj)

    def decode(self, data: bytes) -> Any:
        return data


class EventMapper(LibraryMapper[str]):
    """Between recorded events and the library's stored ones. Names come from an allow-list, not from class paths."""

    def to_stored_event(self, domain_event: Any) -> StoredEvent:
        topic, state = stored_form(domain_event)
        return StoredEvent(domain_event.stream, domain_event.version, topic, state)

    def to_domain_event(self, stored_event: StoredEvent) -> Recorded:
        return decode_event(
            str(stored_event.originator_id), stored_event.originator_version, stored_event.topic, stored_event.state
        )


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


class EventLog(Application[str]):
    """The events of one store, with the library's API: `repository`, `notification_log`, `recorder`."""

    name = "bread"

    def __init__(self, database: str) -> None:
        super().__init__(
            {"SQLITE_DBNAME": database, "SQLITE_LOCK_TIMEOUT": str(LOCK_TIMEOUT), "ORIGINATOR_ID_TYPE": "text"}
        )

    def construct_env(self, name: str, env: EnvType | None = None) -> Environment:
        # The library would merge the environment of the process in; a store is what it was opened as.
        return Environment(name, env)

    def construct_factory(self, env: Environment) -> InfrastructureFactory[Any]:
        return EventFactory(env)

    def construct_mapper(self) -> EventMapper:
        return EventMapper(PlainTranscoder())

    def construct_recorder(self) -> ApplicationRecorder:
        return self.factory.application_recorder()
