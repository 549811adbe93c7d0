"""What a provider says, and the bytes of it in the protocols of OpenAI (two), Anthropic and Google."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

# --- scripts ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Thought:
    """Reasoning; Anthropic signs it."""

    text: str
    signature: str = ""


@dataclass(frozen=True, slots=True)
class Open:
    """The first fragment of the turn's call number `index`: its name and id. Without an id there is no such field."""

    index: int
    name: str
    id: str | None


@dataclass(frozen=True, slots=True)
class Args:
    """A fragment of the arguments of call number `index`."""

    index: int
    text: str


@dataclass(frozen=True, slots=True)
class Raw:
    """What no provider should send."""

    data: bytes


class Halt(Enum):
    """How a stream ends before its time: as if it were whole, reset, or not at all until the client goes away."""

    CUT = "cut"
    ABORT = "abort"
    SILENCE = "silence"


CUT, ABORT, SILENCE = Halt.CUT, Halt.ABORT, Halt.SILENCE

# Text is a chunk of words, an event holds the stream until it is set.
Part = str | Thought | Open | Args | Raw | asyncio.Event


@dataclass(frozen=True)
class Reply:
    """An answer: a stream of parts, or an error with a status. `torn` writes it byte by byte."""

    parts: Sequence[Part] = ()
    halt: Halt | None = None
    finish: str = "stop"
    usage: Mapping[str, Any] | None = None
    torn: bool = False
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)
    body: Any = None


def says(
    *parts: Part | Halt, finish: str | None = None, usage: Mapping[str, Any] | None = None, torn: bool = False
) -> Reply:
    """A turn of text chunks, thoughts, calls, events to wait for; CUT, ABORT or SILENCE as the last ends it early."""
    halt = next((part for part in parts if isinstance(part, Halt)), None)
    found = [part for part in parts if not isinstance(part, Halt)]
    called = any(isinstance(part, Open) for part in found)
    return Reply(found, halt, finish or ("tool_calls" if called else "stop"), usage, torn)


def calls(name: str, args: str = "{}", *, id: str | None = "call_1", index: int = 0, size: int = 7) -> list[Part]:
    """One call, its arguments in fragments of `size` characters."""
    fragments = [args[start : start + size] for start in range(0, len(args), size)]
    return [Open(index, name, id), *(Args(index, fragment) for fragment in fragments)]


def status(number: int, message: str = "no", **more: Any) -> Reply:
    """An error as OpenAI words it; `headers` go along, anything else is part of the error."""
    headers = more.pop("headers", {})
    return Reply(status=number, headers=headers, body={"error": {"message": message, "type": "stub_error", **more}})


# --- protocols: the bytes of each part --------------------------------------------------------------------------------


def _data(payload: Any, event: str = "") -> bytes:
    text = json.dumps(payload, ensure_ascii=False, separators=(",", ":"))
    return f"event: {event}\ndata: {text}\n\n".encode() if event else f"data: {text}\n\n".encode()


class Chat:
    """OpenAI's chat completions."""

    def __init__(self, model: str) -> None:
        self._head = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1_790_000_000, "model": model}

    def _chunk(self, delta: Mapping[str, Any], finish: str | None = None) -> bytes:
        return _data({**self._head, "choices": [{"index": 0, "delta": delta, "finish_reason": finish}]})

    def begin(self) -> Iterator[bytes]:
        yield self._chunk({"role": "assistant", "content": ""})

    def part(self, part: Part) -> Iterator[bytes]:
        match part:
            case str():
                yield self._chunk({"content": part})
            case Thought():
                yield self._chunk({"reasoning_content": part.text})
            case Open():
                call = {"index": part.index, "type": "function", "function": {"name": part.name, "arguments": ""}}
                yield self._chunk({"tool_calls": [call if part.id is None else {**call, "id": part.id}]})
            case Args():
                yield self._chunk({"tool_calls": [{"index": part.index, "function": {"arguments": part.text}}]})

    def end(self, finish: str, usage: Mapping[str, Any]) -> Iterator[bytes]:
        yield self._chunk({}, finish)
        whole = {"prompt_tokens": 11, "completion_tokens": 7, "total_tokens": 18, **usage}
        yield _data({**self._head, "choices": [], "usage": whole})
        yield b"data: [DONE]\n\n"


