"""A supervisor: one agent hands work to another, which asks a person; the answer goes on up to the supervisor."""

from __future__ import annotations

import asyncio

from bread import Bread, Supervisor, define_agent
from bread.testing import ScriptedModel, call, text

from .question import painter

model = ScriptedModel(
    [
        [text("I know a painter. "), call("core_delegate", {"agentId": "painter", "input": "paint the door"})],
        [text("The house is done.")],
    ]
)
builder = define_agent("builder", model=model, supervisor=Supervisor(agents=["painter"]))


async def main(store: str = "memory://") -> object:
    async with Bread(agents=[builder, painter], store=store) as bread:
        output: object = None
        async for crumb in bread.run("builder", "build a house"):
            if crumb.type == "human:required":
                print(f"{crumb.agent_id} asks: {crumb.prompt}")
                output = await bread.resume(crumb.checkpoint_id, "red", author="ann")
    print(output)
    return output


if __name__ == "__main__":
    asyncio.run(main())
