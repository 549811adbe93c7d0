"""Agents that talk at length, in words that are hard to count; the same in every process but for what they say."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from random import Random
from typing import Any

from bread import Agent, ModelRequest, define_agent, define_human_tool, define_tool
from bread.testing import ScriptedModel, call, pause, text

WORDS = (
    "one ",
    "naïve ",
    "日本語 ",
    "\U0001f680\U0001f469\u200d\U0001f4bb ",
    "e\u0301",
    "\U0001d54f",
    "\n\n",
    "last. ",
)

sign = define_human_tool("sign", {"type": "object"}, prompt="Sign?")


@define_tool(idempotent=True)
async def fetch() -> str:
    return "fetched \U0001f4be"


def speech(words: int, seed: int | str = 0) -> str:
    random = Random(seed)
    return "".join(random.choice(WORDS) + " " for _ in range(words))


def storyteller(process: str, pace: Callable[[], Awaitable[Any]], *, pieces: int = 20) -> Agent:
    """Speaks, asks; speaks, uses a tool; speaks, asks twice; speaks. No process says what another one would."""

    def turn(request: ModelRequest) -> list[Any]:
        parts: list[Any] = []
        for piece in range(pieces):
            parts += [text(speech(4, f"{process} {request.run_id} {request.turn} {piece}")), pause(pace)]
        calls = {0: ["human_sign"], 1: ["tool_fetch"], 2: ["human_sign", "human_sign"]}.get(request.turn, [])
        return parts + [call(tool) for tool in calls]

    return define_agent("storyteller", model=ScriptedModel(turn), tools=[sign, fetch])
