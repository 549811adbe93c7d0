"""How many run at once, who listens, and how a run is stopped."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from bread import define_tool
from bread.testing import call, pause, text
from scenes import (
    Gate,
    OpenBread,
    agent,
    ask_first,
    asking,
    asks,
    double,
    durable,
    ended,
    names,
    refused,
    until,
)
from support import read, said, types, wire


async def test_the_cap_counts_trees_with_something_running(open_bread: OpenBread) -> None:
    """B15, Q CONCURRENCY_LIMIT: refused at the first iteration; nothing is written, and the slot comes back."""
    gate = Gate()

    @define_tool
    async def hold() -> str:
        await gate()
        return "held"

    async with open_bread(agent([[call("tool_hold")], [text("Done.")]], hold), concurrency=1) as bread:
        unread = bread.run("a", "two", session="s2")  # a stream that nobody begins holds no slot
        first = await bread.start("a", "one", session="s1")
        await gate.reached.wait()
        before = await names(bread, first)
        with refused("CONCURRENCY_LIMIT"):
            await read(unread)
        with refused("CONCURRENCY_LIMIT"):
            await bread.start("a", "three", session="s3")
        assert [run.id for run in (await bread.list_runs()).items] == [first]
        assert [one.id for one in (await bread.sessions.list()).items] == ["s1"]
        assert await names(bread, first) == before
        gate.open()
        await ended(bread, first)
        assert await bread.run("a", "two", session="s2") == "Done."


async def test_a_suspended_run_holds_no_slot_and_a_refused_answer_leaves_its_question(open_bread: OpenBread) -> None:
    """B15: suspended runs hold none; a resume that is refused for the cap leaves the checkpoint pending."""
    gate = Gate()
    held = agent([[pause(gate), text("Done.")]], id="holder")
    async with open_bread(agent(asks(), asking()), held, concurrency=1) as bread:
        asked = await ask_first(bread)
        running = await bread.start("holder", "go")
        await gate.reached.wait()
        with refused("CONCURRENCY_LIMIT"):
            await bread.resume(asked.checkpoint_id, "yes")
        assert [one.id for one in (await bread.list_checkpoints()).items] == [asked.checkpoint_id]
        gate.open()
        await ended(bread, running)
        assert await bread.resume(asked.checkpoint_id, "yes") == "Thanks."


async def test_an_answer_to_a_tree_that_runs_anyway_takes_no_slot(open_bread: OpenBread) -> None:
    """B15: the cap counts trees, so an answer to a run that holds its slot already needs no other."""
    gate = Gate()

    @define_tool
    async def hold() -> str:
        await gate()
        return "held"

    script = [[call("tool_hold"), call("human_ask")], [text("Done.")]]
    async with open_bread(agent(script, hold, asking()), concurrency=1) as bread:
        run_id = await bread.start("a", "go")
        await gate.reached.wait()
        (asked,) = (await bread.list_checkpoints()).items
        stream = bread.resume(asked.id, "yes")
        assert (await until(stream, "human:resumed")).checkpoint_id == asked.id
        gate.open()
        assert (await ended(bread, run_id))[-1].type == "agent:run:end"


async def test_listeners_hear_what_streams_show_after_the_commit(open_bread: OpenBread) -> None:
    """B17, B24: crumb listeners hear everything durable, human:required listeners the questions; also async ones."""
    heard: list[Any] = []
    asked: list[Any] = []
    pending: list[Any] = []
    rest = asyncio.Event()

    async def on_question(crumb: Any) -> None:
        pending.append([one.id for one in (await bread.list_checkpoints()).items])  # committed by now
        asked.append(crumb)
        rest.set()

    async with open_bread(agent(asks({"q": 1}), asking())) as bread:
        bread.on("crumb", heard.append)
        stop = bread.on("human:required", on_question)
        shown = await read(bread.run("a", "go"))
        await rest.wait()
        assert durable(heard) == durable(shown)
        assert [wire(crumb) for crumb in asked] == [wire(shown[-1])]
        assert pending == [[asked[0].checkpoint_id]]
        stop()
        await ask_first(bread)
        assert len(asked) == 1


async def test_a_listener_that_raises_harms_nobody(open_bread: OpenBread, caplog: pytest.LogCaptureFixture) -> None:
    """B17: it is logged; the run, the stream and the other listeners go on."""
    heard: list[str] = []
    done = asyncio.Event()

    def bad(crumb: Any) -> None:
        raise RuntimeError("deaf")

    def good(crumb: Any) -> None:
        heard.append(crumb.type)
        if crumb.type == "agent:run:end":
            done.set()

    async with open_bread(agent([[text("Hi.")]])) as bread:
        bread.on("crumb", bad)
        bread.on("crumb", good)
        assert await bread.run("a", "go") == "Hi."
        await done.wait()
    assert heard[0] == "agent:run:start"
    assert heard[-1] == "agent:run:end"
    assert "a listener failed" in caplog.text


async def test_an_unknown_event_to_listen_to_is_refused(open_bread: OpenBread) -> None:
    """B17: there are two kinds of listeners."""
    async with open_bread() as bread:
        with refused("INPUT_INVALID"):
            bread.on("human:requested", print)  # type: ignore[arg-type]


async def test_a_cancel_stops_the_model(open_bread: OpenBread) -> None:
    """B18, Q RUN_CANCELLED: the call to the model is cut off, agent:error ends the stream, awaiting says so."""
    gate = Gate()
    stopped = asyncio.Event()

    async def think() -> None:
        try:
            await gate()
        finally:
            stopped.set()

    async with open_bread(agent([[text("Let me "), pause(think), text("think.")]])) as bread:
        handle = bread.run("a", "go")
        reading = asyncio.create_task(read(handle))
        await gate.reached.wait()
        assert await bread.cancel(handle.run_id, reason="enough") == "cancelled"
        await stopped.wait()
        crumbs = await reading
        assert crumbs[-1].type == "agent:error"
        assert (crumbs[-1].code, crumbs[-1].message) == ("RUN_CANCELLED", "enough")
        assert said(crumbs) == ""  # what was shown of the attempt is void
        with refused("RUN_CANCELLED"):
            await bread.observe(handle.run_id)
        assert (await bread.get_run(handle.run_id)).status == "cancelled"
        assert await bread.cancel(handle.run_id) == "cancelled"
        assert (await names(bread, handle.run_id)).count("cancelled") == 1


async def test_a_cancel_stops_a_tool_and_leaves_no_call_open(open_bread: OpenBread) -> None:
    """B18: an async tool is cancelled, every unanswered call gets a synthetic result, questions are discarded."""
    gate = Gate()
    stopped = asyncio.Event()

    @define_tool
    async def hold() -> str:
        try:
            await gate()
        finally:
            stopped.set()
        return "held"

    script = [[call("tool_double", {"number": 1}), call("tool_hold"), call("human_ask")], [text("Done.")]]
    async with open_bread(agent(script, double, hold, asking())) as bread:
        run_id = await bread.start("a", "go", session="s1")
        await gate.reached.wait()
        await until(bread.observe(run_id), "tool:result")
        (asked,) = (await bread.list_checkpoints()).items
        assert await bread.cancel(run_id, reason="enough") == "cancelled"
        await stopped.wait()
        crumbs = await ended(bread, run_id)
        assert types(crumbs)[-5:] == ["human:required", "human:discarded", "tool:error", "tool:error", "agent:error"]
        assert (await bread.list_checkpoints()).items == []
        with refused("CHECKPOINT_NOT_FOUND"):
            await bread.resume(asked.id, "yes")
        outcomes = [
            (m["tool"], m["outcome"], m["content"]) for m in await bread.sessions.messages("s1") if m["role"] == "tool"
        ]
        assert outcomes == [
            ("tool_double", "ok", 2),
            ("tool_hold", "error", "enough"),
            ("human_ask", "error", "enough"),
        ]


async def test_a_cancel_of_a_run_that_ended_changes_nothing(open_bread: OpenBread) -> None:
    """B18: it tells the status that the run has."""
    async with open_bread(agent([[text("Hi.")]])) as bread:
        handle = bread.run("a", "go")
        await handle
        before = await names(bread, handle.run_id)
        assert await bread.cancel(handle.run_id) == "completed"
        assert await names(bread, handle.run_id) == before
        with refused("RUN_NOT_FOUND"):
            await bread.cancel("run_unknown")
