"""The work queue: what one process leaves ready is performed by another that has room for it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from bread import Bread, define_agent, define_tool
from bread.runtime import hands as hands_of
from bread.runtime import sweep
from bread.runtime.hands import Hands
from bread.runtime.servers import NatsServer
from bread.testing import ScriptedModel, call, pause, text
from bread.transport import work
from bread.transport.jetstream import JetStream
from bread.transport.port import Delivery
from bread.transport.subjects import WORK_STREAM, work_subject
from nats_server import outside
from scenes import agent, asking, asks, come, engine_of
from support import read

from .test_relay import store_in

HELLO = agent([[text("Hello.")]])


@pytest.fixture(autouse=True)
def _by_the_queue(monkeypatch: pytest.MonkeyPatch) -> None:
    """What comes does not come by the sweep."""
    monkeypatch.setattr(sweep, "HANDED_OUT_SECONDS", 3600.0)


def worker(store: str, server: NatsServer, *agents: Any, **options: Any) -> Bread:
    return Bread(agents=agents or [HELLO], store=store, nats=server.url, **options)


def api(store: str, server: NatsServer) -> Bread:
    return Bread(agents=[HELLO], store=store, nats=server.url, executes=False)


def hands_in(bread: Bread) -> Hands:
    hands = engine_of(bread).hands
    assert hands is not None
    return hands


async def state(server: NatsServer) -> dict[str, int]:
    """How many jobs there are, and how many of those somebody is at work on."""
    client = await outside(server)
    try:
        js = client.jetstream()
        jobs = (await js.stream_info(WORK_STREAM)).state.messages
        consumers = await js.consumers_info(WORK_STREAM)
        return {"jobs": jobs, "held": sum(one.num_ack_pending or 0 for one in consumers)}
    finally:
        await client.close()


async def until(server: NatsServer, **expected: int) -> None:
    """Until the queue is so: each look is a question to the server."""
    while await state(server) != expected:
        pass


async def taken(bread: Bread, run_id: str) -> list[str]:
    """Why the run got its owners, one after the other."""
    return [str(event.data["reason"]) async for event in bread.audit(run_id) if event.name == "run.taken"]


class Slow:
    """A tool that works until it is told to end."""

    def __init__(self) -> None:
        self.begun: list[str] = []
        self.may_end = asyncio.Event()

        @define_tool
        async def hold() -> str:
            self.begun.append("")
            await self.may_end.wait()
            return "done"

        model = ScriptedModel([[call("tool_hold")], [text("Done.")]])
        self.agent = define_agent("a", model=model, tools=[hold])


async def test_what_is_ready_is_performed_by_a_worker(server: NatsServer, tmp_path: Path) -> None:
    """B48: begun and answered at a process that performs nothing, one job each; none is left."""
    store = store_in(tmp_path)
    async with worker(store, server, agent(asks(), asking())), api(store, server) as desk:
        first = await read(run := desk.run("a", "go"))
        [question] = [crumb for crumb in first if crumb.type == "human:required"]
        rest = await read(desk.resume(question.checkpoint_id, "yes"))
        assert [crumb.type for crumb in rest][-1] == "agent:run:end"
        await until(server, jobs=0, held=0)
        assert await taken(desk, str(run.run_id)) == ["queued", "queued"]


async def test_a_job_waits_for_a_worker_with_its_agent(server: NatsServer, tmp_path: Path) -> None:
    """B48: others do not even see it."""
    store = store_in(tmp_path)
    async with api(store, server) as desk, worker(store, server, agent([[text("No.")]], id="b")):
        run_id = await desk.start("a", "go")
        await until(server, jobs=1, held=0)
        async with worker(store, server):
            assert await desk.observe(run_id) == "Hello."
            await until(server, jobs=0, held=0)


async def test_b15_a_worker_takes_what_it_has_room_for(server: NatsServer, tmp_path: Path) -> None:
    """Back-pressure: with two slots each, two workers perform four of ten runs, and the others wait in the queue."""
    store, slow = store_in(tmp_path), Slow()
    options: dict[str, Any] = {"concurrency": 2}
    async with (
        api(store, server) as desk,
        worker(store, server, slow.agent, **options) as one,
        worker(store, server, slow.agent, **options) as two,
    ):
        runs = [await desk.start("a", "go") for _ in range(10)]
        await come(lambda: len(slow.begun) == 4)
        await until(server, jobs=10, held=4)
        for bread in (one, two):
            await engine_of(bread).sweep.once()
            assert len(engine_of(bread).actors) == 2
        slow.may_end.set()
        for run_id in runs:
            assert await desk.observe(run_id) == "Done."
        await until(server, jobs=0, held=0)
    assert len(slow.begun) == 10


@asynccontextmanager
async def performed_once(server: NatsServer, store: str) -> AsyncIterator[None]:
    """A run is at its tool at one of two workers. After what happens then it ends there, and has had no other owner."""
    slow = Slow()
    async with api(store, server) as desk, worker(store, server, slow.agent), worker(store, server, slow.agent):
        run_id = await desk.start("a", "go")
        await come(lambda: bool(slow.begun))
        yield
        slow.may_end.set()
        assert await desk.observe(run_id) == "Done."
        assert await taken(desk, run_id) == ["queued"]
    assert len(slow.begun) == 1


async def test_who_is_at_work_says_so(server: NatsServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """B48: a job takes many times as long as the queue would wait for a worker that is silent; it comes once."""
    monkeypatch.setattr(work, "AGAIN_SECONDS", 0.3)
    monkeypatch.setattr(hands_of, "WORKING_SECONDS", 0.05)
    async with performed_once(server, store_in(tmp_path)):
        client = await outside(server)
        said = await client.subscribe(f"$JS.ACK.{WORK_STREAM}.>")
        for _ in range(20):  # a second
            assert (await said.next_msg(5)).data == b"+WPI"
        await client.close()


async def test_a_job_that_comes_again_is_not_taken_again(
    server: NatsServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """C35: nobody says to be at work on it, so the queue gives it to somebody else, whom the log refuses it."""
    monkeypatch.setattr(work, "AGAIN_SECONDS", 0.2)
    async with performed_once(server, store_in(tmp_path)):
        await until(server, jobs=0, held=0)  # it was given to somebody who saw that it has an owner


async def test_a_job_that_cannot_be_read_is_removed(
    server: NatsServer, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """It is told of once, stops nobody, and what comes after it is performed."""
    store = store_in(tmp_path)
    async with api(store, server) as desk, worker(store, server):
        client = await outside(server)
        await come(lambda: engine_of(desk).hands is not None)
        assert await desk.run("a", "go") == "Hello."
        for data in (b"", b"\xc1", b"\x81\xa1v\x02"):
            await client.jetstream().publish(work_subject("default", "a"), data)
        await client.close()
        assert await desk.run("a", "go") == "Hello."
        await until(server, jobs=0, held=0)
    errors = [record.getMessage() for record in caplog.records if record.levelno >= logging.ERROR]
    assert len(errors) == 3
    assert all(error.startswith("a job of agent a cannot be read, and is removed") for error in errors)


async def test_jobs_of_what_is_gone_are_done_with(server: NatsServer, tmp_path: Path) -> None:
    """Cancelled, deleted, never begun: no job stays, nothing is written."""
    store = store_in(tmp_path)
    async with api(store, server) as desk:
        cancelled = await desk.start("a", "go")
        await desk.cancel(cancelled)
        await desk.start("a", "go", session="gone")
        await desk.sessions.delete("gone")
        await until(server, jobs=2, held=0)
        before = [event.position async for event in desk.audit()]
        async with worker(store, server):
            await until(server, jobs=0, held=0)
        assert [event.position async for event in desk.audit()] == before


async def test_what_is_given_back_goes_to_another(
    server: NatsServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """B51: a worker that stops offers its runs, and they go on elsewhere at once: none comes to itself and is lost."""
    monkeypatch.setattr(work, "AGAIN_SECONDS", 3600.0)
    store = store_in(tmp_path)
    gate = asyncio.Event()

    async def never() -> None:
        gate.set()
        await asyncio.Event().wait()

    held = agent([[text("Hel"), pause(never)]])
    async with api(store, server) as desk, AsyncExitStack() as exits:
        first = await exits.enter_async_context(worker(store, server, held, grace=0.0))
        run_id = await desk.start("a", "go")
        await gate.wait()
        async with worker(store, server):
            await first.close()
            assert await desk.observe(run_id) == "Hello."
        assert await taken(desk, run_id) == ["queued", "handed_over", "queued"]


def settles(bread: Bread, monkeypatch: pytest.MonkeyPatch) -> asyncio.Event:
    """Set when a job was done with or handed on there."""
    hands, settled = hands_in(bread), asyncio.Event()
    settle = hands._settle

    async def settling(delivery: Delivery, again: float | None = None) -> None:
        await settle(delivery, again)
        settled.set()

    monkeypatch.setattr(hands, "_settle", settling)
    return settled


async def nothing() -> None:
    return


@pytest.mark.parametrize("is_asked", [False, True], ids=["withdrawn", "asked"])
async def test_a_job_that_comes_while_closing_goes_to_another(
    server: NatsServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_asked: bool
) -> None:
    """B51: a process that waits for its tools before it ends asks for nothing, and hands on what has come all the same:
    it is performed elsewhere at once."""
    store, slow, other = store_in(tmp_path), Slow(), Slow()
    async with api(store, server) as desk, worker(store, server, other.agent, concurrency=1) as second:
        ends = [await desk.start("a", "go")]
        await come(lambda: bool(other.begun))  # it asks for nothing more
        async with worker(store, server, slow.agent, grace=60.0) as first:
            ends.append(await desk.start("a", "go"))
            await come(lambda: bool(slow.begun))
            received = settles(first, monkeypatch)
            if is_asked:  # its request is under way when the job comes
                monkeypatch.setattr(hands_in(first), "close", nothing)
            closing = asyncio.create_task(first.close())
            await come(lambda: engine_of(first).closing)
            run_id = await desk.start("a", "go")
            if is_asked:
                await received.wait()
            other.may_end.set()
            assert await desk.observe(run_id) == "Done."
            assert not closing.done()
            owners = [event.data["owner"] async for event in desk.audit(run_id) if event.name == "run.taken"]
            assert owners == [second.worker]
            slow.may_end.set()
            await closing
        for one in ends:
            assert await desk.observe(one) == "Done."
        await until(server, jobs=0, held=0)


async def test_who_counts_as_dead_hands_jobs_on(
    server: NatsServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """B48, B67: what it took would be taken from it at once."""
    monkeypatch.setattr(hands_of, "AGAIN_SECONDS", 0.05)
    store = store_in(tmp_path)
    async with api(store, server) as desk, worker(store, server) as first:
        handed_on = settles(first, monkeypatch)
        monkeypatch.setattr(engine_of(first).liveness, "is_alive", lambda one: one != first.worker)
        run_id = await desk.start("a", "go")
        await handed_on.wait()
        async with worker(store, server) as second:
            assert await desk.observe(run_id) == "Hello."
            owners = [event.data["owner"] async for event in desk.audit(run_id) if event.name == "run.taken"]
            assert owners == [second.worker]


async def test_while_the_server_is_down_nothing_is_asked(
    server: NatsServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """B48: fetching waits for the server to be back, and goes on."""
    monkeypatch.setattr(hands_of, "AGAIN_SECONDS", 0.0)
    store = store_in(tmp_path)
    async with api(store, server) as desk, worker(store, server) as bread:
        queue, waits, in_vain = hands_in(bread)._queue, asyncio.Event(), list[str]()
        until_up, fetch = queue.until_up, queue.fetch

        async def waiting() -> None:
            if not queue.is_up:
                waits.set()
            await until_up()

        async def asking(agent: str) -> Delivery | None:
            if not queue.is_up:
                in_vain.append(agent)
            return await fetch(agent)

        monkeypatch.setattr(queue, "until_up", waiting)
        monkeypatch.setattr(queue, "fetch", asking)
        server.kill()
        await waits.wait()
        server.start()
        await come(lambda: hands_in(desk)._queue.is_up)
        assert await desk.run("a", "go") == "Hello."
        assert in_vain == []


async def test_what_nobody_expects_ends_no_fetching(
    server: NatsServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """B48: it is told of once, however often it happens, and jobs go on to come."""
    monkeypatch.setattr(hands_of, "AGAIN_SECONDS", 0.0)
    left = [1, 2, 3]
    fetch = work.JetStreamWork.fetch

    async def failing(queue: work.JetStreamWork, agent: str) -> Delivery | None:
        if left:
            raise RuntimeError(f"bug {left.pop()}")
        return await fetch(queue, agent)

    monkeypatch.setattr(work.JetStreamWork, "fetch", failing)
    store = store_in(tmp_path)
    async with api(store, server) as desk, worker(store, server):
        assert await desk.run("a", "go") == "Hello."
        await until(server, jobs=0, held=0)
    errors = [record for record in caplog.records if record.levelno >= logging.ERROR]
    assert [record.getMessage() for record in errors] == ["fetching runs of agent a failed; it is tried again"]
    assert "bug 3" in str(errors[0].exc_info)


async def test_without_the_queue_the_sweep_finds_it(
    server: NatsServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """B48: offers that were lost, and a server that is gone, cost a moment."""
    monkeypatch.setattr(sweep, "HANDED_OUT_SECONDS", 0.05)
    store = store_in(tmp_path)
    async with api(store, server) as desk, worker(store, server):
        engine = engine_of(desk)
        assert engine.hands is not None
        engine.hands.offer = lambda state, tenant: None  # type: ignore[method-assign]
        assert await desk.run("a", "lost") == "Hello."
        server.kill()
        assert await desk.run("a", "down") == "Hello."
        server.start()
        await come(lambda: isinstance(engine.transport, JetStream) and engine.transport.is_up)
        del engine.hands.offer
        assert await desk.run("a", "back") == "Hello."
