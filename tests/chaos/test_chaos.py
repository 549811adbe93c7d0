"""Everything is killed while everybody works: nothing is lost, nothing happens twice, who watches sees it all."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from time import perf_counter
from typing import Any

import pytest

from bread import Bread
from observers.clients import Client, durable
from support import soaking, trials

from .world import ENDED, World


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    world = World(tmp_path, seed=int(perf_counter()) if soaking() else 7)
    try:
        world.open()
        yield world
    finally:
        world.close()


@pytest.mark.timeout(1500)
async def test_everything_is_killed(world: World, record_property: Callable[[str, Any], None]) -> None:
    """B66, B130, B135, C2, C18, C53, C56: three processes and PostgreSQL, all of them killed, roaming observers."""
    begun = perf_counter()
    runs, rounds, every = trials(16, 200), trials(5, 16), 1.5

    async def lives(number: int) -> None:
        await asyncio.sleep(world.chance.uniform(0.0, every * rounds * 0.8))
        await world.watch(await world.begin(number))

    async with asyncio.TaskGroup() as group:
        people = group.create_task(world.answer())
        wreaking = group.create_task(world.wreak(rounds, every, []))
        await asyncio.gather(*(lives(number) for number in range(runs)))
        await wreaking
        world.done.set()
        await people
    assert {*(await world.all_ended()).values()} <= ENDED
    crumbs = await compare(world)
    await check_log(world)
    counts = dict(world.counts) | {"runs": runs, "observers": runs, "crumbs": crumbs}
    record_property("counts", counts | {"seconds": round(perf_counter() - begun, 1)})


async def compare(world: World) -> int:
    """Each observer was shown what a reader is shown who comes when all is over: 0 gaps, 0 duplicates."""
    crumbs = 0
    for run_id, clients in world.watchers.items():
        whole = Client()
        while not await world._connection(run_id, whole, 1_000_000):
            whole = Client()
        for client in clients:
            assert durable(client.crumbs) == durable(whole.crumbs)
            assert client.texts == whole.texts
            crumbs += len(client.crumbs)
    return crumbs


async def check_log(world: World) -> None:
    async with Bread(store=world.postgres.url(), executes=False) as bread:
        report = await bread.check()
        assert report.problems == []
        for checkpoint_id, who in world.answers.items():
            checkpoint = await bread.get_checkpoint(checkpoint_id)
            said = checkpoint.response
            assert isinstance(said, dict)
            assert who in (said.get("said"), str(said.get("result", "")).removeprefix("seen by ")), checkpoint_id
        assert (await bread.list_checkpoints()).items == []
    assert {*world.effects_of("once").values()} == {1}
    with suppress(KeyError):
        assert min(world.effects_of("again").values()) >= 1
