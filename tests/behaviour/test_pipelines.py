"""Pipelines: what runs, in which order, what is shown of it, and what is refused before anything is written."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any, cast

import pytest

from bread import Step, define_agent, define_skill, define_tool, map_, parallel, sequence, step
from bread.domain.errors import InvalidInput
from bread.testing import call, pause, text
from compositions.play import shown
from scenes import Gate, OpenBread, Spy, agent, ended, question, refused
from support import read, types
from teams import asker, children, frames, opened, waits, worker


async def test_the_output_of_a_step_is_the_input_of_the_next(open_bread: OpenBread) -> None:
    """B79, B80, B1: each step is a run of its own, framed; the output of the last one is that of the pipeline."""
    async with open_bread(worker("one"), worker("two"), pipelines={"p": [step("one"), "two"]}) as bread:
        handle = bread.run_pipeline("p", "go", session="s")
        crumbs = await read(handle)
        run = await bread.get_run(handle.run_id)
        runs = await children(bread, handle.run_id)
        assert (await bread.get_run(runs["two"])).session_id == "s"
    assert types(crumbs) == [
        "agent:run:start",
        *("pipeline:step:start", "agent:run:start", "text:delta", "agent:run:end", "pipeline:step:end") * 2,
        "agent:run:end",
    ]
    assert frames(crumbs) == [("start", "0", "one"), ("end", "0", "one"), ("start", "1", "two"), ("end", "1", "two")]
    assert (run.kind, run.agent_id, run.status, run.output) == ("pipeline", "p", "completed", "two: one: go")
    first, last = crumbs[0], crumbs[-1]
    assert first.type == "agent:run:start"
    assert last.type == "agent:run:end"
    assert (first.input, first.path, last.output) == ("go", (), "two: one: go")
    inner = [crumb for crumb in crumbs if crumb.run_id == runs["one"]]
    assert [crumb.type for crumb in inner if crumb.type.startswith("agent")] == ["agent:run:start", "agent:run:end"]
    assert {crumb.path for crumb in inner} == {("0",)}
    ends = [crumb for crumb in crumbs if crumb.type == "pipeline:step:end"]
    assert [(one.pipeline_id, one.step_index, one.child_run_id, one.output) for one in ends] == [
        ("p", 0, runs["one"], "one: go"),
        ("p", 1, runs["two"], "two: one: go"),
    ]
    assert {one.run_id for one in ends} == {handle.run_id}


async def test_frames_are_in_the_log_like_any_other_crumb(open_bread: OpenBread) -> None:
    """B80, B122, B134: as they stand on the wire; a replay has the same, each part is a run of its own."""
    async with open_bread(worker("one"), worker("two"), pipelines={"p": [parallel("one", "two")]}) as bread:
        handle = bread.run_pipeline("p", "go")
        crumbs = await read(handle)
        runs = await children(bread, handle.run_id)
        assert shown(await ended(bread, handle.run_id)) == shown(crumbs)
        assert len({handle.run_id, *runs.values()}) == 3
        for one in ("one", "two"):
            assert await bread.observe(runs[one]) == f"{one}: go"
            part = shown(await ended(bread, runs[one]))
            assert part == shown([crumb for crumb in crumbs if crumb.run_id == runs[one]])
    steps = {
        (crumb.type, crumb.path): crumb.wire()
        for crumb in crumbs
        if crumb.type in ("pipeline:step:start", "pipeline:step:end")
    }
    around, inner = {"agentId": "parallel"}, {"agentId": "two", "childRunId": runs["two"]}
    for path, own, output in ((("0",), around, ["one: go", "two: go"]), (("0/1",), inner, "two: go")):
        fields = {"runId": handle.run_id, "pipelineId": "p", "stepIndex": 0, "path": [*path], **own}
        assert steps["pipeline:step:start", path].items() >= fields.items()
        assert steps["pipeline:step:end", path].items() >= {**fields, "output": output}.items()


async def test_a_step_sees_nothing_but_its_input(open_bread: OpenBread) -> None:
    """B78, B79: not the history of the session, and not what the step before it was told."""
    spies = {one: Spy(lambda request: [text("ok")]) for one in ("one", "two")}
    agents = [agent(spy, id=one) for one, spy in spies.items()]
    async with open_bread(*agents, worker(), pipelines={"p": ["one", "two"]}) as bread:
        await bread.run("worker", "before", session="s")
        assert await bread.run_pipeline("p", "go", session="s") == "ok"
    assert (spies["one"].seen, spies["two"].seen) == ([[("user", "go")]], [[("user", "ok")]])


async def test_branches_take_no_slot(open_bread: OpenBread) -> None:
    """B15, B81: a pipeline is one tree; where it is the last one allowed, all its branches run at once."""
    gate = Gate()
    steps = [parallel("slow", "asker", "worker")]
    async with open_bread(waits(gate), asker(), worker(), pipelines={"p": steps}, concurrency=1) as bread:
        reading = asyncio.create_task(read(bread.run_pipeline("p", "go")))
        await gate.reached.wait()
        await opened(bread)
        with refused("CONCURRENCY_LIMIT"):
            await bread.run_pipeline("p", "go")
        gate.open()
        assert await bread.resume(question(await reading).checkpoint_id, "yes") == ["slow", "asker: yes", "worker: go"]
        assert len((await bread.list_runs()).items) == 1


@pytest.mark.parametrize("input", [None, True, 1.5, "", [], {"a": [None, "é"]}], ids=json.dumps)
async def test_any_json_goes_through(open_bread: OpenBread, input: Any) -> None:
    """B79, B4: as it is into the pipeline, and as text to the model of its first step."""
    seen: list[Any] = []

    def script(request: Any) -> list[Any]:
        seen.append(request.messages[0].text)
        return [text("ok")]

    async with open_bread(agent(script), pipelines={"p": ["a"]}) as bread:
        handle = bread.run_pipeline("p", input)
        assert await handle == "ok"
        assert (await bread.get_run(handle.run_id)).input == input
    assert seen == [input if isinstance(input, str) else json.dumps(input, ensure_ascii=False)]


async def test_what_has_no_json_is_refused(open_bread: OpenBread) -> None:
    """B79, Q INPUT_INVALID: before anything is written."""
    async with open_bread(worker(), pipelines={"p": ["worker"]}) as bread:
        with refused("INPUT_INVALID"):
            await bread.run_pipeline("p", object())
        assert (await bread.list_runs()).items == []


async def test_branches_run_at_once_and_their_outputs_keep_their_order(open_bread: OpenBread) -> None:
    """B81: both are under way at the same time; the first one to end is not the first in the output."""
    gate = Gate()
    slow = agent(lambda request: [pause(gate), text("slow")], id="slow")

    def quick_script(request: Any) -> list[Any]:
        return [pause(gate.reached.wait), text("quick")]

    quick = agent(quick_script, id="quick")
    async with open_bread(slow, quick, worker(), pipelines={"p": [parallel("slow", "quick"), "worker"]}) as bread:
        crumbs = []
        async for crumb in bread.run_pipeline("p", "go"):
            crumbs.append(crumb)
            if crumb.type == "pipeline:step:end" and crumb.agent_id == "quick":
                gate.open()
    assert frames(crumbs)[:6] == [
        *(("start", "0", "parallel"), ("start", "0/0", "slow"), ("start", "0/1", "quick")),
        *(("end", "0/1", "quick"), ("end", "0/0", "slow"), ("end", "0", "parallel")),
    ]
    outputs = [crumb.output for crumb in crumbs if crumb.type == "pipeline:step:end"]
    assert outputs == ["quick", "slow", ["slow", "quick"], 'worker: ["slow", "quick"]']


@pytest.mark.parametrize("concurrency", [1, 2, 9])
async def test_a_map_runs_so_many_at_a_time(open_bread: OpenBread, concurrency: int) -> None:
    """B82: the outputs stand in the order of the items."""
    working, full = 0, asyncio.Event()

    async def work() -> None:
        nonlocal working
        working += 1
        assert working <= concurrency
        if working == min(concurrency, 5):
            full.set()
        await full.wait()
        working -= 1

    mapped = agent(lambda request: [pause(work), text(request.messages[0].text.upper())], id="up")
    async with open_bread(mapped, pipelines={"p": [map_("up", concurrency=concurrency)]}) as bread:
        handle = bread.run_pipeline("p", [*"abcde"])
        crumbs = await read(handle)
        assert (await bread.get_run(handle.run_id)).output == [*"ABCDE"]
    assert full.is_set()
    assert [place for kind, place, _ in frames(crumbs) if kind == "start"] == ["0", *(f"0/{n}" for n in range(5))]


@pytest.mark.parametrize(
    ("input", "output"), [("x", ["worker: x"]), ({"a": 1}, ['worker: {"a": 1}']), ([], []), ([[1]], ["worker: [1]"])]
)
async def test_what_is_no_list_is_one_item(open_bread: OpenBread, input: Any, output: Any) -> None:
    """B82: and an empty list has none."""
    async with open_bread(worker(), pipelines={"p": [map_("worker")]}) as bread:
        assert await bread.run_pipeline("p", input) == output


async def test_steps_nest(open_bread: OpenBread) -> None:
    """B79, B95: parallel in parallel, a sequence in a map, a map of branches; places say where."""
    steps = [parallel("a", parallel("a", sequence("a", "b"))), map_(parallel("a", "b"), concurrency=3)]
    both = (agent(lambda r: [text(f"{r.agent_id}{len(r.messages[0].text)}")], id=one) for one in "ab")
    async with open_bread(*both, pipelines={"p": steps}) as bread:
        handle = bread.run_pipeline("p", "go")
        crumbs = await read(handle)
        assert (await bread.get_run(handle.run_id)).output == [["a2", "b2"], ["a12", "b12"]]
    ended_at = {place for kind, place, _ in frames(crumbs) if kind == "end"}
    assert ended_at == {
        *("0", "0/0", "0/1", "0/1/0", "0/1/1/0", "0/1/1/1"),
        *("1", "1/0", "1/0/0", "1/0/1", "1/1", "1/1/0", "1/1/1"),
    }


async def test_a_step_has_a_skill(open_bread: OpenBread) -> None:
    """B79, B72: its instructions and its tools are those of the step's run."""
    seen: list[Any] = []

    @define_tool
    async def bow() -> str:
        return "bowed"

    def script(request: Any) -> list[Any]:
        seen.append((request.prompt, [tool.name for tool in request.tools]))
        return [text("ok")]

    formal = define_skill("formal", description="Be polite.", prompt="Say Sir.", tools=[bow])
    polite = agent(script, id="polite", skills=[formal])
    async with open_bread(polite, pipelines={"p": [step("polite", skill="formal")]}) as bread:
        handle = bread.run_pipeline("p", "go")
        assert await handle == "ok"
        started = [crumb for crumb in await ended(bread, handle.run_id) if crumb.type == "agent:run:start"]
        assert [crumb.skill for crumb in started] == [None, "formal"]
    [(prompt, tools)] = seen
    assert "Say Sir." in prompt
    assert "skill_formal_bow" in tools


