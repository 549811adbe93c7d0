"""Stores for observers of several processes."""

from __future__ import annotations

from pathlib import Path

import pytest

from crash.stores import KINDS, Shared, shared_at


@pytest.fixture(params=KINDS)
def shared(request: pytest.FixtureRequest, tmp_path: Path) -> Shared:
    """A store of its own, of each kind that several processes can share."""
    return shared_at(request.param, tmp_path)
