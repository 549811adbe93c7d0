"""Driving the real command: as a process with pipes, or at a pseudo-terminal."""

from __future__ import annotations

import json
import os
import pty
import re
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any

import cli_agents
from bread import Bread, RunSuspended
from forked import Forked

TESTS = Path(__file__).parent
PATIENCE = 60.0  # a test that waits longer for an event has failed
APP = ("--app", "cli_agents:everybody")


def environment(**more: str) -> dict[str, str]:
    """The environment of a command: nothing of bread's from outside, and the agents of the tests to be imported."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("BREAD_")}
    return kept | {"PYTHONPATH": str(TESTS), "COLUMNS": "200", "PYTHONIOENCODING": "utf-8"} | more


class Done:
    """A command that has ended: its exit code, and what it printed."""

    def __init__(self, code: int, out: str, err: str) -> None:
        self.code, self.out, self.err = code, out, err

    @property
    def json(self) -> Any:
        return json.loads(self.out)

    @property
    def lines(self) -> list[Any]:
        """JSON lines."""
        return [json.loads(line) for line in self.out.splitlines()]

    def __repr__(self) -> str:
        return f"exit code {self.code}\n{self.out}\n--- stderr\n{self.err}"


class Server:
    """The other side of cli_server.py: command lines in, exit codes out."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, str(TESTS / "cli_server.py")],
            env=environment(),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def perform(self, request: dict[str, Any]) -> int:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()
        ready, _, _ = select.select([self._process.stdout], [], [], PATIENCE)
        assert ready, f"{request['words']} did not end"
        return int(self._process.stdout.readline())

    def close(self) -> None:
        self._process.communicate(timeout=PATIENCE)


class Shell:
    """A folder with a store, and the command in it."""

    def __init__(self, folder: Path, server: Server) -> None:
        self.folder = folder
        self.file = folder / "bread.db"
        self.store = f"sqlite:///{self.file}"
        self._server = server

    def argv(self, *words: str) -> list[str]:
        return [sys.executable, "-m", "bread.runtime.cli", *words]

    def plain(self, *words: str, stdin: str = "", **env: str) -> Done:
        """The command as it is, in the folder: a process of its own, forked from one that has imported bread."""
        files = [self.folder.parent / f"{self.folder.name}-{name}" for name in ("in", "out", "err")]
        for file, text in zip(files, (stdin, "", ""), strict=True):
            file.write_text(text)
        request = {
            "words": words,
            "folder": str(self.folder),
            "env": environment(**env),
            "files": list(map(str, files)),
        }
        code = self._server.perform(request)
        return Done(code, files[1].read_text(), files[2].read_text())

    def fresh(self, *words: str, **env: str) -> Done:
        """The command in a new interpreter, as a person starts it."""
        found = subprocess.run(
            self.argv(*words),
            cwd=self.folder,
            env=environment(**env),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=PATIENCE,
        )
        return Done(found.returncode, found.stdout, found.stderr)

    def bread(self, *words: str, stdin: str = "", **env: str) -> Done:
        """The command on the folder's store, with the agents of the tests."""
        return self.plain("--store", self.store, *APP, *words, stdin=stdin, **env)

    @contextmanager
    def start(self, *words: str, app: str = APP[1], piped: bool = False, **env: str) -> Iterator[Forked]:
        """The same, left running with pipes; it is gone when the block ends."""
        process = Forked(
            ("-m", "bread.runtime.cli", "--store", self.store, "--app", app, *words),
            cwd=self.folder,
            env=environment(**env),
            stdin=subprocess.PIPE if piped else subprocess.DEVNULL,
        )
        try:
            yield process
        finally:
            if process.poll() is None:
                process.kill()
            process.communicate()

    async def ask(self, agent: str, session: str | None = None, **tags: str) -> tuple[str, str]:
        """Run an agent of the tests to its question, in this process: the run and the checkpoint."""
        async with Bread(agents=cli_agents.everybody, store=self.store) as bread:
            try:
                await bread.run(agent, "go", session=session, tags=tags)
            except RunSuspended as rests:
                return rests.run_id, rests.checkpoints[0]
        raise AssertionError(f"{agent} did not ask")


def error_line(done: Done) -> tuple[str, str]:
    """The code and the message of the only line on stderr, which is no traceback."""
    lines = done.err.splitlines()
    assert len(lines) == 1, done
    code, _, message = lines[0].partition(": ")
    assert re.fullmatch(r"[A-Z_]+", code), done
    return code, message


class Terminal:
    """A command at a pseudo-terminal. It is gone when the block ends."""

    def __init__(self, argv: list[str], folder: Path, **env: str) -> None:
        self.seen = ""
        self._new = 0
        self._process: subprocess.Popen[bytes] | None = None
        self._argv, self._folder, self._env = argv, folder, env
        self._master = -1

    def __enter__(self) -> Terminal:
        self._master, slave = pty.openpty()
        env = environment(**({"TERM": "xterm"} | self._env))
        self._process = subprocess.Popen(
            self._argv,
            cwd=self._folder,
            env=env,
            stdin=slave,
            stdout=slave,
            stderr=slave,
            start_new_session=True,
            close_fds=True,
        )
        os.close(slave)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        assert self._process is not None
        if self._process.poll() is None:
            self._process.kill()
        self._process.wait()
        os.close(self._master)

    def expect(self, text: str) -> str:
        """Wait until a text appears that was not there at the last `expect`; gives what came up to it."""
        deadline = time.monotonic() + PATIENCE
        while text not in self.seen[self._new :]:
            assert self._read(deadline), f"no {text!r} in:\n{self.seen}"
        start, self._new = self._new, self.seen.index(text, self._new) + len(text)
        return self.seen[start : self._new]

    def type(self, line: str) -> None:
        self.press(f"{line}\n")

    def press(self, keys: str) -> None:
        os.write(self._master, keys.encode())

    def end(self) -> int:
        """Read to the end; the exit code, negative for a signal."""
        deadline = time.monotonic() + PATIENCE
        while self._read(deadline):
            pass
        assert self._process is not None
        return self._process.wait(PATIENCE)

    def interrupt(self, *, everybody: bool = False) -> None:
        """Ctrl-C, of the command alone, or of all that it has started and not put aside."""
        assert self._process is not None
        if everybody:
            os.killpg(self._process.pid, signal.SIGINT)
        else:
            self._process.send_signal(signal.SIGINT)

    def _read(self, deadline: float) -> bool:
        ready, _, _ = select.select([self._master], [], [], max(0.0, deadline - time.monotonic()))
        assert ready, f"nothing more came after:\n{self.seen}"
        try:
            data = os.read(self._master, 65536)
        except OSError:  # Linux: the other side is closed
            return False
        self.seen += re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", data.decode(errors="replace")).replace("\r\n", "\n")
        return bool(data)
