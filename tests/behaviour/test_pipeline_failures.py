"""Pipelines that fail, are cancelled, retried or deleted: nothing is orphaned, and what is done stays done."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from bread import Bread, RunStopped, RunSuspended, map_, parallel, sequence
from bread.domain.errors import NotFound
from bread.testing import call, fail, pause, text
from scenes import DURABLE, Counter, Gate, OpenBread, agent, asking, ended, refused
from support import read, trials
from teams import asker, broken, by_agent, children, frames, hands_on, opened, waits, worker

from .stopping import statuses, stopped


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
