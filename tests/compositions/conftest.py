"""Compositions may be played by several processes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from crash.processes import Processes, processes_in


@pytest.fixture
def processes(tmp_path: Path) -> Iterator[Processes]:
    """Child processes on one SQLite file; whoever is left at the end is killed."""
    with processes_in(tmp_path) as processes:
        yield processes
