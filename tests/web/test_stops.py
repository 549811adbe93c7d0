"""Servers that are stopped, killed and started again, and clients that miss nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from time import perf_counter
from typing import Any

import httpx2
import pytest

from crash.stores import STORES, Shared, shared_at
from support import trials
from web.conftest import Served
from web.kit import events, run, said, types, watched


@pytest.fixture(params=STORES)
def shared(request: pytest.FixtureRequest, tmp_path: Path) -> Shared:
    """A store of its own, of each kind that several processes can share."""
    return shared_at(request.param, tmp_path)


@pytest.fixture
def servers(shared: Shared) -> Iterator[list[Served]]:
    """Servers of one store; who is left at the end is killed."""
    found: list[Served] = [Served(shared.url)]
    yield found
    for server in found:
        server.kill()


HINTS = ("text:delta", "text:reset")


def seqs_of(found: list[dict[str, Any]]) -> list[int]:
    """The numbers of the durable events; hints of calls to come have none of their own."""
    return [
        event["payload"]["seq"] for event in found if event["type"] not in HINTS and "tool:input" not in event["type"]
    ]


class Count:
    """Tells when something has happened so many times."""

    def __init__(self, wanted: int) -> None:
        self.left, self.reached = wanted, asyncio.Event()

    def add(self) -> None:
        self.left -= 1
        if self.left <= 0:
            self.reached.set()


def calling(server: Served) -> httpx2.AsyncClient:
    limits = httpx2.Limits(max_connections=None)
    return httpx2.AsyncClient(base_url=server.url, timeout=30, trust_env=False, limits=limits)


async def started(client: httpx2.AsyncClient, agent: str) -> str:
    got = await client.post(f"/agents/{agent}/run", json={"input": "go"}, headers={"Prefer": "respond-async"})
    return str(got.json()["runId"])


async def test_a_server_stops_in_seconds_with_open_streams(servers: list[Served]) -> None:
    """B150, B135: SIGTERM with 100 of them: exit code 0, nothing is lost, and the next one goes on with the runs."""
    [server] = servers
    async with calling(server) as client:
        asked = (await run(client, "/agents/clerk/run", {"input": "go"}))[-1]["payload"]
        slow = await started(client, "slow")
        opened = Count(100)

        async def reads() -> None:
            try:
                async with client.stream("GET", f"/runs/{asked['runId']}/stream") as got:
                    async for event in events(got):
                        if event["type"] == "human:required":
                            opened.add()
            except httpx2.HTTPError:
                return  # cut off: a client comes back with its cursor

        readers = [asyncio.create_task(reads()) for _ in range(100)]
        await opened.reached.wait()
        assert await asyncio.to_thread(server.stop) == 0
        await asyncio.gather(*readers)
    servers.append(Served(server.store))
    async with calling(servers[-1]) as client:
        found = await run(client, f"/resume/{asked['checkpointId']}", {"response": "yes"})
        assert found[-1]["type"] == "agent:run:end"
        await run(client, "/agents/opener/run", {"input": "go"})
        assert said(await watched(client, slow)) == "Wait. Done."


def kill(server: Served, shared: Shared) -> None:
    """SIGKILL, and the time has passed until others take that for its death."""
    server.kill()
    if shared.kind == "postgres":
        with shared.read() as cursor:
            cursor.execute("SELECT worker FROM bread_workers")
            workers = cursor.fetchall()
        for [worker] in workers:
            shared.is_gone(worker)


async def test_observers_miss_nothing_while_servers_are_killed(
    servers: list[Served], shared: Shared, record_property: Callable[[str, object], None]
) -> None:
    """B135, B130, B150, C53: dropped at random, each comes back with its last id; two SIGKILLs meanwhile: 0 gaps, 0
    duplicates, the same text."""
    chance, runs, begun = Random(1), trials(5, 20), perf_counter()
    observers = runs * trials(4, 25)
    connections = 0
    async with calling(servers[0]) as client:
        ids = [await started(client, "clerk") for _ in range(runs)]
    seen: list[list[dict[str, Any]]] = [[] for _ in range(observers)]
    some = [Count(observers // 2), Count(observers)]
    alive = asyncio.Event()
    alive.set()

    async def observes(number: int) -> None:
        nonlocal connections
        mine = seen[number]
        while not mine or mine[-1]["type"] != "agent:run:end":
            await alive.wait()
            headers = {"Last-Event-ID": mine[-1]["id"]} if mine else {}
            patience = chance.randint(1, 4)
            try:
                async with (
                    calling(servers[-1]) as client,
                    client.stream("GET", f"/runs/{ids[number % runs]}/stream", headers=headers) as got,
                ):
                    some[len(servers) > 1].add()
                    connections += 1
                    async for event in events(got):
                        mine.append(event)
                        patience -= 1
                        if patience == 0:
                            break  # this client drops its connection
            except httpx2.HTTPError:
                continue

    async with asyncio.TaskGroup() as group:
        for number in range(observers):
            group.create_task(observes(number))
        for count in some:
            await count.reached.wait()
            alive.clear()
            await asyncio.to_thread(kill, servers[-1], shared)
            servers.append(await asyncio.to_thread(Served, servers[0].store))
            alive.set()
        async with calling(servers[-1]) as client:
            page = await client.get("/checkpoints", params={"limit": 1000})
            for one in page.json()["items"]:
                await run(client, f"/resume/{one['id']}", {"response": "yes"})
    async with calling(servers[-1]) as client:
        whole = [seqs_of(await watched(client, run_id)) for run_id in ids]
    crumbs = [seqs_of(mine) for mine in seen]
    missing = sum(len({*whole[number % runs]} - {*mine}) for number, mine in enumerate(crumbs))
    twice = sum(len(mine) - len({*mine}) for mine in crumbs)
    counts = {"observers": observers, "connections": connections, "runs": runs, "kills": len(servers) - 1}
    counts |= {"crumbs": sum(map(len, crumbs)), "gaps": missing, "duplicates": twice}
    record_property("counts", counts | {"seconds": round(perf_counter() - begun, 1)})
    assert (missing, twice) == (0, 0)
    for mine in seen:
        assert said(mine) == "Hm é. Noted."
        kinds = types([event for event in mine if event["type"] not in HINTS])
        assert kinds == ["agent:run:start", "human:required", "human:resumed", "agent:run:end"]
    assert all(mine == sorted(mine) for mine in crumbs)
