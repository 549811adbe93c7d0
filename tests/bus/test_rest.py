"""What a process that died has committed and not published is published by another one."""

from __future__ import annotations

import asyncio
import json
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from bread import Bread
from bread.runtime.servers import NatsServer
from scenes import engine_of
from support import read, wire

from .child import CLERK
from .outsider import in_order, shown, stored
from .test_relay import store_in

TESTS = Path(__file__).parent.parent


class Dies:
    """The child and what it says."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process
        self.worker = ""

    async def said(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        line = await self.process.stdout.readline()
        return json.loads(line) if line else {}

    def ask(self, session: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps({"session": session}).encode() + b"\n")


@asynccontextmanager
async def dying(store: str, nats: str, dies: str) -> AsyncIterator[Dies]:
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "bus.child", store, nats, dies), cwd=TESTS, stdin=pipe, stdout=pipe
    )
    child = Dies(process)
    try:
        child.worker = (await child.said())["ready"]
        yield child
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


@pytest.mark.parametrize("commit", [1, 2, 3], ids=["start", "question", "next"])
async def test_b48_b130_c63_what_a_killed_process_had_committed_is_published_by_another_one(
    server: NatsServer, tmp_path: Path, commit: int
) -> None:
    """It died after a commit and before it told anybody of it; nobody ever goes on with its last run."""
    store = store_in(tmp_path)
    async with dying(store, server.url, f"committed:{commit}") as child:
        for number in range(2):
            child.ask(f"s{number}")
        while await child.said():
            pass
        assert await child.process.wait() == -signal.SIGKILL
        worker = child.worker
    async with Bread(store=store, nats=server.url, executes=False) as bread:
        runs = [run.id for run in (await bread.list_runs()).items]
        before = await stored(server)
        relay = engine_of(bread).relay
        assert relay is not None
        last = [event async for event in bread.audit()][-1].position
        assert await relay.publish_rest(worker, 0) == last
        frames = await stored(server)
        assert len(frames) > len(before)
        assert frames[: len(before)] == before
        assert in_order(frames)
        for run_id in runs:
            expected = [wire(crumb) async for crumb in in_the_log(bread, run_id)]
            assert shown([frame for frame in frames if frame["root"] == run_id]) == expected
        # Again: it is there already.
        await relay.publish_rest(worker, 0)
        assert await stored(server) == frames


async def in_the_log(bread: Bread, run_id: str) -> AsyncIterator[Any]:
    """The crumbs that there are now, of a run that nobody performs."""
    last = [event async for event in bread.audit(run_id)][-1].seq
    async for crumb in bread.observe(run_id):
        yield crumb
        following = [e for e in [e async for e in bread.audit(run_id)] if e.seq > crumb.seq]
        if crumb.seq == last or not any(e.name in SHOWN for e in following):
            return


SHOWN = {"run.started", "run.model_responded", "run.question_asked", "run.resumed", "run.completed"}


async def test_b67_b130_whoever_goes_on_publishes_first_what_was_left(server: NatsServer, tmp_path: Path) -> None:
    """Without anybody asking for the rest: the taker of a run tells what came before it."""
    store = store_in(tmp_path)
    async with dying(store, server.url, "committed:1") as child:
        child.ask("s")
        await child.process.wait()
    async with Bread(agents=[CLERK], store=store, nats=server.url) as bread:
        run_id = (await bread.list_runs()).items[0].id
        await read(bread.observe(run_id, until="rest"))
        expected = [wire(crumb) async for crumb in bread.observe(run_id, until="rest")]
    frames = await stored(server, run_id)
    assert in_order(frames)
    assert shown(frames) == expected


async def test_b73_b130_the_rest_of_a_process_that_died_after_it_deleted_a_session(
    server: NatsServer, tmp_path: Path
) -> None:
    """The stream is purged by whoever publishes the rest, and how it ended is told."""
    store = store_in(tmp_path)
    async with Bread(agents=[CLERK], store=store, nats=server.url) as bread:
        asked = (await read(bread.run("clerk", "go", session="s")))[-1]
    assert len(await stored(server, asked.run_id)) == 3
    async with Bread(agents=[CLERK], store=store) as silent:  # as one that died before it could publish
        await silent.sessions.delete("s")
        worker = silent.worker
    async with Bread(store=store, nats=server.url, executes=False) as bread:
        relay = engine_of(bread).relay
        assert relay is not None
        await relay.publish_rest(worker, 0)
    frames = await stored(server, asked.run_id)
    assert [frame["type"] for frame in frames] == ["human:discarded", "agent:error"]
