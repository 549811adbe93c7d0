"""A process that performs runs on a store with NATS, and dies when it is told to: lines in, lines out.

python -m bus.child sqlite:///... nats://... committed:3
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from typing import Any

from bread import Bread, define_agent, define_human_tool
from bread.testing import ScriptedModel, call, text

ask = define_human_tool("ask", {"type": "object"})
CLERK = define_agent("clerk", model=ScriptedModel([[text("May I? "), call("human_ask")], [text("Done.")]]), tools=[ask])


def say(line: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(line) + "\n")
    sys.stdout.flush()


async def main(store: str, nats: str, dies: str) -> None:
    point, _, count = dies.partition(":")
    left = int(count or 0)

    def fault(here: str) -> None:
        nonlocal left
        if here == point:
            left -= 1
            if not left:
                os.kill(os.getpid(), signal.SIGKILL)

    commands = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(commands), sys.stdin)
    bread = Bread(agents=[CLERK], store=store, nats=nats, fault=fault)
    await bread.open()
    say({"ready": bread.worker})
    async for line in commands:
        command = json.loads(line)
        run = bread.run("clerk", "go", session=command["session"])
        say({"run": run.run_id})
        await run.begin()
        async for _ in bread.observe(run.run_id, until="rest"):
            pass
        say({"rests": run.run_id})
    await bread.close()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
