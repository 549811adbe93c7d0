"""The command on PostgreSQL: where it says that the data is, and that no password is shown to anybody."""

from __future__ import annotations

import shlex
import socket
from pathlib import Path

import psycopg
import pytest

from bread.runtime.cli.place import Place
from bread.runtime.stores import without_password
from cli_kit import Shell, error_line
from postgres import in_schema, server, store_at, with_password

SECRET = "hunter2"
WRONG = [
    "postgresql://ann:hunter2/x@db.invalid/bread",
    "postgresql://ann:x@hunter2@db.invalid/bread",
    "postgresql://ann:hunter2%zz@db.invalid/bread",
    "postgresql://ann:hunter2@[db.invalid/bread",
    "postgresql://ann@db.invalid/bread?passwort=hunter2",
    "postgres://hunter2:x",
]


@pytest.fixture
def store(tmp_path: Path) -> str:
    return store_at(tmp_path)


def tables(store: str) -> int:
    with psycopg.connect(store) as connection:
        row = connection.execute("SELECT count(*) FROM pg_tables WHERE schemaname = current_schema()").fetchone()
    assert row is not None
    return int(row[0])


def test_the_first_line_says_where_the_data_is(shell: Shell, store: str) -> None:
    """B155: user, host, port and database; of the option and of the variable alike."""
    where = f"data: PostgreSQL postgresql://bread@127.0.0.1:{server().port}/postgres"
    secret = with_password(store, SECRET)
    for done in (
        shell.plain("--store", store, "runs", "list"),
        shell.plain("--store", secret, "runs", "list"),
        shell.plain("runs", "list", BREAD_STORE=secret),
    ):
        assert (done.code, done.err) == (0, "")
        assert done.out.splitlines()[0].split("  ")[1] == where


async def test_no_password_is_shown(shell: Shell, store: str) -> None:
    """B155, B156: of a URL that holds one, in whatever commands print: output, errors, and lines to be pasted."""
    secret = with_password(store, SECRET)
    app = ("--app", "cli_agents:everybody")
    asked = shell.plain("--store", secret, *app, "invoke", "asker", "go")
    assert asked.code == 1, asked
    listed = shell.plain("--store", secret, "checkpoints", "list", "--json")
    [question] = listed.json["items"]
    run = question["rootRunId"]
    shown = shell.plain("--store", secret, *app, "checkpoints", "show", question["id"])
    talked = shell.plain("--store", secret, *app, "chat", "asker", stdin="hello\n")
    done = [
        asked,
        listed,
        shown,
        talked,
        shell.plain("--store", secret, *app, "checkpoints", "approve", question["id"]),
        shell.plain("--store", secret, *app, "doctor"),
        shell.plain("--store", secret, *app, "doctor", "--json", "--deep"),
        shell.plain("--store", secret, "runs", "show", run),
        shell.plain("--store", secret, "runs", "show", "run_none"),
        shell.plain("--store", secret, "audit", "verify"),
        shell.plain("--store", secret, "demo"),
        shell.plain("--store", secret, "--help"),
        shell.plain("runs", "list", "--limit", "0", BREAD_STORE=secret),
    ]
    for one in done:
        assert SECRET not in one.out + one.err, one
    # What is to be pasted names the store all the same, and works where the password comes from elsewhere.
    [line] = [line for line in shown.out.splitlines() if "checkpoints approve" in line]
    words = shlex.split(line)
    assert words[words.index("--store") + 1] == store
    assert "To come back:" in talked.out


def test_no_password_of_the_environment_is_shown_or_pasted(shell: Shell, store: str) -> None:
    """B155: it is where it was for whoever pastes the line into the same shell."""
    secret = with_password(store, SECRET)
    shown = shell.plain("--app", "cli_agents:everybody", "chat", "asker", stdin="hello\n", BREAD_STORE=secret)
    [line] = [line for line in shown.out.splitlines() if line.startswith("To come back:")]
    assert "--store" not in line
    assert SECRET not in shown.out + shown.err


