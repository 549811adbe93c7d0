"""How pipelines stop, as their tests see it."""

from __future__ import annotations

from typing import Any

import pytest

from bread import Bread, RunStopped


async def statuses(bread: Bread, root: str) -> dict[str, str]:
    """How each run of a tree stands, by agent."""
    return {run.agent_id: run.status for run in (await bread.list_runs(root=root, limit=1000)).items}


async def stopped(stream: Any) -> tuple[str, str]:
    """The code and the message that an awaited run ends with."""
    with pytest.raises(RunStopped) as caught:
        await stream
    return caught.value.code, caught.value.message
