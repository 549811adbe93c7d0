"""A real server in a process of its own, one for a module, and clients that speak HTTP with it."""

from __future__ import annotations

import json
import subprocess
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest

from forked import Forked

SERVED = Path(__file__).with_name("served.py")


class Served:
    """A server process on a store; options as of `serve`."""

    def __init__(self, store: str, port: int = 0, **options: Any) -> None:
        self.store = store
        words = [str(SERVED), store, str(port), json.dumps(options)]
        with open(2, "wb", closefd=False) as errors:
            self.process = Forked(words, stdin=subprocess.DEVNULL, stderr=errors)
        self.url = self.process.stdout.readline().strip()
        assert self.url, "the server did not start"
        self.port = int(self.url.rpartition(":")[2])

    def stop(self) -> int:
        """SIGTERM; gives the exit code."""
        self.process.terminate()
        self.process.communicate(timeout=20)
        return int(self.process.returncode)

    def kill(self) -> None:
        if self.process.returncode is None:
            self.process.kill()
            self.process.communicate()


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    server = Served(f"sqlite:///{tmp_path_factory.mktemp('served')}/bread.db")
    yield server
    server.kill()


@pytest.fixture
async def client(served: Served) -> AsyncIterator[httpx2.AsyncClient]:
    async with httpx2.AsyncClient(base_url=served.url, timeout=30, trust_env=False) as client:
        yield client
