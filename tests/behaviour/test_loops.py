"""Loops: what an agent composes and runs again and again, and what it is told."""

from __future__ import annotations

import json
from typing import Any

import pytest

from bread import Loop, define_skill
from bread.testing import call, fail, text
from scenes import (
    Counter,
    OpenBread,
    Spy,
    agent,
    as_any,
    ended,
    question,
    refused,
)
from support import read, types
from teams import (
    asker,
    finish,
    frames,
    host,
    iterate,
    outcomes,
    quotes,
    start_loop,
    told,
    turns,
    worker,
)

# --- what it does -----------------------------------------------------------------------------------------------------


async def test_the_host_gets_three_tools(open_bread: OpenBread) -> None:
    """B114: their arguments, and what its prompt says of the pool and of the cap."""
    spy = Spy([[text("Done.")]])
    async with open_bread(
        host(spy, "worker", "asker", max_iterations=3, prompt="You host."), worker(), asker()
    ) as bread:
        await bread.run("host", "go")
    [request] = spy.requests
    arguments = {tool.name: {*schema["properties"]} for tool in request.tools if (schema := as_any(tool.schema))}
    assert arguments == {
        "core_start_loop": {"pipeline", "input"},
        "core_iterate_loop": {"feedback"},
        "core_finish_loop": {"result"},
    }
    required = {tool.name: as_any(tool.schema).get("required", []) for tool in request.tools}
    assert required == {"core_start_loop": ["pipeline"], "core_iterate_loop": [], "core_finish_loop": []}
    assert request.prompt.startswith("You host.")
    assert "worker, asker" in request.prompt
    assert "At most 3 iterations" in request.prompt


async def test_what_is_shown_of_a_loop(open_bread: OpenBread) -> None:
    """B114, B115: its frames around those of its pipeline, and the runs of each iteration below."""
    spy = turns(start_loop("worker", input="x"), iterate(), finish(result={"r": 1}))
    async with open_bread(host(spy, "worker"), worker()) as bread:
        handle = bread.run("host", "go")
        crumbs = await read(handle)
        runs = (await bread.list_runs(root=handle.run_id)).items
    assert types(crumbs, "text:delta", "tool:call", "tool:result") == [
        *("agent:run:start", "loop:start", "loop:iteration:start"),
        *("agent:run:start", "pipeline:step:start", "agent:run:start", "agent:run:end", "pipeline:step:end"),
        *("agent:run:end", "loop:iteration:end", "loop:end", "agent:run:end"),
    ]
    start, begun, done, end = (crumb for crumb in crumbs if crumb.type.startswith("loop:"))
    assert start.type == "loop:start"
    assert (start.agent_id, start.input, start.max_iterations) == ("host", "x", 10)
    assert begun.type == "loop:iteration:start"
    assert done.type == "loop:iteration:end"
    assert (begun.iteration, done.iteration, done.output) == (1, 1, "worker: x")
    assert end.type == "loop:end"
    assert (end.loop_id, end.status, end.iterations, end.result) == (start.loop_id, "completed", 1, {"r": 1})
    assert {run.kind for run in runs} == {"agent", "pipeline"}
    assert begun.child_run_id in {run.id for run in runs if run.kind == "pipeline"}
    [(_, place, by), _] = frames(crumbs)
    assert (place.rpartition("/")[2], by) == ("0", "worker")


async def test_feedback_and_previous_output(open_bread: OpenBread) -> None:
    """B116: the first input is the loop's, the next ones what came out last, with feedback if there is any."""
    spy = turns(start_loop("worker", input="x"), iterate(), iterate(), iterate(feedback={"f": 1}), finish())
    async with open_bread(host(spy, "worker"), quotes()) as bread:
        handle = bread.run("host", "go")
        await read(handle)
        [loop] = (await bread.list_loops()).items
    assert [one.output for one in loop.iterations] == ["x", "x", '{"previousOutput": "x", "feedback": {"f": 1}}']
    assert loop.result == loop.iterations[-1].output


