"""What the tests of models share: requests, the protocols that are spoken, and small ways to look at an attempt."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from bread.domain.messages import AnyMessage, AssistantMessage, Message, ToolMessage, UserMessage, read_turn
from bread.domain.ports import (
    ModelError,
    ModelEvent,
    ModelRequest,
    ReasoningDelta,
    TextDelta,
    ToolInputDelta,
    ToolSpec,
    TurnDone,
)
from bread.runtime.providers import ProviderModel, define_model
from models.stub import Stub

KEY = "sk-of-a-test-0123456789"
CHAT, RESPONSES = "openai:stub-1", "openai-responses:gpt-4o"
CLAUDE, GEMINI = "anthropic:claude-sonnet-4-5", "google:gemini-2.5-flash"
PROTOCOLS = (CHAT, RESPONSES, CLAUDE, GEMINI)
EVERY_PROTOCOL = pytest.mark.parametrize("name", PROTOCOLS)

Provide = Callable[..., ProviderModel]

FETCH = ToolSpec("tool_fetch", "Fetch a page.", {"type": "object", "properties": {"url": {"type": "string"}}})
ASK = ToolSpec("human_ask", "Ask a person.", {"type": "object", "properties": {"what": {"type": "string"}}})


def model_at(stub: Stub, name: str = CHAT, **options: Any) -> ProviderModel:
    """A model that the stub plays."""
    base = stub.url if name.startswith("openai") else stub.root
    return define_model(name, **({"base_url": base, "api_key": KEY} | options))


@asynccontextmanager
async def used(model: ProviderModel) -> AsyncGenerator[ProviderModel]:
    """The model, opened and closed."""
    model.open()
    try:
        yield model
    finally:
        await model.close()


def request(*messages: AnyMessage, **more: Any) -> ModelRequest:
    """A request. What hangs, fails."""
    given: dict[str, Any] = {"turn": 0, "attempt": 0, "prompt": "You are brief.", "tools": (), "messages": messages}
    more["settings"] = {"timeout": 10} | more.get("settings", {})
    return ModelRequest(**({"run_id": "run_1", "agent_id": "a"} | given | more))


HI = UserMessage("hi")


async def told(model: ProviderModel, asked: ModelRequest | None = None) -> list[ModelEvent]:
    """Everything that one attempt tells."""
    return [event async for event in model.stream(asked or request(HI))]


async def failure(model: ProviderModel, asked: ModelRequest | None = None) -> ModelError:
    """The error that one attempt ends with."""
    with pytest.raises(ModelError) as caught:
        await told(model, asked)
    return caught.value


async def broken(model: ProviderModel, gate: asyncio.Event | None = None) -> tuple[list[ModelEvent], ModelError]:
    """What an attempt tells before it fails, and the error; the gate is opened as soon as anything is told."""
    pieces: list[ModelEvent] = []
    try:
        async for event in model.stream(request(HI)):
            pieces.append(event)
            if gate is not None:
                gate.set()
    except ModelError as error:
        return pieces, error
    raise AssertionError("the attempt did not fail")


def said(events: list[ModelEvent]) -> str:
    return "".join(event.text for event in events if isinstance(event, TextDelta))


def thought(events: list[ModelEvent]) -> str:
    return "".join(event.text for event in events if isinstance(event, ReasoningDelta))


def inputs(events: list[ModelEvent]) -> dict[int, str]:
    """The arguments of each call as they were streamed; each ends with a `done`, and nothing comes after it."""
    found: dict[int, str] = {}
    done: set[int] = set()
    for event in events:
        if isinstance(event, ToolInputDelta):
            assert event.index not in done
            found[event.index] = found.get(event.index, "") + event.text
            if event.done:
                done.add(event.index)
    assert done == found.keys()
    return found


def done(events: list[ModelEvent]) -> TurnDone:
    """The end of the turn: it is the last that is told."""
    last = events[-1]
    assert isinstance(last, TurnDone)
    assert not any(isinstance(event, TurnDone) for event in events[:-1])
    return last


def assistant(message: Message, *call_ids: str) -> AssistantMessage:
    """A turn as it stands in a history; its calls have their own ids unless others are given."""
    turn = read_turn(message)
    return AssistantMessage(turn.text, turn.calls, call_ids or tuple(use.id for use in turn.calls), message)


def outcome(call_id: str, content: Any, how: Any = "ok", tool: str = "tool_fetch") -> ToolMessage:
    return ToolMessage(call_id, call_id, tool, content, how)


# --- what was sent, in the same words for every protocol --------------------------------------------------------------


def conversation(body: Any) -> list[tuple[Any, ...]]:
    """The messages of a request as (role, ...): texts, calls as (id, name), outcomes as (id, text)."""
    if "contents" in body:
        return [found for content in body["contents"] for found in _of_gemini(content)]
    if "input" in body:
        return [found for item in body["input"] for found in _of_responses(item)]
    return [found for message in body["messages"] for found in _of_messages(message)]


def _of_messages(message: Any) -> list[tuple[Any, ...]]:
    """OpenAI's chat and Anthropic's messages."""
    role, content = message["role"], message.get("content")
    if role == "tool":
        return [("outcome", message["tool_call_id"], content)]
    parts = content if isinstance(content, list) else [{"type": "text", "text": content}] if content else []
    found: list[tuple[Any, ...]] = []
    for part in parts:
        match part["type"]:
            case "text":
                found.append((role, part["text"]))
            case "tool_use":
                found.append(("call", part["id"], part["name"], part["input"]))
            case "tool_result":
                found.append(("outcome", part["tool_use_id"], "".join(one["text"] for one in part["content"])))
    calls = [(c["id"], c["function"]["name"], c["function"]["arguments"]) for c in message.get("tool_calls") or ()]
    return [*found, *(("call", *call) for call in calls)]


def _of_responses(item: Any) -> list[tuple[Any, ...]]:
    match item.get("type", "message"):
        case "function_call":
            return [("call", item["call_id"], item["name"], item["arguments"])]
        case "function_call_output":
            return [("outcome", item["call_id"], item["output"])]
    return [(item["role"], item["content"])]


def _of_gemini(content: Any) -> list[tuple[Any, ...]]:
    found: list[tuple[Any, ...]] = []
    for part in content["parts"]:
        if "functionCall" in part:
            found.append(
                ("call", part["functionCall"]["id"], part["functionCall"]["name"], part["functionCall"]["args"])
            )
        elif "functionResponse" in part:
            answer = part["functionResponse"]["response"]
            found.append(("outcome", part["functionResponse"]["id"], next(iter(answer.values()), "")))
        else:
            found.append(({"model": "assistant"}.get(content["role"], content["role"]), part["text"]))
    return found


def call_ids(body: Any) -> list[str]:
    return [found[1] for found in conversation(body) if found[0] == "call"]


def outcomes(body: Any) -> dict[str, Any]:
    """The outcome of each call, by its id; none has two."""
    found = [(one[1], one[2]) for one in conversation(body) if one[0] == "outcome"]
    assert len(dict(found)) == len(found)
    return dict(found)
