"""Stores that are foreign, broken, full or locked: one clear error with a code, and nothing lost or half-written."""

from __future__ import annotations

import asyncio
import os
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from bread import Bread, StoreUnavailable, StoreUnreadable, define_tool
from bread.runtime import sqlite as sqlite_store
from bread.runtime import sqlite_log
from bread.runtime.sqlite import SQLiteStore
from bread.testing import call, text
from scenes import (
    ONLY_FILE,
    Checked,
    Counter,
    Gate,
    OpenBread,
    agent,
    ask_first,
    asking,
    asks,
    ended,
    engine_of,
    names,
    questions,
    refused,
)
from support import read, types


def content(folder: Path) -> dict[str, bytes]:
    """Every file below a folder with what is in it, and every folder."""
    return {str(path.relative_to(folder)): path.read_bytes() if path.is_file() else b"" for path in folder.rglob("*")}


def text_file(path: Path) -> None:
    path.write_text("Dear diary, today I was opened by a runtime for agents.\n" * 100)


def foreign_database(path: Path) -> None:
    connection = sqlite3.connect(path)
    connection.executescript("CREATE TABLE stored_events (mine TEXT); INSERT INTO stored_events VALUES ('keep')")
    connection.close()


def marked_database(path: Path) -> None:
    connection = sqlite3.connect(path)
    connection.executescript("PRAGMA application_id = 77; CREATE TABLE t (a)")
    connection.close()


def newer_database(path: Path) -> None:
    connection = sqlite3.connect(path)
    connection.executescript(
        f"PRAGMA application_id = {sqlite_log.APPLICATION_ID};"
        f"PRAGMA user_version = {sqlite_log.SCHEMA_VERSION + 1}; CREATE TABLE t (a)"
    )
    connection.close()


def cut_database(path: Path) -> None:
    foreign_database(path)
    path.write_bytes(path.read_bytes()[:50])


def broken_header(path: Path) -> None:
    foreign_database(path)
    path.write_bytes(os.urandom(40) + path.read_bytes()[40:])


@pytest.mark.parametrize(
    "make", [text_file, foreign_database, marked_database, newer_database, cut_database, broken_header]
)
async def test_a_file_that_is_not_ours_is_refused_and_left_alone(tmp_path: Path, make: Any) -> None:
    """Q STORE_INVALID: a text, another program's database, a newer release's, a damaged one; not a byte is changed."""
    path = tmp_path / "data.db"
    make(path)
    before = content(tmp_path)
    bread = Bread(agents=[agent(asks(), asking())], store=f"sqlite:///{path}")
    with pytest.raises(StoreUnreadable) as caught:
        await bread.open()
    assert caught.value.code == "STORE_INVALID"
    assert str(path) in caught.value.message
    with refused("NOT_OPEN"):
        await bread.list_runs()
    await bread.close()
    assert content(tmp_path) == before


async def test_a_folder_is_no_file(tmp_path: Path) -> None:
    """Q STORE_UNAVAILABLE: a directory as path, and a folder that cannot be made."""
    (tmp_path / "file").write_text("in the way")
    before = content(tmp_path)
    for path in (tmp_path, tmp_path / "file" / "below" / "bread.db"):
        bread = Bread(store=f"sqlite:///{path}")
        with pytest.raises(StoreUnavailable) as caught:
            await bread.open()
        assert str(path if path == tmp_path else path.parent) in caught.value.message
        await bread.close()
    assert content(tmp_path) == before


