"""Pipelines that fail, are cancelled, retried or deleted: nothing is orphaned, and what is done stays done."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from bread import Bread, RunStopped, RunSuspended, define_tool, map_, parallel, sequence
from bread.domain.errors import NotFound
from bread.testing import call, fail, pause, text
from scenes import DURABLE, Counter, Gate, OpenBread, agent, asking, ended, engine_of, question, refused, until
from support import read, trials, types
from teams import asker, broken, by_agent, children, frames, hands_on, opened, waits, worker


async def statuses(bread: Bread, root: str) -> dict[str, str]:
    """How each run of a tree stands, by agent."""
    return {run.agent_id: run.status for run in (await bread.list_runs(root=root, limit=1000)).items}


async def stopped(stream: Any) -> tuple[str, str]:
    """The code and the message that an awaited run ends with."""
    with pytest.raises(RunStopped) as caught:
        await stream
    return caught.value.code, caught.value.message


def fails_at(gate: Gate, id: str = "late") -> Any:
    """Fails once the gate is open."""
    return agent([[pause(gate), fail("no", times=9, retryable=False)]], id=id)


async def answer(bread: Bread, checkpoint_id: str) -> bool:
    """Whether an answer was taken, whatever became of the run."""
    try:
        await bread.resume(checkpoint_id, "yes")
    except RunStopped:
        return True
    except NotFound as error:
        if error.code != "CHECKPOINT_NOT_FOUND":
            raise
        return False
    raise AssertionError("the pipeline did not fail")


def fails_first(id: str = "flaky", counter: Counter | None = None) -> Any:
    """Fails in its first run, says its name in the next."""
    tried = counter or Counter()

    def script(request: Any) -> list[Any]:
        return [fail("busy", times=9, retryable=False)] if tried(id) == 1 else [text(id)]

    return agent(script, id=id)


# --- failures ---------------------------------------------------------------------------------------------------------


async def test_a_step_that_fails_is_the_end(open_bread: OpenBread) -> None:
    """B83: the code is that of the step; later steps do not start."""
    async with open_bread(worker(), broken(), pipelines={"p": ["worker", "broken", "worker"]}) as bread:
        handle = bread.run_pipeline("p", "go")
        crumbs = await read(handle)
        assert frames(crumbs)[2:] == [("start", "1", "broken"), ("error", "1", "broken")]
        last = crumbs[-1]
        assert last.type == "agent:error"
        assert (last.run_id, last.code) == (handle.run_id, "MODEL_ERROR")
        assert (await stopped(bread.run_pipeline("p", "go")))[0] == "MODEL_ERROR"
        assert await statuses(bread, handle.run_id) == {"p": "failed", "worker": "completed", "broken": "failed"}


async def test_siblings_settle_before_their_step_fails(open_bread: OpenBread) -> None:
    """B83: what works beside the failure finishes first; its output is kept."""
    gate = Gate()
    async with open_bread(broken(), waits(gate), pipelines={"p": [parallel("broken", "slow")]}) as bread:
        handle = bread.run_pipeline("p", "go")
        async for crumb in handle:
            if crumb.type == "pipeline:step:error":
                assert (await bread.get_run(handle.run_id)).status == "running"
                gate.open()
        log = await ended(bread, handle.run_id)
        assert frames(log)[-2:] == [("error", "0/0", "broken"), ("end", "0/1", "slow")]
        assert [crumb.output for crumb in log if crumb.type == "pipeline:step:end"] == ["slow"]
        assert await statuses(bread, handle.run_id) == {"p": "failed", "broken": "failed", "slow": "completed"}


async def test_several_failures_are_told_together(open_bread: OpenBread) -> None:
    """B83, Q AGGREGATE_ERROR: the place, code and message of each."""
    agents = (broken("one"), broken("two"), worker())
    async with open_bread(*agents, pipelines={"p": [parallel("one", "worker", "two")]}) as bread:
        code, message = await stopped(bread.run_pipeline("p", "go"))
    assert code == "AGGREGATE_ERROR"
    assert message.startswith("2 branches failed: 0/0: MODEL_ERROR: ")
    assert "0/2: MODEL_ERROR: " in message


@pytest.mark.parametrize(
    ("branches", "others"),
    [
        (("asker", "late"), {}),
        (("boss", "late"), {"boss": "cancelled"}),
        (("asker", sequence("worker", parallel("late", "worker"))), {"worker": "completed"}),
    ],
    ids=["beside it", "below a supervisor", "beside what is deeper"],
)
async def test_a_siblings_question_is_discarded_with_the_failure(
    open_bread: OpenBread, branches: Any, others: dict[str, str]
) -> None:
    """B83, B95, C58: in the same commit, with a crumb; it has surfaced, it cannot be answered, nobody waits."""
    gate = Gate()
    agents = (asker(), fails_at(gate), hands_on("asker"), worker())
    async with open_bread(*agents, pipelines={"p": [parallel(*branches)]}) as bread:
        handle = bread.run_pipeline("p", "go")
        reading = asyncio.create_task(read(handle))
        await gate.reached.wait()
        asked = await opened(bread)
        gate.open()
        crumbs = await reading
        assert [crumb.type for crumb in crumbs if crumb.type.startswith("human:")] == [
            "human:required",
            "human:discarded",
        ]
        assert crumbs[-1].type == "agent:error"
        events = [event async for event in bread.audit(handle.run_id)]
        [discarded] = [event for event in events if event.name == "checkpoint.discarded"]
        [failed] = [event for event in events if event.name == "run.failed" and event.stream == handle.run_id]
        assert discarded.commit == failed.commit
        assert discarded.data["reason"] == "failed"
        with refused("CHECKPOINT_NOT_FOUND"):
            await bread.resume(asked["asker"], "late")
        assert (await bread.list_checkpoints()).items == []
        stand = {"p": "failed", "asker": "cancelled", "late": "failed"}
        assert await statuses(bread, handle.run_id) == stand | others


async def test_a_claim_comes_first(open_bread: OpenBread) -> None:
    """B83: a sibling that was answered before the failure runs on, and the step fails after it."""
    failing, working = Gate(), Gate()

    def script(request: Any) -> list[Any]:
        return [pause(working), text("done")] if request.turn else [call("human_ask")]

    slow = agent(script, asking(), id="slow")
    async with open_bread(slow, fails_at(failing), pipelines={"p": [parallel("slow", "late")]}) as bread:
        run_id = await bread.start_pipeline("p", "go")
        await failing.reached.wait()
        asked = await opened(bread)
        answering = asyncio.create_task(read(bread.resume(asked["slow"], "yes")))
        await working.reached.wait()
        failing.open()
        async for crumb in bread.observe(run_id):
            if crumb.type == "pipeline:step:error":
                assert (await bread.get_run(run_id)).status == "running"
                working.open()
        stream = await answering
        assert stream[-1].type == "agent:error"
        assert await statuses(bread, run_id) == {"p": "failed", "slow": "completed", "late": "failed"}


@DURABLE
async def test_a_claim_and_the_failure_meet(open_bread: OpenBread) -> None:
    """B83, C1, C60: the answer comes from another bread on the same file; it wins and its branch runs on, or it is
    refused and its question was discarded, never both and never neither."""
    for _ in range(trials(6, 300)):
        gate = Gate()
        pipelines: dict[str, Any] = {"p": [parallel("asker", "late")]}
        async with (
            open_bread(asker(), fails_at(gate), pipelines=pipelines) as bread,
            open_bread(asker(), takes=False) as other,
        ):
            run_id = await bread.start_pipeline("p", "go")
            await gate.reached.wait()
            asked = await opened(bread)
            answering = asyncio.create_task(answer(other, asked["asker"]))
            gate.open()
            won = await answering
            log = await ended(bread, run_id)
            stand = await statuses(bread, run_id)
            assert stand == {"p": "failed", "asker": "completed" if won else "cancelled", "late": "failed"}
            heard = [crumb.type for crumb in log if crumb.type.startswith("human:")]
            assert heard == ["human:required", "human:resumed" if won else "human:discarded"]
            assert (await bread.list_checkpoints()).items == []


async def test_no_item_begins_after_a_failure(open_bread: OpenBread) -> None:
    """B83, B82: items that run settle, those whose turn has not come never begin."""
    begun = Counter()

    def script(request: Any) -> list[Any]:
        begun(request.messages[0].text)
        return [fail("no", times=9, retryable=False)] if request.messages[0].text == "b" else [text("ok")]

    async with open_bread(agent(script, id="m"), pipelines={"p": [map_("m")]}) as bread:
        assert (await stopped(bread.run_pipeline("p", [*"abcd"])))[0] == "MODEL_ERROR"
    assert begun.of == {"a": 1, "b": 1}


async def test_a_deadline_in_a_branch(open_bread: OpenBread) -> None:
    """B89, B83: nobody answers: the model is told, and the branch goes on; the merge waits for it."""
    now = [1_000_000.0]

    def script(request: Any) -> list[Any]:
        return [text(str(request.messages[-1].content))] if request.turn else [call("human_ask")]

    timely = agent(script, asking(timeout=60, on_timeout="nobody"), id="timely")
    steps = [parallel("timely", "asker")]
    async with open_bread(timely, asker(), pipelines={"p": steps}, clock=lambda: now[0]) as bread:
        handle = bread.run_pipeline("p", "go")
        asked = by_agent(await read(handle))
        now[0] += 61
        with refused("CHECKPOINT_NOT_FOUND"):
            await bread.resume(asked["timely"].checkpoint_id, "late")
        assert await bread.resume(asked["asker"].checkpoint_id, "yes") == ["nobody", "asker: yes"]


# --- retry ------------------------------------------------------------------------------------------------------------


async def test_a_failed_pipeline_goes_on_from_the_step_that_failed(open_bread: OpenBread) -> None:
    """B59, C12: finished steps and branches keep their outputs and are not run again."""
    ran = Counter()

    def script(request: Any) -> list[Any]:
        ran("counted")
        return [text("counted")]

    agents = (agent(script, id="counted"), fails_first(), worker())
    steps = ["counted", parallel("counted", "flaky"), "worker"]
    async with open_bread(*agents, pipelines={"p": steps}) as bread:
        handle = bread.run_pipeline("p", "go")
        assert (await stopped(handle))[0] == "MODEL_ERROR"
        crumbs = await read(bread.retry(handle.run_id))
        assert [crumb.type for crumb in crumbs if crumb.type == "agent:run:retry"] == ["agent:run:retry"] * 2
        assert frames(crumbs)[-1] == ("end", "2", "worker")
        assert (await bread.get_run(handle.run_id)).output == 'worker: ["counted", "flaky"]'
    assert ran.of == {"counted": 2}


async def test_a_map_goes_on_from_the_item_that_failed(open_bread: OpenBread) -> None:
    """B59, B82: items that are done keep their outputs; those whose turn had not come begin now."""
    begun = Counter()

    def script(request: Any) -> list[Any]:
        item = request.messages[0].text
        if begun(item) == 1 and item == "b":
            return [fail("no", times=9, retryable=False)]
        return [text(item.upper())]

    async with open_bread(agent(script, id="m"), pipelines={"p": [map_("m")]}) as bread:
        handle = bread.run_pipeline("p", [*"abcd"])
        assert (await stopped(handle))[0] == "MODEL_ERROR"
        assert begun.of == {"a": 1, "b": 1}
        assert await bread.retry(handle.run_id) == [*"ABCD"]
    assert begun.of == {"a": 1, "b": 2, "c": 1, "d": 1}


async def test_what_was_given_up_is_asked_again(open_bread: OpenBread) -> None:
    """B59, B83: a sibling whose question was discarded with the failure begins anew at the retry."""
    async with open_bread(asker(), fails_first(), pipelines={"p": [parallel("flaky", "asker")]}) as bread:
        handle = bread.run_pipeline("p", "go")
        await stopped(handle)
        with pytest.raises(RunSuspended) as caught:
            await bread.retry(handle.run_id)
        [asked] = caught.value.checkpoints
        assert await bread.resume(asked, "yes") == ["flaky", "asker: yes"]


async def test_only_the_whole_is_retried(open_bread: OpenBread) -> None:
    """B59, Q RUN_NOT_RETRYABLE: not a part of it, and nothing that has not failed."""
    async with open_bread(broken(), worker(), pipelines={"p": ["broken"], "fine": ["worker"]}) as bread:
        fine = bread.run_pipeline("fine", "go")
        assert await fine == "worker: go"
        with refused("RUN_NOT_RETRYABLE"):
            await bread.retry(fine.run_id)
        handle = bread.run_pipeline("p", "go")
        await stopped(handle)
        part = (await children(bread, handle.run_id))["broken"]
        with refused("RUN_NOT_RETRYABLE") as caught:
            await bread.retry(part)
        assert caught.value.details["root_run_id"] == handle.run_id
        assert (await stopped(bread.retry(handle.run_id)))[0] == "MODEL_ERROR"


# --- cancel -----------------------------------------------------------------------------------------------------------


async def test_a_cancel_ends_everything_below(open_bread: OpenBread) -> None:
    """B18, C60: running and suspended branches, their questions, and what they wait for, in one commit."""
    gate = Gate()
    steps = [parallel("slow", "asker", "boss")]
    agents = (waits(gate), asker(), hands_on("deep"), asker("deep"))
    async with open_bread(*agents, worker(), pipelines={"p": steps}) as bread:
        handle = bread.run_pipeline("p", "go", session="s")
        reading = asyncio.create_task(read(handle))
        await gate.reached.wait()
        asked = await opened(bread, 2)
        assert await bread.cancel(handle.run_id, reason="enough") == "cancelled"
        crumbs = await reading
        assert {*(await statuses(bread, handle.run_id)).values()} == {"cancelled"}
        events = [event async for event in bread.audit(handle.run_id)]
        ends = {event.commit for event in events if event.name in ("run.cancelled", "checkpoint.discarded")}
        assert len(ends) == 1
        assert (crumbs[-1].type, crumbs[-1].run_id) == ("agent:error", handle.run_id)
        for one in asked.values():
            with refused("CHECKPOINT_NOT_FOUND"):
                await bread.resume(one, "late")
        assert (await bread.list_checkpoints()).items == []
        assert await bread.run("worker", "next", session="s") == "worker: next"


@pytest.mark.parametrize("while_", ["running", "suspended"])
async def test_a_cancelled_part_is_a_failed_step(open_bread: OpenBread, while_: str) -> None:
    """B18, B83, C60: the pipeline fails with RUN_CANCELLED after its siblings have settled."""
    gate = Gate()
    part = waits(gate, "part") if while_ == "running" else asker("part")
    async with open_bread(part, worker(), pipelines={"p": [parallel("part", "worker")]}) as bread:
        handle = bread.run_pipeline("p", "go")
        reading = asyncio.create_task(read(handle))
        if while_ == "running":
            await gate.reached.wait()
        else:
            await reading
        run_id = (await children(bread, handle.run_id))["part"]
        assert await bread.cancel(run_id, reason="enough") == "cancelled"
        await reading
        with pytest.raises(RunStopped) as caught:
            await bread.observe(handle.run_id)
        assert (caught.value.code, caught.value.message) == ("RUN_CANCELLED", "enough")
        assert ("error", "0/0", "part") in frames(await ended(bread, handle.run_id))
        assert (await statuses(bread, handle.run_id))["p"] == "failed"


# --- deletion, crashes ------------------------------------------------------------------------------------------------


async def test_a_deletion_takes_the_whole_tree(open_bread: OpenBread) -> None:
    """B73, B76, B78: runs below and their questions go with the session; an answer comes too late."""
    async with open_bread(hands_on("asker"), asker(), pipelines={"p": [parallel("boss", "asker")]}) as bread:
        handle = bread.run_pipeline("p", "go", session="s")
        crumbs = await read(handle)
        runs = [run.id for run in (await bread.list_runs(root=handle.run_id)).items]
        assert len(runs) == 4
        assert await bread.sessions.delete("s")
        for run_id in runs:
            with refused("RUN_NOT_FOUND"):
                await bread.get_run(run_id)
        assert (await bread.list_checkpoints()).items == []
        with refused("CHECKPOINT_NOT_FOUND"):
            await bread.resume(question(crumbs).checkpoint_id, "late")
        left = [event async for event in bread.audit()]
        assert {event.name for event in left} <= {"session.deleted", "bread.erased", "checkpoint.discarded"}


@pytest.mark.parametrize("whole", ["p", "boss"])
async def test_a_deletion_stops_what_runs_below(open_bread: OpenBread, whole: str) -> None:
    """B77, B76: observers are told, also one that had not come to the runs below when they went; nothing is left."""
    gate = Gate()
    steps = [parallel("slow", "asker")]
    async with open_bread(waits(gate), asker(), hands_on("slow", "asker"), pipelines={"p": steps}) as bread:
        begin = bread.start_pipeline if whole == "p" else bread.start
        run_id = await begin(whole, "go", session="s")
        await gate.reached.wait()
        asked = await opened(bread)
        late = aiter(bread.observe(run_id))
        assert (await anext(late)).type == "agent:run:start"
        assert await bread.sessions.delete("s")
        last = [crumb async for crumb in late][-1]
        assert last.type == "agent:error"
        assert (last.run_id, last.code) == (run_id, "SESSION_DELETED")
        with refused("CHECKPOINT_NOT_FOUND"):
            await bread.resume(asked["asker"], "late")
        assert (await bread.list_runs()).items == []
        assert (await bread.list_checkpoints()).items == []


@DURABLE
async def test_another_process_takes_over_what_was_under_way(open_bread: OpenBread) -> None:
    """B67, B68, C35, C47: the first one is dead to others and yet goes on; what it brings late changes nothing, what
    had finished is not run again, the merge happens once."""
    gate, ran = Gate(), Counter()

    def script(request: Any) -> list[Any]:
        ran("done")
        return [text("done")]

    agents = (agent(script, id="done"), asker(), worker())
    pipelines: dict[str, Any] = {"p": [parallel("done", "asker", "slow"), "worker"]}
    late = agent([[pause(gate), text("too late")]], id="slow")
    async with open_bread(*agents, late, pipelines=pipelines) as lost:
        run_id = await lost.start_pipeline("p", "go")
        await gate.reached.wait()
        await opened(lost)
        await until(lost.observe(run_id), "pipeline:step:end")
        engine_of(lost).liveness.leave()
        async with open_bread(*agents, agent([[text("slow")]], id="slow")) as bread:
            asked = question(await read(bread.observe(run_id, until="rest")))
            gate.open()
            assert await bread.resume(asked.checkpoint_id, "yes") == 'worker: ["done", "asker: yes", "slow"]'
            events = [event async for event in bread.audit(run_id)]
            taken = [event.stream for event in events if event.name == "run.taken"]
            assert taken == [(await children(bread, run_id))["slow"]]
            merged = [one for one in events if one.name == "run.step_finished" and one.data["path"] == "0"]
            assert len(merged) == 1
    assert ran.of == {"done": 1}


@DURABLE
async def test_children_that_have_finished_are_not_run_again(open_bread: OpenBread) -> None:
    """B68, B88, C12: one branch is done, one rests, one was under way when its process stopped."""
    gate, ran = Gate(), Counter()

    @define_tool
    async def count(what: str) -> int:
        return ran(what)

    def script(request: Any) -> list[Any]:
        return [text("counted")] if request.turn else [call("tool_count", {"what": "counted"})]

    agents = (agent(script, count, id="counted"), asker())
    steps = [parallel("counted", "asker", "slow")]
    async with open_bread(*agents, waits(gate), pipelines={"p": steps}, grace=0.01) as bread:
        run_id = await bread.start_pipeline("p", "go")
        await gate.reached.wait()
        await opened(bread)
        await until(bread.observe(run_id), "pipeline:step:end")
    async with open_bread(*agents, agent([[text("slow")]], id="slow")) as bread:
        crumbs = await read(bread.observe(run_id, until="rest"))
        assert types(crumbs)[-1] == "human:required"
        assert await bread.resume(question(crumbs).checkpoint_id, "yes") == ["counted", "asker: yes", "slow"]
    assert ran.of == {"counted": 1}


@DURABLE
async def test_a_part_waits_for_a_process_that_has_its_agent(open_bread: OpenBread) -> None:
    """B68: a step whose agent is not here is left ready; a process that has it takes it and the pipeline goes on."""
    both: dict[str, Any] = {"p": ["asker", "worker"]}
    async with open_bread(asker(), worker(), pipelines=both) as bread:
        asked = question(await read(bread.run_pipeline("p", "go")))
    async with open_bread(asker()) as bread:
        handle = bread.resume(asked.checkpoint_id, "yes")
        async for crumb in handle:
            if crumb.type == "pipeline:step:start":
                break
        run = await bread.get_run(asked.root_run_id)
        assert run.status == "running"
    async with open_bread(worker()) as bread:
        assert await bread.observe(asked.root_run_id) == "worker: asker: yes"


async def test_what_a_step_hands_on_has_to_fit(open_bread: OpenBread) -> None:
    """B11, B79, B83: an agent whose input has a schema, as a step: its model is not asked, the step fails, and a retry
    says the same. What does not fit those that come first is refused before anything is written."""
    asked = Counter()

    def script(request: Any) -> list[Any]:
        asked("typed")
        return [text("ok")]

    typed = agent(script, id="typed", input={"type": "object", "required": ["n"]})
    deeper = parallel("worker", sequence("typed", "worker"))
    pipelines = {"p": ["worker", "typed"], "q": ["typed"], "r": [map_("typed")], "s": [deeper]}
    async with open_bread(typed, worker(), pipelines=pipelines) as bread:
        code, message = await stopped(bread.run_pipeline("p", "go"))
        assert code == "INPUT_INVALID"
        assert message.startswith("the input does not fit agent 'typed': ")
        [failed] = (await bread.list_runs(status="failed")).items
        assert (await stopped(bread.retry(failed.id)))[0] == "INPUT_INVALID"
        assert asked.of == {}
        for steps in "qrs":
            with refused("INPUT_INVALID"):
                await bread.run_pipeline(steps, [{"n": 1}, "go"])
        assert len((await bread.list_runs()).items) == 1
        assert await bread.run_pipeline("q", {"n": 1}) == "ok"
