"""What docker-compose.yml starts, started here: the same commands and variables, with PostgreSQL from a wheel."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest
import yaml

from cli_kit import PATIENCE, environment
from folders import write
from postgres import ask_for_password, server, store_at
from test_compose import ROOT, instructions

ASKER = """
from bread import define_agent, define_human_tool
from bread.testing import ScriptedModel, call, text

ask = define_human_tool("ask", {"type": "object"})
agent = define_agent("asker", model=ScriptedModel([[call("human_ask")], [text("Thanks.")]]), tools=[ask])
"""


class Machine:
    """A folder with an app and secrets, and the services of the compose file."""

    def __init__(self, folder: Path) -> None:
        self.folder = write(folder / "app", {"agents/asker/agent.py": ASKER, "agents/asker/prompt.md": "You ask."})
        self.services: dict[str, dict[str, Any]] = yaml.safe_load((ROOT / "docker-compose.yml").read_text())["services"]
        self.secrets = folder / "secrets"
        self.secrets.mkdir()
        # The database of the compose file is this server's, for a user that is asked for a password.
        store = store_at(folder)
        role = store.partition("search_path%3D")[2]
        ask_for_password(role, "hunter2")
        (self.secrets / "postgres_password").write_text("hunter2\n")
        self._store = store.replace("bread@", f"{role}@")
        made = self.run("keys", "add", "me", "--role", "admin", "--keys", str(self.secrets / "bread_keys"))
        self.key = made.stdout.strip()

    def run(self, *words: str, **env: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "bread.runtime.cli", *words],
            cwd=self.folder,
            env=environment(**env),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=PATIENCE,
        )

    def environment(self, service: str) -> dict[str, str]:
        """That of the service: hosts and places are those of this machine."""
        given: dict[str, str] = self.services[service]["environment"]
        assert given["BREAD_STORE"] == "postgresql://bread@postgres:5432/bread"
        # There is no NATS here; what bread says over it has tests of its own.
        there = {name: value for name, value in given.items() if "NATS" not in name}
        return {
            name: value.replace("/run/secrets", str(self.secrets)).replace(given["BREAD_STORE"], self._store)
            for name, value in there.items()
        }

    def words(self, service: str) -> list[str]:
        words: list[str] = self.services[service]["command"]
        return words if words[0] != "start" else [*words, "--port", "0"]

    @contextmanager
    def serving(self, service: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
        """A service that runs, and where it is reached from here."""
        process = subprocess.Popen(
            [sys.executable, "-m", "bread.runtime.cli", *self.words(service)],
            cwd=self.folder,
            env=environment(**self.environment(service)),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        try:
            assert process.stdout is not None
            lines = list[str]()
            while not lines or not lines[-1].startswith(("API ", "health ")):
                line = process.stdout.readline()
                assert line, (lines, process.stderr.read() if process.stderr else "")
                lines.append(line)
            assert "hunter2" not in "".join(lines)
            yield process, f"http://127.0.0.1:{lines[-1].split()[1].rpartition(':')[2]}"
        finally:
            process.kill()
            process.communicate()


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def ready(url: str) -> int:
    """The exit code of the image's health check, for a server at this address."""
    check = json.loads(next(words for name, words in instructions() if name == "HEALTHCHECK").partition("CMD ")[2])
    code = check[2].replace("7331", url.rpartition(":")[2])
    return subprocess.run([sys.executable, "-c", code], stderr=subprocess.DEVNULL, timeout=PATIENCE).returncode


def test_begun_on_one_and_answered_on_the_other(machine: Machine) -> None:
    """B63, B65, B139, B148: migrated first, by a service that ends; a run that one server began is answered on the
    other; keys are asked for; each is ready, and ends in order when it is told to."""
    migrated = machine.run(*machine.words("migrate"), **machine.environment("migrate"))
    assert (migrated.returncode, migrated.stderr) == (0, "")
    assert "there were no tables; now there are those of schema" in migrated.stdout
    with ExitStack() as stack:
        services = {name: stack.enter_context(machine.serving(name)) for name in ("api-1", "api-2", "worker")}
        (_, one), (_, two), (_, worker) = services.values()
        assert [ready(url) for _, url in services.values()] == [0, 0, 0]
        assert httpx2.get(f"{one}/runs", trust_env=False).status_code == 401
        with httpx2.Client(
            headers={"Authorization": f"Bearer {machine.key}"}, trust_env=False, timeout=PATIENCE
        ) as web:
            begun = web.post(f"{one}/agents/asker/run", json={"input": "go"})
            assert "human:required" in begun.text
            run = begun.headers["x-run-id"]
            [question] = web.get(f"{two}/checkpoints").json()["items"]
            answered = web.post(f"{two}/resume/{question['id']}", json={"response": "yes"})
            assert "Thanks." in answered.text
            again = web.post(f"{one}/resume/{question['id']}", json={"response": "yes"})
            assert (again.status_code, again.json()["error"]["code"]) == (404, "CHECKPOINT_NOT_FOUND")
            assert web.get(f"{one}/runs/{run}").json()["status"] == "completed"
            # The servers begin and answer; what is due is done by the worker, which serves nothing but its health.
            events = web.get(f"{one}/runs/{run}/events").json()["items"]
            performed = {event["worker"] for event in events if event["name"] == "run.model_responded"}
            others = {event["worker"] for event in events if event["name"] in ("run.started", "checkpoint.claimed")}
            assert (len(performed), performed & others) == (1, set())
            assert web.get(f"{worker}/runs").status_code == 404
        for process, _ in services.values():
            process.send_signal(signal.SIGTERM)
        for process, url in services.values():
            out, err = process.communicate(timeout=PATIENCE)
            assert (process.returncode, err) == (0, "")
            assert "hunter2" not in out
            assert ready(url) != 0


def test_a_secret_that_is_missing_is_named(machine: Machine) -> None:
    """B155: STORE_UNAVAILABLE with the file, and nothing of what is in others."""
    (machine.secrets / "postgres_password").rename(machine.secrets / "moved")
    done = machine.run(*machine.words("migrate"), **machine.environment("migrate"))
    assert done.returncode == 1
    assert done.stderr.startswith("STORE_UNAVAILABLE: cannot reach postgresql://")
    assert "BREAD_STORE_PASSWORD_FILE" in done.stderr
    os.rename(machine.secrets / "moved", machine.secrets / "postgres_password")
    (machine.secrets / "postgres_password").write_text("wrong")
    done = machine.run(*machine.words("migrate"), **machine.environment("migrate"))
    assert "password authentication failed" in done.stderr
    assert str(server().port) in done.stderr
