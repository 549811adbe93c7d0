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
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent.parent))  # as a program it has only its own folder

from models.protocols import ABORT, SILENCE, Raw, Reply, calls, protocol, says, status

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
