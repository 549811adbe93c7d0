"""A program that has NATS and nothing of bread, and the processes that it hears."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import msgpack
from nats.aio.msg import Msg

from bread.runtime.servers import NatsServer
from nats_server import kept, outside

Frame = dict[str, Any]


def read(message: Msg) -> Frame:
    frame = msgpack.unpackb(message.data)
    assert frame["v"] == 1
    assert message.subject.split(".")[4 + 2] == frame["root"]
    assert message.subject.split(".")[7] == frame["run"]
    return frame  # type: ignore[no-any-return]


class Outsider:
    """Keeps what it hears from now on, in the order in which it comes, and can be waited with."""

    def __init__(self) -> None:
        self.frames: list[Frame] = []
        self._news = asyncio.Event()

    async def hear(self, message: Msg) -> None:
        self.frames.append(read(message))
        self._news.set()

    async def until(self, enough: Callable[[list[Frame]], bool]) -> list[Frame]:
        while not enough(self.frames):
            self._news.clear()
            await self._news.wait()
        return self.frames

    async def ended(self, root: str) -> list[Frame]:
        """Until the root has its end; what came of it."""

        def over(frames: list[Frame]) -> bool:
            return any(f["run"] == root and f["type"] in ("agent:run:end", "agent:error") for f in frames)

        return [frame for frame in await self.until(over) if frame["root"] == root]


@asynccontextmanager
async def listening(server: NatsServer, subjects: str, **options: Any) -> AsyncIterator[Outsider]:
    outsider = Outsider()
    client = await outside(server, **options)
    await client.subscribe(subjects, cb=outsider.hear)
    await client.flush()
    await client.flush()
    try:
        yield outsider
    finally:
        await client.close()


async def stored(server: NatsServer, root: str | None = None, kind: str = "crumbs") -> list[Frame]:
    """What the stream has now, of all or of one root, in its order."""
    return [frame for frame in map(read, await kept(server, f"bread.v1.*.{kind}.>")) if root in (None, frame["root"])]


def shown(frames: list[Frame]) -> list[Any]:
    """The crumbs that an observer of the root is shown."""
    return [frame["crumb"] for frame in frames if frame["visible"]]


def in_order(frames: list[Frame]) -> bool:
    """Whether each root came in its order, nothing twice."""
    by_root: dict[str, list[int]] = {}
    for frame in frames:
        by_root.setdefault(frame["root"], []).append(frame["seq"])
    return all(seqs == sorted(set(seqs)) for seqs in by_root.values())