@pytest.mark.parametrize("url", WRONG, ids=[str(number) for number in range(len(WRONG))])
def test_a_url_that_libpq_would_read_otherwise_is_quoted_nowhere(shell: Shell, url: str) -> None:
    """B155: a password whose @ or / was not written as %40 or %2F is no host, and no part of an error."""
    for words in (("runs", "list"), ("doctor",), ("checkpoints", "list"), ("--app", "cli_agents:asker", "start")):
        done = shell.plain("--store", url, *words)
        assert done.code == 1, done
        assert "hunter2" not in done.out + done.err
        assert error_line(done)[0] == "INPUT_INVALID"


def test_a_server_that_is_away_is_named_without_a_password(shell: Shell) -> None:
    """B155: in the error, and in the log."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    done = shell.plain("--store", f"postgresql://ann:{SECRET}@127.0.0.1:{port}/bread", "runs", "list")
    code, message = error_line(done)
    assert (done.code, code) == (1, "STORE_UNAVAILABLE")
    assert f"postgresql://ann@127.0.0.1:{port}/bread" in message
    assert SECRET not in done.out + done.err


@pytest.mark.parametrize(
    ("given", "left"),
    [
        ("postgresql://ann:p@h:1/d", "postgresql://ann@h:1/d"),
        ("postgres://ann:p%40q@h,i/d?sslmode=require", "postgres://ann@h,i/d?sslmode=require"),
        ("postgresql://ann@h/d?password=p", "postgresql://ann@h/d"),
        ("postgresql://ann@h/d?pass%77ord=p&connect_timeout=3&sslpassword=p", "postgresql://ann@h/d?connect_timeout=3"),
        ("postgresql://:p@h/d", "postgresql://@h/d"),
        ("postgresql:///d", "postgresql:///d"),
        ("sqlite:///a:b@c?password=d", "sqlite:///a:b@c?password=d"),
    ],
    ids=["user", "encoded", "query", "hidden", "nobody", "nothing", "file"],
)
def test_a_url_without_its_passwords(given: str, left: str) -> None:
    """B155: everything else stays, since it says where the store is."""
    assert without_password(given) == left


def test_what_has_no_file(shell: Shell, store: str) -> None:
    """B156: the demo wants a file to count in; a chat keeps its history in .bread; both leave no database file."""
    demo = shell.plain("--store", store, "demo")
    assert (demo.code, error_line(demo)[0]) == (1, "INPUT_INVALID")
    talked = shell.plain("--store", store, "--app", "cli_agents:everybody", "chat", "broken", stdin="/exit\n")
    assert talked.code == 0, talked
    assert not [*shell.folder.rglob("*.db")]


def test_a_place_knows_what_is_gone_with_it(store: str) -> None:
    """B155: PostgreSQL has no path, and is no memory."""
    assert Place("memory://", None).is_memory
    place = Place(store, None)
    assert (place.path, place.is_memory) == (None, False)
    assert not Place("sqlite:///a.db", None).is_memory


async def test_ids_are_completed_and_no_table_is_made(shell: Shell, store: str, tmp_path: Path) -> None:
    """B155: a Tab asks a store that is there; one without tables stays so."""

    def complete(store: str) -> str:
        words = f"bread --store {shlex.quote(store)} runs show "
        return shell.plain(_BREAD_COMPLETE="complete_bash", COMP_WORDS=words, COMP_CWORD="5").out.strip()

    empty = store_at(tmp_path / "empty")
    assert complete(empty) == ""
    assert tables(empty) == 0
    asked = shell.plain("--store", store, "--app", "cli_agents:everybody", "invoke", "asker", "go")
    assert asked.code == 1
    assert tables(store) > 0
    assert complete(store).startswith("run_")
    assert complete(in_schema(server().url().replace(str(server().port), "1"), "x")) == ""
