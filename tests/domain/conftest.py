"""Fixtures of the tests here."""

import pytest

from .support import World


@pytest.fixture
def world() -> World:
    return World(at=100.0)
