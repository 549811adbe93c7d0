"""The scripted model: turns written down beforehand. Product code, for demos, tests and benchmarks.

Turn n answers the n-th model call of a run. The request says which one it is, so a script survives restarts.
"""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass
from inspect import isawaitable
from typing import Any

from ..domain.events import JsonValue
from ..domain.messages import ToolUse, native_message
from ..domain.ports import (
    ModelError,
    ModelEvent,
    ModelRequest,
    ReasoningDelta,
    TextDelta,
    ToolInputDelta,
    TurnDone,
)
from ..domain.run_events import Usage


@dataclass(frozen=True, slots=True)
class Text:
    """Text, streamed word by word."""

    text: str


@dataclass(frozen=True, slots=True)
class Reasoning:
    text: str


@dataclass(frozen=True, slots=True)
class Call:
    """A tool call under its model-facing name (`tool_fetch`, `human_approve`)."""

    tool: str
    args: JsonValue
    id: str = ""


@dataclass(frozen=True, slots=True)
class Fail:
    """The provider fails here, in the first `times` attempts at the turn."""

    message: str
    times: int
    retryable: bool
    retry_after: float | None


@dataclass(frozen=True, slots=True)
class Pause:
    """Wait until `until` returns: for tests that need to be inside a turn."""

    until: Callable[[], Awaitable[Any]]


Part = Text | Reasoning | Call | Fail | Pause
Turn = Sequence[Part]


def text(text: str) -> Text:
    """Words of the model."""
    return Text(text)


def reasoning(text: str) -> Reasoning:
    """Thoughts of the model: a live hint for observers."""
    return Reasoning(text)


def call(tool: str, args: JsonValue = None, *, id: str = "") -> Call:
    """A tool call; without an id it gets one that is unique in its run, as a provider would give it."""
    return Call(tool, {} if args is None else args, id)


def fail(message: str = "overloaded", *, times: int = 1, retryable: bool = True, after: float | None = None) -> Fail:
    """A provider failure in the first `times` attempts; `after` is the provider's retry-after in seconds."""
    return Fail(message, times, retryable, after)


def pause(until: Callable[[], Awaitable[Any]]) -> Pause:
    """Hold the stream until an awaitable is done."""
    return Pause(until)


class ScriptedModel:
    """A model that says what is written: a list of turns, or a function from the request to a turn."""

    def __init__(
        self,
        script: Sequence[Turn] | Callable[[ModelRequest], Turn | Awaitable[Turn]],
        *,
        name: str = "scripted",
    ) -> None:
        self.name = name
        self._script = script

    async def _turn(self, request: ModelRequest) -> Turn:
        if callable(self._script):
            turn = self._script(request)
            return await turn if isawaitable(turn) else turn
        if request.turn >= len(self._script):
            raise ModelError(f"the script ends before turn {request.turn}", retryable=False)
        return self._script[request.turn]

    async def stream(self, request: ModelRequest) -> AsyncIterator[ModelEvent]:
        said, thought, calls = "", "", list[ToolUse]()
        for part in await self._turn(request):
            match part:
                case Text():
                    for word in re.findall(r"\S+\s*|\s+", part.text):
                        yield TextDelta(word)
                    said += part.text
                case Reasoning():
                    yield ReasoningDelta(part.text)
                    thought += part.text
                case Call():
                    use = ToolUse(part.tool, part.args, part.id or f"call_{request.turn}_{len(calls)}")
                    yield ToolInputDelta(len(calls), use.tool, use.id, _json(use.args), done=True)
                    calls.append(use)
                case Fail():
                    if request.attempt < part.times:
                        raise ModelError(part.message, retryable=part.retryable, retry_after=part.retry_after)
                case Pause():
                    await part.until()
        words = sum(len(str(getattr(message, "text", ""))) for message in request.messages) // 4
        usage = Usage(input_tokens=words, output_tokens=len(said) // 4)
        finish = "tool_calls" if calls else "stop"
        yield TurnDone(native_message(said, tuple(calls), thought), finish, usage)


def _json(value: JsonValue) -> str:
    return json.dumps(value, ensure_ascii=False)
