"""Processes that share nothing but a store hear each other."""

from __future__ import annotations

import asyncio
import signal
from typing import Any

import pytest

from bread import Bread, BreadError, define_agent
from bread.projections.render import RunInfo
from bread.runtime.tail import TAIL_PAGE
from bread.testing import ScriptedModel, call, pause, text
from crash.stores import ALSO_WITH_NATS, BY_THE_STORE, Shared, beats_of, place_of
from support import read

from .agents import fetch, sign, speech, storyteller
from .clients import Client, attach, durable, log_of
from .hosts import child


async def no_pace() -> None:
    return


async def expect_whole(bread: Bread, run_id: str, *clients: Client) -> None:
    run = await bread.get_run(run_id)
    log = log_of([event async for event in bread.audit(run_id)])
    for client in clients:
        client.check(log, RunInfo(run_id, run_id, run.session_id, run.agent_id))


@ALSO_WITH_NATS
async def test_b66_a_stream_of_one_process_shows_what_another_one_executes_over_its_suspensions(
    shared: Shared,
) -> None:
    """Another process executes and is asked; this one only watches, and answers. Its one stream shows all of it."""
    async with Bread(**place_of(shared), executes=False) as watching, child(shared, "first") as first:
        run_id = await first.ask("start", "started")
        client, through = Client(), 0
        async for crumb in watching.observe(run_id):
            client.take(crumb.wire())
            if crumb.type == "human:required":
                through += 1
                if through % 2:
                    await first.ask("answer", "answered", checkpoint=crumb.checkpoint_id)
                else:
                    await watching.resume(crumb.checkpoint_id, "yes")._start()
        assert through == 3
        await expect_whole(watching, run_id, client)
        performing = {event.worker async for event in watching.audit(run_id) if event.by.kind == "system"}
        assert len(performing) == 1
        assert watching.worker not in performing


async def test_b66_b130_a_client_in_another_process_sees_what_this_one_executes(shared: Shared) -> None:
    async with (
        Bread(agents=[storyteller("here", no_pace)], **place_of(shared)) as worker,
        child(shared, "other") as other,
    ):
        run_id = await worker.start("storyteller", "go")
        client = Client()
        following = asyncio.create_task(other.observe(client, run_id, quota=10**6))
        async for crumb in worker.observe(run_id):
            if crumb.type == "human:required":
                await worker.resume(crumb.checkpoint_id, "yes")._start()
        assert await following == "end"
        await expect_whole(worker, run_id, client)


@ALSO_WITH_NATS
async def test_b124_b130_b67_c53_text_that_a_killed_process_had_shown_is_reset_by_the_next_one(shared: Shared) -> None:
    """A client of a process that dies in mid-turn comes back to another one with the cursor of half a sentence."""
    async with Bread(agents=[storyteller("here", no_pace)], **beats_of(shared)) as worker:
        async with child(shared, "doomed") as doomed:
            doomed.tell("crash", after=40, watched=True)
            run_id = await doomed.ask("start", "started")
            client = Client()
            assert await doomed.observe(client, run_id, quota=10**6) == "lost"
            assert await doomed.died() == -signal.SIGKILL
        half = dict(client.texts)
        assert client.cursor == f"1~1:{len(half[1])}"
        assert half[1]
        async for crumb in worker.observe(run_id, after=client.cursor, until="rest"):
            client.take(crumb.wire())
        kinds = [crumb["type"] for crumb in client.crumbs if crumb["type"] != "text:delta"]
        assert kinds == ["agent:run:start", "text:reset", "human:required"]
        assert client.texts.keys().isdisjoint(half)  # another attempt, with another base
        assert (await worker.get_checkpoint(client.crumbs[-1]["checkpointId"])).status == "pending"
        fresh = Client()
        async for crumb in worker.observe(run_id, until="rest"):
            fresh.take(crumb.wire())
        assert fresh.texts == client.texts
        assert fresh.resets == 0
        assert durable(fresh.crumbs) == durable(client.crumbs)


