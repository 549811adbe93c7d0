"""The journal on PostgreSQL."""

from __future__ import annotations

from typing import Any

from .postgres import PostgresStore
from .postgres_open import open_postgres
from .store_journal import StoreJournal


class PostgresJournal(StoreJournal):
    """On a store that is given by its URL, as libpq reads it."""

    store: PostgresStore

    def __init__(self, url: str, worker: str, **options: Any) -> None:
        super().__init__(open_postgres(url, worker), worker, **options)
