"""Fixtures that all tests share. Every test has a store of its own."""

from __future__ import annotations

import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from bread import Agent, Bread
from postgres import store_at
from support import MODES, Mode


def pytest_configure() -> None:
    # Where the tests run in the background Ctrl-C is ignored, and so it would be by every process that they start.
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """What tests have counted: a line each, before the last one."""
    for report in (one for state in ("passed", "failed") for one in terminalreporter.getreports(state)):
        for name, counts in report.user_properties:
            if name == "counts" and isinstance(counts, dict):
                said = ", ".join(f"{number} {what}" for what, number in counts.items())
                terminalreporter.write_line(f"{report.nodeid.rpartition('::')[2]}: {said}")


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(params=MODES)
def mode(request: pytest.FixtureRequest) -> Mode:
    """memory, SQLite, SQLite where every run is forgotten and reloaded after each commit, and PostgreSQL."""
    return request.param  # type: ignore[no-any-return]


@pytest.fixture
def store(mode: Mode, tmp_path: Path) -> str:
    if mode == "postgres":
        return store_at(tmp_path)
    return "memory://" if mode == "memory" else f"sqlite:///{tmp_path}/bread.db"


@pytest.fixture
def open_bread(mode: Mode, store: str) -> Callable[..., Bread]:
    """`async with open_bread(agent, ...) as bread:` on the store of this test; backoff of model retries is short."""

    def make(*agents: Agent, **options: Any) -> Bread:
        settings: dict[str, Any] = {"store": store, "always_replay": mode == "replay", "backoff": (0.01,)}
        return Bread(agents=agents, **(settings | options))

    return make
