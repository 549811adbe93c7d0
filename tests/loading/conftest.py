"""Fixtures of the tests of folders: each works in a folder of its own."""

from __future__ import annotations

import os
from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def app(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working folder; the environment says nothing to bread."""
    for name in [name for name in os.environ if name.upper().startswith("BREAD_")]:
        monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)
    return tmp_path
