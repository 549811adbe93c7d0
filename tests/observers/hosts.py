"""Where a client can observe: in this process, or in another one that may be killed under it."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager, suppress
from itertools import count
from pathlib import Path
from typing import Any, Literal, Protocol

from bread import Bread
from bread.runtime.ids import short_id
from crash.stores import Shared

from .clients import Client, Wire

TESTS = Path(__file__).parent.parent
Outcome = Literal["end", "left", "lost"]


class Host(Protocol):
    """Shows a run to a client from where it stands until the stream ends, the client has had `quota`, or one dies."""

    alive: bool

    async def observe(self, client: Client, run_id: str, quota: int) -> Outcome: ...


class Here:
    """A Bread of this process."""

    alive = True

    def __init__(self, bread: Bread) -> None:
        self.bread = bread

    async def observe(self, client: Client, run_id: str, quota: int) -> Outcome:
        async with aclosing(aiter(self.bread.observe(run_id, after=client.cursor))) as crumbs:
            async for crumb in crumbs:
                client.take(crumb.wire())
                quota -= 1
                if quota <= 0:
                    return "left"
        return "end"


class There:
    """A child process. Whatever it has written down whole has reached the client, also when it is killed then."""

    def __init__(self, process: asyncio.subprocess.Process, shared: Shared, worker: str) -> None:
        self._process, self._shared, self._worker = process, shared, worker
        self._connections = count(1)
        self._inboxes: dict[int, asyncio.Queue[Wire]] = {}
        self._said: dict[str, asyncio.Future[Any]] = {}
        self._reader = asyncio.create_task(self._read())
        self.alive = True

    async def hears(self, key: str) -> Any:
        """What the child says next under a key; None if it dies before."""
        self._said[key] = asyncio.get_running_loop().create_future()
        return await self._said[key] if self.alive else None

    async def ask(self, do: str, answer: str, **command: Any) -> Any:
        self.tell(do, **command)
        return await self.hears(answer)

    def tell(self, do: str, **command: Any) -> None:
        if self._process.stdin is not None and self.alive and self._process.returncode is None:
            self._process.stdin.write(json.dumps({"do": do} | command).encode() + b"\n")

    async def observe(self, client: Client, run_id: str, quota: int) -> Outcome:
        if not self.alive:
            return "lost"
        connection = next(self._connections)
        inbox = self._inboxes[connection] = asyncio.Queue()
        try:
            self.tell("observe", client=connection, run=run_id, after=client.cursor)
            while True:
                line = await inbox.get()
                if "crumb" not in line:
                    over = line["over"]
                    assert over in ("end", "left", "lost"), over
                    return over  # type: ignore[no-any-return]
                client.take(line["crumb"])
                quota -= 1
                if quota == 0:
                    self.tell("leave", client=connection)
        except asyncio.CancelledError:
            self.tell("leave", client=connection)
            raise
        finally:
            del self._inboxes[connection]

    async def _read(self) -> None:
        assert self._process.stdout is not None
        async for raw in self._process.stdout:
            if not raw.endswith(b"\n"):
                break  # cut off in the middle of a line
            line = json.loads(raw)
            if "client" in line:
                if (inbox := self._inboxes.get(line["client"])) is not None:
                    inbox.put_nowait(line)
                continue
            for key, value in line.items():
                if (waiting := self._said.pop(key, None)) is not None:
                    waiting.set_result(value)
        self.alive = False
        for waiting in self._said.values():
            waiting.set_result(None)
        for inbox in self._inboxes.values():
            inbox.put_nowait({"over": "lost"})
        await self._process.wait()
        await asyncio.to_thread(self._shared.is_gone, self._worker)

    async def died(self) -> int:
        """The exit code, once it is dead and all that it said was heard."""
        await self._reader
        return await self._process.wait()

    async def close(self) -> None:
        if self._process.returncode is None:
            assert self._process.stdin is not None
            self._process.stdin.close()
        await self._reader
        await self._process.wait()


@asynccontextmanager
async def child(shared: Shared, name: str) -> AsyncIterator[There]:
    """A process that executes on a store, ready."""
    worker = short_id("w")
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "observers.child",
        name,
        worker,
        json.dumps({"store": shared.url, **shared.spec}),
        cwd=TESTS,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        limit=2**24,
    )
    there = There(process, shared, worker)
    try:
        assert await there.hears("ready"), "the process did not start"
        yield there
    finally:
        if process.returncode is None:
            with suppress(ProcessLookupError):
                if there.alive and sys.exc_info()[0] is not None:
                    process.kill()
        await there.close()