@pytest.mark.parametrize("value", ["", 0, False, [], {}], ids=repr)
async def test_what_is_empty_is_given_too(open_bread: OpenBread, value: Any) -> None:
    """B116: an input, a feedback and a result that are there count, whatever they are."""
    spy = turns(start_loop("worker", input=value), iterate(), iterate(feedback=value), finish(result=value))
    async with open_bread(host(spy, "worker"), agent([[text("ok")]], id="worker")) as bread:
        handle = bread.run("host", "go")
        await read(handle)
        [loop] = (await bread.list_loops()).items
        inputs = [(await bread.get_run(one.child_run_id)).input for one in loop.iterations]
    expected = [value, {"previousOutput": "ok", "feedback": value}, value, value]
    assert json.dumps([*inputs, loop.input, loop.result]) == json.dumps(expected)


async def test_a_loop_without_an_input_works_on_that_of_the_run(open_bread: OpenBread) -> None:
    """B114: and feedback may come first."""
    spy = turns(start_loop("worker"), iterate(feedback="f"), finish())
    async with open_bread(host(spy, "worker"), quotes()) as bread:
        await bread.run("host", {"topic": 1})
        [loop] = (await bread.list_loops()).items
    assert loop.iterations[0].output == '{"previousOutput": {"topic": 1}, "feedback": "f"}'


async def test_any_steps_can_be_composed(open_bread: OpenBread) -> None:
    """B114: branches, maps, sequences, skills, nested."""
    seen: list[str] = []

    def script(request: Any) -> list[Any]:
        seen.append(request.prompt)
        return [text("ok")]

    polite = agent(script, id="polite", skills=[define_skill("please", description="d", prompt="Say please.")])
    steps = [
        {"parallel": ["worker", ["worker", "worker"]]},
        {"map": {"agent": "polite", "skill": "please"}, "concurrency": 2},
    ]
    spy = turns(start_loop(*steps, input="x"), iterate())
    async with open_bread(host(spy, "worker", "polite"), worker(), polite) as bread:
        await bread.run("host", "go")
    assert told(spy) == [{"iteration": 1, "output": ["ok", "ok"]}]
    assert all("Say please." in prompt for prompt in seen)
    assert len(seen) == 2


async def test_loops_are_listed_and_shown_from_the_log(open_bread: OpenBread) -> None:
    """B115: filters, pages, iterations with their runs and outputs; LOOP_NOT_FOUND."""
    spy = turns(start_loop("worker", input="x"), iterate(), finish(), start_loop("worker", input="y"), iterate())
    async with open_bread(host(spy, "worker"), worker(), host([[text("Done.")]], "worker", id="other")) as bread:
        handle = bread.run("host", "go", session="s")
        await read(handle)
        await bread.run("other", "go")
        page = await bread.list_loops()
        assert [(one.status, one.agent_id, one.run_id, one.session_id) for one in page.items] == [
            ("completed", "host", handle.run_id, "s"),
            ("completed", "host", handle.run_id, "s"),
        ]
        first, second = page.items
        assert await bread.get_loop(first.id) == first
        [iteration] = second.iterations
        assert (iteration.iteration, iteration.output) == (1, "worker: y")
        assert (await bread.get_run(iteration.child_run_id)).output == "worker: y"
        one = await bread.list_loops(limit=1)
        assert [found.id for found in one.items] == [first.id]
        assert [found.id for found in (await bread.list_loops(limit=1, cursor=one.next)).items] == [second.id]
        assert (await bread.list_loops(session="s", agent="host", status="completed")).items == page.items
        for nothing in ({"agent": "other"}, {"session": "t"}, {"status": "running"}):
            assert (await bread.list_loops(**nothing)).items == []  # type: ignore[arg-type]
        for wrong in ("nope", "loop_nope", f"{first.id}x", first.id.rpartition("_")[0]):
            with refused("LOOP_NOT_FOUND"):
                await bread.get_loop(wrong)


