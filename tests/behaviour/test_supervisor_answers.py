"""What an answer below a supervisor continues."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from bread import BreadError, RunSuspended, define_tool
from bread.testing import ManualClock, call, text
from scenes import (
    DURABLE,
    Counter,
    OpenBread,
    Spy,
    agent,
    as_any,
    asking,
    ended,
    engine_of,
    names,
    question,
    refused,
    until,
    watch,
)
from support import read
from teams import (
    asker,
    by_agent,
    delegate,
    hands_on,
    open_questions,
    pending,
    team,
    tells,
    told,
    waiting,
    worker,
)

# --- what an answer continues -----------------------------------------------------------------------------------------


async def test_an_answer_continues_the_chain(open_bread: OpenBread) -> None:
    """B105, B112, C33: child, supervisor, its own supervisor, and so on, in one stream and in order."""
    depth = 5
    agents = [hands_on(f"s{level + 1}" if level + 1 < depth else "asker", id=f"s{level}") for level in range(depth)]
    async with open_bread(*agents, asker()) as bread:
        handle = bread.run("s0", "go")
        asked = question(await read(handle))
        assert len(await waiting(bread)) == depth
        crumbs = await read(bread.resume(asked.checkpoint_id, "yes"))
        assert crumbs[0].type == "human:resumed"
        ends = [crumb.agent_id for crumb in crumbs if crumb.type == "agent:run:end"]
        assert ends == ["asker", *(f"s{level}" for level in reversed(range(depth)))]
        assert all(crumb.root_run_id == handle.run_id for crumb in crumbs)
        assert "taken" not in await names(bread, handle.run_id)
        output: Any = (await bread.get_run(handle.run_id)).output
        assert output.count("asker: yes") == 1


async def test_the_last_of_two_answers_resumes_the_supervisor(open_bread: OpenBread) -> None:
    """B106, B2: the first one stores its result, and one remains pending."""
    spy = Spy(lambda request: tells(request) if request.turn else [delegate("a", 1), delegate("b", 2)])
    async with open_bread(team(spy, "a", "b"), asker("a"), asker("b")) as bread:
        handle = bread.run("boss", "go")
        asked = by_agent(await read(handle))
        with pytest.raises(RunSuspended) as caught:
            await bread.resume(asked["b"].checkpoint_id, "B")
        assert caught.value.checkpoints == [asked["a"].checkpoint_id]
        assert len(spy.requests) == 1
        [found] = await waiting(bread)
        assert pending(found) == {"a": (asked["a"].checkpoint_id,)}
        assert await bread.resume(asked["a"].checkpoint_id, "A") == '["a: A", "b: B"]'
    assert len(spy.requests) == 2


@pytest.mark.parametrize("count", [2, 5])
async def test_answers_to_delegations_at_the_same_instant(open_bread: OpenBread, count: int) -> None:
    """B111, C6, C45: all results are there, in order, and the supervisor goes on once."""
    ids = [f"a{number}" for number in range(count)]
    spy = Spy(lambda request: tells(request) if request.turn else [delegate(one) for one in ids])
    async with open_bread(team(spy, *ids), *map(asker, ids)) as bread:
        handle = bread.run("boss", "go")
        asked = by_agent(await read(handle))
        streams = await asyncio.gather(*(read(bread.resume(asked[one].checkpoint_id, one)) for one in ids))
        assert told(spy) == [f"{one}: {one}" for one in ids]
        # Where an answer is done before the next one comes, the tree rests in between.
        assert {stream[-1].type for stream in streams} <= {"agent:run:end", "tool:result"}
        assert any(stream[-1].run_id == handle.run_id for stream in streams)
        results = [crumb for crumb in await ended(bread, handle.run_id) if crumb.type == "tool:result"]
        assert len(results) == count
    assert len(spy.requests) == 2


async def test_results_of_the_same_turn_are_kept(open_bread: OpenBread) -> None:
    """B107, C44: a tool and a delegate that have finished beside the one that asks; each ran once."""
    counter = Counter()

    @define_tool
    async def count(what: str) -> int:
        return counter(what)

    def script(request: Any) -> list[Any]:
        if request.turn:
            return tells(request)
        return [call("tool_count", {"what": "x"}), delegate("asker"), delegate("worker", "y")]

    async with open_bread(team(script, "asker", "worker", tools=[count]), asker(), worker()) as bread:
        asked = question(await read(bread.run("boss", "go")))
        assert await bread.resume(asked.checkpoint_id, "yes") == '[1, "asker: yes", "worker: y"]'
    assert counter.of == {"x": 1}


@DURABLE
async def test_supervisors_survive_restarts(open_bread: OpenBread) -> None:
    """B108, B106, C33: each answer by another process; whatever has finished is not run again."""
    boss, middle = hands_on("middle", "worker", "other"), hands_on("asker", id="middle")
    agents = (boss, middle, asker(), asker("other"), worker())
    async with open_bread(*agents) as bread:
        handle = bread.run("boss", "go")
        asked = by_agent(await read(handle))
        ids = [found.id for found in await waiting(bread)]
    async with open_bread(*agents) as bread:
        assert [found.id for found in await waiting(bread)] == ids
        await read(bread.resume(asked["other"].checkpoint_id, "O"))
    async with open_bread(*agents) as bread:
        assert len(await waiting(bread)) == 2
        output = await bread.resume(asked["asker"].checkpoint_id, "A")
        assert output == '["[\\"asker: A\\"]", "worker: go", "other: O"]'
        begun = [crumb for crumb in await ended(bread, handle.run_id) if crumb.type == "agent:run:start"]
        assert len(begun) == 5


@DURABLE
async def test_the_child_is_answered_where_its_supervisor_is_not(open_bread: OpenBread) -> None:
    """B105, B108, B54: the answer, the child and its result come there; the supervisor goes on where its agent is."""
    boss = hands_on("asker")
    async with open_bread(boss, asker()) as bread:
        handle = bread.run("boss", "go")
        asked = question(await read(handle))
    async with open_bread(boss) as bread:
        with refused("AGENT_NOT_FOUND"):
            await bread.resume(asked.checkpoint_id, "yes")
        assert await open_questions(bread) == {"asker": asked.checkpoint_id}
    async with open_bread(asker()) as bread:
        await until(bread.resume(asked.checkpoint_id, "yes"), "tool:result")
        run = await bread.get_run(handle.run_id)
        assert (run.status, run.owner) == ("running", None)
    async with open_bread(boss) as bread:
        assert await bread.observe(handle.run_id) == '["asker: yes"]'


@pytest.mark.parametrize("fallback", [None, "nobody"])
async def test_a_deadline_below_a_supervisor(open_bread: OpenBread, fallback: Any) -> None:
    """C59, B105: what expires continues the child and all above it, as an answer does."""
    clock = ManualClock()

    def script(request: Any) -> list[Any]:
        return [text(str(request.messages[-1].content))] if request.turn else [call("human_ask", {})]

    timely = agent(script, asking(timeout=60, on_timeout=fallback), id="timely")
    async with open_bread(hands_on("timely"), timely, clock=clock) as bread:
        handle = bread.run("boss", "go")
        asked = question(await read(handle))
        watching = await watch(bread, bread.observe(handle.run_id, after=asked.cursor))
        clock.now += 61
        engine_of(bread).sweep.soon()
        crumbs = await watching
        assert [crumb.verdict for crumb in crumbs if crumb.type == "human:resumed"] == ["expired"]
        [told_of] = json.loads(as_any(await bread.observe(handle.run_id)))
        assert told_of == (fallback or "nobody answered before the deadline")
        assert await waiting(bread) == []


async def test_one_of_two_that_wait_is_cancelled(open_bread: OpenBread) -> None:
    """B18, C60, B106: its call is an error for later; the supervisor still waits for the other one."""
    async with open_bread(hands_on("a", "b"), asker("a"), asker("b")) as bread:
        handle = bread.run("boss", "go")
        crumbs = await read(handle)
        asked = by_agent(crumbs)
        [before] = await waiting(bread)
        await bread.cancel(asked["a"].run_id, reason="enough")
        [found] = await waiting(bread)
        assert (found.id, pending(found)) == (before.id, {"b": (asked["b"].checkpoint_id,)})
        seen = await read(bread.observe(handle.run_id, after=crumbs[-1].cursor, until="rest"))
        assert [(crumb.type, crumb.agent_id) for crumb in seen] == [
            *(("human:discarded", "a"), ("tool:error", "a"), ("agent:error", "a")),
            *(("subagent:run:end", "boss"), ("tool:error", "boss")),
        ]
        assert await bread.resume(asked["b"].checkpoint_id, "B") == '[["error", "enough"], "b: B"]'


async def test_a_new_run_may_take_the_place_of_all_that_waits(open_bread: OpenBread) -> None:
    """B60, C16, C60: supervisor, delegates and their questions end in the commit that starts the new run."""
    async with open_bread(hands_on("a", "b"), asker("a"), asker("b"), worker()) as bread:
        old = bread.run("boss", "go", session="s")
        asked = by_agent(await read(old))
        new = bread.run("worker", "next", session="s", on_pending="cancel")
        assert await new == "worker: next"
        assert {run.status for run in (await bread.list_runs(root=old.run_id)).items} == {"cancelled"}
        assert (await bread.list_checkpoints()).items == []
        events = [
            *[event async for event in bread.audit(old.run_id)],
            *[event async for event in bread.audit(new.run_id)],
        ]
        of_it = ("run.cancelled", "checkpoint.discarded")
        commits = {
            event.commit for event in events if event.name in of_it or (event.stream, event.version) == (new.run_id, 1)
        }
        assert len(commits) == 1
        with refused("CHECKPOINT_NOT_FOUND"):
            await bread.resume(asked["a"].checkpoint_id, "late")
        roles = [message["role"] for message in await bread.sessions.messages("s")]
        assert roles == ["user", "assistant", "tool", "tool", "user", "assistant"]


async def test_one_answer_of_many_counts(open_bread: OpenBread) -> None:
    """B105, B62, C1: ten at the same instant to a question two levels down; the supervisors go on once."""
    agents = (hands_on("middle"), hands_on("asker", id="middle"), asker())
    async with open_bread(*agents) as bread:
        handle = bread.run("boss", "go")
        asked = question(await read(handle))
        answers = [read(bread.resume(asked.checkpoint_id, str(number))) for number in range(10)]
        came = await asyncio.gather(*answers, return_exceptions=True)
        [won] = [number for number, one in enumerate(came) if isinstance(one, list)]
        codes = {one.code for one in came if isinstance(one, BreadError)}
        assert codes == {"CHECKPOINT_NOT_FOUND"}
        output: Any = (await bread.get_run(handle.run_id)).output
        assert f"asker: {won}" in output
        assert (await names(bread, handle.run_id)).count("completed") == 3
