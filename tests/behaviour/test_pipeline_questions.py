"""Questions inside pipelines: when they surface, what an answer continues, and what is merged."""

from __future__ import annotations

import asyncio
import json
from random import Random
from typing import Any

import pytest

from bread import RunSuspended, map_, parallel
from bread.testing import call, pause, text
from scenes import (
    DURABLE,
    Gate,
    Heard,
    OpenBread,
    agent,
    asking,
    ended,
    names,
    question,
    questions,
    refused,
)
from support import read, trials, types
from teams import answer_all, asker, by_agent, frames, open_questions, opened, waits, worker

# --- one after the other ----------------------------------------------------------------------------------------------


async def test_a_question_holds_the_pipeline_up(open_bread: OpenBread) -> None:
    """B85, B86: the stream ends at the question, without an end of the step; its answer ends it and runs the rest."""
    async with open_bread(worker(), asker(), pipelines={"p": ["worker", "asker", "worker"]}) as bread:
        handle = bread.run_pipeline("p", "go")
        crumbs = await read(handle)
        asked = question(crumbs)
        assert frames(crumbs) == [("start", "0", "worker"), ("end", "0", "worker"), ("start", "1", "asker")]
        assert (await bread.get_run(handle.run_id)).status == "suspended"
        crumbs = await read(bread.resume(asked.checkpoint_id, "yes"))
        assert types(crumbs) == [
            *("human:resumed", "text:delta", "agent:run:end", "pipeline:step:end"),
            *("pipeline:step:start", "agent:run:start", "text:delta", "agent:run:end", "pipeline:step:end"),
            "agent:run:end",
        ]
        assert frames(crumbs) == [("end", "1", "asker"), ("start", "2", "worker"), ("end", "2", "worker")]
        assert [crumb.step_index for crumb in crumbs if crumb.type == "pipeline:step:end"] == [1, 2]
        assert (await bread.get_run(handle.run_id)).output == "worker: asker: yes"


async def test_awaiting_says_what_it_waits_for(open_bread: OpenBread) -> None:
    """B2, B85, B90: RunSuspended with the questions; a resume that leaves some raises it with those that remain."""
    async with open_bread(asker("a"), asker("b"), pipelines={"p": [parallel("a", "b")]}) as bread:
        handle = bread.run_pipeline("p", "go")
        with pytest.raises(RunSuspended) as caught:
            await handle
        asked = await open_questions(bread)
        assert (caught.value.run_id, {*caught.value.checkpoints}) == (handle.run_id, {*asked.values()})
        with pytest.raises(RunSuspended) as caught:
            await bread.resume(asked["b"], "no")
        assert (caught.value.run_id, caught.value.checkpoints) == (handle.run_id, [asked["a"]])
        assert await bread.resume(asked["a"], "yes") == ["a: yes", "b: no"]


@DURABLE
async def test_the_steps_are_those_of_the_start(open_bread: OpenBread) -> None:
    """B87, B88: another configuration, after a restart, does not touch a pipeline that waits; what remains is shown."""
    steps = ["asker", parallel("worker", "one"), map_("one", concurrency=2)]
    async with open_bread(worker(), worker("one"), asker(), pipelines={"p": steps}) as bread:
        handle = bread.run_pipeline("p", "go")
        asked = question(await read(handle))
        found = await bread.get_checkpoint(asked.checkpoint_id)
        assert found.parent is not None
        assert (found.parent.run_id, found.parent.kind, found.parent.slot) == (handle.run_id, "pipeline", "0")
        remaining: Any = found.parent.remaining
        assert [node["kind"] for node in remaining] == ["parallel", "map"]
        assert [branch["agent"] for branch in remaining[0]["steps"]] == ["worker", "one"]
        assert (await bread.list_checkpoints()).items[0].parent == found.parent
    async with open_bread(worker(), worker("one"), asker(), pipelines={"p": ["worker"], "q": ["one"]}) as bread:
        expected = ["one: worker: asker: yes", "one: one: asker: yes"]
        assert await bread.resume(asked.checkpoint_id, "yes") == expected
        assert await bread.run_pipeline("p", "go") == "worker: go"


