"""Questions below supervisors: what is listed, and what an answer continues, on any number of levels."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from bread import BreadError, RunSuspended, define_skill, define_tool, parallel
from bread.testing import ManualClock, call, text
from scenes import (
    DURABLE,
    Counter,
    Gate,
    OpenBread,
    Spy,
    agent,
    asking,
    ended,
    engine_of,
    names,
    question,
    refused,
    until,
    watch,
)
from support import read, types
from teams import (
    asker,
    by_agent,
    delegate,
    hands_on,
    open_questions,
    opened,
    pending,
    team,
    tells,
    told,
    waiting,
    waits,
    worker,
)

# --- what is listed ---------------------------------------------------------------------------------------------------


async def test_two_checkpoints_are_listed(open_bread: OpenBread) -> None:
    """B103, C33: the child's, and the supervisor's of kind delegation, which says what it waits for; no tool:error, no
    end of a run; both agree with the run."""
    spy = Spy([[delegate("asker", "x")], [text("Done.")]])
    async with open_bread(team(spy, "asker"), asker()) as bread:
        handle = bread.run("boss", "go", session="s")
        crumbs = await read(handle)
        asked = question(crumbs)
        assert not {"tool:error", "agent:run:end"} & {crumb.type for crumb in crumbs}
        listed = {found.kind: found for found in (await bread.list_checkpoints()).items}
        assert listed.keys() == {"input", "delegation"}
        assert (listed["input"].id, listed["input"].agent_id) == (asked.checkpoint_id, "asker")
        own = listed["delegation"]
        assert (own.run_id, own.root_run_id, own.agent_id, own.session_id) == (
            handle.run_id,
            handle.run_id,
            "boss",
            "s",
        )
        [entry] = own.pending
        assert entry.sub_agent_id == "asker"
        assert entry.child_run_id == asked.run_id
        assert entry.child_checkpoint_ids == (asked.checkpoint_id,)
        assert entry.tool_call_id == next(crumb.tool_call_id for crumb in crumbs if crumb.type == "tool:call")
        assert own == await bread.get_checkpoint(own.id)
        assert (await bread.get_run(handle.run_id)).checkpoints == (asked.checkpoint_id,)
        assert [one.id for one in (await bread.list_checkpoints(answerable=True)).items] == [asked.checkpoint_id]
        await read(bread.resume(asked.checkpoint_id, "yes"))
        assert (await bread.list_checkpoints()).items == []
        with refused("CHECKPOINT_NOT_FOUND"):
            await bread.get_checkpoint(own.id)


async def test_it_is_listed_once_the_turn_has_settled(open_bread: OpenBread) -> None:
    """B103, B89: the child's question at once; the supervisor's when nothing of its turn runs any more."""
    gate = Gate()
    async with open_bread(hands_on("asker", "slow"), asker(), waits(gate)) as bread:
        handle = bread.run("boss", "go")
        reading = asyncio.create_task(read(handle))
        await gate.reached.wait()
        asked = await opened(bread)
        assert (await waiting(bread), (await bread.get_run(handle.run_id)).status) == ([], "running")
        gate.open()
        crumbs = await reading
        assert [one.checkpoint_id for one in by_agent(crumbs).values()] == [asked["asker"]]
        assert types(crumbs)[-3:] == ["subagent:run:end", "tool:result", "human:required"]
        [found] = await waiting(bread)
        assert pending(found) == {"asker": (asked["asker"],)}
        assert await bread.resume(asked["asker"], "yes") == '["asker: yes", "slow"]'


async def test_an_answer_before_the_turn_has_settled(open_bread: OpenBread) -> None:
    """B105, B89: it is used at once, and surfaces with its question; there is never anything that waits."""
    gate = Gate()
    async with open_bread(hands_on("asker", "slow"), asker(), waits(gate)) as bread:
        handle = bread.run("boss", "go")
        reading = asyncio.create_task(read(handle))
        await gate.reached.wait()
        asked = await opened(bread)
        async for crumb in bread.resume(asked["asker"], "early"):
            if crumb.type == "subagent:run:end" and crumb.sub_agent_id == "asker":
                assert await waiting(bread) == []
                gate.open()
        crumbs = await reading
        assert [type for type in types(crumbs) if type.startswith("human:")] == ["human:required", "human:resumed"]
        assert (await bread.get_run(handle.run_id)).output == '["asker: early", "slow"]'


async def test_the_list_is_paged_and_filtered(open_bread: OpenBread) -> None:
    """B46, B103: questions and what waits for them, each once, oldest first; the filters tell them apart."""
    agents = [hands_on("middle", "other"), hands_on("asker", id="middle"), asker(), asker("other")]
    async with open_bread(*agents) as bread:
        await read(bread.run("boss", "go", session="s"))
        whole = (await bread.list_checkpoints()).items
        assert len(whole) == 4
        assert [one.created_at for one in whole] == sorted(one.created_at for one in whole)
        page, walked = await bread.list_checkpoints(limit=1), []
        while page.next is not None:
            walked += page.items
            page = await bread.list_checkpoints(limit=1, cursor=page.next)
        assert walked + page.items == whole
        filters: list[tuple[dict[str, Any], set[str]]] = [
            ({"answerable": False}, {"boss", "middle"}),
            ({"tool": "delegate", "session": "s"}, {"boss", "middle"}),
            ({"kind": "delegation", "agent": "middle"}, {"middle"}),
            ({"answerable": True}, {"asker", "other"}),
            ({"kind": "delegation", "session": "t"}, set()),
        ]
        for given, expected in filters:
            assert {one.agent_id for one in (await bread.list_checkpoints(**given)).items} == expected


async def test_a_delegation_is_not_answered(open_bread: OpenBread) -> None:
    """B104, C10: the refusal names the questions of all leaves below; nothing is claimed, and they can be answered."""
    boss, middle = hands_on("middle", "other"), hands_on("asker", id="middle")
    async with open_bread(boss, middle, asker(), asker("other")) as bread:
        handle = bread.run("boss", "go")
        leaves = by_agent(await read(handle))
        before = await names(bread, handle.run_id)
        found = {one.agent_id: one for one in await waiting(bread)}
        assert {*pending(found["boss"])} == {"middle", "other"}
        assert pending(found["boss"])["middle"] == (leaves["asker"].checkpoint_id,)
        wanted = {"boss": {one.checkpoint_id for one in leaves.values()}, "middle": {leaves["asker"].checkpoint_id}}
        for agent_id, one in found.items():
            for stream in (bread.resume(one.id, "yes"), bread.resume(one.id, {"approved": True}, idempotency_key="k")):
                with refused("SUPERVISOR_CHECKPOINT_NOT_RESUMABLE") as caught:
                    await stream
                assert {*caught.value.details["checkpoints"]} == wanted[agent_id]
                assert all(leaf in str(caught.value) for leaf in wanted[agent_id])
        assert await names(bread, handle.run_id) == before
        assert await open_questions(bread) == {one: asked.checkpoint_id for one, asked in leaves.items()}


async def test_nothing_is_answered_without_its_address(open_bread: OpenBread) -> None:
    """C10, B104, B60, B76: two delegations wait inside one branch; neither the supervisor, nor a run, nor the session
    stands for one of them, and what is refused names both."""
    agents = (hands_on("a", "b"), asker("a"), asker("b"), worker())
    async with open_bread(*agents, pipelines={"p": [parallel("boss", "worker"), "worker"]}) as bread:
        handle = bread.run_pipeline("p", "go", session="s")
        leaves = {one.checkpoint_id for one in by_agent(await read(handle)).values()}
        [found] = await waiting(bread)
        assert found.parent is not None
        assert (found.parent.kind, found.parent.slot, found.parent.run_id) == ("pipeline", "0/0", handle.run_id)
        assert [node["agent"] for node in as_any(found.parent.remaining)] == ["worker"]
        with refused("SUPERVISOR_CHECKPOINT_NOT_RESUMABLE") as caught:
            await bread.resume(found.id, "yes")
        assert {*caught.value.details["checkpoints"]} == leaves
        for run_id in (handle.run_id, found.run_id):
            with refused("CHECKPOINT_NOT_FOUND"):
                await bread.resume(run_id, "yes")
        with refused("SESSION_SUSPENDED") as caught:
            await bread.run("worker", "next", session="s")
        assert {*caught.value.details["checkpoints"]} == leaves
        assert {*(await open_questions(bread)).values()} == leaves
        await bread.sessions.delete("s")
        assert (await bread.list_checkpoints()).items == []
        for gone in (found.id, *leaves):
            with refused("CHECKPOINT_NOT_FOUND"):
                await bread.resume(gone, "late")


def as_any(value: Any) -> Any:
    return value


async def test_two_calls_to_the_same_agent(open_bread: OpenBread) -> None:
    """B106, C8, C48: each waits on its own; answered in reverse, each call gets its own result."""
    async with open_bread(hands_on("asker", "asker"), asker()) as bread:
        crumbs = await read(bread.run("boss", "go"))
        calls = [crumb.tool_call_id for crumb in crumbs if crumb.type == "tool:call"]
        [found] = await waiting(bread)
        assert [one.tool_call_id for one in found.pending] == calls
        assert len({one.child_run_id for one in found.pending}) == 2
        first, second = ([asked] for [asked] in (one.child_checkpoint_ids for one in found.pending))
        await read(bread.resume(second[0], "2"))
        [left] = await waiting(bread)
        assert (left.id, left.pending) == (found.id, found.pending[:1])
        assert await bread.resume(first[0], "1") == '["asker: 1", "asker: 2"]'


@pytest.mark.parametrize("way", ["chosen", "loaded"])
async def test_the_checkpoint_of_a_supervisor_keeps_its_skill_and_its_parent(open_bread: OpenBread, way: str) -> None:
    """B109, B70: what a page needs to show where the waiting supervisor belongs; its skill as on its own questions."""
    polite = define_skill("polite", description="Be polite.", prompt="Say please.")
    load = [[call("core_load_skill", {"skill": "polite"})]] if way == "loaded" else []
    spy = Spy([*load, [delegate("middle", "x")], [text("Done.")]])
    middle = team([[delegate("asker")], [text("ok")]], "asker", id="middle")
    async with open_bread(team(spy, "middle", skills=[polite]), middle, asker()) as bread:
        handle = bread.run("boss", "go", skill=None if load else "polite")
        asked = question(await read(handle))
        found = {one.agent_id: one for one in await waiting(bread)}
        assert (found["boss"].skill, found["boss"].parent) == ("polite", None)
        parent = found["middle"].parent
        assert parent is not None
        assert (parent.run_id, parent.root_run_id, parent.kind) == (handle.run_id, handle.run_id, "supervisor")
        assert asked.parent is not None
        assert asked.parent.run_id == found["middle"].run_id
        await read(bread.resume(asked.checkpoint_id, "yes"))
    assert all("Say please." in request.prompt for request in spy.requests[len(load) :])


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
        engine_of(bread).sweep_soon()
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
