"""A server process for the tests: `python served.py STORE PORT OPTIONS`. OPTIONS are
JSON, as of `serve`. It prints its address when it listens."""

from __future__ import annotations

import asyncio
import json
import sys
from typing import Any

from bread import Bread, Loop, Supervisor, define_agent, define_human_tool, define_tool, parallel
from bread.runtime.http.serve import serve
from bread.testing import ScriptedModel, call, fail, pause, text

ask = define_human_tool("ask", {"type": "object"}, response={"enum": ["yes", "no"]}, prompt="Well?")
GATE = asyncio.Event()


@define_tool
def open_gate() -> str:
    """Let `slow` go on."""
    GATE.set()
    return "open"


def echo(request: Any) -> list[Any]:
    return [text("You said: "), text(request.messages[-1].text)]


clerk = define_agent("clerk", model=ScriptedModel([[text("Hm é. "), call("human_ask")], [text("Noted.")]]), tools=[ask])
echoes = define_agent("echo", model=ScriptedModel(echo))
slow = define_agent("slow", model=ScriptedModel([[text("Wait. "), pause(GATE.wait), text("Done.")]]))
opener = define_agent("opener", model=ScriptedModel([[call("tool_open_gate")], [text("Opened.")]]), tools=[open_gate])
broken = define_agent("broken", model=ScriptedModel([[fail("no", times=99, retryable=False)]]))
typed = define_agent("typed", model=ScriptedModel(echo), input={"type": "object", "required": ["n"]})
boss = define_agent(
    "boss",
    model=ScriptedModel([[call("core_delegate", {"agentId": "clerk", "input": "x"})], [text("Led.")]]),
    supervisor=Supervisor(agents=["clerk"]),
)
turns = [call("core_start_loop", {"pipeline": ["echo"], "input": "x"}), call("core_iterate_loop", {})]
host = define_agent("host", model=ScriptedModel([turns, [text("Looped.")]]), loop=Loop(pool=["echo"]))
agents = [clerk, echoes, slow, opener, broken, typed, boss, host]

if __name__ == "__main__":
    bread = Bread(agents=agents, pipelines={"both": ["echo", parallel("echo", "clerk")]}, store=sys.argv[1])
    options = {"body_limit": 10_000} | json.loads(sys.argv[3])
    serve(bread, "127.0.0.1", int(sys.argv[2]), ready=lambda address: print(address, flush=True), **options)
