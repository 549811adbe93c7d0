"""`bread doctor` on PostgreSQL: what it looks at, what it says to do, and that it makes no table."""

from __future__ import annotations

import socket
import time
from pathlib import Path
from typing import Any

import psycopg
import pytest

import cli_agents
from bread import Bread
from bread.runtime import postgres_url
from bread.runtime.cli import checks_postgres
from bread.runtime.cli.checks import Finding
from bread.runtime.cli.place import Place
from cli_kit import Shell, error_line
from postgres import server, store_at

APP = "cli_agents:everybody"
ALL = ["store", "rights", "workers", "clocks", "connections", "durability"]


@pytest.fixture
def store(tmp_path: Path) -> str:
    return store_at(tmp_path)


async def found(store: str, *, deep: bool = False) -> dict[str, Finding]:
    return {one.what: one async for one in checks_postgres.database(Place(store, None), deep=deep)}


def execute(store: str, statement: str, *values: Any) -> None:
    with psycopg.connect(store, autocommit=True) as connection:
        connection.execute(statement.encode(), values)


def count_tables(store: str) -> int:
    with psycopg.connect(store) as connection:
        row = connection.execute("SELECT count(*) FROM pg_tables WHERE schemaname = current_schema()").fetchone()
    assert row is not None
    return int(row[0])


async def test_a_store_is_looked_into_and_left_as_it_is(shell: Shell, store: str) -> None:
    """B156: a line for each check; before there are tables none is made; then how many questions wait."""
    empty = shell.plain("--store", store, "--app", APP, "doctor")
    assert empty.code == 0, empty
    assert "whose tables `bread migrate` or the first run makes" in empty.out
    assert count_tables(store) == 0
    async with Bread(agents=cli_agents.everybody, store=store, executes=False) as bread:
        left = await bread.start("asker", "x")
    done = shell.plain("--store", store, "--app", APP, "doctor", "--json", "--deep")
    assert (done.code, done.err) == (0, "")
    checks = {check["what"]: check for check in done.json["checks"]}
    assert set(checks) >= {*ALL, "log", "transport", "clock"}
    with psycopg.connect(store) as connection:
        where = f"PostgreSQL {connection.info.parameter_status('server_version')} bread@127.0.0.1"
    assert checks["store"]["detail"].startswith(where)
    assert checks["store"]["detail"].endswith("questions that wait: 0")
    assert checks["workers"] == {
        "state": "warn",
        "what": "workers",
        "detail": "0 living; runs that nobody performs: 1",
        "toDo": "bread start",
    }
    assert not {"disk", "locks"} & set(checks)
    runs = shell.plain("--store", store, "runs", "list", "--json").json["items"]
    assert [(run["id"], run["status"]) for run in runs] == [(left, "running")]


async def test_workers_by_their_beats(store: str) -> None:
    """B156, C56: who beats is living, who has been silent for longer than a beat may be old is not; who left in order
    is neither."""
    async with Bread(agents=cli_agents.everybody, store=store):
        execute(store, "INSERT INTO bread_workers (worker, beat) VALUES ('w_dead', now() - interval '1 minute')")
        execute(store, "INSERT INTO bread_workers (worker, beat) VALUES ('w_left', 'epoch')")
        workers = (await found(store))["workers"]
        assert (workers.state, workers.detail) == ("ok", "1 living, 1 silent for more than 15 s")
    workers = (await found(store))["workers"]
    assert (workers.state, workers.detail) == ("ok", "0 living, 1 silent for more than 15 s")


async def test_damage_is_found_in_the_depth(store: str) -> None:
    """B156: a log that is not whole fails."""
    async with Bread(agents=cli_agents.everybody, store=store, executes=False) as bread:
        await bread.start("asker", "x")
    execute(store, "DELETE FROM bread_runs")
    assert "log" not in await found(store)
    log = (await found(store, deep=True))["log"]
    assert (log.state, log.code) == ("fail", "LOG_DAMAGED")


@pytest.mark.parametrize(
    ("says", "what", "state", "words"),
    [
        ({"ahead": 3.0}, "clocks", "ok", "agree"),
        ({"ahead": 90.0}, "clocks", "warn", "90 s ahead of"),
        ({"ahead": -7.0}, "clocks", "warn", "7 s behind"),
        ({"left": 16}, "connections", "ok", "16 are left"),
        ({"left": 15}, "connections", "warn", "15 are left"),
        ({"fsync": "on", "full_page_writes": "on"}, "durability", "ok", "on the disk"),
        ({"fsync": "off", "full_page_writes": "on"}, "durability", "warn", "fsync off"),
        ({"synchronous_commit": "off", "fsync": "on"}, "durability", "warn", "synchronous_commit off"),
    ],
    ids=["near", "ahead", "behind", "many", "few", "durable", "fsync", "commit"],
)
async def test_what_a_server_says_of_itself(
    store: str, monkeypatch: pytest.MonkeyPatch, says: dict[str, Any], what: str, state: str, words: str
) -> None:
    """B156: clocks that differ, connections that run out, unsafe settings; each with what to do."""
    real = checks_postgres._server
    monkeypatch.setattr(checks_postgres, "_server", lambda connection: real(connection)._replace(**says))
    finding = (await found(store))[what]
    assert (finding.state, bool(finding.to_do)) == (state, state == "warn")
    assert words in finding.detail


async def test_what_is_really_asked(store: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """B156: of this server and this clock. Sessions of bread wait for the disk, whatever the server's default is."""
    says = checks_postgres.ask(postgres_url.Address(store, "doctor"), checks_postgres._server)
    assert (says.fsync, says.full_page_writes, says.synchronous_commit, says.may_create) == ("off", "off", "on", True)
    assert 0 < says.left < 400
    assert abs(says.ahead) < 1
    real = time.time
    monkeypatch.setattr(time, "time", lambda: real() - 100)
    ahead = checks_postgres.ask(postgres_url.Address(store, "doctor"), checks_postgres._server).ahead
    assert 99 < ahead < 101


async def test_a_server_that_is_too_old_or_writes_otherwise(store: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """B156: STORE_INVALID, which version, and which is needed; another encoding than UTF8."""
    with monkeypatch.context() as patch:
        patch.setattr(postgres_url, "OLDEST", 990000)
        old = (await found(store))["store"]
    assert (old.state, old.code) == ("fail", "STORE_INVALID")
    assert "bread needs 99 or newer" in old.detail
    execute(server().url(), "CREATE DATABASE latin TEMPLATE template0 ENCODING 'LATIN1' LOCALE 'C'")
    latin = (await found(server().url("latin")))["store"]
    assert (latin.state, latin.code) == ("fail", "STORE_INVALID")
    assert "encoded in LATIN1, bread needs UTF8" in latin.detail


def test_a_server_that_is_not_there(shell: Shell) -> None:
    """B156: what is wrong with the way to it, and what to do; the other checks go on."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    for store, help in (
        (f"postgresql://bread@127.0.0.1:{port}/bread", "start the server"),
        (server().url("missing"), "make it (createdb, createuser)"),
        (server().url().replace("bread@", "nobody_here@"), "make it (createdb, createuser)"),
        ("postgresql://bread@db.invalid/bread", "name the right host"),
    ):
        done = shell.plain("--store", store, "doctor")
        assert (done.code, error_line(done)[0]) == (1, "STORE_UNAVAILABLE"), done
        [line] = [line for line in done.out.splitlines() if line.startswith("fail  store: ")]
        assert f"-> {help}" in line
        assert [line for line in done.out.splitlines() if line.startswith("ok    transport: ")]
