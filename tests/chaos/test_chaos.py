"""Everything is killed while everybody works: nothing is lost, nothing happens twice, who watches sees it all."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path
from time import perf_counter
from typing import Any

import pytest

from bread import Bread
from bus.outsider import stored
from observers.clients import Client, durable
from support import soaking, trials, wire

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
    """B66, B130, B135, C2, C18, C53, C56: three processes, PostgreSQL and NATS, all are killed, while observers roam
    and a program that has only NATS hears what there is."""
    begun = perf_counter()
    runs, rounds, every = trials(10, 200), trials(4, 18), 1.5

    async def lives(number: int) -> None:
        await asyncio.sleep(world.chance.uniform(0.0, every * rounds * 0.8))
        await world.watch(await world.begin(number))

    async with asyncio.TaskGroup() as group:
        people = group.create_task(world.answer())
        wreaking = group.create_task(world.wreak(rounds, every))
        await asyncio.gather(*(lives(number) for number in range(runs)))
        await wreaking
        world.done.set()
        await people
    assert {*(await world.all_ended()).values()} <= ENDED
    crumbs = await compare(world)
    await check_log(world)
    heard = await compare_kept(world)
    counts = dict(world.counts) | {"runs": runs, "observers": runs, "crumbs": crumbs, "kept by NATS": heard}
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


async def compare_kept(world: World) -> int:
    """Who has only NATS has every durable crumb of every run, each once, as an observer of the root is shown it."""
    expected: dict[str, list[dict[str, Any]]] = {}
    async with Bread(store=world.postgres.url(), executes=False) as bread:
        for run_id in world.runs:
            expected[run_id] = [wire(crumb) async for crumb in bread.observe(run_id)]
    while True:  # what was committed last is on its way
        frames = await stored(world.nats)
        by_root: dict[str, dict[int, Any]] = {}
        for frame in frames:
            by_root.setdefault(frame["root"], {})[frame["seq"]] = frame
        missing = [
            (run_id, crumb["seq"])
            for run_id, crumbs in expected.items()
            for crumb in crumbs
            if crumb["seq"] not in by_root.get(run_id, {})
        ]
        if not missing:
            break
    for run_id, crumbs in expected.items():
        shown = [frame["crumb"] for _, frame in sorted(by_root[run_id].items()) if frame["visible"]]
        assert shown == crumbs, run_id
    return len(frames)


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
        trees = [(await bread.list_runs(root=root)).items for root in world.runs]
    assert {*world.effects_of("once").values()} == {1}
    # Called again wherever it was cut off, and each time with the key of its one call.
    clerks = [run.id for tree in trees for run in tree if run.agent_id == "clerk"]
    assert sorted(world.runs_of_keys("again").values()) == sorted(clerks)
