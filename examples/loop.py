"""A loop: an agent runs a pipeline of others again, with feedback, until it likes what comes out."""

from __future__ import annotations

import asyncio
from typing import Any

from bread import Bread, Loop, ModelRequest, define_agent
from bread.testing import ScriptedModel, call, text


def write(request: ModelRequest) -> list[Any]:
    """A draft of the poem, shorter where the feedback says so."""
    return [text("a short poem" if "shorter" in str(request.messages[-1]) else "a long, long poem")]


model = ScriptedModel(
    [
        [call("core_start_loop", {"pipeline": ["writer"], "input": "a poem"})],
        [call("core_iterate_loop")],
        [call("core_iterate_loop", {"feedback": "shorter"})],
        [call("core_finish_loop", {"result": "the second one"})],
        [text("It is written.")],
    ]
)
writer = define_agent("writer", model=ScriptedModel(write))
editor = define_agent("editor", model=model, loop=Loop(pool=["writer"], max_iterations=3))


async def main(store: str = "memory://") -> list[object]:
    async with Bread(agents=[editor, writer], store=store) as bread:
        print(await bread.run("editor", "write a poem"))
        [loop] = (await bread.list_loops()).items
    print(loop.status, [iteration.output for iteration in loop.iterations], loop.result)
    return [loop.status, *(iteration.output for iteration in loop.iterations)]


if __name__ == "__main__":
    asyncio.run(main())
