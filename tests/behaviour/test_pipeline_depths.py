"""Questions deep inside pipelines: below supervisors, in branches of branches, over processes."""

from __future__ import annotations

import json
from typing import Any

import pytest

from bread import Agent, AnyCrumb, define_skill, define_tool, parallel, sequence, step
from bread.testing import call, text
from scenes import (
    DURABLE,
    Counter,
    OpenBread,
    agent,
    asking,
    durable,
    ended,
    names,
    question,
    refused,
)
from support import read, types
from teams import asker, by_agent, hands_on, open_questions, waiting, worker


async def the_rest(stream: Any) -> tuple[list[AnyCrumb], AnyCrumb]:
    """A stream, and its last crumb."""
    crumbs = await read(stream)
    return crumbs, crumbs[-1]


@pytest.mark.parametrize("depth", [1, 3])
async def test_a_supervisor_is_a_step(open_bread: OpenBread, depth: int) -> None:
    """B92, B95: also one of supervisors: an answer at the bottom continues each of them, then the pipeline, in one
    stream."""
    chain = [f"s{level}" for level in range(depth)]
    agents = [hands_on(below, id=one) for one, below in zip(chain, [*chain[1:], "asker"], strict=True)]
    async with open_bread(*agents, asker(), worker(), pipelines={"p": ["s0", "worker"]}) as bread:
        handle = bread.run_pipeline("p", "go")
        asked = question(await read(handle))
        assert len(asked.path) == depth + 1
        parents = {one.agent_id: one.parent for one in await waiting(bread)}
        assert parents.keys() == {*chain}
        outermost = parents["s0"]
        assert outermost is not None
        assert (outermost.run_id, outermost.kind, outermost.slot) == (handle.run_id, "pipeline", "0")
        crumbs = await read(bread.resume(asked.checkpoint_id, "yes"))
        ends = [crumb.agent_id for crumb in crumbs if crumb.type == "agent:run:end"]
        assert ends == ["asker", *reversed(chain), "worker", "p"]
        told = "asker: yes"
        for _ in chain:
            told = json.dumps([told])
        assert (await bread.get_run(handle.run_id)).output == f"worker: {told}"


@pytest.mark.parametrize("order", ["ab", "ba"])
async def test_an_answer_has_to_say_to_which_of_two_questions(open_bread: OpenBread, order: str) -> None:
    """B95, B104, C10: two delegations wait inside one branch; their supervisor is refused, naming them alone."""
    agents = (hands_on("a", "b"), asker("a"), asker("b"), asker("c"))
    async with open_bread(*agents, pipelines={"p": [parallel("boss", "c")]}) as bread:
        handle = bread.run_pipeline("p", "go")
        asked = by_agent(await read(handle))
        [delegation] = await waiting(bread)
        with refused("SUPERVISOR_CHECKPOINT_NOT_RESUMABLE") as caught:
            await bread.resume(delegation.id, "yes")
        assert {*caught.value.details["checkpoints"]} == {asked[one].checkpoint_id for one in "ab"}
        for vague in (handle.run_id, delegation.run_id, asked["a"].tool_call_id, "ask"):
            with refused("CHECKPOINT_NOT_FOUND"):
                await bread.resume(vague, "yes")
        assert (await open_questions(bread)).keys() == {*"abc"}
        for one in order:
            await read(bread.resume(asked[one].checkpoint_id, one.upper()))
        assert await bread.resume(asked["c"].checkpoint_id, "C") == ['["a: A", "b: B"]', "c: C"]


