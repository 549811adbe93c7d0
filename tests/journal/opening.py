"""How a kit opens journals and looks into them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from bread.runtime.store_journal import StoreJournal

from .desk import Desk, Gate

VIEWS = ("bread_log", "bread_runs", "bread_checkpoints", "bread_sessions", "bread_tags")


class Opening:
    """How an adapter's journals are made and looked into; adapters say `make`."""

    def make(self, place: Path, worker: str, **options: Any) -> StoreJournal:
        raise NotImplementedError

    @asynccontextmanager
    async def open(self, place: Path, worker: str = "w_a", **options: Any) -> AsyncIterator[Desk]:
        journal = self.make(place, worker, **options)
        await journal.open()
        try:
            yield Desk(journal)
        finally:
            if isinstance(gate := options.get("fault"), Gate):
                gate.let_go()
            await journal.close()

    def execute(self, desk: Desk, statement: str) -> None:
        """Damage the store behind the journal's back."""
        with desk.journal.store.write() as tx:
            tx.cursor.execute(statement)
            tx.wrote = True

    async def views(self, desk: Desk) -> dict[str, list[tuple[Any, ...]]]:
        """Every row of every view."""

        def rows(cursor: Any) -> dict[str, list[tuple[Any, ...]]]:
            found = {}
            for table in VIEWS:
                cursor.execute(f"SELECT * FROM {table}")  # noqa: S608
                found[table] = sorted(map(tuple, cursor.fetchall()), key=repr)
            return found

        return await desk.journal.ask(rows)

    @pytest.fixture
    def gate(self) -> Gate:
        return Gate()

    @pytest.fixture
    async def desk(self, tmp_path: Path, gate: Gate) -> AsyncIterator[Desk]:
        async with self.open(tmp_path, fault=gate) as desk:
            yield desk


async def is_sound(desk: Desk) -> None:
    """The log agrees with itself and the views with the log."""
    report = await desk.journal.check()
    assert report.problems == []
