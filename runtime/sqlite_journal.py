"""The journal on SQLite."""

from __future__ import annotations

from typing import Any

from .sqlite import SQLiteStore
from .sqlite_open import open_sqlite
from .store_journal import StoreJournal


class SQLiteJournal(StoreJournal):
    """`path` None keeps everything in memory, for as long as this object lives."""

    store: SQLiteStore

    def __init__(self, path: str | None, worker: str, **options: Any) -> None:
        super().__init__(open_sqlite(path, worker), worker, **options)
