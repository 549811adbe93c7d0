"""A program that has nothing of bread but NATS: it sees every crumb, the questions, and the text as it is said.

nats-server -js                       # or: docker compose up --wait nats
python -m examples.only_nats
"""

from __future__ import annotations

import asyncio
from typing import Any

import msgpack
import nats
from nats.aio.msg import Msg

from bread import Bread

from .question import painter

URL = "nats://127.0.0.1:4222"


class Watcher:
    """What an outside program would be: it imports nothing of bread."""

    def __init__(self) -> None:
        self.crumbs: dict[tuple[str, int], Any] = {}
        self.questions: asyncio.Queue[Any] = asyncio.Queue()
        self.ended = asyncio.Event()

    async def crumb(self, message: Msg) -> None:
        frame = msgpack.unpackb(message.data)
        self.crumbs[frame["root"], frame["seq"]] = frame["crumb"]  # at least once: told by its place
        if frame["type"] in ("agent:run:end", "agent:error"):
            self.ended.set()

    async def human(self, message: Msg) -> None:
        frame = msgpack.unpackb(message.data)
        if frame["type"] == "human:required":
            await self.questions.put(frame["human"])


async def main(url: str = URL, store: str = "memory://") -> list[str]:
    watcher, client = Watcher(), await nats.connect(url)
    await client.subscribe("bread.v1.*.crumbs.painter.>", cb=watcher.crumb)
    await client.subscribe("bread.v1.*.human.>", cb=watcher.human)
    await client.flush()
    async with Bread(agents=[painter], store=store, nats=url) as bread:
        await bread.start("painter", "paint the door")
        question = await watcher.questions.get()
        print("asked:", question["prompt"])
        await bread.resume(question["checkpointId"], "red", author="ann")
        await watcher.ended.wait()
    await client.close()
    seen = [watcher.crumbs[place]["type"] for place in sorted(watcher.crumbs)]
    print(seen)
    return seen


if __name__ == "__main__":
    asyncio.run(main())
