"""Pipelines that are cancelled, deleted, or taken over by another process."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from bread import RunStopped, define_tool, map_, parallel, sequence
from bread.testing import call, pause, text
from scenes import DURABLE, Counter, Gate, OpenBread, agent, ended, engine_of, question, refused, until
from support import read, types
from teams import asker, children, frames, hands_on, opened, waits, worker

from .stopping import statuses, stopped

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
