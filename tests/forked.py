"""Processes that are forked from one that has imported bread, so that a test process pays for it once.

Each is a process of its own that runs a script or a module from its beginning, with the arguments, the environment and
the streams that it is given, and ends as an interpreter does. Only how it began is not seen from here: what is about
starting bread takes `subprocess`.

    test -> nursery (one a test process) -> nurse -> the process

The nurse waits for the process and tells how it ended.
"""

from __future__ import annotations

import atexit
import json
import os
import select
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import IO, Any

NURSERY = Path(__file__).with_name("nursery.py")


@cache
def _nursery() -> socket.socket:
    """Where the nursery takes orders. It ends when this process does."""
    here, there = socket.socketpair()
    env = {name: value for name, value in os.environ.items() if not name.startswith("BREAD_")}
    with there:
        process = subprocess.Popen(
            [sys.executable, str(NURSERY), str(there.fileno())],
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            pass_fds=[there.fileno()],
            start_new_session=True,  # Ctrl-C is for the tests
        )
    atexit.register(process.wait)
    atexit.register(here.close)
    return here


class Forked:
    """What a test does with a `subprocess.Popen[str]`, under the same names.

    `words` are a script, or `-m` and a module, with arguments. Streams: a pipe, nothing, or for errors a file.
    """

    def __init__(
        self,
        words: Sequence[str],
        *,
        cwd: Path | None = None,
        env: dict[str, str] | None = None,
        stdin: int = subprocess.PIPE,
        stderr: int | IO[bytes] = subprocess.PIPE,
        start_new_session: bool = False,
    ) -> None:
        self.returncode: Any = None  # as that of Popen
        self.stdin: IO[str] | None = None
        self.stdout: IO[str]
        self.stderr: IO[str] | None = None
        self._waits = threading.Lock()
        theirs: list[int] = []
        if stdin == subprocess.PIPE:
            read, write = os.pipe()
            theirs.append(read)
            self.stdin = os.fdopen(write, "w", encoding="utf-8")
        else:
            theirs.append(os.open(os.devnull, os.O_RDONLY))
        read, write = os.pipe()
        theirs.append(write)
        self.stdout = os.fdopen(read, encoding="utf-8")
        if isinstance(stderr, int):
            read, write = os.pipe()
            theirs.append(write)
            self.stderr = os.fdopen(read, encoding="utf-8")
        else:
            theirs.append(os.dup(stderr.fileno()))
        self._told, nurse = socket.socketpair()
        with nurse:
            socket.send_fds(_nursery(), [b"."], [*theirs, nurse.fileno()])
        for one in theirs:
            os.close(one)
        request = {
            "words": [*words],
            "cwd": str(cwd or Path.cwd()),
            "env": dict(os.environ) if env is None else env,
            "session": start_new_session,
        }
        self._told.sendall(json.dumps(request).encode() + b"\n")
        self.pid = self._line()

    def poll(self) -> Any:
        if self._waits.acquire(blocking=False):
            try:
                self._look(0)
            finally:
                self._waits.release()
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        with self._waits:
            self._look(timeout)
        if self.returncode is None:
            raise subprocess.TimeoutExpired(f"process {self.pid}", timeout or 0)
        return int(self.returncode)

    def _look(self, timeout: float | None) -> None:
        if self.returncode is None and select.select([self._told], [], [], timeout)[0]:
            self.returncode = self._line()
            self._told.close()

    def _line(self) -> int:
        """A number, and nothing of what comes after it."""
        line = b""
        while not line.endswith(b"\n"):
            byte = self._told.recv(1)
            assert byte, "the nursery is gone"
            line += byte
        return int(line)

    def send_signal(self, number: signal.Signals) -> None:
        if self.poll() is None:
            with suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def communicate(self, timeout: float | None = None) -> tuple[str, str]:
        """No more input; what is left of both streams, once it has ended."""
        if self.stdin is not None:
            with suppress(BrokenPipeError):
                self.stdin.close()
        texts = {"out": "", "err": ""}

        def drain(name: str, stream: IO[str] | None) -> None:
            if stream is not None and not stream.closed:
                with stream:
                    texts[name] = stream.read()

        threads = [threading.Thread(target=drain, args=one) for one in (("out", self.stdout), ("err", self.stderr))]
        for thread in threads:
            thread.start()
        self.wait(timeout)
        for thread in threads:
            thread.join()
        return texts["out"], texts["err"]

    def __enter__(self) -> Forked:
        return self

    def __exit__(self, *exc: Any) -> None:
        self.communicate()
