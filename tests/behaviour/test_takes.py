"""A process that performs what is begun in it, and takes no run of others: `takes=False`."""

from __future__ import annotations

import time

from bread.domain.commands import AnswerCheckpoint
from bread.testing import text
from scenes import DURABLE, OpenBread, agent, ask_first, asking, asks, engine_of, names
from support import read, types

hello = agent([[text("Hello.")]])


@DURABLE
async def test_runs_of_others_are_left_alone(open_bread: OpenBread) -> None:
    """B48, B153: a run that is ready stays ready, also after a sweep; what is begun here is performed here."""
    async with open_bread(hello, executes=False) as desk:
        ready = await desk.start("a", "go")
    async with open_bread(hello, takes=False) as bread:
        assert await bread.run("a", "mine") == "Hello."
        await engine_of(bread).sweep.once()
        assert await names(bread, ready) == ["started"]
        assert (await bread.get_run(ready)).owner is None
    async with open_bread(hello) as bread:
        assert await bread.observe(ready) == "Hello."


@DURABLE
async def test_an_orphan_is_left_alone(open_bread: OpenBread) -> None:
    """B48, B153: a run whose process is gone is shown as orphaned, and left to a process that takes."""
    async with open_bread(hello, executes=False) as desk:
        ready = await desk.start("a", "go")
    lost = open_bread(agent([[text("Hello.")]], id="b"))
    async with lost:
        engine = engine_of(lost)
        engine.agents = {"a": hello}
        engine._drive = lambda *_, **__: None  # type: ignore[method-assign]  # it takes the run, and gets no further
        await engine.sweep.once()
        assert (await lost.get_run(ready)).owner == lost.worker
        engine.liveness.leave()
        async with open_bread(hello, takes=False) as bread:
            assert (await bread.get_run(ready)).orphaned
            await engine_of(bread).sweep.once()
            assert (await bread.get_run(ready)).owner == lost.worker
        async with open_bread(hello) as bread:
            assert await bread.observe(ready) == "Hello."


@DURABLE
async def test_what_is_asked_for_again_is_performed(open_bread: OpenBread) -> None:
    """B56, B153: the same start under the same key, after its process is gone, is this process's own run."""
    async with open_bread(hello, executes=False) as desk:
        ready = await desk.start("a", "go", session="s", idempotency_key="k")
    async with open_bread(hello, takes=False) as bread:
        again = bread.run("a", "go", session="s", idempotency_key="k")
        assert await again == "Hello."
        assert again.run_id == ready


@DURABLE
async def test_its_own_run_goes_on_after_an_answer_from_elsewhere(open_bread: OpenBread) -> None:
    """B48, B49: answered by a process that leaves it to others, the run goes on where it was begun."""
    asker = agent(asks(), asking())
    async with open_bread(asker, takes=False) as bread, open_bread(asker, executes=False) as desk:
        question = await ask_first(bread)
        await desk.send(AnswerCheckpoint(checkpoint_id=question.checkpoint_id, response="yes"))
        rest = await read(bread.observe(question.run_id, after=question.cursor))
    assert types(rest) == ["human:resumed", "text:delta", "agent:run:end"]


@DURABLE
async def test_what_expires_for_others_is_left_to_them(open_bread: OpenBread) -> None:
    """B48, C59: the question of another process's run expires here; the run is ready, and is not performed here."""
    asker = agent(asks(), asking(timeout=60, on_timeout="nobody"))
    async with open_bread(asker) as bread:
        question = await ask_first(bread)
    async with open_bread(asker, takes=False, clock=lambda: time.time() + 61) as bread:
        await engine_of(bread).sweep.once()
        assert (await names(bread, question.run_id))[-1] == "resumed"
        run = await bread.get_run(question.run_id)
        assert (run.status, run.owner) == ("running", None)
    async with open_bread(asker) as bread:
        assert await bread.observe(question.run_id) == "Thanks."
