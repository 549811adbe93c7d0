"""Fixtures of the command's tests."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from cli_kit import Server, Shell


@pytest.fixture(scope="session")
def server() -> Iterator[Server]:
    server = Server()
    yield server
    server.close()


@pytest.fixture
def shell(tmp_path: Path, server: Server) -> Shell:
    return Shell(tmp_path, server)
