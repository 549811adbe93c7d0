"""Sessions: what goes when one is deleted, and what a cleanup spares."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from bread import DeleteSession, define_tool
from bread.testing import ManualClock, call, pause, text
from scenes import (
    DURABLE,
    Counter,
    Gate,
    Heard,
    OpenBread,
    agent,
    ask_first,
    asking,
    asks,
    come,
    durable,
    ended,
    names,
    questions,
    refused,
    watch,
)
from support import read, types, wire


async def test_a_deleted_session_takes_everything_with_it(open_bread: OpenBread) -> None:
    """B73, B76, Q SESSION_NOT_FOUND: messages, runs, checkpoints and log of all of its runs; not of another one."""
    async with open_bread(agent(asks({"q": 1}), asking())) as bread:
        done = await ask_first(bread, session="s1", tags={"team": "red"})
        await bread.resume(done.checkpoint_id, "yes")
        pending = await ask_first(bread, session="s1")
        other = await ask_first(bread, session="s2")
        assert await bread.sessions.delete("s1")

        for gone in (done, pending):
            for answer in ("yes", "no"):
                with refused("CHECKPOINT_NOT_FOUND"):
                    await bread.resume(gone.checkpoint_id, answer)
            with refused("CHECKPOINT_NOT_FOUND"):
                await bread.get_checkpoint(gone.checkpoint_id)
            with refused("RUN_NOT_FOUND"):
                await bread.get_run(gone.run_id)
            with refused("RUN_NOT_FOUND"):
                await bread.retry(gone.run_id)
            with refused("RUN_NOT_FOUND"):
                await bread.cancel(gone.run_id)
            with refused("RUN_NOT_FOUND"):
                await bread.observe(gone.run_id)
        for look in (bread.sessions.get, bread.sessions.messages):
            with refused("SESSION_NOT_FOUND"):
                await look("s1")
        assert [one.id for one in (await bread.sessions.list()).items] == ["s2"]
        assert (await bread.sessions.list(tags={"team": "red"})).items == []
        assert [run.id for run in (await bread.list_runs()).items] == [other.run_id]
        assert [one.id for one in (await bread.list_checkpoints()).items] == [other.checkpoint_id]
        assert await bread.resume(other.checkpoint_id, "yes") == "Thanks."


async def test_the_fact_of_a_deletion_remains(open_bread: OpenBread) -> None:
    """B73: who and when, in a tombstone without a payload."""
    async with open_bread(agent(asks({"q": "secret"}), asking())) as bread:
        asked = await ask_first(bread, input="secret", session="s1")
        await bread.sessions.delete("s1")
        (left,) = [event async for event in bread.audit(asked.run_id)]
        assert (left.name, left.session_id, left.by.kind) == ("bread.erased", "s1", "app")
        assert left.data == {}


async def test_deleting_what_is_not_there_is_true_already(open_bread: OpenBread) -> None:
    """B73: an unknown session, or the same one twice, is no error; also as a command."""
    async with open_bread(agent([[text("Hi.")]])) as bread:
        assert not await bread.sessions.delete("never")
        await bread.run("a", "go", session="s1")
        assert (await bread.send(DeleteSession(session="s1"))).status == "deleted"
        assert (await bread.send(DeleteSession(session="s1"))).status == "unknown"
        assert not await bread.sessions.delete("s1")


async def test_the_id_of_a_deleted_session_is_not_used_again(open_bread: OpenBread) -> None:
    """B77, Q SESSION_DELETED: a run that comes late does not bring it back."""
    async with open_bread(agent([[text("Hi.")]])) as bread:
        await bread.run("a", "go", session="s1")
        await bread.sessions.delete("s1")
        with refused("SESSION_DELETED"):
            await bread.run("a", "go", session="s1")
        assert (await bread.sessions.list()).items == []


async def test_a_run_stops_when_its_session_is_deleted(open_bread: OpenBread) -> None:
    """B77: model and tools are stopped, observers get agent:error SESSION_DELETED, nothing is left behind."""
    gate = Gate()
    stopped = asyncio.Event()
    ran = Counter()

    @define_tool
    async def hold() -> int:
        try:
            await gate()
        finally:
            stopped.set()
        return ran()

    async with open_bread(agent([[call("tool_hold"), call("human_ask")], [text("Done.")]], hold, asking())) as bread:
        handle = bread.run("a", "go", session="s1")
        reading = asyncio.create_task(read(handle))
        await gate.reached.wait()
        watching = await watch(bread, bread.observe(handle.run_id))
        again = await watch(bread, handle)
        (asked,) = (await bread.list_checkpoints()).items
        await bread.sessions.delete("s1")
        await stopped.wait()
        streams: list[list[Any]] = [await reading, await watching, await again]
        for crumbs in streams:
            assert types(crumbs)[:2] == ["agent:run:start", "tool:call"]
            assert wire(crumbs[-1])["type"] == "agent:error"
            assert wire(crumbs[-1])["code"] == "SESSION_DELETED"
            dropped = [crumb for crumb in crumbs if crumb.type == "human:discarded"]
            assert [(crumb.checkpoint_id, crumb.reason) for crumb in dropped] == [(asked.id, "deleted")]
        assert (await bread.list_runs()).items == []
        assert (await bread.list_checkpoints()).items == []
        assert await names(bread, handle.run_id) == ["bread.erased"]
    assert ran.total == 0


async def test_who_awaits_a_run_whose_session_is_deleted_is_told(open_bread: OpenBread) -> None:
    """B77, Q SESSION_DELETED: the awaited run ends with that code; a retry or a late look finds nothing."""
    gate = Gate()
    async with open_bread(agent([[pause(gate), text("Done.")]])) as bread:
        handle = bread.run("a", "go", session="s1")

        async def output() -> Any:
            return await handle

        waiting = asyncio.create_task(output())
        await gate.reached.wait()
        await bread.sessions.delete("s1")
        with refused("SESSION_DELETED"):
            await waiting


async def test_everybody_hears_of_a_question_that_was_dropped(open_bread: OpenBread) -> None:
    """B75, B122: human:discarded and agent:error on an open stream and for listeners alike."""
    heard = Heard("agent:error")
    async with open_bread(agent(asks(), asking())) as bread:
        bread.on("crumb", heard)
        asked = await ask_first(bread, session="s1")
        watching = await watch(bread, bread.observe(asked.run_id))
        await come(lambda: "human:required" in types(heard))  # who has fallen behind hears of the end alone
        await bread.sessions.delete("s1")
        crumbs = await watching
        assert types(crumbs)[-3:] == ["human:required", "human:discarded", "agent:error"]
        await heard.wait()
        assert durable(heard) == durable(crumbs)


async def test_who_listens_later_hears_of_it_too(open_bread: OpenBread) -> None:
    """B75, B17: of a question that was asked before anybody listened."""
    heard = Heard("agent:error")
    async with open_bread(agent(asks(), asking())) as bread:
        asked = await ask_first(bread, session="s1")
        bread.on("crumb", heard)
        await bread.sessions.delete("s1")
        await heard.wait()
        assert types(heard) == ["human:discarded", "agent:error"]
        assert {(crumb.run_id, crumb.session_id) for crumb in heard} == {(asked.run_id, "s1")}
        assert wire(heard[0])["checkpointId"] == asked.checkpoint_id
        assert wire(heard[1])["code"] == "SESSION_DELETED"


@DURABLE
async def test_a_deletion_is_for_ever(open_bread: OpenBread) -> None:
    """B73, C58: also for who opens the store afterwards, and for a rebuild of the views."""
    async with open_bread(agent(asks(), asking())) as bread:
        asked = await ask_first(bread, session="s1")
        await bread.sessions.delete("s1")
    async with open_bread(agent(asks(), asking())) as bread:
        assert bread._engine is not None
        await bread._engine.journal.rebuild()
        assert (await bread.list_checkpoints()).items == []
        assert (await bread.list_runs()).items == []
        with refused("CHECKPOINT_NOT_FOUND"):
            await bread.resume(asked.checkpoint_id, "yes")
        with refused("SESSION_DELETED"):
            await bread.run("a", "go", session="s1")


# --- cleanup ----------------------------------------------------------------------------------------------------------


async def test_a_cleanup_deletes_what_has_been_idle_for_longer(open_bread: OpenBread) -> None:
    """B74: by the last event of a session, not by its first one; it gives the number."""
    clock = ManualClock()
    async with open_bread(agent([[text("Hi.")]]), clock=clock) as bread:
        for session in ("old", "used", "new"):
            await bread.run("a", "go", session=session)
            clock.pass_by(days=10)
        await bread.run("a", "go", session="used")
        assert await bread.sessions.cleanup(older_than=timedelta(days=31)) == 0
        assert await bread.sessions.cleanup(older_than=timedelta(days=25)) == 1
        assert [one.id for one in (await bread.sessions.list()).items] == ["new", "used"]
        clock.pass_by(days=11)
        assert await bread.sessions.cleanup(older_than=timedelta(days=20)) == 1
        assert [one.id for one in (await bread.sessions.list()).items] == ["used"]
        with refused("SESSION_DELETED"):
            await bread.run("a", "go", session="old")


@pytest.mark.parametrize("tags", [None, {}, {"team": "red"}])
async def test_without_an_age_nothing_is_deleted(open_bread: OpenBread, tags: dict[str, str] | None) -> None:
    """B74: tags alone never delete."""
    clock = ManualClock()
    async with open_bread(agent([[text("Hi.")]]), clock=clock) as bread:
        await bread.run("a", "go", session="s1", tags={"team": "red"})
        clock.pass_by(days=1000)
        assert await bread.sessions.cleanup(tags=tags) == 0
        assert await bread.sessions.cleanup(older_than=None, tags=tags) == 0
        assert len((await bread.sessions.list()).items) == 1


async def test_tags_narrow_a_cleanup(open_bread: OpenBread) -> None:
    """B74: all of them have to match."""
    clock = ManualClock()
    async with open_bread(agent([[text("Hi.")]]), clock=clock) as bread:
        await bread.run("a", "go", session="both", tags={"team": "red", "tier": "gold"})
        await bread.run("a", "go", session="one", tags={"team": "red"})
        await bread.run("a", "go", session="none")
        clock.pass_by(days=1)
        age = timedelta(hours=1)
        assert await bread.sessions.cleanup(older_than=age, tags={"team": "red", "tier": "gold"}) == 1
        assert [one.id for one in (await bread.sessions.list()).items] == ["none", "one"]
        assert await bread.sessions.cleanup(older_than=age, tags={"team": "red"}) == 1
        assert await bread.sessions.cleanup(older_than=age) == 1


async def test_a_running_run_is_always_spared(open_bread: OpenBread) -> None:
    """B74: whatever its age."""
    gate, clock = Gate(), ManualClock()
    async with open_bread(agent([[pause(gate), text("Done.")]]), clock=clock) as bread:
        run_id = await bread.start("a", "go", session="s1")
        await gate.reached.wait()
        clock.pass_by(days=1000)
        assert await bread.sessions.cleanup(older_than=timedelta(0)) == 0
        gate.open()
        await ended(bread, run_id)
        clock.pass_by(seconds=1)
        assert await bread.sessions.cleanup(older_than=timedelta(0)) == 1


async def test_pending_questions_are_reaped_unless_they_are_kept(open_bread: OpenBread) -> None:
    """B75: with a human:discarded crumb for each; keep_pending spares them."""
    clock = ManualClock()
    script = asks({"n": 1}, {"n": 2})
    async with open_bread(agent(script, asking()), clock=clock) as bread:
        first, second = questions(await read(bread.run("a", "go", session="s1")))
        watching = await watch(bread, bread.observe(first.run_id, after=second.cursor))
        clock.pass_by(days=31)
        assert await bread.sessions.cleanup(older_than=timedelta(days=30), keep_pending=True) == 0
        assert len((await bread.list_checkpoints()).items) == 2
        assert await bread.sessions.cleanup(older_than=timedelta(days=30)) == 1
        crumbs = await watching
        assert types(crumbs) == ["human:discarded", "human:discarded", "agent:error"]
        for one in (first, second):
            with refused("CHECKPOINT_NOT_FOUND"):
                await bread.resume(one.checkpoint_id, "yes")


@pytest.mark.parametrize("what", ["answered", "restarted", "asked"])
async def test_a_session_that_was_used_while_a_cleanup_ran_is_spared(
    open_bread: OpenBread, what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """B74, B75: what makes a session young, or its question kept, is judged in the commit that deletes it."""
    clock = ManualClock()
    async with open_bread(agent(asks(), asking()), clock=clock) as bread:
        asked = await ask_first(bread, session="s1")
        if what != "answered":
            await bread.resume(asked.checkpoint_id, "yes")
        clock.pass_by(days=31)
        assert bread._engine is not None
        found = bread._engine.journal.ask

        async def and_then(question: Callable[..., Any], *args: Any, **options: Any) -> Any:
            answer = await found(question, *args, **options)
            if question.__name__ == "idle_sessions":
                monkeypatch.undo()
                if what == "answered":
                    await bread.resume(asked.checkpoint_id, "yes")
                else:
                    again = await ask_first(bread, session="s1")
                    if what == "restarted":
                        await bread.resume(again.checkpoint_id, "yes")
            return answer

        monkeypatch.setattr(bread._engine.journal, "ask", and_then)
        assert await bread.sessions.cleanup(older_than=timedelta(days=30), keep_pending=what == "asked") == 0
        assert [one.id for one in (await bread.sessions.list()).items] == ["s1"]


@pytest.mark.parametrize("age", [-1, "30d", 30, timedelta(seconds=-1)])
async def test_an_age_that_is_none_is_refused(open_bread: OpenBread, age: Any) -> None:
    """B74: and nothing is deleted."""
    async with open_bread(agent([[text("Hi.")]])) as bread:
        await bread.run("a", "go")
        with refused("INPUT_INVALID"):
            await bread.sessions.cleanup(older_than=age)
        assert len((await bread.sessions.list()).items) == 1
