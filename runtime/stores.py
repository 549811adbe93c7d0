"""Which database a store is, by its URL, and who is alive on it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

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


def open_store(
    store: str, worker: str, heartbeat: tuple[float, float], options: dict[str, Any]
) -> tuple[StoreJournal, Liveness]:
    """The journal of a store, and who is alive on it. Blocks; raises what keeps it from opening."""
    if is_postgres(store):
        try:
            from .heartbeat import Heartbeats
            from .postgres_journal import PostgresJournal
        except ImportError as error:
            raise InvalidInput(
                "INPUT_INVALID",
                f"PostgreSQL needs a package ({error.name} is missing): pip install 'bread-runtime[postgres]'",
            ) from error
        journal = PostgresJournal(store, worker, **options)
        every, stale = heartbeat
        return journal, Heartbeats(journal.store.address, worker, every=every, stale=stale)
    from .liveness import Alone, FileLocks
    from .sqlite_journal import SQLiteJournal

    path = store_path(store)
    liveness: Liveness = Alone(worker) if path is None else FileLocks(path, worker)
    return SQLiteJournal(path, worker, **options), liveness
