"""`bread migrate`: tables are made or brought to this release, once, however many processes are at it."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import psycopg
import pytest

from bread.runtime.postgres_sql import SCHEMA_VERSION
from bread.runtime.sqlite_log import SCHEMA_VERSION as SQLITE_VERSION
from cli_kit import PATIENCE, Done, Shell, environment, error_line
from forked import Forked
from postgres import server, store_at, with_password
from support import trials

VERSIONS = {"sqlite": SQLITE_VERSION, "postgres": SCHEMA_VERSION}


@pytest.fixture(params=["sqlite", "postgres"])
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def store(kind: str, shell: Shell, tmp_path: Path) -> str:
    return shell.store if kind == "sqlite" else store_at(tmp_path)


def migrate(shell: Shell, store: str, *words: str) -> Done:
    return shell.plain("--store", store, "migrate", *words)


def test_it_says_what_it_found_and_did(shell: Shell, store: str, kind: str) -> None:
    """B155: made, then up to date; as data, too; and the store works."""
    version = VERSIONS[kind]
    made = migrate(shell, store)
    assert (made.code, made.err) == (0, "")
    assert made.out.splitlines()[1] == f"there were no tables; now there are those of schema {version}"
    again = migrate(shell, store)
    assert again.out.splitlines()[1:] == [f"schema {version}: up to date"]
    data = migrate(shell, store, "--json").json
    assert (data["found"], data["schema"]) == (version, version)
    assert data["data"] == again.out.splitlines()[0].split("  ")[1].removeprefix("data: ")
    assert shell.plain("--store", store, "audit", "verify").out.splitlines()[1] == "0 streams, 0 events: sound"


def test_a_new_store_as_data(shell: Shell, store: str, kind: str) -> None:
    """B155: null where there was nothing; nothing is written where the store is made anew each time."""
    data = migrate(shell, store, "--json").json
    assert (data["found"], data["schema"]) == (None, VERSIONS[kind])
    assert "(new)" not in data["data"]
    memory = migrate(shell, "memory://")
    assert (memory.code, memory.out.splitlines()[1]) == (0, "nothing to migrate")
    assert migrate(shell, "memory://", "--json").json["schema"] is None


def test_many_processes_at_once(shell: Shell, store: str, kind: str) -> None:
    """B155: each ends well and finds the same tables; they were made once."""
    count = trials(12, 36)
    running = [
        Forked(
            ("-m", "bread.runtime.cli", "--store", store, "migrate", "--json"),
            cwd=shell.folder,
            env=environment(),
            stdin=subprocess.DEVNULL,
        )
        for _ in range(count)
    ]
    done = []
    for process in running:
        out, err = process.communicate(timeout=2 * PATIENCE)
        done.append(Done(process.returncode, out, err))
    assert [(one.code, one.err) for one in done] == [(0, "")] * count, done
    assert {one.json["schema"] for one in done} == {VERSIONS[kind]}
    found = [one.json["found"] for one in done]
    assert set(found) <= {None, VERSIONS[kind]}
    if kind == "postgres":
        assert found.count(None) == 1, "what was found is told under the lock"
        with psycopg.connect(store) as connection:
            assert connection.execute("SELECT version FROM bread_schema").fetchall() == [(SCHEMA_VERSION,)]
    assert migrate(shell, store).out.splitlines()[1] == f"schema {VERSIONS[kind]}: up to date"


def change(store: str, *statements: str) -> None:
    with psycopg.connect(store, autocommit=True) as connection:
        for statement in statements:
            connection.execute(statement.encode())


def test_a_newer_release_and_other_programs_are_left_alone(shell: Shell, tmp_path: Path) -> None:
    """B155: STORE_INVALID, exit code 1, and nothing is changed."""
    newer, other = store_at(tmp_path / "newer"), store_at(tmp_path / "other")
    assert migrate(shell, newer).code == 0
    change(newer, "UPDATE bread_schema SET version = version + 1")
    change(other, "CREATE TABLE stored_events (theirs TEXT)")
    for store, words in ((newer, "written by a newer release"), (other, "of another program")):
        done = migrate(shell, store)
        code, message = error_line(done)
        assert (done.code, code) == (1, "STORE_INVALID")
        assert words in message
    with psycopg.connect(other) as connection:
        tables: Any = connection.execute(
            "SELECT tablename FROM pg_tables WHERE schemaname = current_schema()"
        ).fetchall()
    assert tables == [("stored_events",)]


def test_one_who_may_not_make_tables_runs_on_those_of_another(shell: Shell, tmp_path: Path) -> None:
    """B155: a user with the rights to read and write, and no others, needs the tables first, and then no more."""
    store = store_at(tmp_path)
    schema = store.partition("search_path%3D")[2]
    role = f"r_{schema}"
    change(store, f"CREATE ROLE {role} LOGIN", f"GRANT USAGE ON SCHEMA {schema} TO {role}")
    theirs = store.replace("bread@", f"{role}@")
    for words in (("migrate",), ("runs", "list"), ("--app", "cli_agents:everybody", "invoke", "broken", "x")):
        refused = shell.plain("--store", theirs, *words)
        line = refused.err.splitlines()[-1]  # invoke says first where the data is
        assert refused.code == 1, refused
        assert line.startswith("STORE_UNAVAILABLE: the database user lacks a right"), refused
    doctor = shell.plain("--store", theirs, "--app", "cli_agents:everybody", "doctor")
    assert doctor.code == 1
    assert "bread migrate as a user who may" in doctor.out
    assert migrate(shell, store).code == 0
    no_rights = shell.plain("--store", theirs, "--app", "cli_agents:everybody", "doctor")
    assert (no_rights.code, error_line(no_rights)[0]) == (1, "STORE_UNAVAILABLE")
    change(
        store,
        f"GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA {schema} TO {role}",
        f"GRANT USAGE, UPDATE ON ALL SEQUENCES IN SCHEMA {schema} TO {role}",
    )
    assert migrate(shell, theirs).out.splitlines()[1] == f"schema {SCHEMA_VERSION}: up to date"
    done = shell.plain("--store", theirs, "--app", "cli_agents:everybody", "invoke", "asker", "x")
    assert "waits for a person" in done.err, done
    sound = shell.plain("--store", theirs, "--app", "cli_agents:everybody", "doctor", "--json", "--deep")
    assert (sound.code, sound.json["ok"]) == (0, True), sound


def test_the_password_comes_from_a_file(shell: Shell, tmp_path: Path) -> None:
    """B155: of BREAD_STORE_PASSWORD_FILE, where the URL has none; a file that is not there is named."""
    store = store_at(tmp_path)
    missing = shell.plain("migrate", BREAD_STORE=store, BREAD_STORE_PASSWORD_FILE="nowhere/secret")
    assert (missing.code, error_line(missing)[0]) == (1, "STORE_UNAVAILABLE")
    assert "BREAD_STORE_PASSWORD_FILE: nowhere/secret: No such file" in missing.err
    given = with_password(store, "x")
    assert shell.plain("migrate", BREAD_STORE=given, BREAD_STORE_PASSWORD_FILE="nowhere/secret").code == 0
    (shell.folder / "secret").write_bytes(b"\xff\xfe")
    assert "it is no text" in shell.plain("migrate", BREAD_STORE=store, BREAD_STORE_PASSWORD_FILE="secret").err
    (shell.folder / "secret").write_text("hunter2\n")
    done = shell.plain("migrate", BREAD_STORE=store, BREAD_STORE_PASSWORD_FILE="secret")
    assert done.code == 0, done
    assert f"127.0.0.1:{server().port}" in done.out
