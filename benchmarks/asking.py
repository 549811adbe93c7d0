"""The cycle that is measured everywhere: an agent asks, is answered, and ends. 4 commits."""

from __future__ import annotations

from typing import Any

from bread import Bread, define_agent, define_human_tool
from bread.testing import ScriptedModel, call, text

approve = define_human_tool("approve", {"type": "object", "properties": {"url": {"type": "string"}}})
ASKS: list[Any] = [text("May I? "), call("human_approve", {"url": "https://x.test"})]
asker = define_agent("asker", model=ScriptedModel([ASKS, [text("Done.")]]), tools=[approve])


async def ask(bread: Bread, agent: str) -> str:
    """Run an agent to its question."""
    async for crumb in bread.run(agent, "go"):
        if crumb.type == "human:required":
            return crumb.checkpoint_id
    raise RuntimeError("the run asked nothing")


async def cycle(bread: Bread, agent: str = "asker") -> None:
    await bread.resume(await ask(bread, agent), {"yes": True}, author="bench")
