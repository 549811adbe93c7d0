"""Servers as the command line starts them, each a process of its own."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from cli_kit import PATIENCE, environment
from forked import Forked


def command(folder: Path, *words: str, app: str = "app:clerk", **env: str) -> Forked:
    """A command in a folder, as a process that goes on."""
    words = ("-m", "bread.runtime.cli", "--app", app, *words)
    return Forked(words, cwd=folder, env=environment(**env), stdin=subprocess.DEVNULL, start_new_session=True)


def done(folder: Path, *words: str, **env: str) -> tuple[int, str, str]:
    """A command that ends: its exit code, and what it printed."""
    process = command(folder, *words, **env)
    out, err = process.communicate(timeout=PATIENCE)
    return process.returncode, out, err


def address(process: Forked) -> str:
    """Where a server listens, once it does."""
    for line in process.stdout:
        if line.startswith("API "):
            return line.split()[1]
    raise AssertionError("it never listened")


@contextmanager
def served(folder: Path, *words: str, app: str = "app:clerk") -> Iterator[tuple[Forked, str]]:
    """A server, as `bread start` or `bread dev`, on a free port; its process and its address."""
    process = command(folder, *words, "--port", "0", app=app)
    try:
        yield process, address(process)
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)  # `dev` has a process of its own for each life
        process.communicate()
