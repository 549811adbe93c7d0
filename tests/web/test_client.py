"""The client of the library: streams that survive what breaks, and errors that are what they are."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from bread import RunStopped
from bread.client import Client
from scenes import refused
from support import read, said, types
from web.conftest import Served


@pytest.fixture
async def client(served: Served) -> AsyncIterator[Client]:
    async with Client(served.url) as client:
        yield client


@pytest.fixture
def servers(tmp_path: Path) -> Iterator[list[Served]]:
    found: list[Served] = [Served(f"sqlite:///{tmp_path}/bread.db")]
    yield found
    for server in found:
        server.kill()


async def test_a_run_and_its_answer(client: Client) -> None:
    """B139, B141, B149: crumbs are those of the library; a stream of `run` ends where the run rests."""
    crumbs = await read(client.run("clerk", "go", session={"tags": {"a": "b"}}))
    assert types(crumbs) == ["agent:run:start", "text:delta", "human:required"]
    asked = crumbs[-1]
    assert asked.type == "human:required"
    assert (await client.get_checkpoint(asked.checkpoint_id)).prompt == "Well?"
    page = await client.list_checkpoints(agent="clerk", limit=1000)
    assert asked.checkpoint_id in [one.id for one in page.items]
    assert await client.answer(asked.checkpoint_id, "yes", author="ann") == asked.run_id
    assert await client.output(asked.run_id) == "Noted."
    run = await client.get_run(asked.run_id)
    assert (run.status, run.output) == ("completed", "Noted.")


async def test_all_questions_of_a_rest_are_seen(client: Client) -> None:
    """B89, B140: a pipeline whose branch asks, and what it gives."""
    run_id = await client.start_pipeline("both", "go")
    crumbs = await read(client.observe(run_id, until="rest"))
    asked = crumbs[-1]
    assert asked.type == "human:required"
    await client.answer(asked.checkpoint_id, "no")
    assert await client.output(run_id) == ["You said: You said: go", "Noted."]


async def test_errors_are_those_of_the_library(client: Client) -> None:
    """B147, B142: classes and codes."""
    with refused("AGENT_NOT_FOUND"):
        await client.start("nope", 1)
    with refused("RUN_NOT_FOUND"):
        await read(client.observe("run_nope"))
    with refused("INPUT_INVALID"):
        await client.start("clerk", 1, inputs=2)
    failed = await client.start("broken", "go")
    with pytest.raises(RunStopped) as caught:
        await client.output(failed)
    assert caught.value.code == "MODEL_ERROR"
    run_id = (await read(client.run("clerk", "go")))[0].run_id
    assert await client.cancel(run_id, "enough") == "cancelled"


async def test_nobody_there() -> None:
    """B139: whether it happened is not known."""
    async with Client("http://127.0.0.1:9") as client:
        with refused("STORE_UNAVAILABLE"):
            await client.start("clerk", 1)


@pytest.mark.parametrize("how", ["killed", "stopped"])
async def test_a_stream_survives_its_server(servers: list[Served], how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """B130, B135, B150: another one on the same port; every crumb once and in order, the text whole."""
    [first] = servers
    async with Client(first.url) as client:
        run_id = await client.start("clerk", "go")
        seen, asked = [], asyncio.Event()

        async def watches() -> None:
            async for crumb in client.observe(run_id):
                seen.append(crumb)
                if crumb.type == "human:required":
                    asked.set()

        watching = asyncio.create_task(watches())
        await asked.wait()
        await asyncio.to_thread(first.kill if how == "killed" else first.stop)
        servers.append(await asyncio.to_thread(Served, first.store, first.port))
        checkpoint = next(crumb.checkpoint_id for crumb in seen if crumb.type == "human:required")
        await client.answer(checkpoint, "yes")
        await watching
    assert types(seen) == [
        "agent:run:start",
        "text:delta",
        "human:required",
        "human:resumed",
        "text:delta",
        "agent:run:end",
    ]
    assert said(seen) == "Hm é. Noted."
    durable = [crumb.seq for crumb in seen if not crumb.type.startswith(("tool:input", "text"))]
    assert durable == sorted({*durable})