@DURABLE
async def test_a_pipeline_that_is_gone_goes_on(open_bread: OpenBread) -> None:
    """B87, B88: its steps are in the log; what it needs is the agents."""
    async with open_bread(worker(), asker(), pipelines={"p": ["asker", "worker"]}) as bread:
        asked = question(await read(bread.run_pipeline("p", "go")))
    async with open_bread(worker()) as bread:
        with refused("AGENT_NOT_FOUND"):
            await bread.resume(asked.checkpoint_id, "yes")
    async with open_bread(worker(), asker()) as bread:
        assert await bread.resume(asked.checkpoint_id, "yes") == "worker: asker: yes"


async def test_a_step_asks_again(open_bread: OpenBread) -> None:
    """B86, B94: the pipeline goes on when the last answer is there."""
    async with open_bread(asker(times=3), worker(), pipelines={"p": ["asker", "worker"]}) as bread:
        handle = bread.run_pipeline("p", "go")
        crumbs = await read(handle)
        for answer in "xyz":
            assert (await bread.get_run(handle.run_id)).output is None
            crumbs = await read(bread.resume(question(crumbs).checkpoint_id, answer))
        assert (await bread.get_run(handle.run_id)).output == "worker: asker: x, y, z"


# --- branches ---------------------------------------------------------------------------------------------------------


async def test_questions_surface_when_all_branches_have_settled(open_bread: OpenBread) -> None:
    """B89: listed as soon as it is asked; on the root's stream once, when the last branch has settled."""
    gate, heard = Gate(), Heard("human:required")
    steps = [parallel("a", "slow", "b")]
    async with open_bread(asker("a"), asker("b"), waits(gate), pipelines={"p": steps}) as bread:
        bread.on("human:required", heard)
        handle = bread.run_pipeline("p", "go")
        reading = asyncio.create_task(read(handle))
        await gate.reached.wait()
        await opened(bread, 2)
        assert heard == []
        gate.open()
        crumbs = await reading
        asked = by_agent(crumbs)
        assert asked.keys() == {"a", "b"}
        assert [crumb.type for crumb in crumbs[-2:]] == ["human:required"] * 2
        assert ("end", "0/1", "slow") in frames(crumbs)
        assert {one.path for one in asked.values()} == {("0/0",), ("0/2",)}
        assert {one.root_run_id for one in asked.values()} == {handle.run_id}
        assert {one.parent.slot for one in asked.values() if one.parent is not None} == {"0/0", "0/2"}
        await answer_all(bread, crumbs)
        seen = questions(await ended(bread, handle.run_id))
        assert [one.checkpoint_id for one in seen] == [one.checkpoint_id for one in asked.values()]


async def test_an_early_answer_is_used_at_once(open_bread: OpenBread) -> None:
    """B89: its question surfaces just ahead of human:resumed, once, while a sibling still works."""
    gate = Gate()
    async with open_bread(asker("a"), waits(gate), pipelines={"p": [parallel("a", "slow")]}) as bread:
        handle = bread.run_pipeline("p", "go")
        reading = asyncio.create_task(read(handle))
        await gate.reached.wait()
        asked = await opened(bread)
        resumed = bread.resume(asked["a"], "early")
        async for crumb in resumed:
            if crumb.type == "pipeline:step:end":
                gate.open()
        crumbs = await reading
        assert crumbs[-1].type == "agent:run:end"
        places = [crumb.type for crumb in crumbs if crumb.type.startswith("human:") or crumb.agent_id == "slow"]
        assert places[:4] == ["pipeline:step:start", "agent:run:start", "human:required", "human:resumed"]
        assert places.count("human:required") == 1
        assert (await bread.get_run(handle.run_id)).output == ["a: early", "slow"]