@BY_THE_STORE
async def test_b130_b124_a_live_cursor_is_good_in_the_other_process_and_back(shared: Shared) -> None:
    """Half of the text here; nothing more of it there, where it is not heard; and the rest here again."""
    gates = [asyncio.Event() for _ in range(3)]
    parts: list[Any] = []
    for number, gate in enumerate(gates):
        parts += [text(speech(5, number)), pause(gate.wait)]
    agent = define_agent("worker", model=ScriptedModel([[*parts, text("The end.")]]))
    async with Bread(agents=[agent], **place_of(shared)) as here, Bread(**place_of(shared), executes=False) as there:
        run_id = await here.start("worker", "go")
        client = Client()
        for number in range(2):
            whole = sum(len(speech(5, earlier)) for earlier in range(number + 1))
            async for crumb in here.observe(run_id, after=client.cursor):
                client.take(crumb.wire())
                if len(client.texts.get(1, "")) == whole:
                    break
            before = client.cursor
            waiting = await attach(there, run_id, before)  # which means: nothing was shown
            gates[number].set()
            await waiting.leave()
            assert client.cursor == before
        elsewhere = client.fork()
        last = asyncio.create_task(elsewhere.follow(there, run_id))
        gates[2].set()
        await client.follow(here, run_id)
        await last
        await expect_whole(here, run_id, client, elsewhere)
        assert elsewhere.crumbs[-2]["type"] == "text:delta"  # the rest of the turn, in one piece, from the log


async def test_b66_more_events_than_a_page_of_the_tail_are_all_heard(shared: Shared) -> None:
    """One commit after the other, faster than the other process looks at the store."""
    turns = [[call("tool_fetch") for _ in range(20)] for _ in range(TAIL_PAGE // 40 + 2)]
    agent = define_agent("worker", model=ScriptedModel([*turns, [text("Done.")]]), tools=[fetch], max_steps=100)
    async with Bread(agents=[agent], **place_of(shared)) as here, Bread(**place_of(shared), executes=False) as there:
        run_id = await here.start("worker", "go")
        client = Client()
        await client.follow(there, run_id)
        assert client.seq > TAIL_PAGE
        await expect_whole(here, run_id, client)


async def test_b123_c37_a_process_is_not_deaf_after_events_that_it_cannot_read(
    shared: Shared, caplog: pytest.LogCaptureFixture
) -> None:
    """A newer release writes to the same store: its run is left alone, loudly, and all others are heard as before."""
    agent = define_agent("worker", model=ScriptedModel([[call("human_sign")], [text("Done.")]]), tools=[sign])
    async with Bread(agents=[agent], **place_of(shared)) as here, Bread(**place_of(shared), executes=False) as there:
        run = here.run("worker", "go")
        asked = next(crumb for crumb in await read(run) if crumb.type == "human:required")
        heard = Client()
        watching = await attach(there, run.run_id, str(asked.seq + 1))

        strange = here.run("worker", "go")
        await read(strange)
        (checkpoint,) = (await here.get_run(strange.run_id)).checkpoints
        with shared.write() as newer:
            for name in ("checkpoint.opened", "run.question_asked", "run.parked"):
                # A later version of the question, and events of today's that point to it, as that release writes them.
                version = 9 if name == "checkpoint.opened" else 1
                newer.execute(
                    "INSERT INTO stored_events (originator_id, originator_version, topic, state)"
                    " SELECT 'new_' || originator_id, originator_version, ?, state FROM stored_events"
                    " WHERE topic = ? AND originator_id IN (?, ?)",
                    (f"{name}@{version}", f"{name}@1", checkpoint, strange.run_id),
                )
            newer.execute(
                "UPDATE stored_events SET topic = 'checkpoint.opened@9' WHERE originator_id = ?", (checkpoint,)
            )
        with pytest.raises(BreadError, match="EVENT_UNKNOWN"):
            await read(there.observe(strange.run_id))

        # The tail has read past them, and is still there.
        await here.resume(asked.checkpoint_id, "yes")
        async for crumb in watching:
            heard.take(crumb.wire())
        assert [crumb["type"] for crumb in heard.crumbs] == ["human:resumed", "text:delta", "agent:run:end"]
        assert "cannot read" in caplog.text