class Messages:
    """Anthropic's messages. Blocks follow each other: a part of another kind ends the block before it."""

    REASONS = {"stop": "end_turn", "tool_calls": "tool_use", "length": "max_tokens"}

    def __init__(self, model: str) -> None:
        self._model, self._kind, self._index = model, "", -1

    def begin(self) -> Iterator[bytes]:
        message = {"id": "msg_1", "type": "message", "role": "assistant", "model": self._model, "content": []}
        usage = {"input_tokens": 11, "output_tokens": 1, "cache_read_input_tokens": 5, "cache_creation_input_tokens": 3}
        yield self._event("message_start", message={**message, "stop_reason": None, "usage": usage})

    def part(self, part: Part) -> Iterator[bytes]:
        match part:
            case str():
                yield from self._block("text", {"type": "text", "text": ""})
                yield self._delta({"type": "text_delta", "text": part})
            case Thought():
                yield from self._block("thinking", {"type": "thinking", "thinking": "", "signature": ""})
                yield self._delta({"type": "thinking_delta", "thinking": part.text})
                if part.signature:
                    yield self._delta({"type": "signature_delta", "signature": part.signature})
            case Open():
                block = {"type": "tool_use", "id": part.id or "", "name": part.name, "input": {}}
                yield from self._block(f"call {part.index}", block)
            case Args():
                yield self._delta({"type": "input_json_delta", "partial_json": part.text})

    def end(self, finish: str, usage: Mapping[str, Any]) -> Iterator[bytes]:
        yield from self._stop()
        delta = {"stop_reason": self.REASONS.get(finish, finish), "stop_sequence": None}
        yield self._event("message_delta", delta=delta, usage={"output_tokens": 7, **usage})
        yield self._event("message_stop")

    def _block(self, kind: str, block: Mapping[str, Any]) -> Iterator[bytes]:
        if kind != self._kind:
            yield from self._stop()
            self._kind, self._index = kind, self._index + 1
            yield self._event("content_block_start", index=self._index, content_block=block)

    def _stop(self) -> Iterator[bytes]:
        if self._kind:
            self._kind = ""
            yield self._event("content_block_stop", index=self._index)

    def _delta(self, delta: Mapping[str, Any]) -> bytes:
        return self._event("content_block_delta", index=self._index, delta=delta)

    def _event(self, type: str, **more: Any) -> bytes:
        return _data({"type": type, **more}, type)


