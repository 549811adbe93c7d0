"""The conversation as the model layer sends it, and its turns as they are stored.

A turn is stored as the layer's own message (codec `pydantic-ai/2`) and sent back unchanged, thinking signatures
included. Only the calls may differ: a provider has to be sent each id once, not all take any text as an id, and none
takes arguments that are not JSON.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from pydantic import ValidationError
from pydantic_ai.messages import (
    ModelMessage,
    ModelMessagesTypeAdapter,
    ModelResponse,
    TextPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)
from pydantic_ai.messages import (
    ModelRequest as LayerRequest,
)

from ..domain.errors import StoreUnreadable
from ..domain.events import finite
from ..domain.messages import PYDANTIC_AI, AnyMessage, AssistantMessage, Message, ToolMessage, ToolUse, UserMessage

_OUTCOMES: dict[str, Any] = {"ok": "success", "error": "failed", "denied": "denied"}
_NOT_IN_IDS = re.compile(r"[^A-Za-z0-9_-]")
_ID_LENGTH = 40  # the least that providers with a bound allow


class CallIds:
    """What calls are called in one conversation with a provider, each differently.

    Ids that the provider gave itself stay as they are. Those of bread, of scripts and of other providers are made
    such that everybody takes them; `length` is that of a provider that wants letters and digits, exactly so many.
    """

    def __init__(self, provider: str | None = None, length: int | None = None) -> None:
        self._provider, self._length = provider, length
        self._present: dict[str, str] = {}
        self._taken: set[str] = set()

    def new(self, call_id: str, given_by: str | None = None) -> str:
        """The id of the next call, in the order of the conversation: so a later turn changes no earlier one."""
        own = given_by is not None and given_by == self._provider
        wanted = call_id if own else _NOT_IN_IDS.sub("-", call_id)[:_ID_LENGTH]
        found, count = self._fit(wanted), 1
        while found in self._taken:
            count += 1
            found = self._fit(f"{wanted[: _ID_LENGTH - 6]}-{count}")
        self._taken.add(found)
        self._present[call_id] = found
        return found

    def of(self, call_id: str) -> str:
        """The id of the latest call of that name: the one that an outcome stands behind."""
        return self._present[call_id]

    def _fit(self, call_id: str) -> str:
        if self._length is None or (len(call_id) == self._length and call_id.isascii() and call_id.isalnum()):
            return call_id
        return hashlib.sha256(call_id.encode()).hexdigest()[: self._length]


def from_layer(response: ModelResponse) -> Message:
    """A turn as it is stored."""
    data = ModelMessagesTypeAdapter.dump_python([response], mode="json", exclude_none=True)
    return Message(codec=PYDANTIC_AI, data=data[0])


def to_layer(messages: Sequence[AnyMessage], prompt: str, ids: CallIds | None = None) -> list[ModelMessage]:
    """The conversation as the layer sends it. Adjacent outcomes and words of the caller are one request."""
    ids = ids or CallIds()
    found: list[ModelMessage] = []
    parts: list[Any] = []
    for message in messages:
        match message:
            case UserMessage(text=text):
                parts.append(UserPromptPart(sendable(text)))
            case ToolMessage():
                parts.append(_outcome(message, ids))
            case AssistantMessage():
                if parts:
                    found.append(LayerRequest(parts=parts))
                parts = []
                found.append(_response(message, ids))
    found.append(LayerRequest(parts=parts, instructions=sendable(prompt) or None))
    return found


def sendable(value: Any) -> Any:
    """The value without what can be stored, but not sent as JSON: halves of surrogate pairs, and numbers like NaN."""
    match value:
        case str() if not value.isascii():
            try:
                value.encode()
            except UnicodeEncodeError:
                return value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
        case float():
            return finite(value)
        case dict():
            return {sendable(key): sendable(one) for key, one in value.items()}
        case list():
            return [sendable(one) for one in value]
    return value


def _outcome(message: ToolMessage, ids: CallIds) -> ToolReturnPart[Any]:
    return ToolReturnPart(
        tool_name=message.tool,
        content=sendable(message.content),
        tool_call_id=ids.of(message.call_id),
        outcome=_OUTCOMES[message.outcome],
    )


def _response(message: AssistantMessage, ids: CallIds) -> ModelResponse:
    """The layer's own message, or one made of the neutral reading where another model wrote the turn."""
    if message.message.codec != PYDANTIC_AI:
        parts: list[Any] = [TextPart(sendable(message.text))] if message.text else []
        called = zip(message.calls, message.call_ids, strict=True)
        return ModelResponse(parts=[*parts, *(_call(use, ids.new(call_id)) for use, call_id in called)])
    response = _load(message.message)
    called = zip(message.calls, message.call_ids, strict=True)

    def as_sent(part: ToolCallPart) -> ToolCallPart:
        use, call_id = next(called)
        given_by = response.provider_name if call_id == part.tool_call_id else None
        # What is not JSON is sent as a text in JSON: the layer would let some of it through, such as NaN.
        args = {"INVALID_JSON": part.args} if use.malformed else part.args
        return replace(part, args=args, tool_call_id=ids.new(call_id, given_by))

    return replace(
        response, parts=[as_sent(part) if isinstance(part, ToolCallPart) else part for part in response.parts]
    )


def _load(message: Message) -> ModelResponse:
    """Raises StoreUnreadable for what a later release of the layer wrote and this one cannot send back as a whole."""
    try:
        [response] = ModelMessagesTypeAdapter.validate_python([sendable(message.data)])
    except ValidationError as error:
        problem = error.errors(include_url=False, include_input=False)[0]["msg"]
        raise StoreUnreadable("EVENT_UNKNOWN", f"this release cannot read a turn of a model: {problem}") from None
    if not isinstance(response, ModelResponse):
        raise StoreUnreadable("STORE_INVALID", "a stored turn of a model is none")
    return response


def _call(use: ToolUse, call_id: str) -> ToolCallPart:
    args = sendable(use.args)
    return ToolCallPart(use.tool, args if isinstance(args, dict | str) else json.dumps(args), call_id)