async def test_a_loop_goes_with_its_session(open_bread: OpenBread) -> None:
    """B115, B73, B76: the log is where it is; a filter that can let nothing through is refused."""
    async with open_bread(host(turns(start_loop("worker"), iterate()), "worker"), worker()) as bread:
        await bread.run("host", "go", session="s")
        [loop] = (await bread.list_loops()).items
        with refused("INPUT_INVALID"):
            await bread.list_loops(status="open")
        assert await bread.sessions.delete("s")
        assert (await bread.list_loops()).items == []
        with refused("LOOP_NOT_FOUND"):
            await bread.get_loop(loop.id)


async def test_a_page_of_loops_that_a_filter_thins_out(open_bread: OpenBread) -> None:
    """B115: of loops of two hosts in turn, pages of those of one; each once, and the last page says so."""
    hosts = [host(turns(start_loop("worker"), finish(result=id)), "worker", id=id) for id in ("one", "two")]
    async with open_bread(*hosts, worker()) as bread:
        for _ in range(3):
            for id in ("one", "two"):
                await bread.run(id, "go")
        whole = (await bread.list_loops(agent="two")).items
        assert [one.result for one in whole] == ["two"] * 3
        page, walked = await bread.list_loops(agent="two", limit=1), []
        while page.next is not None:
            walked += page.items
            page = await bread.list_loops(agent="two", limit=1, cursor=page.next)
        assert walked + page.items == whole


# --- how it ends ------------------------------------------------------------------------------------------------------


async def test_past_the_cap_a_loop_is_exhausted(open_bread: OpenBread) -> None:
    """B117: the host is told, with the last output, and goes on without the loop."""
    spy = turns(start_loop("worker", input="x"), iterate(), iterate(), iterate(), finish())
    async with open_bread(host(spy, "worker", max_iterations=2), quotes()) as bread:
        handle = bread.run("host", "go")
        crumbs = await read(handle)
        end = next(crumb for crumb in crumbs if crumb.type == "loop:end")
        assert (end.status, end.iterations, end.result) == ("exhausted", 2, "x")
    assert outcomes(spy.requests[4]) == [{"status": "exhausted", "iterations": 2, "output": "x"}]
    [(how, why)] = told(spy)
    assert how == "error"
    assert "no open loop" in why


ENDS: dict[str, tuple[list[Any], str | None]] = {
    "says": ([text("Done.")], None),
    "fails": ([fail("no", times=9, retryable=False)], "MODEL_ERROR"),
    "is too long": ([call("tool_nothing", {})], "STEPS_EXCEEDED"),
    "does not fit": ([text("no number")], "OUTPUT_INVALID"),
}


@pytest.mark.parametrize("how", ENDS)
async def test_a_run_that_ends_leaves_no_loop_open(open_bread: OpenBread, how: str) -> None:
    """B117: completed with its host, or failed with it; with the last output. The next run has none."""
    last_words, code = ENDS[how]

    def script(request: Any) -> list[Any]:
        match request.turn:
            case 0:
                return [start_loop("worker", input="x"), iterate()]
            case _:
                return last_words

    output = {"type": "integer"} if how == "does not fit" else None
    boss = host(script, "worker", max_steps=1, output=output, output_retries=0)
    async with open_bread(boss, host(turns(iterate()), "worker", id="next"), quotes()) as bread:
        handle = bread.run("host", "go", session="s")
        crumbs = await read(handle)
        end, last = crumbs[-2:]
        assert end.type == "loop:end"
        assert (end.status, end.result) == ("failed" if code else "completed", "x")
        assert (last.type, getattr(last, "code", None)) == ("agent:error" if code else "agent:run:end", code)
        [loop] = (await bread.list_loops()).items
        assert (loop.status, loop.result) == (end.status, "x")
        crumbs = await read(bread.run("next", "go", session="s"))
        assert [crumb.code for crumb in crumbs if crumb.type == "tool:error"] == ["NO_ACTIVE_LOOP"]


