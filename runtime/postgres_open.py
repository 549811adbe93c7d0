"""Opening a PostgreSQL store, and making its tables: once, however many processes start together."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psycopg

from ..domain.errors import StoreUnavailable, StoreUnreadable
from .postgres import PostgresStore
from .postgres_sql import SCHEMA_VERSION, create_events, create_views, in_our_terms
from .postgres_url import Address
from .postgres_watch import was_cut, watched

MIGRATION = 0x62726561  # "brea": the class of our advisory lock
MIGRATION_SECONDS = 600.0  # how long to wait for it, and for each statement below it


def open_postgres(url: str, worker: str) -> PostgresStore:
    """Open a store; makes its tables where they are missing.

    Raises StoreUnavailable where the server cannot be reached or does not let us in, and StoreUnreadable
    (STORE_INVALID) for one that is too old, of a newer release, or has tables of another program.
    """
    address = Address(url, worker)
    migrate(address)
    with _connected(address) as connection, watched(connection):
        schema = str(_one(connection, "SELECT current_schema()"))
    return PostgresStore(address, schema, worker)


def find(address: Address) -> int | None:
    """The version of the tables, None where there are none; changes nothing. Raises as `open_postgres`."""
    with _connected(address) as connection, watched(connection):
        return _version(connection)


def migrate(address: Address) -> int | None:
    """Bring the tables to this release. Gives the version that was found, None where there were none."""
    with _connected(address) as connection:
        with watched(connection):
            found = _version(connection)
        if found == SCHEMA_VERSION:
            return found
        with watched(connection, MIGRATION_SECONDS):
            # Waits for another process that is at it, then finds its work done: in a transaction that begins with the
            # lock held, since one that began before may still look at names as they were. The lock goes with the
            # connection.
            connection.execute("SET lock_timeout = 0")
            connection.execute("SET statement_timeout = 0")
            connection.execute("SELECT pg_advisory_lock(%s, hashtext(current_schema()))", (MIGRATION,))
            with connection.transaction():
                return _migrate(connection, address)


@contextmanager
def _connected(address: Address) -> Iterator[psycopg.Connection[Any]]:
    """A connection to a server that bread can work on; what it says is said in our terms."""
    with address.connect() as connection:
        try:
            with watched(connection):
                address.look(connection)
            yield connection
        except psycopg.Error as error:
            if was_cut(connection):
                raise StoreUnavailable(f"{address.shown} is silent") from error
            ours = in_our_terms(error)
            if ours is None:
                raise
            raise ours from error


def _migrate(connection: psycopg.Connection[Any], address: Address) -> int | None:
    found = _version(connection)
    if found is not None and found > SCHEMA_VERSION:
        raise StoreUnreadable(
            "STORE_INVALID",
            f"{address.shown} was written by a newer release (schema {found}, this one knows {SCHEMA_VERSION})",
        )
    if found is None:
        if _one(connection, "SELECT to_regclass('stored_events')") is not None:
            raise StoreUnreadable(
                "STORE_INVALID", f"{address.shown} has a table stored_events of another program; nothing was changed"
            )
        connection.execute("CREATE TABLE bread_schema (version BIGINT NOT NULL)")
        connection.execute("INSERT INTO bread_schema (version) VALUES (%s)", (SCHEMA_VERSION,))
        for statement in (*create_events(), *create_views()):
            connection.execute(statement, prepare=False)
    return found


def _version(connection: psycopg.Connection[Any]) -> int | None:
    if _one(connection, "SELECT to_regclass('bread_schema')") is None:
        return None
    version = _one(connection, "SELECT max(version) FROM bread_schema")
    return None if version is None else int(version)


def _one(connection: psycopg.Connection[Any], statement: str) -> Any:
    row = connection.execute(statement.encode()).fetchone()
    if row is None:
        raise StoreUnavailable("the database gave no answer")
    return row[0]
