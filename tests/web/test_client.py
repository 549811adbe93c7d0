"""The client of the library: streams that survive what breaks, and errors that are what they are."""

from __future__ import annotations

import ast
import asyncio
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import httpx2
import pytest

from bread import BreadError, RunStopped
from bread.client import Client
from bread.domain.errors import InvalidInput, NotFound, Refused, StoreUnavailable, StoreUnreadable
from bread.runtime.http.client import check
from bread.runtime.http.errors import told
from bread.runtime.http.statuses import status_of
from scenes import refused
from support import read, said, types
from test_numbers import ROOMS, parsed
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


def errors() -> Iterator[BreadError]:
    """An error of each code that the rooms raise, as they raise it."""
    classes = {cls.__name__: cls for cls in (BreadError, InvalidInput, NotFound, Refused)}
    for _, tree in parsed(*ROOMS):
        for node in ast.walk(tree):
            match node:
                case ast.Call(func=ast.Name(id=name), args=[ast.Constant(value=str(code)), *_]) if name in classes:
                    yield classes[name](code, "why", place=1)
    yield StoreUnavailable("why", place=1)


def test_each_error_comes_back_as_what_it_was() -> None:
    """B129, B147: by its code, not by its status, which several classes share."""
    seen = set()
    for given in errors():
        status = status_of(given)
        if status == 500:
            continue
        seen.add(given.code)
        response = httpx2.Response(
            status, content=bytes(told(status, given.code, given.message, dict(given.details)).body)
        )
        with refused(given.code) as caught:
            check(response)
        assert type(caught.value) is type(given), given.code
        assert (caught.value.message, caught.value.details) == ("why", {"place": 1})
    assert seen >= {"CONCURRENCY_LIMIT", "MODEL_NOT_READY", "NOT_OPEN", "IDEMPOTENCY_CONFLICT", "STORE_UNAVAILABLE"}


def test_a_store_that_cannot_be_read_is_no_fault_of_the_request() -> None:
    """B147: though a cursor that is none has the same code."""
    assert status_of(StoreUnreadable("PROTOCOL_DECODE_ERROR", "malformed")) == 500
    assert status_of(InvalidInput("PROTOCOL_DECODE_ERROR", "no cursor")) == 400


@pytest.mark.parametrize(
    ("status", "code"), [(502, "STORE_UNAVAILABLE"), (504, "STORE_UNAVAILABLE"), (500, "INTERNAL_ERROR")]
)
def test_what_stands_between_has_errors_of_its_own(status: int, code: str) -> None:
    """B147: a proxy whose server is away: it may come back."""
    with refused(code):
        check(httpx2.Response(status, text="<h1>Bad Gateway</h1>"))


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
