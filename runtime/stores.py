"""Which database a store is, by its URL, and who is alive on it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from ..domain.errors import InvalidInput

if TYPE_CHECKING:
    from .liveness import Liveness
    from .store_journal import StoreJournal

DEFAULT_STORE = "sqlite:///.bread/bread.db"
HEARTBEAT = (5.0, 15.0)  # on PostgreSQL: seconds between two beats, and until a worker that is silent counts as dead
_FILE = "sqlite:///"
_MEMORY = "memory://"
_POSTGRES = ("postgresql://", "postgres://")
EXPECTED = "expected sqlite:///path/to/file.db, postgresql://user@host/database or memory://"


def check_store(store: str) -> None:
    """INPUT_INVALID for what is no store. What was given is not said: it may hold a password."""
    if store != _MEMORY and not is_postgres(store) and not (store.startswith(_FILE) and len(store) > len(_FILE)):
        raise InvalidInput("INPUT_INVALID", f"store: {EXPECTED}")


def is_postgres(store: str) -> bool:
    return store.startswith(_POSTGRES)


def store_path(store: str) -> str | None:
    """The database file of a store; None where it is none. INPUT_INVALID for what is no store."""
    check_store(store)
    return store.removeprefix(_FILE) if store.startswith(_FILE) else None


def shown_store(store: str) -> str:
    """Where a PostgreSQL store is, for people: what only its owner shall see is left out."""
    with driver():
        from .postgres_url import Address
    return Address(store, "").shown


def without_password(store: str) -> str:
    """The URL of a store less its passwords, for a command line that others may see."""
    if not is_postgres(store):
        return store
    place, found, query = re.sub(r"^(\w+://[^:@/?]*):[^@/]*@", r"\1@", store).partition("?")
    kept = [one for one in query.split("&") if unquote(one.partition("=")[0]) not in ("password", "sslpassword")]
    return f"{place}?{'&'.join(kept)}" if found and kept else place


def find_version(store: str) -> int | None:
    """The version of the tables of a PostgreSQL store, None where there are none; makes none."""
    with driver():
        from .postgres_open import find
        from .postgres_url import Address
    return find(Address(store, "look"))


def migrate_store(store: str) -> tuple[int | None, int | None]:
    """Bring the tables to this release. Gives the version that was there, None for no tables, and the one that is there
    now, None for a store that is made anew each time."""
    if is_postgres(store):
        with driver():
            from . import postgres_open
            from .postgres_sql import SCHEMA_VERSION
            from .postgres_url import Address
        return postgres_open.migrate(Address(store, "migrate")), SCHEMA_VERSION
    path = store_path(store)
    if path is None:
        return None, None
    from . import sqlite_open
    from .sqlite_log import SCHEMA_VERSION as NOW

    return sqlite_open.migrate(path), NOW


@contextmanager
def driver() -> Iterator[None]:
    """INPUT_INVALID where PostgreSQL's driver is not installed."""
    try:
        yield
    except ImportError as error:
        raise InvalidInput(
            "INPUT_INVALID",
            f"PostgreSQL needs a package ({error.name} is missing): pip install 'bread-runtime[postgres]'",
        ) from error


def open_store(
    store: str, worker: str, heartbeat: tuple[float, float], options: dict[str, Any]
) -> tuple[StoreJournal, Liveness]:
    """The journal of a store, and who is alive on it. Blocks; raises what keeps it from opening."""
    if is_postgres(store):
        with driver():
            from .heartbeat import Heartbeats
            from .postgres_journal import PostgresJournal
        journal = PostgresJournal(store, worker, **options)
        every, stale = heartbeat
        return journal, Heartbeats(journal.store.address, worker, every=every, stale=stale)
    from .liveness import Alone, FileLocks
    from .sqlite_journal import SQLiteJournal

    path = store_path(store)
    liveness: Liveness = Alone(worker) if path is None else FileLocks(path, worker)
    return SQLiteJournal(path, worker, **options), liveness
