"""The shortest agent that asks a person: ten lines, one question, one answer."""

from __future__ import annotations

import asyncio

from bread import Bread, define_agent, define_human_tool
from bread.testing import ScriptedModel, call, text

colour = define_human_tool("pick_colour", {"type": "object"}, response={"enum": ["red", "blue"]}, prompt="Which one?")
model = ScriptedModel([[text("Let me ask. "), call("human_pick_colour")], [text("Painted.")]])
painter = define_agent("painter", model=model, prompt="You paint.", tools=[colour])


async def main(store: str = "memory://") -> object:
    async with Bread(agents=[painter], store=store) as bread:
        output: object = None
        async for crumb in bread.run("painter", "paint the door"):
            if crumb.type == "human:required":
                output = await bread.resume(crumb.checkpoint_id, "blue", author="ann")
    print(output)
    return output


if __name__ == "__main__":
    asyncio.run(main())
