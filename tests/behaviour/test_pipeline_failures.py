"""Pipelines that fail, are cancelled, retried or deleted: nothing is orphaned, and what is done stays done."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from bread import Bread, RunStopped, RunSuspended, define_tool, map_, parallel
from bread.testing import call, fail, pause, text
from scenes import DURABLE, Counter, Gate, OpenBread, agent, asking, ended, names, question, refused
from support import read, types
from teams import asker, broken, by_agent, children, frames, hands_on, open_questions, waits, worker


async def statuses(bread: Bread, root: str) -> dict[str, str]:
    """How each run of a tree stands, by agent."""
    return {run.agent_id: run.status for run in (await bread.list_runs(root=root, limit=1000)).items}


async def stopped(stream: Any) -> tuple[str, str]:
    """The code and the message that an awaited run ends with."""
    with pytest.raises(RunStopped) as caught:
        await stream
    return caught.value.code, caught.value.message


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
        log = frames(await ended(bread, handle.run_id))
        assert log[-2:] == [("error", "0/0", "broken"), ("end", "0/1", "slow")]
        assert await names(bread, handle.run_id) != []
        assert (await bread.get_run(handle.run_id)).status == "failed"


async def test_several_failures_are_told_together(open_bread: OpenBread) -> None:
    """B83, Q AGGREGATE_ERROR: the place, code and message of each."""
    agents = (broken("one"), broken("two"), worker())
    async with open_bread(*agents, pipelines={"p": [parallel("one", "worker", "two")]}) as bread:
        code, message = await stopped(bread.run_pipeline("p", "go"))
    assert code == "AGGREGATE_ERROR"
    assert message.startswith("2 branches failed: 0/0: MODEL_ERROR: ")
    assert "0/2: MODEL_ERROR: " in message


async def test_a_siblings_question_is_discarded_with_the_failure(open_bread: OpenBread) -> None:
    """B83, C9, C58: in the same commit, with a crumb; it has surfaced, it cannot be answered, nobody waits any more."""
    gate = Gate()
    late = agent([[pause(gate), fail("no", times=9, retryable=False)]], id="late")
    async with open_bread(asker(), late, pipelines={"p": [parallel("asker", "late")]}) as bread:
        handle = bread.run_pipeline("p", "go")
        reading = asyncio.create_task(read(handle))
        await gate.reached.wait()
        while not (asked := await open_questions(bread)):
            pass
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
        assert await statuses(bread, handle.run_id) == {"p": "failed", "asker": "cancelled", "late": "failed"}


async def test_a_claim_comes_first(open_bread: OpenBread) -> None:
    """B83: a sibling that was answered before the failure runs on, and the step fails after it."""
    failing, working = Gate(), Gate()

    def script(request: Any) -> list[Any]:
        return [pause(working), text("done")] if request.turn else [call("human_ask")]

    late = agent([[pause(failing), fail("no", times=9, retryable=False)]], id="late")
    slow = agent(script, asking(), id="slow")
    async with open_bread(slow, late, pipelines={"p": [parallel("slow", "late")]}) as bread:
        handle = bread.run_pipeline("p", "go")
        await handle._start()
        await failing.reached.wait()
        while not (asked := await open_questions(bread)):
            pass
        answering = asyncio.create_task(read(bread.resume(asked["slow"], "yes")))
        await working.reached.wait()
        failing.open()
        async for crumb in bread.observe(handle.run_id):
            if crumb.type == "pipeline:step:error":
                assert (await bread.get_run(handle.run_id)).status == "running"
                working.open()
        stream = await answering
        assert stream[-1].type == "agent:error"
        assert await statuses(bread, handle.run_id) == {"p": "failed", "slow": "completed", "late": "failed"}


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
    """B18, C47: finished steps and branches keep their outputs and are not run again."""
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


async def test_what_was_given_up_is_asked_again(open_bread: OpenBread) -> None:
    """B83: a sibling whose question was discarded with the failure begins anew at the retry."""
    async with open_bread(asker(), fails_first(), pipelines={"p": [parallel("flaky", "asker")]}) as bread:
        handle = bread.run_pipeline("p", "go")
        await stopped(handle)
        with pytest.raises(RunSuspended) as caught:
            await bread.retry(handle.run_id)
        [asked] = caught.value.checkpoints
        assert await bread.resume(asked, "yes") == ["flaky", "asker: yes"]


async def test_only_the_whole_is_retried(open_bread: OpenBread) -> None:
    """B18, Q RUN_NOT_RETRYABLE: not a part of it, and nothing that has not failed."""
    async with open_bread(broken(), pipelines={"p": ["broken"]}) as bread:
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
        while len(asked := await open_questions(bread)) < 2:
            pass
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


@DURABLE
async def test_children_that_have_finished_are_not_run_again(open_bread: OpenBread) -> None:
    """B68, B88, C47: one branch is done, one rests, one was under way when its process stopped."""
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
        while not await open_questions(bread) or "run.completed" not in [e.name async for e in bread.audit(run_id)]:
            pass
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
