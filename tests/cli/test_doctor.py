"""`bread doctor`: what it looks at, what it says, and that it leaves everything as it was."""

from __future__ import annotations

import fcntl
import os
import shutil
import sqlite3
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import cli_agents
from bread import Bread
from bread.runtime.cli import checks
from cli_kit import Done, Shell, error_line
from folders import agent_py, write, write_agent

WHOLE = {"prompt.md": "You write."}
FAR = {"agent.py": 'from bread import define_agent\nagent = define_agent("far", model="anthropic:claude")\n'}
ALL = ["python", "bread", "config", "agents", "model", "store", "disk", "locks", "clock", "transport"]


def states(done: Done) -> dict[str, str]:
    """The state of each check, by what was checked."""
    return {check["what"]: check["state"] for check in done.json["checks"]}


def test_a_sound_app(shell: Shell) -> None:
    """B156: a line for each check and exit code 0; a store that is not there is not made."""
    write_agent(shell.folder / "agents", files=WHOLE)
    done = shell.plain("doctor")
    assert (done.code, done.err) == (0, "")
    lines = done.out.splitlines()
    assert [line.partition(":")[0].split() for line in lines] == [["ok", what] for what in ALL]
    assert lines[3] == "ok    agents: writer (from agents/)"
    assert lines[5] == f"ok    store: SQLite {shell.folder}/.bread/bread.db, which the first run makes"
    assert [file.name for file in shell.folder.iterdir()] == ["agents"]


async def test_a_store_is_looked_into_and_left_as_it_is(shell: Shell) -> None:
    """B156: how many questions wait; with --deep the whole log. Runs that nobody performs stay so."""
    run, _ = await shell.ask("asker")
    async with Bread(agents=[cli_agents.asker], store=shell.store, executes=False) as bread:
        left = await bread.start("asker", "x")
    done = shell.bread("doctor", "--json")
    assert (done.code, done.json["ok"]) == (0, True)
    [store] = [check for check in done.json["checks"] if check["what"] == "store"]
    assert store["detail"].endswith("questions that wait: 1")
    assert "log" not in states(done)
    deep = shell.bread("doctor", "--deep", "--json")
    assert states(deep)["log"] == "ok"
    found = {item["id"]: item["status"] for item in shell.bread("runs", "list", "--json").json["items"]}
    assert found == {run: "suspended", left: "running"}


async def test_damage_is_found_in_the_depth(shell: Shell) -> None:
    """B156: a log that is not whole fails, with each problem and what helps."""
    run, _ = await shell.ask("asker")
    raw = sqlite3.connect(shell.file)
    raw.execute("DELETE FROM bread_runs WHERE id = ?", (run,))
    raw.commit()
    raw.close()
    assert shell.bread("doctor").code == 0
    done = shell.bread("doctor", "--deep")
    assert (done.code, error_line(done)[0]) == (1, "LOG_DAMAGED")
    assert [line for line in done.out.splitlines() if line.startswith("fail  log: ") and "--rebuild" in line]


def test_what_is_not_a_store(shell: Shell) -> None:
    """B156: a file of another program, a folder, a place where nothing can be written; each is left as it is."""
    shell.file.write_bytes(b"This is a letter. " * 100)
    (shell.folder / "folder.db").mkdir()
    for store, code in (
        (shell.store, "STORE_INVALID"),
        ("mysql://ann:hunter2@db", "INPUT_INVALID"),
        ("sqlite:///folder.db", "STORE_UNAVAILABLE"),
        ("sqlite:////proc/bread.db", "STORE_UNAVAILABLE"),
        ("sqlite:///bread.db/below.db", "STORE_UNAVAILABLE"),
    ):
        done = shell.plain("--store", store, "doctor")
        assert (done.code, error_line(done)[0]) == (1, code), done
        assert [line for line in done.out.splitlines() if line.startswith("fail  ")]
        assert "hunter2" not in done.out + done.err
    assert shell.file.read_bytes() == b"This is a letter. " * 100
    assert list((shell.folder / "folder.db").iterdir()) == []


def test_an_empty_file_stays_empty(shell: Shell) -> None:
    """B156: it is a store that is still to be made."""
    shell.file.touch()
    assert shell.bread("doctor").code == 0
    assert shell.file.stat().st_size == 0


def test_a_store_in_memory(shell: Shell) -> None:
    """B156: there is nothing on a disk to look at."""
    done = shell.plain("--store", "memory://", "doctor", "--json")
    assert (done.code, states(done)["store"]) == (0, "ok")
    assert not {"disk", "locks"} & states(done).keys()


