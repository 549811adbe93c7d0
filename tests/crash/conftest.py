"""Processes for tests that kill them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from crash.processes import Processes, processes_on
from crash.stores import KINDS, Shared, shared_at


@pytest.fixture(params=KINDS)
def shared(request: pytest.FixtureRequest, tmp_path: Path) -> Shared:
    """A store of its own, of each kind that several processes can share."""
    return shared_at(request.param, tmp_path)


@pytest.fixture
def processes(shared: Shared, tmp_path: Path) -> Iterator[Processes]:
    """Child processes on one store; whoever is left at the end is killed."""
    with processes_on(shared, tmp_path) as processes:
        yield processes
