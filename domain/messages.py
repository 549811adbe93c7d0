"""The conversation with a model, in neutral terms that no provider owns.

A model's turn is stored as the model layer's own message under a codec tag and sent back unchanged; `read_turn` gives
the neutral reading of it. Readers are pure walks over plain data, so that no provider package is needed to read a log.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict

from .errors import StoreUnreadable
from .events import JsonValue, finite

NATIVE = "bread/1"


class Message(BaseModel):
    """A model turn as its model layer wrote it. `codec` names who can read `data`."""

    model_config = ConfigDict(frozen=True, extra="allow")

    codec: str
    data: JsonValue


@dataclass(frozen=True, slots=True)
class ToolUse:
    """One call that a model asked for; `id` is the provider's and may repeat or be empty."""

    tool: str
    args: JsonValue
    id: str = ""


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


@dataclass(frozen=True, slots=True)
class UserMessage:
    """What the caller said."""

    text: str
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