def test_everything_that_is_wrong_with_the_app(shell: Shell) -> None:
    """B156: configuration, agents and models each say what is wrong; the checks go on; no secret is shown."""
    write(shell.folder, {"bread.config.py": "from bread import Config\nconfig = Config(store='hunter2', grace=-1)\n"})
    write_agent(shell.folder / "agents", "far", FAR | WHOLE)
    write_agent(shell.folder / "agents", "broken", {"agent.py": agent_py("other")})
    done = shell.plain("doctor", "--json", ANTHROPIC_API_KEY="")
    found = [check for check in done.json["checks"] if check["state"] != "ok"]
    assert done.code == 1
    assert [(check["state"], check["what"]) for check in found] == [
        ("fail", "config"),
        ("fail", "config"),
        ("fail", "agents"),
        ("fail", "model"),
        ("warn", "store"),
    ]
    assert found[0]["detail"].startswith("bread.config.py:2: store: expected sqlite:///path/to/file.db, postgresql://")
    assert found[2]["detail"].startswith("agents/broken/agent.py:4: the agent is called 'other'")
    assert "ANTHROPIC_API_KEY" in found[3]["detail"]
    assert error_line(done)[0] == "CONFIG_INVALID"
    assert "hunter2" not in done.out + done.err


def test_keys_are_not_shown(shell: Shell) -> None:
    """B156: a key that is there makes the model ready, and stands nowhere."""
    write_agent(shell.folder / "agents", "far", FAR | WHOLE)
    done = shell.plain("doctor", ANTHROPIC_API_KEY="hunter2")
    assert (done.code, done.err) == (0, "")
    assert "ok    model: anthropic:claude of agent far is ready" in done.out
    assert "hunter2" not in done.out
    missing = shell.plain("doctor", ANTHROPIC_API_KEY="")
    assert (missing.code, error_line(missing)[0]) == (1, "MODEL_NOT_READY")


def test_a_folder_without_an_app(shell: Shell) -> None:
    """B156: nothing is wrong with that, but there is nothing to run."""
    done = shell.plain("doctor", "--json")
    assert (done.code, states(done)["agents"]) == (0, "warn")


# --- what cannot be brought about for real


def later(by: int) -> Any:
    return SimpleNamespace(now=lambda zone: datetime.fromtimestamp(by, zone))


def usage(free: int) -> Callable[[Path], Any]:
    return lambda folder: SimpleNamespace(free=free)


def test_disks_that_are_full(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """B156: little space is a warning, next to none a failure."""
    for free, state in ((1 << 40, "ok"), (1 << 29, "warn"), (1 << 20, "fail")):
        monkeypatch.setattr(shutil, "disk_usage", usage(free))
        assert checks.disk(tmp_path).state == state


def test_file_systems_without_locks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """B156: locks that exclude nobody, or that do not exist, fail; remote file systems are warned of."""
    assert checks.locks(tmp_path).state == "ok"
    monkeypatch.setattr(checks, "file_system", lambda folder: "nfs4")
    assert checks.locks(tmp_path).state == "warn"
    monkeypatch.setattr(fcntl, "flock", lambda file, how: None)
    assert checks.locks(tmp_path).state == "fail"

    def unknown(file: int, how: int) -> None:
        raise OSError(38, os.strerror(38))

    monkeypatch.setattr(fcntl, "flock", unknown)
    found = checks.locks(tmp_path)
    assert (found.state, found.code, found.to_do) == ("fail", "STORE_UNAVAILABLE", "put the store on a local disk")
    assert list(tmp_path.iterdir()) == []


def test_the_kind_of_a_file_system() -> None:
    """B156: that of the innermost mount; folders below /proc are not those of the root."""
    assert checks.file_system(Path("/proc/self")) == "proc"
    assert checks.file_system(Path("/")) not in ("", "proc")


def test_clocks_and_versions(monkeypatch: pytest.MonkeyPatch) -> None:
    """B156: a clock that was never set, and a Python that nobody has tried, are warned of."""
    assert (checks.clock().state, checks.python().state) == ("ok", "ok")
    monkeypatch.setattr(checks, "datetime", later(0))
    monkeypatch.setattr(sys, "version_info", (3, 99, 0, "final", 0))
    assert (checks.clock().state, checks.python().state) == ("warn", "warn")


async def test_a_store_from_the_future(shell: Shell) -> None:
    """B156: a run that was changed tomorrow tells that clocks differ."""
    ahead = datetime.now(UTC).timestamp() + 86_400
    async with Bread(agents=[cli_agents.asker], store=shell.store, executes=False, clock=lambda: ahead) as bread:
        await bread.start("asker", "x")
    done = shell.bread("doctor", "--json")
    assert done.code == 0
    warned = [check for check in done.json["checks"] if check["state"] == "warn"]
    assert [(check["what"], check["toDo"]) for check in warned] == [("clock", "set the clocks of the machines")]