class Responses:
    """OpenAI's responses: text and calls, each an item of the output."""

    def __init__(self, model: str) -> None:
        self._response: dict[str, Any] = {
            "id": "resp_1", "object": "response", "created_at": 1_790_000_000, "model": model, "output": [],
            "parallel_tool_calls": True, "tool_choice": "auto", "tools": [],
        }  # fmt: skip
        self._items: list[dict[str, Any]] = []
        self._count = 0

    def begin(self) -> Iterator[bytes]:
        yield self._event("response.created", response={**self._response, "status": "in_progress"})

    def part(self, part: Part) -> Iterator[bytes]:
        match part:
            case str():
                if not self._items or self._items[-1]["type"] != "message":
                    content: dict[str, Any] = {"type": "output_text", "text": "", "annotations": []}
                    item: dict[str, Any] = {
                        "type": "message",
                        "id": f"msg_{len(self._items)}",
                        "role": "assistant",
                        "content": [],
                    }
                    yield self._add(item)
                    item["content"] = [content]
                    yield self._event("response.content_part.added", **self._place(), content_index=0, part=content)
                self._items[-1]["content"][0]["text"] += part
                delta = {"content_index": 0, "delta": part, "logprobs": []}
                yield self._event("response.output_text.delta", **self._place(), **delta)
            case Open():
                item = {"type": "function_call", "id": f"fc_{len(self._items)}", "call_id": part.id or ""}
                yield self._add({**item, "name": part.name, "arguments": ""})
            case Args():
                self._items[-1]["arguments"] += part.text
                yield self._event("response.function_call_arguments.delta", **self._place(), delta=part.text)

    def end(self, finish: str, usage: Mapping[str, Any]) -> Iterator[bytes]:
        if self._items:
            yield self._done()
        counts = {"input_tokens": 11, "output_tokens": 7, "total_tokens": 18, **usage}
        details = {"input_tokens_details": {"cached_tokens": 5}, "output_tokens_details": {"reasoning_tokens": 0}}
        short = finish == "length"
        whole = {
            **self._response, "output": self._items, "usage": counts | details,
            "status": "incomplete" if short else "completed",
            "incomplete_details": {"reason": "max_output_tokens"} if short else None,
        }  # fmt: skip
        yield self._event(f"response.{whole['status']}", response=whole)

    def _add(self, item: dict[str, Any]) -> bytes:
        before = self._done() if self._items else b""
        self._items.append(item)
        where = {"output_index": len(self._items) - 1, "item": {**item, "status": "in_progress"}}
        return before + self._event("response.output_item.added", **where)

    def _done(self) -> bytes:
        self._items[-1]["status"] = "completed"
        where = {"output_index": len(self._items) - 1, "item": self._items[-1]}
        return self._event("response.output_item.done", **where)

    def _place(self) -> dict[str, Any]:
        return {"item_id": self._items[-1]["id"], "output_index": len(self._items) - 1}

    def _event(self, type: str, **more: Any) -> bytes:
        self._count += 1
        return _data({"type": type, "sequence_number": self._count, **more}, type)


class Gemini:
    """Google's generateContent: calls come whole, so their fragments are collected."""

    REASONS = {"stop": "STOP", "tool_calls": "STOP", "length": "MAX_TOKENS"}

    def __init__(self, model: str) -> None:
        self._calls: dict[int, tuple[Open, list[str]]] = {}

    def _chunk(self, *parts: Mapping[str, Any], **more: Any) -> bytes:
        return _data({"candidates": [{"content": {"role": "model", "parts": parts}, **more}], "responseId": "r1"})

    def begin(self) -> Iterator[bytes]:
        yield from ()

    def part(self, part: Part) -> Iterator[bytes]:
        match part:
            case str():
                yield self._chunk({"text": part})
            case Thought():
                yield self._chunk({"text": part.text, "thought": True, "thoughtSignature": part.signature})
            case Open():
                self._calls[part.index] = part, []
            case Args():
                self._calls[part.index][1].append(part.text)

    def end(self, finish: str, usage: Mapping[str, Any]) -> Iterator[bytes]:
        for call, args in self._calls.values():
            found = {"name": call.name, "args": json.loads("".join(args) or "{}")}
            yield self._chunk({"functionCall": found | ({} if call.id is None else {"id": call.id})})
        yield self._chunk(finishReason=self.REASONS.get(finish, finish))
        counts = {"promptTokenCount": 11, "candidatesTokenCount": 7, "totalTokenCount": 18, **usage}
        yield _data({"usageMetadata": counts, "candidates": []})


Protocol = Chat | Messages | Responses | Gemini


def protocol(path: str) -> Callable[[str], Protocol] | None:
    match path.partition("?")[0].rpartition("/")[2].rpartition(":")[2]:
        case "completions":
            return Chat
        case "messages":
            return Messages
        case "responses":
            return Responses
        case "streamGenerateContent":
            return Gemini
    return None
