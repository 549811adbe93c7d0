"""A reader that does not read: it loses nothing that lasts, its text is exact, and nobody waits for it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from bread import Agent, Bread, define_agent
from bread.projections.render import RunInfo
from bread.testing import ScriptedModel, call, fail, pause, text
from bread.transport import local
from support import read

from .agents import fetch, sign, speech
from .clients import Client, is_read_out, log_of

WORDS = 700  # more than fit in a queue


def talker(begin: asyncio.Event, go_on: asyncio.Event) -> Agent:
    """Far more text than a queue holds, in every turn: with a failed attempt, a tool and a question in between."""
    first = [
        pause(begin.wait),
        text("First, "),
        pause(go_on.wait),
        text(speech(WORDS, 1)),
        fail(),
        text(speech(WORDS, 2)),
    ]
    turns: list[list[Any]] = [
        [*first, call("tool_fetch")],
        [text(speech(WORDS, 3)), call("human_sign")],
        [text(speech(WORDS, 4))],
    ]
    return define_agent("worker", model=ScriptedModel(turns), tools=[sign, fetch])


async def check(bread: Bread, run_id: str, *clients: Client) -> None:
    log = log_of([event async for event in bread.audit(run_id)])
    info = RunInfo(run_id, run_id, (await bread.get_run(run_id)).session_id, "worker")
    for client in clients:
        client.check(log, info)


async def test_b130_a_reader_that_never_reads_until_the_end_slows_nobody_and_loses_nothing(
    open_bread: Callable[..., Bread],
) -> None:
    begin, go_on = asyncio.Event(), asyncio.Event()
    async with open_bread(talker(begin, go_on)) as bread:
        run_id = await bread.start("worker", "go")
        slow, quick = Client(), Client()
        held = aiter(bread.observe(run_id))
        slow.take((await anext(held)).wire())
        next_word = asyncio.ensure_future(anext(held))
        while not is_read_out(bread._running().hub, run_id):
            await bread.list_runs()
        begin.set()
        slow.take((await next_word).wire())  # the first word, and then it reads no more
        go_on.set()
        async for crumb in bread.observe(run_id):
            quick.take(crumb.wire())
            if crumb.type == "human:required":
                await bread.resume(crumb.checkpoint_id, "yes")._start()
        # The run is over, and the slow reader has read two crumbs of it.
        assert (await bread.get_run(run_id)).status == "completed"
        (subscription,) = bread._running().hub._subscriptions[run_id]
        assert subscription._lagging
        assert not subscription._frames
        assert [crumb.get("text") for crumb in slow.crumbs] == [None, "First, "]
        async for crumb in held:
            slow.take(crumb.wire())
        await check(bread, run_id, slow, quick)
        assert slow.resets == 1  # of the failed attempt, whose first word it had


async def test_b130_b124_a_reader_that_reads_in_fits_is_exact(
    open_bread: Callable[..., Bread], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It sleeps through some of the text, catches up in the middle of a turn, and falls behind again."""
    monkeypatch.setattr(local, "QUEUE", 16)
    begin, gates = asyncio.Event(), [asyncio.Event() for _ in range(3)]
    turn: list[Any] = [pause(begin.wait)]
    for number, gate in enumerate(gates):
        turn += [text(speech(40, number)), pause(gate.wait)]
    agent = define_agent("worker", model=ScriptedModel([[*turn, text(speech(40, 9))]]))
    async with open_bread(agent) as bread:
        run_id = await bread.start("worker", "go")
        client = Client()
        async for crumb in bread.observe(run_id):
            client.take(crumb.wire())
            if crumb.type == "agent:run:start":
                begin.set()
            for number, gate in enumerate(gates):
                whole = sum(len(speech(40, earlier)) for earlier in range(number + 1))
                if len(client.texts.get(1, "")) >= whole:
                    gate.set()
        await check(bread, run_id, client)
        deltas = [crumb for crumb in client.crumbs if crumb["type"] == "text:delta"]
        assert len(deltas) >= 4
        assert max(len(delta["text"]) for delta in deltas) > 100  # it caught up with many words at once


async def test_b61_b130_many_readers_that_never_read_cost_no_frames(open_bread: Callable[..., Bread]) -> None:
    begin, go_on = asyncio.Event(), asyncio.Event()
    async with open_bread(talker(begin, go_on)) as bread:
        run_id = await bread.start("worker", "go")
        stuck = [aiter(bread.observe(run_id)) for _ in range(20)]
        for reader in stuck:
            assert (await anext(reader)).type == "agent:run:start"
        begin.set()
        go_on.set()
        async for crumb in bread.observe(run_id, until="rest"):
            if crumb.type == "human:required":
                question = crumb.checkpoint_id
        waiting = bread._running().hub._subscriptions[run_id]
        assert len(waiting) == 20
        assert sum(len(subscription._frames) for subscription in waiting) == 0
        await bread.resume(question, "yes")
        for reader in stuck:
            rest = Client()
            async for crumb in reader:
                rest.take(crumb.wire())
            assert rest.crumbs[-1]["type"] == "agent:run:end"
            assert rest.texts == await texts(bread, run_id)


async def texts(bread: Bread, run_id: str) -> dict[int, str]:
    client = Client()
    for crumb in await read(bread.observe(run_id)):
        client.take(crumb.wire())
    return client.texts