async def test_branches_are_answered_one_after_the_other(open_bread: OpenBread) -> None:
    """B90: the first ones end after their agent's run; the last one merges all in order and runs the rest."""
    agents = [asker(one) for one in "abc"]
    async with open_bread(*agents, worker(), pipelines={"p": [parallel(*"abc"), "worker"]}) as bread:
        handle = bread.run_pipeline("p", "go")
        asked = by_agent(await read(handle))
        for branch in "cb":
            crumbs = await read(bread.resume(asked[branch].checkpoint_id, branch.upper()))
            assert types(crumbs) == ["human:resumed", "text:delta", "agent:run:end", "pipeline:step:end"]
            assert (await bread.get_run(handle.run_id)).status == "suspended"
        crumbs = await read(bread.resume(asked["a"].checkpoint_id, "A"))
        assert frames(crumbs) == [
            *(("end", "0/0", "a"), ("end", "0", "parallel")),
            *(("start", "1", "worker"), ("end", "1", "worker")),
        ]
        merged = next(crumb for crumb in crumbs if crumb.type == "pipeline:step:end" and crumb.agent_id == "parallel")
        assert merged.output == ["a: A", "b: B", "c: C"]
        events = await names(bread, handle.run_id)
        assert [events.count(name) for name in ("child_started", "child_returned", "parked")] == [4, 4, 3]


@pytest.mark.parametrize("count", [2, 5])
async def test_branches_are_answered_at_the_same_instant(open_bread: OpenBread, count: int) -> None:
    """B93, C45: merged once, in order; nothing is lost, the rest runs once."""
    ids = [f"a{number}" for number in range(count)]
    async with open_bread(*map(asker, ids), worker(), pipelines={"p": [parallel(*ids), "worker"]}) as bread:
        handle = bread.run_pipeline("p", "go")
        asked = by_agent(await read(handle))
        streams = await asyncio.gather(*(read(bread.resume(asked[one].checkpoint_id, one)) for one in ids))
        log = await ended(bread, handle.run_id)
        run = await bread.get_run(handle.run_id)
    assert run.output == "worker: " + json.dumps([f"{one}: {one}" for one in ids])
    assert [place for kind, place, _ in frames(log) if kind == "end"].count("0") == 1
    assert [place for kind, place, _ in frames(log) if kind == "start"].count("1") == 1
    assert all(stream[0].type == "human:resumed" for stream in streams)
    # Where an answer is done before the next one comes, the tree rests in between.
    assert {stream[-1].type for stream in streams} <= {"agent:run:end", "pipeline:step:end"}
    assert any(stream[-1].type == "agent:run:end" for stream in streams)


async def test_a_question_is_told_once_whatever_the_order_of_answers(open_bread: OpenBread) -> None:
    """B89, B90, C9: five branches wait; no stream but the first repeats what is still asked."""
    ids = [f"a{number}" for number in range(5)]
    async with open_bread(*map(asker, ids), pipelines={"p": [parallel(*ids)]}) as bread:
        for trial in range(trials(3, 100)):
            handle = bread.run_pipeline("p", "go")
            asked = by_agent(await read(handle))
            order = Random(trial).sample(ids, len(ids))
            for place, one in enumerate(order):
                crumbs = await read(bread.resume(asked[one].checkpoint_id, one))
                assert questions(crumbs) == []
                assert (await open_questions(bread)).keys() == {*order[place + 1 :]}
            log = await ended(bread, handle.run_id)
            assert [one.agent_id for one in questions(log)] == [*asked]
            assert (await bread.get_run(handle.run_id)).output == [f"{one}: {one}" for one in ids]


async def test_branches_that_end_while_others_are_answered(open_bread: OpenBread) -> None:
    """B93, C47: one ends by itself, one early answered, one works at its answer; none takes an output from another."""
    working, going_on = Gate(), Gate()

    def script(request: Any) -> list[Any]:
        return [pause(going_on), text("c")] if request.turn else [call("human_ask")]

    agents = (asker("a"), asker("b"), agent(script, asking(), id="c"), waits(working))
    async with open_bread(*agents, worker(), pipelines={"p": [parallel(*"abc", "slow"), "worker"]}) as bread:
        handle = bread.run_pipeline("p", "go")
        reading = asyncio.create_task(read(handle))
        await working.reached.wait()
        asked = await opened(bread, 3)
        streams = [asyncio.create_task(read(bread.resume(asked["c"], "C")))]
        await going_on.reached.wait()
        streams += [asyncio.create_task(read(bread.resume(asked[one], one.upper()))) for one in "ab"]
        working.open()
        going_on.open()
        for stream in await asyncio.gather(*streams):
            assert stream[0].type in ("human:required", "human:resumed")
        await reading
        assert await bread.observe(handle.run_id) == 'worker: ["a: A", "b: B", "c", "slow"]'
        assert (await names(bread, handle.run_id)).count("child_returned") == 5


