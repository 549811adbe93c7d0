"""What is outside of bread, at a NATS server: a client, and what the stream keeps."""

from __future__ import annotations

import atexit
import shutil
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

import nats
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.js import JetStreamContext, api

from bread.runtime.servers import NatsServer


@cache
def _shared() -> NatsServer:
    server = NatsServer(Path(tempfile.mkdtemp(prefix="bread-nats-")))
    atexit.register(shutil.rmtree, server.folder, ignore_errors=True)
    atexit.register(server.stop)
    return server


def emptied() -> NatsServer:
    """One server a test process, which has never heard of anything: runs of different tests have the same names."""
    server = _shared()
    server.kill()
    shutil.rmtree(server.folder / "store", ignore_errors=True)
    server.start()
    return server


async def outside(server: NatsServer, **options: Any) -> Client:
    """A client that has nothing of bread."""
    return await nats.connect(server.url, **options)


async def kept(server: NatsServer, subjects: str = "bread.v1.*.crumbs.>") -> list[Msg]:
    """Everything that the stream keeps of some subjects, in its order."""
    client = await outside(server)
    try:
        return await kept_of(client.jetstream(), subjects)
    finally:
        await client.close()


async def kept_of(js: JetStreamContext, subjects: str) -> list[Msg]:
    # Without acknowledgements: a thousand that are not acknowledged would be all that comes.
    reading = api.ConsumerConfig(ack_policy=api.AckPolicy.NONE)
    stored = await js.pull_subscribe(subjects, stream="BREAD_CRUMBS", config=reading)
    found: list[Msg] = []
    while (await stored.consumer_info()).num_pending:
        found += await stored.fetch(500, timeout=5)
    return found
