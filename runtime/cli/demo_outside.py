"""A program that has nothing of bread but NATS: it hears every crumb of `bread demo --cluster`."""

from __future__ import annotations

import asyncio
from typing import Any

import msgpack
import nats
from nats.aio.client import Client
from nats.aio.msg import Msg

CRUMBS = "bread.v1.*.crumbs.>"


class Outsider:
    """What it heard lies in `crumbs`, by number: a crumb comes at least once."""

    def __init__(self, url: str, password: str) -> None:
        self._url, self._password = url, password
        self._client = Client()
        self.crumbs: dict[int, Any] = {}
        self._news = asyncio.Event()

    async def __aenter__(self) -> Outsider:
        self._client = await nats.connect(self._url, user="bread", password=self._password)
        await self._client.subscribe(CRUMBS, cb=self._take)
        await self._client.flush()
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self._client.close()

    async def _take(self, message: Msg) -> None:
        frame = msgpack.unpackb(message.data)
        self.crumbs[frame["seq"]] = frame["crumb"]
        self._news.set()

    async def hears(self, kind: str) -> Any:
        """The first crumb of a kind, when it has come."""
        while True:
            for _, crumb in sorted(self.crumbs.items()):
                if crumb["type"] == kind:
                    return crumb
            self._news.clear()
            await self._news.wait()

    async def kept(self) -> int:
        """How many crumbs the stream keeps."""
        state = (await self._client.jetstream().stream_info("BREAD_CRUMBS", subjects_filter=CRUMBS)).state
        return sum((state.subjects or {}).values())
