"""Observers that leave and come back, through processes that are killed: no gap, nothing twice, the text of the log."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Sequence
from random import Random

import pytest

from bread import Bread
from bread.projections.render import RunInfo
from crash.stores import ALSO_WITH_NATS, Shared, beats_of, place_of
from support import trials

from .agents import storyteller
from .clients import Client, log_of
from .hosts import Here, Host, child

RUNS = 3


class Crowd:
    """Clients that wander from host to host, each with its cursor, until they have seen their run to its end."""

    def __init__(self, random: Random) -> None:
        self.hosts: list[Host] = []
        self._random = random
        self._present: set[asyncio.Task[str]] = set()
        self.moves = self.chased = self.lost = 0

    async def wander(self, client: Client, run_id: str) -> None:
        while True:
            host = self._random.choice([host for host in self.hosts if host.alive])
            quota = self._random.choice((1, 2, 5, 20, 80))
            stay: asyncio.Task[str] = asyncio.ensure_future(host.observe(client, run_id, quota))
            self._present.add(stay)
            stay.add_done_callback(self._present.discard)
            try:
                outcome = await stay
            except asyncio.CancelledError:
                if not stay.cancelled():
                    raise
                outcome = "left"
                self.chased += 1
            self.moves += 1
            self.lost += outcome == "lost"
            if outcome == "end":
                return
            # Who moves may chase another one away: in the middle of whatever it is waiting for.
            if self._present and self._random.random() < 0.2:
                self._random.choice(sorted(self._present, key=id)).cancel()


async def at_rest(bread: Bread, runs: Sequence[str]) -> list[str]:
    """The pending questions, when each of the runs has come to rest or to its end."""
    for run_id in runs:
        async for _ in bread.observe(run_id, until="rest"):
            pass
    return [item.id for item in (await bread.list_checkpoints()).items]


@ALSO_WITH_NATS
@pytest.mark.parametrize("seed", range(trials(1, 8)))
async def test_b130_b123_b124_b66_c53_observers_that_come_and_go_miss_nothing_and_see_nothing_twice(
    shared: Shared, seed: int
) -> None:
    random = Random(seed)
    crowd = Crowd(random)

    async def pace() -> None:
        await desk.list_runs(limit=1)

    async with (
        Bread(**place_of(shared), executes=False) as desk,
        Bread(agents=[storyteller("here", pace)], **beats_of(shared)) as worker,
        child(shared, "first") as first,
        child(shared, "second") as second,
    ):
        crowd.hosts = [Here(desk), Here(worker), first, first, second]
        runs = [await first.ask("start", "started") for _ in range(RUNS)]
        clients = [(Client(), random.choice(runs)) for _ in range(200)]
        async with asyncio.TaskGroup() as wandering:
            for client, run_id in clients:
                wandering.create_task(crowd.wander(client, run_id))

            # The first process asks, is answered, and is killed in the middle of what it says then.
            pending = await at_rest(desk, runs)
            assert len(pending) == RUNS
            first.tell("crash", after=random.randint(60, 200))
            for checkpoint in pending:
                first.tell("answer", checkpoint=checkpoint)
            assert await first.died() == -signal.SIGKILL

            # Who is left goes on: to two questions each. The second process answers half of them, and dies of it.
            for item in (await desk.list_checkpoints()).items:
                await worker.resume(item.id, "yes")._start()
            pending = await at_rest(desk, runs)
            assert len(pending) == 2 * RUNS
            second.tell("crash", after=random.randint(30, 100))
            for checkpoint in random.sample(pending, RUNS):
                await second.ask("answer", "answered", checkpoint=checkpoint)
            for checkpoint in await at_rest(desk, runs):
                await desk.resume(checkpoint, "yes")._start()

        for run_id in runs:
            log = log_of([event async for event in desk.audit(run_id)])
            info = RunInfo(run_id, run_id, (await desk.get_run(run_id)).session_id, "storyteller")
            for client in [client for client, observed in clients if observed == run_id]:
                client.check(log, info)
        assert crowd.moves > len(clients)
        assert crowd.chased
        assert crowd.lost, "nobody was there when the process died"
        assert sum(client.resets for client, _ in clients), "no attempt that somebody had seen was cut off"
