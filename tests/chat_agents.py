"""Agents to talk with, for the tests of `chat` and `invoke`. What their tools do is counted in the working folder."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, Field

from bread import ModelRequest, define_agent, define_human_tool, define_skill, define_tool
from bread.domain.messages import UserMessage
from bread.testing import ScriptedModel, call, fail, text

MARKS, BEGAN, GATE, MENDED = (Path(name) for name in ("marks", "began", "gate", "mended"))


class Booking(BaseModel):
    room: Literal["red", "blue"]
    nights: int = Field(ge=1, description="how many")
    note: str | None = None


book = define_human_tool("book", {"type": "object"}, response=Booking, prompt="Which room for {guest}?")
colour = define_human_tool("colour", {"type": "object"}, response={"enum": ["red", "blue"]}, prompt="Paint {what}?")
soon = define_human_tool("soon", {"type": "object"}, timeout=3600, prompt="Now?")
at_once = define_human_tool("at_once", {"type": "object"}, timeout=2, on_timeout="nobody", prompt="At once?")


def mark(what: str) -> None:
    with MARKS.open("a") as file:
        file.write(f"{what}\n")


@define_tool
def first() -> str:
    """Do what is done at once."""
    mark("first")
    return "first done"


@define_tool
def slow() -> str:
    """Tell that it has begun, and go on when it is let."""
    mark("slow")
    BEGAN.write_text("x")
    return GATE.read_text()


@define_tool
def order(item: str, count: int) -> str:
    """Order something."""
    mark(f"order {count} {item}")
    return f"ordered {count} {item}"


def echoed(request: ModelRequest) -> list[Any]:
    """Say what was said."""
    said = [message for message in request.messages if isinstance(message, UserMessage)]
    return [text(f"You said {said[-1].text!r}.")]


def mended(request: ModelRequest) -> list[Any]:
    return [text("Mended.")] if MENDED.exists() else [fail("out of order", times=99, retryable=False)]


def agent(id: str, script: Any, *tools: Any, **options: Any) -> Any:
    return define_agent(id, model=ScriptedModel(script), tools=tools, **options)


polite = define_skill("polite", description="Be polite.", prompt="Say please.")
echo = agent("echo", echoed, skills=[polite])
host = agent("host", [[text("Let me ask. "), call("human_book", {"guest": "Ann"})], [text("Booked for Ann.")]], book)
buyer = agent(
    "buyer",
    [[call("tool_order", {"item": "two  words", "count": 2})], [text("That is all.")]],
    order,
    permissions={"ask": ["tool:order"]},
)
painter = agent(
    "painter",
    [
        [call("human_colour", {"what": "the door"}), call("human_colour", {"what": "the wall"})],
        [text("And now? "), call("human_colour", {"what": "the floor"})],
        [text("Painted.")],
    ],
    colour,
)
worker = agent("worker", [[call("tool_first")], [call("tool_slow")], [text("All is done.")]], first, slow)
gated = agent(
    "gated",
    [[call("tool_slow")], [call("tool_order", {"item": "salt", "count": 1})], [text("So be it.")]],
    slow,
    order,
    permissions={"ask": ["tool:order"]},
)
hasty = agent("hasty", [[call("human_soon")], [call("human_at_once")], [text("Too late.")]], soon, at_once)
broken = agent("broken", mended)
numbers = agent("numbers", [[text('{"sum": 3}')]], output={"type": "object"})
asks_back = agent(
    "asks_back", [[call("human_colour", {"what": "\x1b]0;owned\x07 \u202e"})], [text("\x1b[2J!")]], colour
)

flaky = agent("flaky", [[text("Half a "), fail("overloaded"), text("whole.")]])

everybody = [flaky, echo, host, buyer, painter, worker, gated, hasty, broken, numbers, asks_back]
only = [echo]


def marks(folder: Path) -> list[str]:
    """What the tools did in a folder."""
    file = folder / MARKS
    return file.read_text().splitlines() if file.exists() else []


def gates(folder: Path) -> tuple[Path, Path]:
    """Where the slow tool tells that it has begun, and where it is let go on."""
    for gate in (BEGAN, GATE):
        os.mkfifo(folder / gate)
    return folder / BEGAN, folder / GATE
