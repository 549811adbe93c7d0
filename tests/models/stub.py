"""A provider that plays a script over real HTTP, in the protocols of OpenAI (two), Anthropic, Google.

    async with Stub() as stub:
        stub.plays(says("Hel", "lo."), status(503), says("x" * 57, ABORT))
        model = define_model("openai:stub-1", base_url=stub.url, api_key="not-a-key")

The n-th request gets the n-th reply, and every request is kept. As a process of its own, for benchmarks, it prints its
address, answers everything alike, and calls a tool first if it is told to:

    python tests/models/stub.py --words 20 --call human_approve --args '{"url": "https://x.test"}'
"""

from __future__ import annotations

import argparse
import asyncio
import json
import socket
import struct
import time
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


# --- the server -------------------------------------------------------------------------------------------------------


@dataclass
class Received:
    """A request, and what became of whoever sent it."""

    path: str
    headers: Mapping[str, str]
    body: Any
    at: float
    gone: asyncio.Event = field(default_factory=asyncio.Event, repr=False)


class Stub:
    """The server. `url` is OpenAI's base URL, `root` that of the others. Stopped and started it keeps its port."""

    def __init__(self, script: Callable[[Received], Reply] | None = None, *, port: int = 0, keeps: bool = True) -> None:
        self.port, self.keeps = port, keeps
        self.requests: list[Received] = []
        self._replies: list[Reply] = []
        self._script = script or self._next
        self._server: asyncio.Server | None = None
        self._connections: set[_Connection] = set()
        self._tasks: list[asyncio.Task[None]] = []
        self._news = asyncio.Event()

    @property
    def root(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def url(self) -> str:
        return f"{self.root}/v1"

    @property
    def bodies(self) -> list[Any]:
        return [request.body for request in self.requests]

    def plays(self, *replies: Reply) -> None:
        """Replies for the next requests, one each. Whoever asks once more is refused."""
        self._replies += replies

    def forget(self) -> None:
        """Drop the replies that nobody has asked for."""
        self._replies.clear()

    def _next(self, request: Received) -> Reply:
        return self._replies.pop(0) if self._replies else status(400, "the script has ended")

    async def __aenter__(self) -> Stub:
        await self.start()
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.stop()

    async def start(self) -> None:
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(lambda: _Connection(self), "127.0.0.1", self.port)
        self.port = self._server.sockets[0].getsockname()[1]

    async def stop(self) -> None:
        """Close the port and every connection."""
        assert self._server is not None
        self._server.close()
        for connection in [*self._connections]:
            connection.close()
        await self._server.wait_closed()
        while self._connections:  # noqa: ASYNC110  # closed ones tell in the next rounds of the loop
            await asyncio.sleep(0)
        tasks, self._tasks = self._tasks, []
        for ended in await asyncio.gather(*tasks, return_exceptions=True):
            if isinstance(ended, Exception):
                raise ended

    async def request(self, number: int) -> Received:
        """The request number `number`, from 1, once it is there."""
        async with asyncio.timeout(20):
            while len(self.requests) < number:
                self._news.clear()
                await self._news.wait()
        return self.requests[number - 1]

    def _receive(self, request: Received) -> Reply:
        if self.keeps:
            self.requests.append(request)
        self._news.set()
        return self._script(request)


class _Connection(asyncio.Protocol):
    """One connection: requests one after the other, each answered in the protocol of its path."""

    def __init__(self, stub: Stub) -> None:
        self._stub, self._buffer = stub, bytearray()
        self._lost, self._arrived = asyncio.Event(), asyncio.Event()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._stub._connections.add(self)
        self._task = asyncio.get_running_loop().create_task(self._serve())
        self._stub._tasks.append(self._task)

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        self._arrived.set()

    def connection_lost(self, exc: Exception | None) -> None:
        self._lost.set()
        self._arrived.set()
        self._stub._connections.discard(self)

    def close(self) -> None:
        self._task.cancel()
        self._transport.abort()

    async def _serve(self) -> None:
        try:
            while (request := await self._request()) is not None:
                reply = self._stub._receive(request)
                if reply.status != 200:
                    self._refuse(reply)
                elif not await self._answer(request, reply):
                    break
        finally:
            self._transport.close()

    async def _request(self) -> Received | None:
        def length_of_head() -> int:
            end = self._buffer.find(b"\r\n\r\n")
            return end if end < 0 else end + 4

        head = await self._take(length_of_head)
        if head is None:
            return None
        first, *lines = head.decode("latin-1").split("\r\n")
        headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines if line)}
        length = int(headers.get("content-length", 0))
        body = await self._take(lambda: length if len(self._buffer) >= length else -1)
        if body is None:
            return None
        return Received(first.split(" ")[1], headers, json.loads(body or b"null"), time.monotonic())

    async def _take(self, length: Callable[[], int]) -> bytes | None:
        """That many bytes, as soon as it is not negative any more; None if the client has left."""
        while (end := length()) < 0:
            if self._lost.is_set():
                return None
            self._arrived.clear()
            await self._arrived.wait()
        found = bytes(self._buffer[:end])
        del self._buffer[:end]
        return found

    def _refuse(self, reply: Reply) -> None:
        body = reply.body if isinstance(reply.body, bytes) else json.dumps(reply.body).encode()
        more = "".join(f"{name}: {value}\r\n" for name, value in reply.headers.items())
        head = (
            f"HTTP/1.1 {reply.status} Stub\r\ncontent-type: application/json\r\ncontent-length: {len(body)}\r\n{more}"
        )
        self._transport.write(f"{head}\r\n".encode() + body)

    async def _answer(self, request: Received, reply: Reply) -> bool:
        """Stream a reply; whether the connection is of use afterwards."""
        make = protocol(request.path)
        if make is None:
            self._refuse(status(404, f"no {request.path}"))
            return True
        if not reply.parts and reply.halt == SILENCE:
            await self._gone(request)
            return False
        wire = make(request.body.get("model", ""))
        head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
        self._transport.write(head.encode())
        await self._write(wire.begin(), reply.torn)
        for part in reply.parts:
            if isinstance(part, asyncio.Event):
                await self._wait(part)
            elif isinstance(part, Raw):
                await self._write(iter([part.data]), reply.torn)
            else:
                await self._write(wire.part(part), reply.torn)
            if self._lost.is_set():
                request.gone.set()
                return False
        if reply.halt == ABORT:
            self._reset()
        elif reply.halt == SILENCE:
            await self._gone(request)
        elif reply.halt is None:
            await self._write(wire.end(reply.finish, reply.usage or {}), reply.torn)
        if reply.halt in (ABORT, SILENCE):
            return False
        self._transport.write(b"0\r\n\r\n")
        return True

    async def _write(self, pieces: Iterator[bytes], torn: bool) -> None:
        for piece in pieces:
            chunk = b"%x\r\n%b\r\n" % (len(piece), piece)
            for start in range(0, len(chunk), 1 if torn else len(chunk)):
                self._transport.write(chunk[start : start + 1] if torn else chunk)
                await asyncio.sleep(0)

    async def _wait(self, event: asyncio.Event) -> None:
        waits = [asyncio.ensure_future(one.wait()) for one in (event, self._lost)]
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for one in waits:
                one.cancel()

    async def _gone(self, request: Received) -> None:
        await self._lost.wait()
        request.gone.set()

    def _reset(self) -> None:
        sock: socket.socket = self._transport.get_extra_info("socket")
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self._transport.abort()


# --- a process of its own ---------------------------------------------------------------------------------------------


def turns(words: int, tool: str | None, args: str) -> Callable[[Received], Reply]:
    """A script without an end: a call of the tool for what a person says, words for anything else."""
    speech = says(*(f"word{number} " for number in range(words)))
    asks = says(*calls(tool, args, size=len(args) or 1)) if tool else speech

    def script(request: Received) -> Reply:
        last = request.body.get("messages", request.body.get("input"))[-1]
        asked = last.get("role") == "user" and not any("tool_use_id" in part for part in last["content"])
        return asks if asked else speech

    return script


async def serve(arguments: argparse.Namespace) -> None:
    script = turns(arguments.words, arguments.call, arguments.args)
    async with Stub(script, port=arguments.port, keeps=False) as stub:
        print(stub.url, flush=True)
        await asyncio.Event().wait()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="A provider that says the same to everybody.")
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--words", type=int, default=20)
    parser.add_argument("--call", metavar="TOOL", help="call this tool first, then say the words")
    parser.add_argument("--args", default="{}", help="its arguments, as JSON")
    asyncio.run(serve(parser.parse_args()))
