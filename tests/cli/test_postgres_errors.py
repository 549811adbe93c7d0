"""A PostgreSQL store that cannot be used: one clear line and exit code 1, of whatever command."""

from __future__ import annotations

import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from bread.runtime.postgres_url import CONNECT_SECONDS
from cli_kit import PATIENCE, Done, Shell, environment
from forked import Forked
from postgres import ask_for_password, server, store_at

BREAD = ("-m", "bread.runtime.cli")
APP = ("--app", "cli_agents:everybody")
COMMANDS = {
    "start": ("start", "--port", "0"),
    "invoke": ("invoke", "asker", "go"),
    "migrate": ("migrate",),
    "list": ("checkpoints", "list"),
}
TOO_OLD = """
import sys
from bread.runtime import postgres_url
from bread.runtime.cli import main
postgres_url.OLDEST = 990000
main()
"""


def at_once(shell: Shell, store: str, program: tuple[str, ...] = BREAD, **env: str) -> dict[str, Done]:
    """Each of the commands, all at the same time."""
    env = environment(BREAD_STORE=store, **env)
    running = {
        name: Forked((*program, *APP, *words), cwd=shell.folder, env=env, stdin=subprocess.DEVNULL)
        for name, words in COMMANDS.items()
    }
    done = {}
    try:
        for name, process in running.items():
            out, err = process.communicate(timeout=PATIENCE)
            done[name] = Done(process.returncode, out, err)
    finally:
        for process in running.values():
            process.kill()
    return done


def the_line(done: Done) -> str:
    """The error; what else may stand on stderr is where the data is."""
    lines = [line for line in done.err.splitlines() if not line.startswith("bread 0.")]
    assert (done.code, len(lines)) == (1, 1), done
    return lines[0]


@pytest.fixture(scope="module")
def silent() -> Iterator[int]:
    """The port of something that takes connections and says nothing."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        yield int(listening.getsockname()[1])


def test_nobody_listens(shell: Shell) -> None:
    """B155: STORE_UNAVAILABLE: refused."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    for done in at_once(shell, f"postgresql://bread@127.0.0.1:{port}/bread").values():
        line = the_line(done)
        assert line.startswith(f"STORE_UNAVAILABLE: cannot reach postgresql://bread@127.0.0.1:{port}/bread: ")
        assert "refused" in line.lower()


def test_a_name_that_does_not_resolve(shell: Shell) -> None:
    """B155: STORE_UNAVAILABLE: with the name."""
    for done in at_once(shell, "postgresql://bread@db.invalid/bread").values():
        line = the_line(done)
        assert line.startswith("STORE_UNAVAILABLE: cannot reach postgresql://bread@db.invalid:5432/bread: ")
        assert "resolve host 'db.invalid'" in line or 'translate host name "db.invalid"' in line


def test_a_wrong_password_and_none(shell: Shell) -> None:
    """B155: STORE_UNAVAILABLE: it is not shown; the right one of a file opens the store."""
    role = f"r{time.monotonic_ns()}"
    ask_for_password(role, "hunter2")
    url = server().url().replace("bread@", f"{role}@")
    wrong = url.replace(f"{role}@", f"{role}:hunter3@")
    for store, words in ((wrong, "password authentication failed"), (url, "no password supplied")):
        for done in at_once(shell, store).values():
            assert words in the_line(done)
            assert "hunter" not in done.out + done.err
    (shell.folder / "secret").write_text("hunter2\n")
    given = {"BREAD_STORE": url, "BREAD_STORE_PASSWORD_FILE": "secret"}
    listed = shell.plain("runs", "list", **given)
    assert (listed.code, listed.err) == (0, "")
    doctor = shell.plain("doctor", BREAD_STORE=wrong)
    assert "-> put the right password into the file" in doctor.out
    assert "hunter" not in doctor.out + doctor.err + listed.out


def test_a_server_without_the_encryption_that_is_asked_for(shell: Shell) -> None:
    """B155: STORE_UNAVAILABLE: nothing goes over the wire in clear."""
    line = the_line(shell.plain("runs", "list", BREAD_STORE=f"{server().url()}?sslmode=require"))
    assert line.startswith("STORE_UNAVAILABLE: cannot reach postgresql://bread@127.0.0.1:")
    assert "server does not support SSL" in line


def test_a_database_and_a_user_that_are_missing(shell: Shell) -> None:
    """B155: STORE_UNAVAILABLE: what does not exist."""
    for store, what in (
        (server().url("missing"), 'database "missing" does not exist'),
        (server().url().replace("bread@", "nobody_here@"), 'role "nobody_here" does not exist'),
    ):
        for done in at_once(shell, store).values():
            assert what in the_line(done)


def test_a_server_that_is_too_old(shell: Shell, tmp_path: Path) -> None:
    """B155: STORE_INVALID: which it is and which it has to be; nothing was made."""
    store = store_at(tmp_path)
    program = tmp_path / "too_old.py"
    program.write_text(TOO_OLD)
    for done in at_once(shell, store, (str(program),)).values():
        line = the_line(done)
        assert line.startswith("STORE_INVALID: ")
        assert "bread needs 99 or newer" in line


def test_a_server_that_never_answers(shell: Shell, silent: int) -> None:
    """B155, C56: it takes the connection and says nothing: STORE_UNAVAILABLE within the time that a connection gets."""
    begun = time.monotonic()
    done = at_once(shell, f"postgresql://bread@127.0.0.1:{silent}/bread")
    took = time.monotonic() - begun
    for one in done.values():
        line = the_line(one)
        assert line.startswith(f"STORE_UNAVAILABLE: cannot reach postgresql://bread@127.0.0.1:{silent}/bread: ")
        assert "timeout" in line
    assert took < 3 * CONNECT_SECONDS
