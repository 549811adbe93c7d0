"""On PostgreSQL nobody has to ask: the row of a dead worker says how far it had published; somebody does the rest."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psycopg

from bread import Bread
from bread.runtime.servers import NatsServer
from postgres import store_at
from scenes import come, engine_of
from support import read, wire

from .child import CLERK
from .outsider import in_order, shown, stored
from .test_rest import dying

BEAT: Any = {"heartbeat": (0.1, 30.0)}


def rows(store: str) -> dict[str, int]:
    """How far each worker has published, as the database knows it."""
    with psycopg.connect(store, autocommit=True) as connection:
        return dict(connection.execute("SELECT worker, published FROM bread_workers").fetchall())


def age(store: str, worker: str) -> None:
    with psycopg.connect(store, autocommit=True) as connection:
        connection.execute("UPDATE bread_workers SET beat = beat - interval '1 hour' WHERE worker = %s", (worker,))


async def come_true(holds: Callable[[], bool]) -> None:
    """Until the database says so: each look is a connection of its own."""
    while not await asyncio.to_thread(holds):
        pass


async def test_b48_b130_what_a_dead_worker_left_is_published_by_itself(server: NatsServer, tmp_path: Path) -> None:
    """It died between a commit and the publishing of it; nobody here has its agents. Its row goes when all is told."""
    store = store_at(tmp_path)
    async with dying(store, server.url, "committed:2") as child:
        child.ask("s")
        while await child.said():
            pass
        assert await child.process.wait() == -signal.SIGKILL
    before = await stored(server)
    async with Bread(agents=[], store=store, nats=server.url, **BEAT) as bread:
        age(store, child.worker)
        await come_true(lambda: child.worker not in rows(store))
        frames = await stored(server)
        [run] = (await bread.list_runs()).items
        log = [event async for event in bread.audit(run.id)]
    assert len(frames) > len(before)
    assert in_order(frames)
    assert frames[-1]["type"] == "human:required"
    assert frames[-1]["seq"] == max(event.seq for event in log if event.name == "run.question_asked")


async def test_b130_the_rows_say_how_far_everybody_is(server: NatsServer, tmp_path: Path) -> None:
    """What is kept by the bus is known to the database a beat later; who leaves in order leaves no row."""
    store = store_at(tmp_path)
    async with Bread(agents=[CLERK], store=store, nats=server.url, **BEAT) as bread:
        await read(bread.run("clerk", "go"))
        last = [event async for event in bread.audit()][-1].position
        relay = engine_of(bread).relay
        assert relay is not None
        await come(lambda: relay.is_done)
        assert relay.published_upto == last
        await come_true(lambda: rows(store)[bread.worker] == last)
    assert rows(store) == {}


async def test_b130_whoever_leaves_while_the_server_is_down_leaves_a_row(server: NatsServer, tmp_path: Path) -> None:
    """And the next one publishes what it could not."""
    store = store_at(tmp_path)
    async with Bread(agents=[CLERK], store=store, nats=server.url, grace=0.1, **BEAT) as bread:
        server.kill()
        run = bread.run("clerk", "go")
        await read(run)
        worker = bread.worker
        last = [event async for event in bread.audit()][-1].position
    assert [*rows(store)] == [worker]
    assert rows(store)[worker] < last
    server.start()
    async with Bread(agents=[CLERK], store=store, nats=server.url, **BEAT) as bread:
        await come_true(lambda: worker not in rows(store))
        expected = [wire(crumb) async for crumb in bread.observe(str(run.run_id), until="rest")]
        frames = await stored(server, run.run_id)
    assert shown(frames) == expected
