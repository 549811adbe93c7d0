"""The conversation with a model, in neutral terms that no provider owns.

A model's turn is stored as the model layer's own message under a codec tag and sent back unchanged; `read_turn` gives
the neutral reading of it. Readers are pure walks over plain data, so that no provider package is needed to read a log.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict

from .errors import StoreUnreadable
from .events import JsonValue, finite

NATIVE = "bread/1"
PYDANTIC_AI = "pydantic-ai/2"


class Message(BaseModel):
    """A model turn as its model layer wrote it. `codec` names who can read `data`."""

    model_config = ConfigDict(frozen=True, extra="allow", defer_build=True)

    codec: str
    data: JsonValue


@dataclass(frozen=True, slots=True)
class ToolUse:
    """One call that a model asked for; `id` is the provider's and may repeat or be empty.

    `malformed` where the model wrote something that is not JSON: `args` is that text.
    """

    tool: str
    args: JsonValue
    id: str = ""
    malformed: bool = False


@dataclass(frozen=True, slots=True)
class Turn:
    """The neutral reading of a model turn."""

    text: str
    calls: tuple[ToolUse, ...] = ()
    reasoning: str = ""


_READERS: dict[str, Callable[[Any], Turn]] = {}


def reader(codec: str) -> Callable[[Callable[[Any], Turn]], Callable[[Any], Turn]]:
    """Register the neutral reading of a codec."""

    def register(read: Callable[[Any], Turn]) -> Callable[[Any], Turn]:
        _READERS[codec] = read
        return read

    return register


def read_turn(message: Message) -> Turn:
    """The text and the calls of a stored model turn; StoreUnreadable (EVENT_UNKNOWN) for an unknown codec."""
    read = _READERS.get(message.codec)
    if read is None:
        raise StoreUnreadable("EVENT_UNKNOWN", f"this release cannot read messages of {message.codec!r}")
    return read(message.data)


def native_message(text: str, calls: tuple[ToolUse, ...] = (), reasoning: str = "") -> Message:
    """A model turn in bread's own codec; empty parts are left out."""
    data: dict[str, JsonValue] = {}
    if text:
        data["text"] = text
    if calls:
        data["calls"] = [{"tool": c.tool, "args": finite(c.args)} | ({"id": c.id} if c.id else {}) for c in calls]
    if reasoning:
        data["reasoning"] = reasoning
    return Message(codec=NATIVE, data=data)


@reader(NATIVE)
def _read_native(data: Any) -> Turn:
    calls = tuple(ToolUse(c["tool"], c["args"], c.get("id", "")) for c in data.get("calls", ()))
    return Turn(data.get("text", ""), calls, data.get("reasoning", ""))


@reader(PYDANTIC_AI)
def _read_pydantic_ai(data: Any) -> Turn:
    text, reasoning, calls = "", "", []
    for part in data["parts"]:
        match part["part_kind"]:
            case "text":
                text += part["content"]
            case "thinking":
                reasoning += part["content"]
            case "tool-call":
                calls.append(_use(part))
    return Turn(text, tuple(calls), reasoning)


def _use(part: dict[str, Any]) -> ToolUse:
    tool, args, call_id = part["tool_name"], part.get("args"), part.get("tool_call_id", "")
    if not isinstance(args, str):
        return ToolUse(tool, {} if args is None else finite(args), call_id)
    try:
        return ToolUse(tool, finite(json.loads(args, parse_constant=_refuse)) if args.strip() else {}, call_id)
    except (ValueError, RecursionError):
        return ToolUse(tool, args, call_id, malformed=True)


def _refuse(constant: str) -> Any:
    raise ValueError(f"{constant} is not JSON")


@dataclass(frozen=True, slots=True)
class UserMessage:
    """What the caller said; or what bread told the model in that role, because its answer did not fit."""

    text: str
    author: Literal["caller", "bread"] = "caller"
    role: Literal["user"] = "user"


@dataclass(frozen=True, slots=True)
class AssistantMessage:
    """What the model said; `call_ids` are the unique ids of its calls, in order, `message` the turn to send back."""

    text: str
    calls: tuple[ToolUse, ...]
    call_ids: tuple[str, ...]
    message: Message
    role: Literal["assistant"] = "assistant"


@dataclass(frozen=True, slots=True)
class ToolMessage:
    """The outcome of one call: `ok`, `error` (it failed or never ran) or `denied` (a person said no)."""

    call_id: str
    provider_id: str
    tool: str
    content: JsonValue
    outcome: Literal["ok", "error", "denied"] = "ok"
    role: Literal["tool"] = "tool"


AnyMessage = UserMessage | AssistantMessage | ToolMessage
