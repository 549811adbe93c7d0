"""What goes between processes over NATS, with PostgreSQL as the store: crumbs to observers, and work to workers."""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from bread import Bread
from bread.runtime.servers import NatsServer, PostgresServer

from .asking import asker
from .shared import OBSERVED, OBSERVERS, at, child, committed, latencies, tell, told

DISPATCHED = 200
AT_ONCE = 32


async def serve(store: str, nats: str) -> None:
    """Perform what comes, until told to say when it was taken."""
    async with Bread(agents=[asker], store=store, nats=nats or None) as bread:
        found = committed(bread)
        print(json.dumps("ready"), flush=True)
        await asyncio.to_thread(sys.stdin.readline)
        print(json.dumps(found), flush=True)


async def dispatches(store: str, nats: str, count: int, at_once: int) -> list[float]:
    """Seconds from the commit that leaves a run ready, in a process that performs nothing, until a worker has it."""
    process = child("serve", store, nats, module="relayed")
    async with Bread(agents=[asker], store=store, nats=nats or None, executes=False) as bread:
        await asyncio.to_thread(told, process)
        started = committed(bread)

        async def one(name: str) -> None:
            async for _ in bread.observe(await bread.start("asker", "go", session=name), until="rest"):
                pass

        async def some(lane: int) -> None:
            for n in range(count // at_once):
                await one(f"d{time.time_ns()}-{lane}-{n}")

        await asyncio.gather(*(some(lane) for lane in range(at_once)))
        tell(process)
        taken = {root: when for root, _, name, when in await asyncio.to_thread(told, process) if name == "run.taken"}
        process.wait()
    return sorted(taken[root] - when for root, _, name, when in started if name == "run.started")


def measure(folder: Path) -> Iterator[tuple[str, str, str]]:
    """Lines of the report: what, value, remark."""
    postgres, nats = PostgresServer(), NatsServer(folder)
    postgres.start()
    nats.start()
    try:
        store, url = postgres.url(), nats.url
        few = asyncio.run(latencies(store, 4, 4, url))
        yield "NATS: commit to an observer elsewhere, p50", at(few, 0.5), "(goal: under 5 ms)"
        yield "NATS: commit to an observer elsewhere, p99", at(few, 0.99), ""
        crowd = asyncio.run(latencies(store, OBSERVED, OBSERVERS, url))
        yield f"NATS: the same with {OBSERVERS:,} observers, p50", at(crowd, 0.5), f"{len(crowd):,} deliveries"
        yield f"NATS: the same with {OBSERVERS:,} observers, p99", at(crowd, 0.99), ""
        idle = asyncio.run(dispatches(store, url, DISPATCHED, 1))
        yield "NATS: ready to taken by a worker, p50", at(idle, 0.5), "one run at a time"
        yield "NATS: ready to taken by a worker, p99", at(idle, 0.99), ""
        busy = asyncio.run(dispatches(store, url, DISPATCHED * 2, AT_ONCE))
        yield f"NATS: the same with {AT_ONCE} at once, p50", at(busy, 0.5), f"{len(busy)} runs"
        yield f"NATS: the same with {AT_ONCE} at once, p99", at(busy, 0.99), ""
        without = asyncio.run(dispatches(store, "", DISPATCHED, 1))
        yield "PostgreSQL alone: ready to taken, p50", at(without, 0.5), "one run at a time"
        yield "PostgreSQL alone: ready to taken, p99", at(without, 0.99), ""
    finally:
        nats.stop()
        postgres.stop()
