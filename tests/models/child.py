"""A process whose model is a provider's, for a test that kills it: `python child.py STORE BASE_URL RUN`."""

from __future__ import annotations

import asyncio
import sys

from bread import Agent, Bread, StartRun, define_agent, define_tool
from bread.runtime.providers import ProviderModel, define_model

COUNTED: list[str] = []


@define_tool(idempotent=True)
async def count(what: str) -> str:
    COUNTED.append(what)
    return f"counted {what}"


def agent_at(model: ProviderModel) -> Agent:
    return define_agent("a", model=model, tools=[count])


async def main(store: str, base_url: str, run_id: str) -> None:
    model = define_model("openai:stub-1", base_url=base_url, api_key="of-the-child")
    async with Bread(agents=[agent_at(model)], store=store) as bread:
        await bread.send(StartRun(agent="a", input="go", run_id=run_id))
        await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
