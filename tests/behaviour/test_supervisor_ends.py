"""Delegates that fail or are cancelled, supervisors that are, and what is left of either."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from bread import define_tool
from bread.testing import call, fail, pause, text
from scenes import (
    Counter,
    Gate,
    OpenBread,
    Spy,
    agent,
    asking,
    ended,
    question,
    refused,
    until,
)
from support import read
from teams import asker, broken, children, delegate, script, shown_by, team, tells, told, worker


async def test_a_child_that_fails_is_an_error_for_the_model(open_bread: OpenBread) -> None:
    """B98, B7: its code and message; its siblings' results are kept and the supervisor goes on."""
    spy = Spy(script(delegate("broken", 1), delegate("worker", 2)))
    async with open_bread(team(spy, "broken", "worker"), broken(), worker()) as bread:
        handle = bread.run("boss", "go")
        crumbs = await read(handle)
        child = (await children(bread, handle.run_id))["broken"]
        with refused("RUN_NOT_RETRYABLE") as caught:
            await bread.retry(child)
        assert caught.value.details["root_run_id"] == handle.run_id
    [error] = [crumb for crumb in crumbs if crumb.type == "tool:error"]
    assert (error.code, error.agent_id) == ("MODEL_ERROR", "boss")
    [done] = [crumb for crumb in crumbs if crumb.type == "subagent:run:end" and crumb.sub_agent_id == "broken"]
    assert (done.status, done.code) == ("failed", "MODEL_ERROR")
    assert told(spy)[1] == "worker: 2"
    assert crumbs[-1].type == "agent:run:end"


async def test_a_child_that_is_tried_again_by_its_provider(open_bread: OpenBread) -> None:
    """B59, B98: bounded attempts, as for a root; the supervisor only sees the result."""
    spy = Spy(script(delegate("shaky", 1)))
    shaky = agent([[fail(times=1), text("At last.")]], id="shaky")
    async with open_bread(team(spy, "shaky"), shaky) as bread:
        crumbs = await read(bread.run("boss", "go"))
    assert shown_by(crumbs, "shaky") == ["agent:run:start", "model:retry", "text:delta", "agent:run:end"]
    assert told(spy) == ["At last."]


async def test_a_child_has_the_bounds_of_its_own_agent(open_bread: OpenBread) -> None:
    """B98, B10: it fails after the turns that its own agent may take; its supervisor may take more, and goes on."""
    spy = Spy([[delegate("busy", n)] for n in range(3)] + [[text("Done.")]])
    busy = agent([[call("tool_nothing", {})]] * 2 + [[text("ok")]], id="busy", max_steps=1)
    async with open_bread(team(spy, "busy", max_steps=3), busy) as bread:
        crumbs = await read(bread.run("boss", "go"))
    assert [crumb.code for crumb in crumbs if crumb.type == "tool:error" and crumb.agent_id == "boss"] == [
        "STEPS_EXCEEDED"
    ] * 3
    assert crumbs[-1].type == "agent:run:end"


async def test_a_failed_supervisor_goes_on_with_what_it_was_told(open_bread: OpenBread) -> None:
    """B59, B98, B107: its delegates are not run again."""
    ran, tried = Counter(), Counter()

    def work(request: Any) -> list[Any]:
        ran("worker")
        return [text("made")]

    def lead(request: Any) -> list[Any]:
        if request.turn == 0:
            return [delegate("worker"), delegate("asker")]
        return tells(request) if tried("boss") > 1 else [fail("no", times=9, retryable=False)]

    async with open_bread(team(lead, "worker", "asker"), agent(work, id="worker"), asker()) as bread:
        handle = bread.run("boss", "go")
        asked = question(await read(handle))
        crumbs = await read(bread.resume(asked.checkpoint_id, "yes"))
        assert (crumbs[-1].type, crumbs[-1].run_id) == ("agent:error", handle.run_id)
        assert await bread.retry(handle.run_id) == '["made", "asker: yes"]'
    assert ran.of == {"worker": 1}


