"""A pipeline: two people are asked at once, what they say is merged in the order of the branches, and it goes on."""

from __future__ import annotations

import asyncio
from typing import Any

from bread import Agent, Bread, ModelRequest, define_agent, define_human_tool, parallel, step
from bread.testing import ScriptedModel, call, text

sign = define_human_tool("sign", {"type": "object"}, response={"type": "boolean"}, prompt="{who}: do you sign?")


def reviewer(who: str) -> Agent:
    def script(request: ModelRequest) -> list[Any]:
        return [text(f"{who} has signed")] if request.turn else [call("human_sign", {"who": who})]

    return define_agent(who, model=ScriptedModel(script), tools=[sign])


agents = [reviewer("law"), reviewer("finance"), define_agent("sender", model=ScriptedModel([[text("Sent.")]]))]
pipelines = {"contract": [parallel("law", "finance"), step("sender")]}


async def main(store: str = "memory://") -> list[object]:
    outputs: list[object] = []
    async with Bread(agents=agents, pipelines=pipelines, store=store) as bread:
        asked = [crumb async for crumb in bread.run_pipeline("contract", "the lease") if crumb.type == "human:required"]
        # Whoever answers last goes on with the pipeline.
        for question in reversed(asked):
            print(question.prompt)
            async for crumb in bread.resume(question.checkpoint_id, True, author="ann"):
                if crumb.type == "pipeline:step:end":
                    outputs.append(crumb.output)
    print(outputs)
    return outputs


if __name__ == "__main__":
    asyncio.run(main())