async def test_branches_ask_several_times_in_any_order(open_bread: OpenBread) -> None:
    """B94: each answer continues its branch; the last of all merges."""
    async with open_bread(asker("a", 2), asker("b", 3), pipelines={"p": [parallel("a", "b")]}) as bread:
        handle = bread.run_pipeline("p", "go")
        await read(handle)
        for branch, answer in zip("bbaba", "12345", strict=True):
            asked = await open_questions(bread)
            await read(bread.resume(asked[branch], answer))
        assert (await bread.get_run(handle.run_id)).output == ["a: 3, 5", "b: 1, 2, 4"]


async def test_an_answer_during_the_continuation_of_a_sibling(open_bread: OpenBread) -> None:
    """B93: it is used at once; both streams go on to the end of the whole."""
    gate = Gate()

    def script(request: Any) -> list[Any]:
        return [pause(gate), text("a")] if request.turn else [call("human_ask")]

    slow = agent(script, asking(), id="a")
    async with open_bread(slow, asker("b"), pipelines={"p": [parallel("a", "b")]}) as bread:
        handle = bread.run_pipeline("p", "go")
        asked = by_agent(await read(handle))
        first = asyncio.create_task(read(bread.resume(asked["a"].checkpoint_id, "x")))
        await gate.reached.wait()
        second = asyncio.create_task(read(bread.resume(asked["b"].checkpoint_id, "y")))
        async for crumb in bread.observe(handle.run_id):
            if crumb.type == "pipeline:step:end" and crumb.agent_id == "b":
                gate.open()
        for stream in (await first, await second):
            assert stream[-1].type == "agent:run:end"
            assert stream[-1].run_id == handle.run_id
        assert (await bread.get_run(handle.run_id)).output == ["a", "b: y"]


# --- maps -------------------------------------------------------------------------------------------------------------


async def test_an_item_that_waits_frees_its_place(open_bread: OpenBread) -> None:
    """B91: one at a time, and the last one begins with two waiting; they surface once, when it has ended; what has
    ended is kept; the last answer ends the step."""
    gate, heard = Gate(), Heard("human:required")

    def script(request: Any) -> list[Any]:
        item = request.messages[0].text
        if item in ("quick", "slow"):
            return [pause(gate), text(item)] if item == "slow" else [text(item)]
        return [text(f"{item}: {request.messages[-1].content}")] if request.turn else [call("human_ask", {"of": item})]

    async with open_bread(agent(script, asking(), id="m"), worker(), pipelines={"p": [map_("m"), "worker"]}) as bread:
        bread.on("human:required", heard)
        handle = bread.run_pipeline("p", ["x", "quick", "y", "slow"])
        reading = asyncio.create_task(read(handle))
        await gate.reached.wait()
        assert len((await bread.list_checkpoints(answerable=True)).items) == 2
        assert heard == []
        gate.open()
        crumbs = await reading
        assert [crumb.type for crumb in crumbs[-2:]] == ["human:required"] * 2
        asked = {one.args["of"]: one.checkpoint_id for one in questions(crumbs) if isinstance(one.args, dict)}
        assert asked.keys() == {"x", "y"}
        assert frames(await read(bread.resume(asked["y"], 2))) == [("end", "0/2", "m")]
        crumbs = await read(bread.resume(asked["x"], 1))
        assert frames(crumbs)[:2] == [("end", "0/0", "m"), ("end", "0", "map")]
        assert (await bread.get_run(handle.run_id)).output == 'worker: ["x: 1", "quick", "y: 2", "slow"]'