async def test_everything_goes_on_to_the_outermost(open_bread: OpenBread) -> None:
    """B95, C13: a supervisor of supervisors in a branch, a parallel in a parallel beside it."""
    top, middle = hands_on("middle", id="top"), hands_on("asker", "worker", id="middle")
    steps = [parallel("top", parallel("b", sequence("worker", "c"))), "worker"]
    agents = (top, middle, asker(), asker("b"), asker("c"), worker())
    async with open_bread(*agents, pipelines={"p": steps}) as bread:
        handle = bread.run_pipeline("p", "go")
        asked = by_agent(await read(handle))
        assert asked.keys() == {"asker", "b", "c"}
        for one in ("c", "asker"):
            _, last = await the_rest(bread.resume(asked[one].checkpoint_id, one.upper()))
            assert last.type == "pipeline:step:end"
        crumbs, last = await the_rest(bread.resume(asked["b"].checkpoint_id, "B"))
        assert (last.type, last.run_id) == ("agent:run:end", handle.run_id)
        merged = [
            crumb.output for crumb in crumbs if crumb.type == "pipeline:step:end" and crumb.agent_id == "parallel"
        ]
        inner = ["b: B", "c: C"]
        assert merged == [inner, ['["[\\"asker: ASKER\\", \\"worker: go\\"]"]', inner]]


@DURABLE
async def test_a_skill_and_what_is_done_outlast_a_restart(open_bread: OpenBread) -> None:
    """B88, B70, C12: the tool of the first step ran once; the asking step has its skill again after the answer."""
    ran, seen = Counter(), []

    @define_tool
    async def count() -> int:
        return ran()

    def script(request: Any) -> list[Any]:
        seen.append((request.prompt, sorted(tool.name for tool in request.tools)))
        return [text(str(request.messages[-1].content))] if request.turn else [call("human_ask")]

    def agents() -> list[Agent]:
        formal = define_skill("formal", description="Be polite.", prompt="Say Sir.", tools=[count])
        counts = agent(lambda request: [text("ok")] if request.turn else [call("tool_count")], count, id="counts")
        return [counts, worker(), agent(script, asking(), id="polite", skills=[formal])]

    pipelines: dict[str, Any] = {"p": ["counts", "worker", step("polite", skill="formal")]}
    async with open_bread(*agents(), pipelines=pipelines) as bread:
        asked = question(await read(bread.run_pipeline("p", "go")))
        assert asked.skill == "formal"
    async with open_bread(*agents()) as bread:
        assert (await bread.get_checkpoint(asked.checkpoint_id)).skill == "formal"
        assert await bread.resume(asked.checkpoint_id, "yes") == "yes"
    assert seen[0] == seen[1]
    assert "Say Sir." in seen[1][0]
    assert "skill_formal_count" in seen[1][1]
    assert ran.total == 1


@DURABLE
async def test_branches_are_answered_in_other_processes(open_bread: OpenBread) -> None:
    """B88, B93, B68: each answer by another bread on the same file, each of which opened anew."""
    agents = (asker("a"), asker("b"), worker())
    pipelines: dict[str, Any] = {"p": [parallel("a", "b", "worker"), step("worker")]}
    async with open_bread(*agents, pipelines=pipelines) as bread:
        handle = bread.run_pipeline("p", "go")
        asked = by_agent(await read(handle))
    for one in "ab":
        async with open_bread(*agents) as bread:
            assert (await open_questions(bread)).keys() == {*"ab"} - ({"a"} if one == "b" else set())
            crumbs = await read(bread.resume(asked[one].checkpoint_id, one))
    assert crumbs[-1].type == "agent:run:end"
    async with open_bread(*agents) as bread:
        run: Any = await bread.get_run(handle.run_id)
        assert run.output == 'worker: ["a: a", "b: b", "worker: go"]'
        began = [event for event in await names(bread, handle.run_id) if event == "child_started"]
        assert len(began) == 4


async def test_who_observes_a_part_sees_that_part(open_bread: OpenBread) -> None:
    """B89, B130: the view of a child is the log filtered to what is below it, with the same numbers."""
    async with open_bread(asker("a"), worker(), pipelines={"p": [parallel("a", "worker")]}) as bread:
        handle = bread.run_pipeline("p", "go")
        crumbs = await read(handle)
        asked = question(crumbs)
        part = await read(bread.observe(asked.run_id, until="rest"))
        assert durable(part) == durable([crumb for crumb in crumbs if crumb.run_id == asked.run_id])
        assert types(part) == ["agent:run:start", "human:required"]
        await read(bread.resume(asked.checkpoint_id, "x"))
        assert types(await ended(bread, asked.run_id))[-1] == "agent:run:end"
        assert await bread.observe(asked.run_id) == "a: x"