@pytest.mark.parametrize("while_", ["running", "suspended"])
async def test_a_cancelled_child_is_an_error_for_the_model(open_bread: OpenBread, while_: str) -> None:
    """B18, C60: the child ends alone, its supervisor and its sibling go on."""
    gate = Gate()
    spy = Spy(script(delegate("slow" if while_ == "running" else "asker", 1), delegate("worker", 2)))
    slow = agent([[pause(gate), text("never")]], id="slow")
    async with open_bread(team(spy, "slow", "asker", "worker"), slow, asker(), worker()) as bread:
        handle = bread.run("boss", "go")
        if while_ == "running":
            await until(handle, "subagent:run:end")
            await gate.reached.wait()
            child = (await children(bread, handle.run_id))["slow"]
        else:
            asked = question(await read(handle))
            child = asked.run_id
        assert await bread.cancel(child, reason="enough") == "cancelled"
        crumbs = await ended(bread, handle.run_id)
        if while_ == "suspended":
            discarded = next(crumb for crumb in crumbs if crumb.type == "human:discarded")
            assert (discarded.checkpoint_id, discarded.agent_id) == (asked.checkpoint_id, "asker")
            with refused("CHECKPOINT_NOT_FOUND"):
                await bread.resume(asked.checkpoint_id, "late")
    [error] = [crumb for crumb in crumbs if crumb.type == "tool:error" and crumb.agent_id == "boss"]
    assert (error.code, error.message) == ("RUN_CANCELLED", "enough")
    assert told(spy) == [("error", "enough"), "worker: 2"]
    assert crumbs[-1].type == "agent:run:end"


async def test_a_cancelled_supervisor_leaves_nothing_behind(open_bread: OpenBread) -> None:
    """B18, B60, C58: one child runs, one waits for a person, one is gated; all end in the commit of the cancel."""
    gate = Gate()
    calls = (delegate("slow", 1), delegate("asker", 2), call("human_ask", {}), call("tool_look", {}))

    @define_tool
    async def look() -> None:
        raise AssertionError("it is gated")

    boss = team(script(*calls), "slow", "asker", tools=[asking(), look], permissions={"ask": ["tool:*"]})
    slow = agent([[pause(gate), text("never")]], id="slow")
    async with open_bread(boss, slow, asker(), worker()) as bread:
        handle = bread.run("boss", "go", session="s")
        reading = asyncio.create_task(read(handle))
        await gate.reached.wait()
        while len(open_ := (await bread.list_checkpoints()).items) < 3:
            pass
        assert await bread.cancel(handle.run_id, reason="stop") == "cancelled"
        crumbs = await reading
        statuses = {run.agent_id: run.status for run in (await bread.list_runs(root=handle.run_id)).items}
        assert statuses == {"boss": "cancelled", "slow": "cancelled", "asker": "cancelled"}
        assert (await bread.list_checkpoints()).items == []
        for found in open_:
            with refused("CHECKPOINT_NOT_FOUND"):
                await bread.resume(found.id, "late")
        events = [event async for event in bread.audit(handle.run_id)]
        ends = {event.commit for event in events if event.name in ("run.cancelled", "checkpoint.discarded")}
        assert len(ends) == 1
        history = await bread.sessions.messages("s")
        assert [message["role"] for message in history] == ["user", "assistant", *["tool"] * 4]
        assert await bread.run("worker", "next", session="s") == "worker: next"
    assert (crumbs[-1].type, crumbs[-1].run_id) == ("agent:error", handle.run_id)
    surfaced = {crumb.checkpoint_id for crumb in crumbs if crumb.type == "human:required"}
    assert surfaced == {crumb.checkpoint_id for crumb in crumbs if crumb.type == "human:discarded"}
    assert surfaced == {found.id for found in open_}