async def test_the_steps_of_a_run_are_its_own(open_bread: OpenBread) -> None:
    """B79: max_steps of the agent holds for the step, too."""

    @define_tool
    async def again() -> None: ...

    endless = agent(lambda request: [call("tool_again")], again, id="endless", max_steps=2)
    async with open_bread(endless, pipelines={"p": ["endless"]}) as bread:
        handle = bread.run_pipeline("p", "go")
        crumbs = await read(handle)
    error, last = [crumb for crumb in crumbs if crumb.type in ("pipeline:step:error", "agent:error")][1:]
    assert error.type == "pipeline:step:error"
    assert last.type == "agent:error"
    assert error.code == last.code == "STEPS_EXCEEDED"


# --- what is refused --------------------------------------------------------------------------------------------------


async def test_a_pipeline_that_is_not_there(open_bread: OpenBread) -> None:
    """B84: raised at the first await or iteration; nothing is written."""
    async with open_bread(worker(), pipelines={"p": ["worker"]}) as bread:
        handle = bread.run_pipeline("nope", "go")
        with refused("PIPELINE_NOT_FOUND") as caught:
            await handle
        assert "there are: p" in str(caught.value)
        with refused("PIPELINE_NOT_FOUND"):
            await read(bread.run_pipeline("nope", "go"))
        with refused("PIPELINE_NOT_FOUND"):
            await bread.start_pipeline("nope", "go")
        assert (await bread.list_runs()).items == []


