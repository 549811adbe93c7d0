"""Streams of a run in which nothing happens: they say that they are there, and are left without a trace."""

from __future__ import annotations

import re
from collections.abc import Iterator

import httpx2
import pytest

from bread.client import Client
from web.conftest import Served
from web.kit import run


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A server with little patience."""
    server = Served(f"sqlite:///{tmp_path_factory.mktemp('served')}/bread.db", keep_alive=0.05)
    yield server
    server.kill()


async def observers(client: httpx2.AsyncClient) -> float:
    [found] = re.findall(r"^bread_observers (.+)$", (await client.get("/metrics")).text, re.MULTILINE)
    return float(found)


async def silent_run(client: httpx2.AsyncClient) -> str:
    """A run that waits for a person."""
    return str((await run(client, "/agents/clerk/run", {"input": "go"}))[-1]["payload"]["runId"])


@pytest.mark.parametrize(("accept", "alive"), [("text/event-stream", ": ping"), ("application/x-ndjson", "")])
async def test_a_silent_stream_says_that_it_is_there(client: httpx2.AsyncClient, accept: str, alive: str) -> None:
    """B135, B151, B150: by a comment, or an empty line, again and again. Who leaves in the silence leaves nothing."""
    run_id = await silent_run(client)
    before = await observers(client)
    async with client.stream("GET", f"/runs/{run_id}/stream", headers={"Accept": accept}) as got:
        lines = got.aiter_lines()
        async for line in lines:
            if "human:required" in line:
                break
        # An event ends with an empty line, too: one more than that is silence.
        silence = [await anext(lines) for _ in range(6)]
        assert silence.count(alive) >= 3
        assert {*silence} <= {alive, ""}
        assert await observers(client) == before + 1
    while await observers(client) != before:
        pass  # the server hears that the client has gone


async def test_the_client_reads_over_it(served: Served, client: httpx2.AsyncClient) -> None:
    """B151, B130: nothing of it shows; the stream goes on behind the silence."""
    run_id = await silent_run(client)
    before = await observers(client)
    seen: list[str] = []
    async with Client(served.url) as reader:
        async for crumb in reader.observe(run_id):
            seen.append(crumb.type)
            if crumb.type == "human:required":
                async with client.stream("GET", f"/runs/{run_id}/stream") as got:
                    pings = 0
                    async for line in got.aiter_lines():  # as long as this one is silent, so is the other
                        pings += line == ": ping"
                        if pings == 3:
                            break
                await reader.answer(crumb.checkpoint_id, "yes")
    assert seen[0] == "agent:run:start"
    assert seen[-2:] == ["text:delta", "agent:run:end"]
    while await observers(client) != before:
        pass
