"""Every test of behaviour compares the log with itself and with the views when it closes its bread."""

from __future__ import annotations

from typing import Any

import pytest

from bread import Agent, Bread
from scenes import Checked, OpenBread
from support import Mode


@pytest.fixture
def open_bread(mode: Mode, store: str) -> OpenBread:
    """`async with open_bread(agent, ...) as bread:` on the store of this test; backoff of model retries is short."""

    def make(*agents: Agent, **options: Any) -> Bread:
        settings: dict[str, Any] = {"store": store, "always_replay": mode == "replay", "backoff": (0.01,), "grace": 1.0}
        return Checked(agents=agents, **(settings | options))

    return make
