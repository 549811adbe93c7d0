"""The demo's checks can fail: a broken promise is named, and the exit code is an error."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from bread import Bread
from bread.runtime.cli.demo import AGENT, INPUT, fetches, publisher
from bread.runtime.cli.demo_checks import Promises, check_run


async def finished(bread: Bread) -> str:
    """A demo run that was answered and has ended."""
    run_id = await bread.start(AGENT, INPUT)
    async for crumb in bread.observe(run_id):
        if crumb.type == "human:required":
            await bread.resume(crumb.checkpoint_id, {"approved": True}, author="ann")
    return run_id


def execute_twice(database: Path) -> None:
    """Make the file in which the tool counts say that everything was executed once more."""
    marks = fetches(database)
    marks.write_text(marks.read_text() * 2)


async def test_broken_promises_are_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """C6, B156: PROMISE_BROKEN, once for the tool that ran twice and once for the log that does not verify."""
    database = tmp_path / "bread.db"
    async with Bread(agents=[publisher(database)], store=f"sqlite:///{database}") as bread:
        run_id = await finished(bread)
        kept = Promises()
        await check_run(bread, database, run_id, kept)
        assert kept.broken == []
        assert kept.code() == 0

        execute_twice(database)
        with sqlite3.connect(database) as connection:
            connection.execute("UPDATE bread_runs SET status = 'failed' WHERE id = ?", (run_id,))
        connection.close()
        broken = Promises()
        await check_run(bread, database, run_id, broken)
        assert [promise.partition(":")[0] for promise in broken.broken] == [
            "fetch_draft was not run twice",
            "the log verifies",
        ]
        capsys.readouterr()
        assert broken.code() == 1
        assert capsys.readouterr().err.count("PROMISE_BROKEN") == 2