@pytest.mark.parametrize("mode", ["memory"])
@pytest.mark.parametrize(
    ("steps", "code", "where"),
    [
        ([], "INPUT_INVALID", "at least one step"),
        ("worker", "INPUT_INVALID", "expected a list"),
        (step("worker"), "INPUT_INVALID", "expected a list"),
        (["worker", "nobody"], "AGENT_NOT_FOUND", "step 1: no agent 'nobody'; there are: worker"),
        (["worker", parallel("worker", map_("nobody"))], "AGENT_NOT_FOUND", "step 1: no agent 'nobody'"),
        ([step("worker", skill="nope")], "SKILL_NOT_FOUND", "step 0"),
        ([7], "INPUT_INVALID", "7 is no step"),
        ([["worker"]], "INPUT_INVALID", "is no step"),
    ],
)
def test_wrong_steps_are_refused_when_they_are_loaded(open_bread: OpenBread, steps: Any, code: str, where: str) -> None:
    """B79, B84: with the pipeline and the place."""
    with refused(code) as caught:
        open_bread(worker(), pipelines={"p": steps})
    assert "pipeline p" in str(caught.value)
    assert where in str(caught.value)


def test_a_step_of_another_shape() -> None:
    """B79, B13: an empty parallel, a concurrency of nothing, a name that is none."""
    anything: Any = 7
    makes: list[Callable[[], Step]] = [
        parallel,
        sequence,
        lambda: map_("a", concurrency=0),
        lambda: map_("a", concurrency=1001),
        lambda: map_("a", concurrency=cast(int, 1.5)),
        lambda: parallel("a", anything),
        lambda: map_(anything),
    ]
    for make in makes:
        with refused("INPUT_INVALID"):
            make()
    for name in ("No Name", "", "a b"):
        with refused("INVALID_NAME"):
            parallel(name)