async def test_a_cancelled_host_leaves_no_loop_open(open_bread: OpenBread) -> None:
    """B117, B18: the iteration and its question end with it."""
    async with open_bread(host(turns(start_loop("asker", input="x"), iterate()), "asker"), asker()) as bread:
        handle = bread.run("host", "go")
        asked = question(await read(handle))
        assert await bread.cancel(handle.run_id) == "cancelled"
        [loop] = (await bread.list_loops()).items
        assert loop.status == "failed"
        assert {run.status for run in (await bread.list_runs(root=handle.run_id)).items} == {"cancelled"}
        with refused("CHECKPOINT_NOT_FOUND"):
            await bread.resume(asked.checkpoint_id, "late")


# --- what is refused --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("calls", "code", "says"),
    [
        ([start_loop("other")], "LOOP_AGENT_NOT_IN_POOL", "other: not in the pool; there are: worker, gone"),
        ([start_loop({"parallel": ["worker", {"map": "other"}]})], "LOOP_AGENT_NOT_IN_POOL", "other"),
        ([start_loop("gone")], "AGENT_NOT_FOUND", "gone"),
        ([start_loop("worker"), start_loop("worker")], "LOOP_ALREADY_ACTIVE", "is open"),
        ([iterate()], "NO_ACTIVE_LOOP", "start one first"),
        ([finish()], "NO_ACTIVE_LOOP", "no open loop"),
        ([start_loop("worker"), finish(), iterate()], "NO_ACTIVE_LOOP", "there is no open loop: start"),
        ([start_loop()], "LOOP_ERROR", "at least one step"),
        ([start_loop({"paralell": ["worker"]})], "LOOP_ERROR", "a step is an agent's id"),
        ([start_loop({"map": "worker", "concurrency": 0})], "LOOP_ERROR", "concurrency"),
        ([start_loop({"agent": "worker", "skill": "nope"})], "SKILL_NOT_FOUND", "nope"),
        ([start_loop("worker"), iterate(), iterate()], "LOOP_ERROR", "under way"),
        ([start_loop("worker"), iterate(), finish()], "LOOP_ERROR", "an iteration of the loop"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
async def test_what_a_host_may_not_do(open_bread: OpenBread, calls: list[Any], code: str, says: str) -> None:
    """B118: each is a tool error that the model is told, and it may go on."""
    spy = Spy([calls, [text("Done.")]])
    others = (worker(), worker("other"))
    async with open_bread(host(spy, "worker", "gone"), *others) as bread:
        crumbs = await read(bread.run("host", "go"))
    [error] = [crumb for crumb in crumbs if crumb.type == "tool:error"]
    assert (error.code, says in error.message) == (code, True)
    assert crumbs[-1].type == "agent:run:end"


async def test_an_iteration_that_fails(open_bread: OpenBread) -> None:
    """B118: LOOP_ERROR with what failed; the loop stays open, its next iteration works on what the failed one did."""
    tried = Counter()

    def script(request: Any) -> list[Any]:
        return [fail("no", times=9, retryable=False)] if tried("x") == 1 else [text(request.messages[0].text)]

    spy = turns(start_loop("flaky", input="x"), iterate(), iterate(), finish())
    async with open_bread(host(spy, "flaky"), agent(script, id="flaky")) as bread:
        await bread.run("host", "go")
        [loop] = (await bread.list_loops()).items
    [(how, why)] = outcomes(spy.requests[2])
    assert how == "error"
    assert "iteration 1 failed: MODEL_ERROR" in why
    assert [(one.iteration, one.output) for one in loop.iterations] == [(1, None), (2, "x")]
    assert (loop.status, loop.result) == ("completed", "x")


@pytest.mark.parametrize("whose", ["iteration", "agent"])
async def test_an_iteration_that_is_cancelled(open_bread: OpenBread, whose: str) -> None:
    """B118, B18, C60: it or what runs in it; the host is told, its loop stays open, and the question is discarded."""
    spy = turns(start_loop({"parallel": ["asker", "worker"]}, input="x"), iterate(), finish())
    async with open_bread(host(spy, "asker", "worker"), asker(), worker()) as bread:
        handle = bread.run("host", "go")
        asked = question(await read(handle))
        [loop] = (await bread.list_loops()).items
        target = loop.iterations[0].child_run_id if whose == "iteration" else asked.run_id
        assert await bread.cancel(target, reason="enough") == "cancelled"
        crumbs = await ended(bread, handle.run_id)
        assert [crumb.checkpoint_id for crumb in crumbs if crumb.type == "human:discarded"] == [asked.checkpoint_id]
        [error] = [crumb for crumb in crumbs if crumb.type == "tool:error" and crumb.agent_id == "host"]
        assert (error.code, error.message) == ("LOOP_ERROR", "iteration 1 failed: RUN_CANCELLED: enough")
        end = next(crumb for crumb in crumbs if crumb.type == "loop:end")
        assert (end.status, end.iterations) == ("completed", 1)
        assert crumbs[-1].type == "agent:run:end"
        assert (await bread.list_checkpoints()).items == []


# --- permissions ------------------------------------------------------------------------------------------------------


async def test_loops_can_be_denied(open_bread: OpenBread) -> None:
    """B42, B33: neither offered nor in the prompt; called anyway it is FORBIDDEN."""
    spy = Spy([[start_loop("worker")], [text("Done.")]])
    async with open_bread(host(spy, "worker", permissions={"deny": ["core:*_loop"]}), worker()) as bread:
        crumbs = await read(bread.run("host", "go"))
        assert (await bread.list_loops()).items == []
    assert (spy.requests[0].tools, "worker" in spy.requests[0].prompt) == ([], False)
    assert [crumb.code for crumb in crumbs if crumb.type == "tool:error"] == ["FORBIDDEN"]


async def test_each_of_the_three_can_be_gated(open_bread: OpenBread) -> None:
    """B42, B36, B37, B121: approved as shown, with other arguments, or not; nothing of it happens before."""
    spy = turns(start_loop("worker", input="x"), iterate(feedback="f"), iterate(), finish(result="r"))
    boss = host(spy, "worker", permissions={"ask": ["core:*_loop"]})
    answers: list[Any] = [
        {"approved": True, "args": {"pipeline": ["worker", "worker"], "input": "y"}},
        {"approved": True, "args": {}},
        {"approved": False, "reason": "once is enough"},
        {"approved": True},
    ]
    async with open_bread(boss, quotes()) as bread:
        crumbs = await read(bread.run("host", "go"))
        assert (await bread.list_loops()).items == []
        shown = []
        for answer in answers:
            asked = question(crumbs)
            shown.append((asked.kind, asked.tool_name))
            crumbs = await read(bread.resume(asked.checkpoint_id, answer))
        assert crumbs[-1].type == "agent:run:end"
        [loop] = (await bread.list_loops()).items
    assert shown == [("approval", f"{name}_loop") for name in ("start", "iterate", "iterate", "finish")]
    assert len(as_any(loop.steps)) == 2
    assert (loop.input, [one.output for one in loop.iterations], loop.result) == ("y", ["y"], "r")
    assert outcomes(spy.requests[3]) == [("denied", "denied by a person: once is enough")]


async def test_nobody_is_asked_about_a_loop_that_cannot_be(open_bread: OpenBread) -> None:
    """B42, B118: it is refused before a person sees it."""
    spy = turns(start_loop("other"))
    boss = host(spy, "worker", permissions={"ask": ["core:*"]})
    async with open_bread(boss, worker(), worker("other")) as bread:
        crumbs = await read(bread.run("host", "go"))
    assert [crumb.code for crumb in crumbs if crumb.type == "tool:error"] == ["LOOP_AGENT_NOT_IN_POOL"]
    assert crumbs[-1].type == "agent:run:end"


@pytest.mark.parametrize(
    "shape",
    [
        {"pool": []},
        {"pool": "worker"},
        {"pool": ["worker"], "max_iterations": 0},
        {"pool": ["worker"], "max_iterations": None},
        {"pool": [5]},
        {"pool": ["Bad name"]},
    ],
    ids=str,
)
def test_a_loop_of_another_shape_is_refused(shape: Any) -> None:
    """B114: where it is defined."""
    with refused("INVALID_NAME" if shape["pool"] in ([5], ["Bad name"]) else "INPUT_INVALID"):
        Loop(**shape)
