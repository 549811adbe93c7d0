"""What the tests of traps share."""

from __future__ import annotations

from typing import Any

from bread import Agent, define_agent, define_tool
from bread.runtime.providers import ProviderModel


def agent_of(model: ProviderModel, *tools: Any, **options: Any) -> Agent:
    return define_agent("a", model=model, tools=tools, settings={"timeout": 10}, **options)


# --- 7: arguments that are none ---------------------------------------------------------------------------------------


@define_tool
async def fetch(url: str) -> str:
    """Fetch a page."""
    assert url == "x"
    return f"the page of {url}"
