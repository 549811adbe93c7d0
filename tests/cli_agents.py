"""Agents for the tests of the command line: named by --app in the processes, imported by the tests."""

from __future__ import annotations

import asyncio
import os
from typing import Any

from bread import Bread, define_agent, define_human_tool, define_tool
from bread.testing import ScriptedModel, call, fail, pause, text

ANSWER = {"type": "object", "properties": {"approved": {"type": "boolean"}}, "required": ["approved"]}
approve = define_human_tool("approve", {"type": "object"}, response=ANSWER, prompt="Go on with {what}?")


@define_tool
def order(item: str, count: int) -> str:
    """Order something."""
    return f"ordered {count} {item}"


def ask(what: str = "it") -> list[Any]:
    return [text("May I? "), call("human_approve", {"what": what})]


async def forever() -> None:
    await asyncio.Event().wait()


def held() -> list[Any]:
    """The last turn of `patient`: it does not end where the environment says so."""
    hold = [pause(forever)] if "BREAD_TEST_HOLD" in os.environ else []
    return [text("Now "), *hold, text("done.")]


def mended() -> list[Any]:
    """The turn of `broken`: its provider fails until the environment says that it is mended."""
    broken = [] if "BREAD_TEST_MENDED" in os.environ else [fail("out of order", times=99, retryable=False)]
    return [*broken, text("Mended.")]


asker = define_agent("asker", model=ScriptedModel([ask(), [text("Thank you.")]]), tools=[approve])
twice = define_agent("twice", model=ScriptedModel([ask("one"), ask("two"), [text("Twice.")]]), tools=[approve])
buyer = define_agent(
    "buyer",
    model=ScriptedModel([[call("tool_order", {"item": "flour", "count": 2})], [text("Bought.")]]),
    tools=[order],
    permissions={"ask": ["tool:order"]},
)
patient = define_agent(
    "patient", model=ScriptedModel(lambda request: ask() if request.turn == 0 else held()), tools=[approve]
)
broken = define_agent("broken", model=ScriptedModel(lambda request: mended()))
steering = define_agent(
    "steering",
    model=ScriptedModel([ask("\x1b[2K\x1b]0;owned\x07 [bold]nothing[/bold] \u202eevil"), [text("Done.")]]),
    tools=[approve],
)

everybody = [asker, twice, buyer, patient, broken, steering]
elsewhere = Bread(agents=everybody, store="sqlite:///named-by-the-app.db")
nobody = "not an agent"
