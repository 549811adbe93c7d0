"""Listeners that hear what another process on the store executes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from bread import (
    Agent,
    AnswerCheckpoint,
    Bread,
    StoreUnavailable,
    define_agent,
    define_tool,
)
from bread.domain.ports import Logged
from bread.runtime import listeners
from bread.testing import ScriptedModel, call, pause, text
from crash.stores import BY_THE_STORE, Shared, place_of
from support import read

from .agents import sign
from .clients import Heard, durable
from .listening import agent, everything, expect_whole, live_through, live_to_rest

# --- two processes on one store ---------------------------------------------------------------------------------------


class HeldTail:
    """What a process hears of others, held back: the moment between their commit and the next look at the store."""

    def __init__(self, bread: Bread) -> None:
        self._journal = bread._running().journal
        self._tell = self._journal._tell
        self._held: list[tuple[list[Logged], int]] = []
        self._news = asyncio.Event()
        self._journal._tell = self._hold  # type: ignore[method-assign]

    def _hold(self, foreign: list[Logged], position: int) -> None:
        self._held.append((foreign, position))
        self._news.set()

    async def let_go(self) -> None:
        """Tell what was held back, once there is something."""
        while not self._held:
            self._news.clear()
            await self._news.wait()
        self._journal._tell = self._tell  # type: ignore[method-assign]
        for foreign, position in self._held:
            self._tell(foreign, position)


@asynccontextmanager
async def two(shared: Shared, *agents: Agent, executing: Agent | None = None) -> AsyncIterator[tuple[Bread, Bread]]:
    """A process that executes, and one that only answers, on one store."""
    async with (
        Bread(agents=agents, **place_of(shared), backoff=(0.01,)) as worker,
        Bread(agents=agents, **place_of(shared), executes=False) as desk,
    ):
        yield worker, desk


async def test_a17_b66_listeners_hear_what_another_process_executes(shared: Shared) -> None:
    heard = Heard()
    async with two(shared, everything()) as (worker, desk):
        desk.on("crumb", heard)
        run_id = await live_through(worker, worker.run("worker", "go"))
        await heard.last()
        await expect_whole(worker, run_id, heard)


@pytest.mark.parametrize("known", [True, False], ids=["heard before", "never heard of"])
async def test_a17_b122_an_own_commit_ahead_of_foreign_ones_leaves_no_gap(shared: Shared, known: bool) -> None:
    """An answer of another process is in the store, and this one takes the run before its tail has told it so."""
    heard = Heard()
    async with two(shared, agent([call("human_sign")], [text("Thank you.")])) as (worker, desk):
        if known:
            worker.on("crumb", heard)
        run = worker.run("worker", "go")
        await live_to_rest(run)
        (item,) = (await worker.list_checkpoints()).items
        if known:
            await heard.asked()
        else:
            worker.on("crumb", heard)
        tail = HeldTail(worker)
        await desk.send(AnswerCheckpoint(checkpoint_id=item.id, response="yes"))
        worker._running().sweep.soon()
        await heard.last()
        await tail.let_go()
        await another_run(worker, heard)
        whole = durable([crumb.wire() for crumb in await read(worker.observe(run.run_id))])
        question = next(number for number, crumb in enumerate(whole) if crumb["type"] == "human:required")
        assert durable(heard.crumbs) == whole[0 if known else question + 1 :]


async def another_run(bread: Bread, heard: Heard) -> None:
    """One more run through the same listener: whatever it was told twice, it was told before that."""
    await live_to_rest(bread.run("worker", "again"))
    while not heard.of_others:
        await bread.list_runs()
    await bread._listeners.drain(10)


async def test_a17_b122_foreign_commits_that_are_told_late_are_not_heard_twice(shared: Shared) -> None:
    """The run is over, here, before this process is told of the answer of another one that it has executed."""
    gate, heard = asyncio.Event(), Heard()

    @define_tool
    async def slow() -> str:
        await gate.wait()
        return "slow"

    model = ScriptedModel([[call("human_sign"), call("tool_slow")], [text("Both.")]])
    helper = define_agent("worker", model=model, tools=[sign, slow])
    async with two(shared, helper) as (worker, desk):
        worker.on("crumb", heard)
        run_id = await worker.start("worker", "go")
        await heard.until(lambda crumbs: any(c["type"] == "tool:call" for c in crumbs))
        (item,) = (await worker.list_checkpoints()).items
        tail = HeldTail(worker)
        await desk.send(AnswerCheckpoint(checkpoint_id=item.id, response="yes"))
        gate.set()
        await heard.last()
        await tail.let_go()
        await another_run(worker, heard)
        assert durable(heard.crumbs) == durable([crumb.wire() for crumb in await read(worker.observe(run_id))])


@BY_THE_STORE
async def test_a17_b130_a_store_that_does_not_answer_takes_nothing_from_a_listener(
    shared: Shared, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Some of the listener's reads fail: it hears all the same, and no text of it twice."""
    monkeypatch.setattr(listeners, "RETRY_SECONDS", 0.0)
    heard, gate, reads, failing = Heard(), asyncio.Event(), 0, {1, 2, 4, 6, 9, 10}
    speaking = agent([text("Some \U0001f680 "), pause(gate.wait), text("words. "), call("human_sign")], [text("Done.")])
    async with Bread(agents=[speaking], store=shared.url) as bread:
        journal = bread._running().journal
        ask = journal.ask

        async def moody(question: Any, *args: Any, **more: Any) -> Any:
            nonlocal reads
            task = asyncio.current_task()
            if task is not None and task.get_name().startswith("listen "):
                reads += 1
                if reads in failing:
                    raise StoreUnavailable("the disk thinks")
            return await ask(question, *args, **more)

        monkeypatch.setattr(journal, "ask", moody)
        bread.on("crumb", heard)
        run = await bread.start("worker", "go")
        await heard.until(lambda crumbs: any(c["type"] == "text:delta" for c in crumbs))
        # The listener falls behind, and has to read the store in the middle of the turn.
        bread._running().hub.poke_all()
        gate.set()
        await heard.asked()
        (item,) = (await bread.list_checkpoints()).items
        await bread.resume(item.id, "yes")
        await heard.last()
        await expect_whole(bread, run, heard)
        assert reads > max(failing)
