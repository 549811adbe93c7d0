"""Questions inside loops: of an iteration, of the host between two of them, deep below, and after restarts."""

from __future__ import annotations

import asyncio
import json
from itertools import permutations
from typing import Any

import pytest

from bread import RunStopped, Supervisor, define_skill, define_tool
from bread.testing import call, fail, text
from scenes import (
    DURABLE,
    SHARED,
    Counter,
    OpenBread,
    agent,
    asking,
    ended,
    names,
    question,
    refused,
    watch,
)
from support import read
from teams import (
    answer_all,
    asker,
    broken,
    by_agent,
    children,
    delegate,
    finish,
    hands_on,
    host,
    iterate,
    start_loop,
    tells,
    turns,
    waiting,
    worker,
)


async def test_a_question_inside_an_iteration(open_bread: OpenBread) -> None:
    """B120, C12: the host waits with it; its answer continues the iteration, the loop and the host in one stream."""
    spy = turns(start_loop("asker", "worker", input="x"), iterate(), finish())
    async with open_bread(host(spy, "asker", "worker"), asker(), worker()) as bread:
        handle = bread.run("host", "go")
        crumbs = await read(handle)
        asked = question(crumbs)
        assert not any(crumb.type in ("tool:error", "loop:iteration:end") for crumb in crumbs)
        [loop] = (await bread.list_loops()).items
        assert (loop.status, [one.output for one in loop.iterations]) == ("running", [None])
        [found] = await waiting(bread)
        assert found.agent_id == "host"
        with refused("SUPERVISOR_CHECKPOINT_NOT_RESUMABLE"):
            await bread.resume(found.id, "yes")
        crumbs = await read(bread.resume(asked.checkpoint_id, "yes"))
        order = [crumb.type for crumb in crumbs if crumb.type.startswith(("human", "loop", "pipeline:step:end"))]
        assert order == [
            "human:resumed",
            *("pipeline:step:end", "pipeline:step:end"),
            *("loop:iteration:end", "loop:end"),
        ]
        assert crumbs[-1].type == "agent:run:end"
        assert (await bread.list_loops()).items[0].result == "worker: asker: yes"


async def test_ten_iterations_with_a_gate_each(open_bread: OpenBread) -> None:
    """C6, B120: what happens before a question happens once an iteration, however often others are answered."""
    counter = Counter()

    @define_tool
    async def count(what: str) -> int:
        return counter(what)

    def script(request: Any) -> list[Any]:
        what = request.messages[0].text
        match request.turn:
            case 0:
                return [call("tool_count", {"what": what})]
            case 1:
                return [call("human_ask", {})]
        return [text(f"{what}.")]

    spy = turns(start_loop("gated", input="x"), *[iterate()] * 10, finish())
    async with open_bread(host(spy, "gated"), agent(script, asking(), count, id="gated")) as bread:
        handle = bread.run("host", "go")
        crumbs = await answer_all(bread, await read(handle))
        assert crumbs[-1].run_id == handle.run_id
        assert (await bread.list_loops()).items[0].result == "x" + "." * 10
    assert counter.of == {"x" + "." * n: 1 for n in range(10)}


@pytest.mark.parametrize("way", ["delegate", "loop"])
async def test_a_human_tool_of_a_skill_deep_inside(open_bread: OpenBread, way: str) -> None:
    """C50, B26, B72: the way on which an agent got to its human tool makes no difference."""
    form = define_skill("form", description="Fill it in.", prompt="Ask.", tools=[asking("sign")])

    def script(request: Any) -> list[Any]:
        match request.turn:
            case 0:
                return [call("core_load_skill", {"skill": "form"})]
            case 1:
                return [call("human_sign", {"n": 1})]
        return [text(str(request.messages[-1].content))]

    clerk = agent(script, id="clerk", skills=[form])
    spy = turns(start_loop("clerk", input="x"), iterate(), finish())
    above = host(spy, "clerk") if way == "loop" else hands_on("clerk", id="host")
    async with open_bread(above, clerk) as bread:
        handle = bread.run("host", "go")
        asked = question(await read(handle))
        assert (asked.tool_name, asked.agent_id) == ("sign", "clerk")
        crumbs = await read(bread.resume(asked.checkpoint_id, "signed"))
        assert crumbs[-1].run_id == handle.run_id
        assert "signed" in [crumb.output for crumb in crumbs if crumb.type == "agent:run:end"]


async def test_iterations_that_ask_each_time(open_bread: OpenBread) -> None:
    """B120, B94: branches of each iteration, a supervisor among them; every iteration asks anew."""
    spy = turns(start_loop({"parallel": ["asker", "boss"]}, input="x"), iterate(), iterate(), finish())
    agents = (host(spy, "asker", "boss"), asker(), hands_on("deep"), asker("deep"))
    async with open_bread(*agents) as bread:
        handle = bread.run("host", "go")
        crumbs = await read(handle)
        asked: list[str] = []
        while found := by_agent(crumbs):
            assert found.keys() == {"asker", "deep"}
            asked += [one.checkpoint_id for one in found.values()]
            await read(bread.resume(found["asker"].checkpoint_id, "A"))
            crumbs = await read(bread.resume(found["deep"].checkpoint_id, "D"))
        assert len({*asked}) == 4
        [loop] = (await bread.list_loops()).items
        assert [one.output for one in loop.iterations] == [["asker: A", '["deep: D"]']] * 2


