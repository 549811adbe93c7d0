"""`bread start`, `bread dev` and `bread keys`: real servers that are stopped, refused, and begun anew on a change."""

from __future__ import annotations

import signal
import socket
import stat
from pathlib import Path

import httpx2
import pytest

from cli_kit import PATIENCE
from serve_kit import address, done, served

AGENT = """
from bread import define_agent, define_human_tool
from bread.testing import ScriptedModel, call, text

ask = define_human_tool("ask", {"type": "object"})
clerk = define_agent("clerk", model=ScriptedModel([[call("human_ask")], [text("WORDS")]]), tools=[ask])
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "app.py").write_text(AGENT)
    return tmp_path


def ask(url: str, **headers: str) -> str:
    """Run to the question; gives its id."""
    body = {"input": "go"}
    with httpx2.stream("POST", f"{url}/agents/clerk/run", json=body, headers=headers, trust_env=False) as got:
        assert got.status_code == 200
        got.read()
    items = httpx2.get(f"{url}/checkpoints", headers=headers, trust_env=False).json()["items"]
    return str(items[-1]["id"])


def answer(url: str, checkpoint: str) -> str:
    got = httpx2.post(f"{url}/resume/{checkpoint}", json={"response": "yes"}, trust_env=False)
    assert got.status_code == 200
    return got.text


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_server_serves_and_stops(folder: Path, number: signal.Signals) -> None:
    """B155, B157: it says where, stops with exit code 0, and what waits is there in its next life."""
    with served(folder, "start") as (process, url):
        assert url.startswith("http://127.0.0.1:")
        checkpoint = ask(url)
        process.send_signal(number)
        _, err = process.communicate(timeout=PATIENCE)
        assert (process.returncode, err) == (0, "")
    with served(folder, "start") as (_, url):
        assert "WORDS" in answer(url, checkpoint)


def test_where_it_cannot_listen(folder: Path) -> None:
    """B148, B155: a port that is taken, an address that others reach: one line, exit code 1."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        code, _, err = done(folder, "start", "-p", port)
        assert (code, err) == (1, f"INPUT_INVALID: cannot listen on 127.0.0.1 port {port}: Address already in use\n")
    code, _, err = done(folder, "start", "-H", "0.0.0.0", "-p", "0")  # noqa: S104
    assert code == 1
    assert err.startswith("INPUT_INVALID: 0.0.0.0 can be reached by others")
    code, _, err = done(folder, "--store", "sqlite:////dev/null/x.db", "start", "-p", "0")
    assert code == 1
    assert err.startswith("STORE_UNAVAILABLE: ")


def test_keys(folder: Path) -> None:
    """B148, B156: made, listed, asked for, forgotten; the key is shown once and nowhere kept."""
    code, key, err = done(folder, "keys", "add", "ann", "--role", "run", "--role", "observe")
    assert (code, err) == (0, "keep it: bread.keys has only its hash\n")
    file = folder / "bread.keys"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert key.strip() not in file.read_text()
    assert "ann" in done(folder, "keys", "list")[1]
    with served(folder, "start") as (_, url):
        assert httpx2.get(f"{url}/agents", trust_env=False).status_code == 401
        assert ask(url, Authorization=f"Bearer {key.strip()}")
    assert done(folder, "keys", "remove", "ann")[:2] == (0, "1 gone\n")
    code, _, err = done(folder, "keys", "remove", "ann")
    assert (code, err) == (1, "INPUT_INVALID: bread.keys has no key of 'ann'\n")
    code, _, err = done(folder, "keys", "add", "ann", "--role", "king")
    assert code == 1
    assert "run, answer, observe, admin" in err
    # A file without keys lets nobody in: it does not open the door for all.
    with served(folder, "start") as (_, url):
        assert httpx2.get(f"{url}/agents", trust_env=False).status_code == 401


@pytest.mark.parametrize("verb", ["start", "dev"])
@pytest.mark.parametrize("way", ["option", "variable", "usual name"])
def test_a_file_of_keys_that_is_named_has_to_be_there(folder: Path, verb: str, way: str) -> None:
    """B148: a name with a slip in it does not open the door for all; the error says how to make the file."""
    name = "bread.keys" if way == "usual name" else "slip.keys"
    words = [] if way == "variable" else ["--keys", name]
    env = {"BREAD_KEYS": name} if way == "variable" else {}
    code, _, err = done(folder, verb, "-p", "0", *words, **env)
    make = f"bread keys add NAME --role ROLE --keys {name}"
    assert (code, err) == (1, f"CONFIG_INVALID: {name}: there is no such file of keys; to make it: {make}\n")


@pytest.mark.parametrize("verb", ["start", "dev"])
@pytest.mark.parametrize("way", ["option", "file", "both"])
def test_origins_of_pages(folder: Path, verb: str, way: str) -> None:
    """B148, B155: those of --cors, else of bread.config.py."""
    if way != "option":
        (folder / "bread.config.py").write_text(
            "from bread import Config\n\nconfig = Config(cors=['https://file.example'])\n"
        )
    words = [] if way == "file" else ["--cors", "https://a.example", "--cors", "https://b.example"]
    with served(folder, verb, *words) as (_, url):
        for origin in ("https://a.example", "https://b.example", "https://file.example"):
            got = httpx2.get(f"{url}/agents", headers={"Origin": origin}, trust_env=False)
            expected = origin if ("file" in origin) == (way == "file") else None
            assert got.headers.get("access-control-allow-origin") == expected


@pytest.mark.parametrize("verb", ["start", "dev"])
def test_what_is_no_origin(folder: Path, verb: str) -> None:
    """B155, B148."""
    code, _, err = done(folder, verb, "-p", "0", "--cors", "app.example")
    assert code == 1
    assert err.startswith("INPUT_INVALID: cors 'app.example': expected scheme://host[:port]")


def test_a_change_begins_anew(folder: Path) -> None:
    """B155, B88: `dev` serves what the file says now; a run that waits goes on with it; what is wrong is said, and
    mended by the next change."""
    with served(folder, "dev") as (process, url):
        assert process.stdout is not None
        checkpoint = ask(url)
        (folder / "app.py").write_text("nonsense(")
        assert process.stderr is not None
        line = process.stderr.readline()
        assert line.startswith("APP_NOT_FOUND: "), line
        (folder / "app.py").write_text(AGENT.replace("WORDS", "OTHER"))
        assert "OTHER" in answer(address(process), checkpoint)
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=PATIENCE)
        assert process.returncode == 0
