"""The stores that several processes can share, and what a test does to them without bread's own doors."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import AbstractContextManager, closing, contextmanager, suppress
from pathlib import Path
from typing import Any, LiteralString, Protocol

import psycopg
import pytest

from bread.runtime.postgres_sql import PostgresCursor
from bread.runtime.sql import Cursor
from nats_server import emptied
from postgres import store_at
from support import trials

STORES = ("sqlite", "postgres")
# The last one is PostgreSQL, with NATS between the processes.
WITH_NATS = (*STORES, "nats")
KINDS = WITH_NATS if trials(1, 20) > 1 else STORES
# What is about a file and its locks by nature, and has no other side.
ON_FILES = pytest.mark.parametrize("shared", ["sqlite"], indirect=True)
ON_SERVERS = pytest.mark.parametrize("shared", KINDS[1:], indirect=True)
# What stands for its kind also where time is short.
ALSO_WITH_NATS = pytest.mark.parametrize("shared", WITH_NATS, indirect=True)
# What is about processes that hear each other by the store alone.
BY_THE_STORE = pytest.mark.parametrize("shared", STORES, indirect=True)
# What is decided before a store is asked: on PostgreSQL, too, where there is time for it.
AT_LEISURE = pytest.mark.parametrize("shared", KINDS if trials(1, 20) > 1 else KINDS[:1], indirect=True)


class Shared(Protocol):
    """A store, and how it looks to somebody who is no process of bread."""

    url: str
    kind: str
    spec: dict[str, Any]
    """What its processes are told beside its URL."""

    def exists(self) -> bool:
        """Whether somebody has made its tables."""

    def read(self) -> AbstractContextManager[Cursor]:
        """One view of all of it."""

    def write(self) -> AbstractContextManager[Cursor]:
        """Under the lock of the log: no process of bread writes meanwhile."""

    def is_gone(self, worker: str) -> None:
        """A process has died. From now on everybody can see that."""

    def give_up(self, worker: str) -> None:
        """A process counts as dead for all others, although it lives. Its heart is not heard any more."""

    def holds(self, text: str) -> bool:
        """Whether it says this anywhere."""


class SqliteFile:
    kind = "sqlite"

    def __init__(self, file: Path) -> None:
        self.file, self.url = file, f"sqlite:///{file}"
        self.spec: dict[str, Any] = {}

    def exists(self) -> bool:
        return self.file.exists()

    @contextmanager
    def read(self, begin: str = "BEGIN") -> Iterator[Cursor]:
        with closing(sqlite3.connect(self.file, isolation_level=None)) as connection:
            cursor = connection.cursor()
            cursor.execute(begin)
            yield cursor
            cursor.execute("COMMIT")

    def write(self) -> AbstractContextManager[Cursor]:
        return self.read("BEGIN IMMEDIATE")

    def is_gone(self, worker: str) -> None:
        return  # the kernel has let go of its lock

    def give_up(self, worker: str) -> None:
        (self.file.parent / f"{self.file.name}-workers" / f"{worker}.lock").unlink()

    def holds(self, text: str) -> bool:
        files = [file for file in self.file.parent.glob(f"{self.file.name}*") if file.is_file()]
        return any(text.encode() in file.read_bytes() for file in files)


class PostgresSchema:
    """A schema of its own. Beats are frequent, and old only where a test says so: that stands for the time that passes.

    A test never waits until a beat is old, and so it does not matter how long a busy machine holds a process up.
    """

    kind = "postgres"

    def __init__(self, url: str, **spec: Any) -> None:
        self.url = url
        self.spec: dict[str, Any] = {"heartbeat": [0.2, 60.0], **spec}

    def exists(self) -> bool:
        with self._connect() as connection:
            return connection.execute("SELECT to_regclass('stored_events') IS NOT NULL").fetchall() == [(True,)]

    @contextmanager
    def read(self, *begin: str) -> Iterator[Cursor]:
        with self._connect() as connection, connection.pipeline():
            cursor = PostgresCursor(connection)
            for statement in begin or ("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY",):
                cursor.native(statement)
            yield cursor
            cursor.native("COMMIT")

    @contextmanager
    def write(self) -> Iterator[Cursor]:
        with self.read("BEGIN", "LOCK TABLE stored_events IN EXCLUSIVE MODE") as cursor:
            yield cursor
            said = "SELECT pg_notify('bread_' || current_schema(), 'w_of_the_future ' || max(rowid)) FROM stored_events"
            cursor.execute(said)

    def is_gone(self, worker: str) -> None:
        # What it had sent before it died has been carried out, or is void, when its sessions are gone.
        self._age(worker, "SELECT 1 FROM pg_stat_activity WHERE application_name = %s")

    def give_up(self, worker: str) -> None:
        self._age(worker, "SELECT 1 FROM pg_stat_activity WHERE application_name = %s AND state = 'active'")

    def _age(self, worker: str, busy: LiteralString) -> None:
        with self._connect() as connection, suppress(psycopg.errors.UndefinedTable):
            while connection.execute(busy, [f"bread {worker}"]).fetchone():
                pass
            connection.execute("UPDATE bread_workers SET beat = beat - interval '1 hour' WHERE worker = %s", [worker])

    def holds(self, text: str) -> bool:
        """In a row, that is: what rows have left on the server's disk is for its vacuum."""
        forms = [text, text.encode().hex()]
        with self._connect() as connection:
            tables = connection.execute("SELECT tablename FROM pg_tables WHERE schemaname = current_schema()")
            rows = [
                row[0]
                for [table] in tables.fetchall()
                for row in connection.execute(f"SELECT t::text FROM {table} t")  # noqa: S608
            ]
        assert rows
        return any(form in row for row in rows for form in forms)

    def _connect(self) -> psycopg.Connection[Any]:
        return psycopg.connect(self.url, autocommit=True)


def trials_on(shared: Shared, quick: int, soak: int) -> int:
    """As `trials`; half as many on PostgreSQL where time is short, and a fifth with NATS where there is time for all,
    since most of what happens is the same."""
    return trials(quick if shared.kind == "sqlite" else (quick + 1) // 2, soak // 5 if "nats" in shared.spec else soak)


def place_of(shared: Shared) -> dict[str, Any]:
    """Options for a Bread of the test's own process that shares it."""
    return {"store": shared.url, "nats": shared.spec.get("nats")}


def beats_of(shared: Shared) -> dict[str, Any]:
    """The same for one that has to see at once that another process is gone."""
    return place_of(shared) | ({"heartbeat": tuple(shared.spec["heartbeat"])} if "heartbeat" in shared.spec else {})


def shared_at(kind: str, folder: Path) -> Shared:
    """An empty store; the same one for the same folder."""
    if kind == "sqlite":
        return SqliteFile(folder / "bread.db")
    return PostgresSchema(store_at(folder), **({"nats": emptied().url} if kind == "nats" else {}))