@pytest.mark.parametrize("order", [*permutations(range(3)), None])
async def test_an_iteration_beside_other_calls(open_bread: OpenBread, order: tuple[int, ...] | None) -> None:
    """B113, B120, B29: an iteration and a delegation that ask, and the host's own question, answered in any order."""

    def script(request: Any) -> list[Any]:
        match request.turn:
            case 0:
                return [start_loop("a", input="x"), iterate(), delegate("b"), call("human_ask", {})]
        return tells(request)

    boss = host(script, "a", tools=[asking()], supervisor=Supervisor(agents=["b"]))
    async with open_bread(boss, asker("a"), asker("b")) as bread:
        handle = bread.run("host", "go")
        asked = by_agent(await read(handle))
        assert asked.keys() == {"a", "b", "host"}
        [found] = await waiting(bread)
        assert {one.child_checkpoint_ids for one in found.pending} == {
            (asked["a"].checkpoint_id,),
            (asked["b"].checkpoint_id,),
        }
        streams = [read(bread.resume(asked[one].checkpoint_id, one.upper())) for one in ("a", "b", "host")]
        if order is None:
            await asyncio.gather(*streams)
        for number in order or ():
            await streams[number]
        output: Any = (await bread.get_run(handle.run_id)).output
        assert json.loads(output)[1:] == [{"iteration": 1, "output": "a: A"}, "b: B", "HOST"]
        assert (await bread.list_loops()).items[0].status == "completed"


@SHARED
async def test_a_loop_goes_on_in_another_process(open_bread: OpenBread) -> None:
    """B121, B120, B66: two at once on one store: one has the host, the other answers and performs what comes after; who
    watches in the first one sees the loop to its end."""
    spy, other = (turns(start_loop("asker", input="x"), iterate(), iterate(), finish()) for _ in range(2))
    async with open_bread(host(spy, "asker"), asker()) as first, open_bread(host(other, "asker"), asker()) as second:
        handle = first.run("host", "go")
        asked = question(await read(handle))
        watching = await watch(first, first.observe(handle.run_id))
        crumbs = await answer_all(second, await read(second.resume(asked.checkpoint_id, "yes")))
        assert crumbs[-1].run_id == handle.run_id
        seen = await watching
        assert [crumb.iteration for crumb in seen if crumb.type == "loop:iteration:end"] == [1, 2]
        assert (await first.list_loops()).items == (await second.list_loops()).items
        assert (await first.list_loops()).items[0].status == "completed"
    assert (len(spy.requests), len(other.requests)) == (2, 3)


@DURABLE
async def test_a_host_that_waits_finds_its_loop_open(open_bread: OpenBread) -> None:
    """B121: its own question comes between two iterations; another process answers it, and the loop goes on."""
    spy = turns(start_loop("worker", input="x"), iterate(), call("human_ask", {}), iterate(), finish())
    agents = (host(spy, "worker", tools=[asking()]), worker())
    async with open_bread(*agents) as bread:
        handle = bread.run("host", "go")
        asked = question(await read(handle))
        [before] = (await bread.list_loops()).items
        assert (before.status, len(before.iterations)) == ("running", 1)
    async with open_bread(*agents) as bread:
        assert (await bread.list_loops()).items == [before]
        await read(bread.resume(asked.checkpoint_id, "yes"))
        [loop] = (await bread.list_loops()).items
        assert loop.id == before.id
        assert [one.output for one in loop.iterations] == ["worker: x", "worker: worker: x"]
        assert "loop_finished" in await names(bread, handle.run_id)


@DURABLE
async def test_an_iteration_that_waits_survives_restarts(open_bread: OpenBread) -> None:
    """B120, B121: what has finished in it is not run again."""
    spy = turns(start_loop({"parallel": ["worker", "asker"]}, input="x"), iterate(), finish())
    agents = (host(spy, "worker", "asker"), worker(), asker())
    async with open_bread(*agents) as bread:
        asked = question(await read(bread.run("host", "go")))
    async with open_bread(*agents) as bread:
        await read(bread.resume(asked.checkpoint_id, "yes"))
        [loop] = (await bread.list_loops()).items
        assert loop.result == ["worker: x", "asker: yes"]
        begun = [crumb.agent_id for crumb in await ended(bread, loop.run_id) if crumb.type == "agent:run:start"]
        assert sorted(begun)[:2] == ["asker", "host"]
        assert begun.count("worker") == 1


async def test_a_loop_within_a_loop(open_bread: OpenBread) -> None:
    """B95, B120: a host in the pool of a host; each has a loop of its own."""
    inner = host(lambda r: tells(r) if r.turn > 1 else [[start_loop("asker"), iterate()][r.turn]], "asker", id="inner")
    outer = host(turns(start_loop("inner", input="x"), iterate(), finish()), "inner", id="outer")
    async with open_bread(outer, inner, asker()) as bread:
        handle = bread.run("outer", "go")
        crumbs = await answer_all(bread, await read(handle))
        assert crumbs[-1].run_id == handle.run_id
        found = {one.agent_id: one for one in (await bread.list_loops()).items}
        assert found.keys() == {"inner", "outer"}
        assert found["inner"].result == "asker: yes"
        runs = await children(bread, handle.run_id)
        assert found["inner"].run_id == runs["inner"]


async def test_a_failed_host_is_retried(open_bread: OpenBread) -> None:
    """B117, B18: its loop was closed with it: the model is told so where it goes on."""
    tried = Counter()

    def script(request: Any) -> list[Any]:
        match request.turn:
            case 0:
                return [start_loop("worker", input="x"), iterate()]
            case 1:
                return [fail("no", times=9, retryable=False)] if tried("host") == 1 else [iterate()]
        return [text("Done.")]

    async with open_bread(host(script, "worker"), worker(), broken()) as bread:
        handle = bread.run("host", "go")
        with pytest.raises(RunStopped):
            await handle
        crumbs = await read(bread.retry(handle.run_id))
        assert [crumb.code for crumb in crumbs if crumb.type == "tool:error"] == ["NO_ACTIVE_LOOP"]
