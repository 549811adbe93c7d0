"""A server process of the chaos: `python played.py '{"store": ..., "port": ..., "effects": ..., "options": {...}}'`.

Its agents ask people, call tools that write down that they were called, and stand in branches and below a supervisor.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from typing import Any

from bread import Bread, Supervisor, ToolContext, define_agent, define_human_tool, define_tool, parallel
from bread.domain.ports import ModelRequest
from bread.runtime.http.serve import serve
from bread.testing import ScriptedModel, call, pause, text

PIPELINE = "branches"
ask = define_human_tool("ask", {"type": "object"}, prompt="Well?")


async def moment() -> None:
    """Long enough to be killed in."""
    await asyncio.sleep(0.03)


def noted(tool: str, ctx: ToolContext) -> None:
    line = json.dumps({"tool": tool, "key": ctx.idempotency_key, "run": ctx.run_id, "pid": os.getpid()}) + "\n"
    handle = os.open(SPEC["effects"], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    os.write(handle, line.encode())
    os.close(handle)


@define_tool
async def once(ctx: ToolContext) -> str:
    """May happen once: whoever is killed in it leaves a doubt."""
    noted("once", ctx)
    await moment()
    return "done once"


@define_tool(idempotent=True)
async def again(ctx: ToolContext) -> str:
    """May happen again, with the same key."""
    noted("again", ctx)
    await moment()
    return "done"


def clerk(request: ModelRequest) -> Any:
    match request.turn:
        case 0:
            return [text("First é, "), pause(moment), text("then. "), call("tool_once"), call("tool_again")]
        case 1:
            return [text("May I? "), pause(moment), call("human_ask", {"n": 1}), call("tool_once")]
        case 2:
            return [call("human_ask", {"n": 2}), call("human_ask", {"n": 3})]
        case _:
            return [pause(moment), text("So be it."), pause(moment), text(" The end.")]


def boss(request: ModelRequest) -> Any:
    if request.turn == 0:
        both = [call("core_delegate", {"agentId": "clerk", "input": "go"}) for _ in range(2)]
        return [text("You two. "), *both]
    return [text("Well done.")]


AGENTS = [
    define_agent("clerk", model=ScriptedModel(clerk), tools=[ask, once, again]),
    define_agent("brief", model=ScriptedModel([[text("In brief."), pause(moment)]])),
    define_agent("boss", model=ScriptedModel(boss), supervisor=Supervisor(agents=["clerk"])),
]

if __name__ == "__main__":
    SPEC = json.loads(sys.argv[1])
    app = Bread(
        agents=AGENTS,
        pipelines={PIPELINE: [parallel("clerk", "brief", "clerk"), "brief"]},
        store=SPEC["store"],
        **SPEC["options"],
    )
    serve(app, "127.0.0.1", SPEC["port"], ready=lambda address: print(address, flush=True))
