"""Opening a SQLite store: what is not ours is refused before anything is written to it."""

from __future__ import annotations

import os
import sqlite3
import time
from pathlib import Path

from ..domain.errors import StoreUnavailable, StoreUnreadable
from .rebuild import fill
from .sql import VIEWS
from .sqlite import SQLiteStore, is_busy, translated
from .sqlite_log import APPLICATION_ID, LOCK_TIMEOUT, SCHEMA_VERSION, SQLiteEventLog, create_views


def open_sqlite(path: str | None, name: str) -> SQLiteStore:
    """Open or create a database file (None: in memory, under `name`).

    Raises StoreUnreadable (STORE_INVALID) for a file that is damaged, foreign, or of a newer release, and
    StoreUnavailable where it cannot be opened or written.
    """
    if path is None:
        database = f"file:{name}?mode=memory&cache=shared"
    else:
        file = Path(path).expanduser().absolute()
        try:
            file.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise StoreUnavailable(f"cannot make the folder {file.parent}: {error.strerror}") from error
        if not os.access(file if file.exists() else file.parent, os.W_OK):
            raise StoreUnavailable(f"cannot write {file}: permission denied")
        _check_file(file)
        database = file.as_uri()
    try:
        with translated():
            store = _open(database)
        _upgrade(store)
        return store
    except (StoreUnavailable, StoreUnreadable) as error:
        raise type(error)(*_opening(error, path)) from error


def migrate(path: str) -> int | None:
    """Bring a file to this release, or make it. Gives the version that was found, None where there was none."""
    found = _check_file(Path(path).expanduser().absolute())
    open_sqlite(path, "migrate").close()
    return found


def _open(database: str) -> SQLiteStore:
    # SQLite does not wait for others where a new file is switched to WAL, and many processes may open it at once.
    deadline = time.monotonic() + LOCK_TIMEOUT
    while True:
        try:
            return SQLiteStore(database, SQLiteEventLog(database))
        except Exception as error:
            cause = error if isinstance(error, sqlite3.Error) else error.__cause__
            if not isinstance(cause, sqlite3.Error) or not is_busy(cause) or time.monotonic() > deadline:
                raise
            time.sleep(0.005)


def _opening(error: StoreUnavailable | StoreUnreadable, path: str | None) -> tuple[str, ...]:
    message = f"cannot open {path or 'memory'}: {error.message}"
    return (message,) if isinstance(error, StoreUnavailable) else (error.code, message)


def _check_file(file: Path) -> int | None:
    """Refuse what is not ours before anything is written to it. Gives its version, None for an empty file or none."""
    if file.is_dir():
        raise StoreUnavailable(f"cannot open {file}: it is a folder")
    if not file.exists() or file.stat().st_size == 0:
        return None
    try:
        with translated():
            connection = sqlite3.connect(f"{file.as_uri()}?mode=ro", uri=True)
            try:
                connection.execute("BEGIN")  # one view of it: another process may be making it just now
                ours = connection.execute("PRAGMA application_id").fetchone()[0]
                version = int(connection.execute("PRAGMA user_version").fetchone()[0])
                tables = connection.execute("SELECT COUNT(*) FROM sqlite_master").fetchone()[0]
            finally:
                connection.close()
    except StoreUnreadable as error:
        raise StoreUnreadable("STORE_INVALID", f"{file} is not a bread database: {error.message}") from error
    if tables and ours != APPLICATION_ID:
        raise StoreUnreadable("STORE_INVALID", f"{file} is a database of another program; nothing was changed")
    if version > SCHEMA_VERSION:
        raise StoreUnreadable(
            "STORE_INVALID",
            f"{file} was written by a newer release (schema {version}, this one knows {SCHEMA_VERSION})",
        )
    return version if tables else None


def _upgrade(store: SQLiteStore) -> None:
    """Make the views of a file of an older release anew, in one transaction; nothing for one of this schema."""
    if _schema(store) == SCHEMA_VERSION:
        return
    with store.write() as tx:
        tx.cursor.execute("PRAGMA user_version")
        if tx.cursor.fetchone()[0] == SCHEMA_VERSION:
            return  # another process was faster
        for table in VIEWS:
            tx.cursor.execute(f"DROP TABLE {table}")
        for statement in create_views():
            tx.cursor.execute(statement)
        fill(tx.cursor)
        tx.wrote = True


def _schema(store: SQLiteStore) -> int:
    with store.read() as cursor:
        cursor.execute("PRAGMA user_version")
        return int(cursor.fetchone()[0])
