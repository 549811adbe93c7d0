"""The agents of a child process: what a run does stands in its input; and gates, faults and a file of effects."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections import Counter
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent.parent))

from bread import (
    HumanTool,
    Tool,
    ToolContext,
    define_agent,
    define_human_tool,
    define_tool,
)
from bread.domain.messages import ToolMessage
from bread.domain.ports import ModelRequest
from bread.runtime.scripted import Part
from bread.testing import ScriptedModel, call, fail, pause, text

SPEC: dict[str, Any] = json.loads(sys.argv[1])
ME: dict[str, str] = {}  # what this process is called
EFFECTS = os.open(SPEC["effects"], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)


def emit(line: dict[str, Any]) -> None:
    os.write(1, json.dumps(line).encode() + b"\n")


def effect(**what: Any) -> None:
    """The world notices: one line, appended at once."""
    os.write(EFFECTS, json.dumps(what).encode() + b"\n")


# --- dying ------------------------------------------------------------------------------------------------------------

HITS: Counter[str] = Counter()


def fault(point: str) -> None:
    """Die at the n-th hit of a point, as the power fails: nothing of this process runs after this line."""
    HITS[point] += 1
    if SPEC.get("kill") == [point, HITS[point]]:
        os.kill(os.getpid(), signal.SIGKILL)


# --- gates: a tool or a model that waits until the test lets it go on -------------------------------------------------

GATES: dict[str, asyncio.Event] = {}


async def gate(name: str, **where: Any) -> None:
    emit({"event": "at_gate", "gate": name, **where})
    await GATES.setdefault(name, asyncio.Event()).wait()


# --- tools ------------------------------------------------------------------------------------------------------------


def did(tool: str, what: str, ctx: ToolContext) -> None:
    effect(
        tool=tool, what=what, run=ctx.run_id, key=ctx.idempotency_key, worker=ME["worker"], approved_by=ctx.approved_by
    )
    fault("in_tool")


@define_tool
async def note(what: str, ctx: ToolContext) -> str:
    did("note", what, ctx)
    return f"noted {what}"


@define_tool
async def slow(what: str, ctx: ToolContext, door: str = "") -> str:
    """Has its effect, then waits at its gate."""
    did("slow", what, ctx)
    await gate(door or what, run=ctx.run_id)
    return f"slowly {what}"


@define_tool(idempotent=True)
def ship(what: str, ctx: ToolContext) -> str:
    """Not async: runs in a thread."""
    did("ship", what, ctx)
    return f"shipped {what}"


@define_tool
async def refund(what: str, ctx: ToolContext) -> str:
    did("refund", what, ctx)
    return f"refunded {what}"


@define_tool(idempotent=True)
def refund_safely(what: str, ctx: ToolContext) -> str:
    did("refund_safely", what, ctx)
    return f"refunded {what}"


def counting(idempotent: bool) -> Tool:
    """What the leaves of compositions call beside their questions."""

    @define_tool(idempotent=idempotent)
    async def count(what: str, ctx: ToolContext) -> None:
        did("count", what, ctx)

    return count


QUESTION = define_human_tool(
    "question", {"type": "object", "properties": {"what": {"type": "string"}}}, prompt="Well, {what}?"
)
TIMELY = define_human_tool("timely", {"type": "object"}, timeout=60, on_timeout="nobody came")


# --- the model --------------------------------------------------------------------------------------------------------


async def script_of(request: ModelRequest) -> list[Part]:
    """Turn n of the run, out of its input: {"turns": [[{"say": ...}, {"call": ..., "args": ...}, {"gate": ...}]]}."""
    first = next(message for message in request.messages if message.role == "user")
    results = {m.call_id: m.content for m in request.messages if isinstance(m, ToolMessage)}
    effect(model=request.turn, run=request.run_id, worker=ME["worker"], results=results)
    return [part_of(part, request) for part in json.loads(first.text)["turns"][request.turn]]


def part_of(part: dict[str, Any], request: ModelRequest) -> Part:
    if "say" in part:
        return text(part["say"])
    if "gate" in part:
        return pause(lambda: gate(part["gate"], run=request.run_id))
    if "fail" in part:
        return fail(part["fail"], times=99, retryable=False)
    return call(part["call"], part.get("args"))


def agent(name: str) -> Any:
    tools: list[Tool | HumanTool] = [note, slow, ship, refund, refund_safely, QUESTION, TIMELY]
    return define_agent(
        name, model=ScriptedModel(script_of, name="child"), tools=tools, permissions={"ask": ["tool:refund*"]}
    )
