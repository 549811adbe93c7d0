"""A tool that a person has to approve, with arguments that the person may edit."""

from __future__ import annotations

import asyncio

from bread import Bread, define_agent, define_tool
from bread.testing import ScriptedModel, call, text

sent: list[str] = []


@define_tool
async def send_mail(to: str, body: str) -> str:
    """Send a mail."""
    sent.append(f"{to}: {body}")
    return "sent"


model = ScriptedModel(
    [[text("I will write. "), call("tool_send_mail", {"to": "all", "body": "hi"})], [text("The mail is out.")]]
)
clerk = define_agent("clerk", model=model, tools=[send_mail], permissions={"ask": ["tool:send_*"]})


async def main(store: str = "memory://") -> str:
    async with Bread(agents=[clerk], store=store) as bread:
        async for crumb in bread.run("clerk", "greet everybody"):
            if crumb.type == "human:required":
                print(f"{crumb.prompt} {crumb.args}")
                edited = {"approved": True, "args": {"to": "ann", "body": "hi"}}
                print(await bread.resume(crumb.checkpoint_id, edited, author="bob"))
    print(sent)
    return sent[-1]


if __name__ == "__main__":
    asyncio.run(main())