@pytest.mark.parametrize("mode", ["memory"])
def test_ids_of_pipelines_are_names(open_bread: OpenBread) -> None:
    """B13."""
    with refused("INVALID_NAME"):
        open_bread(worker(), pipelines={"My Pipeline": ["worker"]})


def test_a_step_is_data() -> None:
    """B79: an agent's id, where a step is meant, is a step."""
    assert parallel("a", "b") == parallel(step("a"), Step("agent", agent="b"))
    assert map_("a", concurrency=4) == map_(step("a"), concurrency=4)


async def test_the_same_key_is_the_same_run(open_bread: OpenBread) -> None:
    """B56, Q IDEMPOTENCY_CONFLICT: also of a pipeline; another input is a conflict, and so is an agent."""
    async with open_bread(worker(), pipelines={"p": ["worker"]}) as bread:
        first = await bread.start_pipeline("p", "go", idempotency_key="k")
        assert await bread.run_pipeline("p", "go", idempotency_key="k") == "worker: go"
        with refused("IDEMPOTENCY_CONFLICT"):
            await bread.start_pipeline("p", "other", idempotency_key="k")
        with refused("IDEMPOTENCY_CONFLICT"):
            await bread.start("worker", "go", idempotency_key="k")
        assert [run.id for run in (await bread.list_runs()).items] == [first]


async def test_a_model_that_is_not_ready_refuses_the_pipeline(open_bread: OpenBread) -> None:
    """B79: before anything is written, whichever step it is."""

    class NotReady:
        name = "not ready"

        def open(self) -> None: ...

        async def close(self) -> None: ...

        async def prepare(self, settings: Any = None) -> None:
            raise InvalidInput("MODEL_NOT_READY", "no key")

        def stream(self, request: Any) -> Any:
            raise AssertionError

    later = define_agent("later", model=NotReady())
    async with open_bread(worker(), later, pipelines={"p": ["worker", parallel("worker", "later")]}) as bread:
        with refused("MODEL_NOT_READY"):
            await bread.run_pipeline("p", "go")
        assert (await bread.list_runs()).items == []