async def test_a_folder_that_cannot_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Q STORE_UNAVAILABLE: told at once, not with the first run."""
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    bread = Bread(store=f"sqlite:///{tmp_path}/bread.db")
    with pytest.raises(StoreUnavailable, match="permission denied"):
        await bread.open()
    assert content(tmp_path) == {}


async def test_locks_that_cannot_be_held_are_told_at_the_start(tmp_path: Path) -> None:
    """Q STORE_UNAVAILABLE: without its lock a process would be taken for dead."""
    (tmp_path / "bread.db-workers").write_text("in the way")
    bread = Bread(store=f"sqlite:///{tmp_path}/bread.db")
    with refused("STORE_UNAVAILABLE"):
        await bread.open()
    (tmp_path / "bread.db-workers").unlink()
    async with Checked(agents=[agent([[text("Hi.")]])], store=f"sqlite:///{tmp_path}/bread.db") as bread:
        assert await bread.run("a", "go") == "Hi."


async def test_an_empty_file_becomes_a_store(tmp_path: Path) -> None:
    """Q STORE_INVALID: is not said of a file that holds nothing; missing folders are made."""
    (tmp_path / "empty.db").touch()
    for path in (tmp_path / "empty.db", tmp_path / "a" / "b" / "bread.db"):
        async with Checked(agents=[agent([[text("Hi.")]])], store=f"sqlite:///{path}") as bread:
            assert await bread.run("a", "go") == "Hi."


# --- damage in the log ------------------------------------------------------------------------------------------------


@ONLY_FILE
async def test_damage_in_the_middle_of_a_file_is_told_and_changes_nothing(
    open_bread: OpenBread, tmp_path: Path
) -> None:
    """Q STORE_INVALID: what can still be read is read; a write that meets the damage is refused."""
    path = tmp_path / "bread.db"
    many = agent([[text("word " * 400)]])
    async with open_bread(many) as bread:
        runs = [(await read(bread.run("a", "go", session=f"s{n}")))[0].run_id for n in range(30)]
    whole = path.read_bytes()
    pages = len(whole) // 4096
    damaged = bytearray(whole)
    for page in range(pages // 2, pages - 2):
        damaged[page * 4096 : page * 4096 + 64] = b"\xff" * 64
    path.write_bytes(damaged)
    bread = Bread(agents=[many], store=f"sqlite:///{path}")
    await bread.open()
    codes = set()
    for run_id in runs:
        for look in (bread.get_run, bread.cancel):
            try:
                await look(run_id)
            except StoreUnreadable as error:
                codes.add(error.code)
    with pytest.raises(StoreUnreadable):
        await bread.check()
    await bread.close()
    assert codes == {"STORE_INVALID"}
    path.write_bytes(whole)
    async with open_bread(many) as bread:
        assert (await bread.get_run(runs[-1])).status == "completed"


def change(path: Path, statement: str, *values: Any) -> None:
    connection = sqlite3.connect(path)
    with connection:
        assert connection.execute(statement, values).rowcount == 1
    connection.close()


@ONLY_FILE
@pytest.mark.parametrize(
    ("statement", "code"),
    [
        ("UPDATE stored_events SET topic = 'run.teleported@1' WHERE topic = 'run.suspended@1'", "EVENT_UNKNOWN"),
        ("UPDATE stored_events SET topic = 'run.suspended@9' WHERE topic = 'run.suspended@1'", "EVENT_UNKNOWN"),
        ("UPDATE stored_events SET state = x'00' WHERE topic = 'run.suspended@1'", "PROTOCOL_DECODE_ERROR"),
        ("UPDATE stored_events SET state = x'93' WHERE topic = 'run.suspended@1'", "PROTOCOL_DECODE_ERROR"),
        ("DELETE FROM stored_events WHERE topic = 'run.suspended@1'", "STORE_INVALID"),
    ],
    ids=["name", "version", "envelope", "cut", "gap"],
)
async def test_an_event_that_cannot_be_read_stops_its_run_loudly_and_nothing_else(
    open_bread: OpenBread, tmp_path: Path, statement: str, code: str
) -> None:
    """Q EVENT_UNKNOWN, Q PROTOCOL_DECODE_ERROR, Q STORE_INVALID: it is never failed; nothing is written to it."""
    asker = agent(asks(), asking()), agent([[text("Hi.")]], id="b")
    async with open_bread(*asker) as bread:
        asked = await ask_first(bread)
    path = tmp_path / "bread.db"
    change(path, statement)
    before = content(tmp_path)["bread.db"]
    bread = Bread(agents=asker, store=f"sqlite:///{path}")
    await bread.open()
    looks: list[Callable[[], Any]] = [
        lambda: bread.get_run(asked.run_id),
        lambda: bread.cancel(asked.run_id),
        lambda: read(bread.resume(asked.checkpoint_id, "yes")),
    ]
    if code != "STORE_INVALID":  # a conversation is read without folding a state, which alone sees a gap
        looks.append(lambda: bread.sessions.messages(asked.session_id))
    for look in looks:
        with pytest.raises(StoreUnreadable) as caught:
            await look()
        assert caught.value.code == code
    report = await bread.check()
    assert not report.ok
    assert any(asked.run_id in problem for problem in report.problems)
    assert await bread.run("b", "go") == "Hi."
    assert (await bread.list_runs(agent="a")).items[0].status == "suspended"
    await bread.close()
    assert path.read_bytes() != before  # the other run was written


# --- a full disk ------------------------------------------------------------------------------------------------------


def fill(bread: Bread, pages: int | None = None) -> None:
    """The disk is full: the file cannot grow beyond what it has now. With `pages` there is room again."""
    store = engine_of(bread).journal.store
    assert isinstance(store, SQLiteStore)
    with store._writing:
        used = store._writer.execute("PRAGMA page_count").fetchone()[0]
        store._writer.execute(f"PRAGMA max_page_count = {pages or used}")


ROOM = 1_000_000
BIG = "x" * 200_000


@ONLY_FILE
async def test_a_start_on_a_full_disk_is_undecided_and_writes_nothing(open_bread: OpenBread) -> None:
    """Q STORE_UNAVAILABLE: with the reason; the same request goes through when there is room."""
    async with open_bread(agent([[text("Hi.")]])) as bread:
        await bread.run("a", "small")
        fill(bread)
        with refused("STORE_UNAVAILABLE") as caught:
            await bread.start("a", BIG, session="s1", idempotency_key="k")
        assert "full" in caught.value.message
        assert len((await bread.list_runs()).items) == 1
        with refused("SESSION_NOT_FOUND"):
            await bread.sessions.get("s1")
        assert (await bread.check()).ok
        fill(bread, ROOM)
        run_id = await bread.start("a", BIG, session="s1", idempotency_key="k")
        assert await bread.observe(run_id) == "Hi."


@ONLY_FILE
async def test_an_answer_on_a_full_disk_leaves_its_question(open_bread: OpenBread) -> None:
    """Q STORE_UNAVAILABLE: no claim without its answer; sent again it counts, once."""
    async with open_bread(agent(asks(), asking())) as bread:
        asked = await ask_first(bread)
        before = await names(bread, asked.run_id)
        fill(bread)
        with refused("STORE_UNAVAILABLE"):
            await bread.resume(asked.checkpoint_id, BIG)
        assert await names(bread, asked.run_id) == before
        assert (await bread.get_checkpoint(asked.checkpoint_id)).status == "pending"
        fill(bread, ROOM)
        assert await bread.resume(asked.checkpoint_id, BIG) == "Thanks."


@ONLY_FILE
async def test_outcomes_wait_for_room_on_the_disk(open_bread: OpenBread) -> None:
    """Q STORE_UNAVAILABLE, B26: results of tools and turns of the model are kept until they can be written."""
    gate, ran = Gate(), Counter()

    @define_tool
    async def fetch(n: int) -> str:
        ran(n)
        await gate()
        return BIG

    script = [
        [call("tool_fetch", {"n": 1}), call("tool_fetch", {"n": 2}), call("human_ask")],
        [text(BIG), call("human_ask", {"q": 2})],
        [text("Done.")],
    ]
    async with open_bread(agent(script, fetch, asking())) as bread:
        run_id = await bread.start("a", "go")
        await gate.reached.wait()
        fill(bread)
        gate.open()
        with refused("STORE_UNAVAILABLE"):
            await bread.start("a", BIG)
        (first,) = (await bread.list_checkpoints()).items
        assert "tool_returned" not in await names(bread, run_id)
        fill(bread, ROOM)
        asked = questions(await read(bread.observe(run_id, until="rest")))
        assert [one.checkpoint_id for one in asked] == [first.id]
        crumbs = await read(bread.resume(first.id, "yes"))
        assert types(crumbs) == ["human:resumed", "text:delta", "human:required"]
        assert await bread.resume(questions(crumbs)[0].checkpoint_id, "yes") == "Done."
        assert types(await ended(bread, run_id)).count("tool:result") == 2
    assert ran.of == {1: 1, 2: 1}


@ONLY_FILE
async def test_one_that_does_not_fit_takes_no_other_with_it(open_bread: OpenBread) -> None:
    """Q STORE_UNAVAILABLE: of commits that wait together, those that fit are written, and only they."""
    async with open_bread(agent([[text("Hi.")]])) as bread:
        await bread.run("a", "small")
        fill(bread)
        outcomes = await asyncio.gather(
            *(bread.start("a", BIG if n % 3 == 0 else "s", session=f"s{n}") for n in range(9)),
            return_exceptions=True,
        )
        fill(bread, ROOM)
        codes = [getattr(one, "code", "ok") for one in outcomes]
        assert [codes[n] for n in (0, 3, 6)] == ["STORE_UNAVAILABLE"] * 3
        assert set(codes) <= {"ok", "STORE_UNAVAILABLE"}
        started = {one for one in outcomes if isinstance(one, str)}
        assert len((await bread.list_runs()).items) == 1 + len(started)
        assert started <= {run.id for run in (await bread.list_runs()).items}
        for run_id in started:
            assert await bread.observe(run_id) == "Hi."


# --- a store that is locked -------------------------------------------------------------------------------------------


@ONLY_FILE
async def test_a_store_that_somebody_holds_is_undecided(
    open_bread: OpenBread, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Q STORE_UNAVAILABLE: no lock error reaches anybody; reads go on, and the same request works afterwards."""
    async with open_bread(agent([[text("Hi.")]])) as bread:
        await bread.run("a", "go")
        store = engine_of(bread).journal.store
        assert isinstance(store, SQLiteStore)
        monkeypatch.setattr(sqlite_store, "LOCK_TIMEOUT", 0)
        store._writer.execute("PRAGMA busy_timeout = 0")
        holder = sqlite3.connect(tmp_path / "bread.db", isolation_level=None)
        holder.execute("BEGIN IMMEDIATE")
        with refused("STORE_UNAVAILABLE") as caught:
            await bread.start("a", "go", session="s1", idempotency_key="k")
        assert "another process" in caught.value.message
        assert len((await bread.list_runs()).items) == 1
        holder.execute("ROLLBACK")
        holder.close()
        monkeypatch.undo()
        assert await bread.run("a", "go", session="s1", idempotency_key="k") == "Hi."
