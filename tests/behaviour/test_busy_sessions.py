"""A session takes one run at a time."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from bread import ModelRequest
from bread.testing import call, pause, text
from scenes import (
    Gate,
    OpenBread,
    Spy,
    agent,
    ask_first,
    asking,
    asks,
    come,
    ended,
    engine_of,
    output_of,
    question,
    questions,
    refused,
)
from support import read, wire


async def test_a_session_with_a_pending_question_takes_no_other_run(open_bread: OpenBread) -> None:
    """B60, C16, Q SESSION_SUSPENDED: it names the checkpoints; nothing is written."""
    async with open_bread(agent(asks({"n": 1}, {"n": 2}), asking())) as bread:
        first, second = questions(await read(bread.run("a", "go", session="s1")))
        position = await last_position(bread)
        for options in ({}, {"on_busy": "wait"}, {"tags": {"a": "b"}}):
            with refused("SESSION_SUSPENDED") as caught:
                await bread.run("a", "another", session="s1", **options)
            assert caught.value.details["checkpoints"] == [first.checkpoint_id, second.checkpoint_id]
        assert await last_position(bread) == position
        assert [run.id for run in (await bread.list_runs()).items] == [first.run_id]
        await ask_first(bread, session="s2")


async def last_position(bread: Any) -> int:
    """The number of events in the store."""
    found = 0
    for run in (await bread.list_runs(limit=1000)).items:
        async for event in bread.audit(run.id):
            found = max(found, event.position)
    return found


async def test_a_pending_run_can_be_cancelled_by_the_new_one(open_bread: OpenBread) -> None:
    """B60, C58: on_pending='cancel' cancels it with synthetic results, in the commit of the new start."""
    spy = Spy([[call("human_ask", {"n": 1}), call("human_ask", {"n": 2})], [text("Thanks.")]])
    async with open_bread(agent(spy, asking())) as bread:
        first, second = questions(await read(bread.run("a", "one", session="s1")))
        await read(bread.resume(first.checkpoint_id, "yes"))
        new = question(await read(bread.run("a", "two", session="s1", on_pending="cancel")))
        old = await ended(bread, first.run_id)
        assert (wire(old[-1])["type"], wire(old[-1])["code"]) == ("agent:error", "RUN_CANCELLED")
        assert [crumb.checkpoint_id for crumb in old if crumb.type == "human:discarded"] == [second.checkpoint_id]
        with refused("CHECKPOINT_NOT_FOUND"):
            await bread.resume(second.checkpoint_id, "yes")
        cancelled = [event async for event in bread.audit(first.run_id)][-1]
        started = await anext(bread.audit(new.run_id))
        assert (cancelled.name, started.name) == ("run.cancelled", "run.started")
        assert cancelled.commit == started.commit
    assert spy.seen[1][2:4] == [
        ("tool", "human_ask", "yes", "ok"),
        ("tool", "human_ask", "superseded by a new run", "error"),
    ]
    assert spy.seen[1][4:] == [("user", "two")]


async def test_a_session_with_a_running_run_is_busy(open_bread: OpenBread) -> None:
    """B60, C63, Q SESSION_BUSY: nothing is written; on_busy='wait' starts when the run before has ended."""
    gate = Gate()

    def turn(request: ModelRequest) -> list[Any]:
        said = [message.text for message in request.messages if message.role == "user"]
        return [pause(gate), text("One.")] if said == ["one"] else [text(" and ".join(said))]

    async with open_bread(agent(turn)) as bread:
        first = await bread.start("a", "one", session="s1")
        await gate.reached.wait()
        for options in ({}, {"on_pending": "cancel"}):
            with refused("SESSION_BUSY") as caught:
                await bread.run("a", "two", session="s1", **options)  # type: ignore[arg-type]
            assert caught.value.details["run_id"] == first
        waiting = asyncio.create_task(output_of(bread.run("a", "two", session="s1", on_busy="wait")))
        await come(lambda: engine_of(bread).hub._subscriptions)
        assert [run.id for run in (await bread.list_runs()).items] == [first]
        gate.open()
        assert await waiting == "one and two"
        assert [run.session_id for run in (await bread.list_runs()).items] == ["s1", "s1"]


async def test_who_waits_for_a_run_that_is_deleted_is_told(
    open_bread: OpenBread, monkeypatch: pytest.MonkeyPatch
) -> None:
    """B60, B77: also where the session goes between the refusal and the waiting."""
    gate = Gate()
    async with open_bread(agent([[pause(gate), text("One.")]])) as bread:
        await bread.start("a", "one", session="s1")
        await gate.reached.wait()
        ask = engine_of(bread).journal.ask

        async def after_the_deletion(question: Any, *args: Any, **options: Any) -> Any:
            monkeypatch.undo()
            assert question.__name__ == "run_info"
            await bread.sessions.delete("s1")
            return await ask(question, *args, **options)

        monkeypatch.setattr(engine_of(bread).journal, "ask", after_the_deletion)
        with refused("SESSION_DELETED"):
            await bread.start("a", "two", session="s1", on_busy="wait")


async def test_who_waits_for_a_run_that_suspends_is_told(open_bread: OpenBread) -> None:
    """B60: on_busy='wait' waits for a running run, not for a person."""
    gate = Gate()
    async with open_bread(agent([[pause(gate), call("human_ask")], [text("Thanks.")]], asking())) as bread:
        await bread.start("a", "one", session="s1")
        await gate.reached.wait()
        waiting = asyncio.create_task(output_of(bread.run("a", "two", session="s1", on_busy="wait")))
        await come(lambda: engine_of(bread).hub._subscriptions)
        gate.open()
        with refused("SESSION_SUSPENDED"):
            await waiting


async def test_many_starts_in_one_session_are_one_run(open_bread: OpenBread) -> None:
    """B60, C63: whatever races, a session has one run at a time; the losers get SESSION_BUSY or SESSION_SUSPENDED."""
    async with open_bread(agent(asks(), asking())) as bread:
        outcomes = await asyncio.gather(*(bread.start("a", n, session="s1") for n in range(20)), return_exceptions=True)
        won = [one for one in outcomes if isinstance(one, str)]
        lost = {getattr(one, "code", one) for one in outcomes if not isinstance(one, str)}
        assert len(won) == 1
        assert lost <= {"SESSION_BUSY", "SESSION_SUSPENDED"}
        assert [run.id for run in (await bread.list_runs()).items] == won
