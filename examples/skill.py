"""A skill: instructions and a tool that the model loads when it needs them, and that are there from then on."""

from __future__ import annotations

import asyncio

from bread import Bread, define_agent, define_skill, define_tool
from bread.testing import ScriptedModel, call, text


@define_tool
def check_title(title: str) -> list[str]:
    """What is wrong with a title; nothing if the list is empty."""
    return ["longer than 20 characters"] if len(title) > 20 else []


house_style = define_skill(
    "house_style",
    description="How posts of this house are written. Load it before you write one.",
    prompt="Short sentences. Check every title with skill_house_style_check_title.",
    tools=[check_title],
    references={"words.md": 'We say "use", not "leverage".'},
)
model = ScriptedModel(
    [
        [call("core_load_skill", {"skill": "house_style"})],
        [call("skill_house_style_check_title", {"title": "Bread is launched"})],
        [text("Bread is launched.")],
    ]
)
writer = define_agent("writer", model=model, prompt="You write posts.", skills=[house_style])


async def main(store: str = "memory://") -> list[str]:
    used: list[str] = []
    async with Bread(agents=[writer], store=store) as bread:
        async for crumb in bread.run("writer", "announce the launch"):
            if crumb.type == "tool:result":
                used.append(f"{crumb.tool_name} -> {crumb.result}")
        # Or the caller says so, and the model need not load it: bread.run("writer", ..., skill="house_style")
    print(used)
    return used


if __name__ == "__main__":
    asyncio.run(main())
