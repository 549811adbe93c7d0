"""Questions below supervisors: who sees what, what is listed, what an answer continues, on any number of levels."""

from __future__ import annotations

import asyncio
import json
from itertools import permutations
from typing import Any

import pytest

from bread import BreadError, RunSuspended, SubAgent, define_skill, define_tool, parallel
from bread.testing import ManualClock, call, text
from compositions.play import shown
from scenes import (
    DURABLE,
    Counter,
    Gate,
    Heard,
    OpenBread,
    Spy,
    agent,
    asking,
    ended,
    engine_of,
    names,
    question,
    questions,
    refused,
    until,
    watch,
)
from support import read, said, types
from teams import (
    answer_all,
    asker,
    by_agent,
    children,
    delegate,
    hands_on,
    open_questions,
    opened,
    outcomes,
    pending,
    shown_by,
    team,
    tells,
    told,
    waiting,
    waits,
    worker,
)

# --- who sees what ----------------------------------------------------------------------------------------------------

ASKED = ["human:required", "human:resumed"]
ALL = ["agent:run:start", "human:required", "human:resumed", "text:delta", "agent:run:end"]


@pytest.mark.parametrize(
    ("visibility", "frames", "inner"),
    [
        ("passthrough", ["subagent:run:start", "subagent:run:end"], ALL),
        ("mediate", ["subagent:run:start", "subagent:run:end"], ASKED),
        ("hidden", [], ASKED),
    ],
)
async def test_what_is_seen_of_a_delegate(
    open_bread: OpenBread, visibility: Any, frames: list[str], inner: list[str]
) -> None:
    """B101, B110: the same on the stream of the run, of the resume, and of an observer; questions and answers always;
    the result of the call is the same; who observes the delegate sees all of it."""
    spy = Spy(lambda request: [text("Done.")] if request.turn else [delegate("asker", "x")])
    async with open_bread(team(spy, "asker", visibility=visibility), asker()) as bread:
        handle = bread.run("boss", "go")
        live = await read(handle)
        asked = question(live)
        live += await read(bread.resume(asked.checkpoint_id, "yes"))
        replayed = await ended(bread, handle.run_id)
        below = await ended(bread, asked.run_id)
    for crumbs in (live, replayed):
        assert [crumb.type for crumb in crumbs if crumb.type.startswith("subagent:")] == frames
        assert [type for type in shown_by(crumbs, "asker") if not type.startswith("tool:input")] == inner
        assert shown_by(crumbs, "boss")[-1] == "agent:run:end"
    assert types(below) == ALL
    assert told(spy) == ["asker: yes"]


async def test_each_of_the_roster_has_its_own_visibility(open_bread: OpenBread) -> None:
    """B101: a SubAgent's, else that of the supervisor."""
    roster = (SubAgent("one", visibility="hidden"), SubAgent("two", visibility="passthrough"), "three")

    def script(request: Any) -> list[Any]:
        return [text("Done.")] if request.turn else [delegate(one) for one in ("one", "two", "three")]

    boss = team(script, *roster, visibility="mediate")
    async with open_bread(boss, worker("one"), worker("two"), worker("three")) as bread:
        crumbs = await read(bread.run("boss", "go"))
    assert {crumb.agent_id for crumb in crumbs} == {"boss", "two"}
    framed = [crumb.sub_agent_id for crumb in crumbs if crumb.type == "subagent:run:start"]
    assert framed == ["two", "three"]


async def test_what_is_hidden_hides_what_is_below(open_bread: OpenBread) -> None:
    """B101, B110: on every level above; not for who looks from below."""
    middle = hands_on("asker", id="middle")
    boss = team(lambda r: tells(r) if r.turn else [delegate("middle")], "middle", visibility="hidden")
    async with open_bread(boss, middle, asker()) as bread:
        handle = bread.run("boss", "go")
        asked = question(await read(handle))
        await read(bread.resume(asked.checkpoint_id, "yes"))
        log = await ended(bread, handle.run_id)
        assert {crumb.type for crumb in log if crumb.agent_id != "boss"} == {*ASKED}
        runs = await children(bread, handle.run_id)
        below = await ended(bread, runs["middle"])
        assert {"subagent:run:start", "agent:run:end"} <= {crumb.type for crumb in below}


@pytest.mark.parametrize("visibility", ["passthrough", "mediate", "hidden"])
async def test_every_reader_sees_the_same(open_bread: OpenBread, visibility: Any) -> None:
    """B101, B110, B122, B123: run and resume, a listener, who watched all along, and who comes with a cursor; numbers
    are skipped, and always increase."""
    heard = Heard("agent:run:end")
    boss = team(lambda r: tells(r) if r.turn else [delegate("asker")], "asker", visibility=visibility)
    async with open_bread(boss, asker()) as bread:
        bread.on("crumb", lambda crumb: heard(crumb) if crumb.agent_id != "asker" else heard.append(crumb))
        handle = bread.run("boss", "go")
        live = await read(handle)
        watching = await watch(bread, bread.observe(handle.run_id))
        asked = question(live)
        live += await read(bread.resume(asked.checkpoint_id, "yes"))
        await heard.wait()
        late = await read(bread.observe(handle.run_id, after=asked.cursor))
        watched = await watching
    assert shown(live) == shown(watched) == shown(list(heard))
    assert shown(late) == [one for one in shown(live) if one["seq"] > asked.seq]
    seqs = [one["seq"] for one in shown(live)]
    assert seqs == sorted({*seqs})
    assert said(live) == said(watched)
    assert said(live).endswith('["asker: yes"]')


async def test_a_hidden_question_that_is_discarded(open_bread: OpenBread) -> None:
    """B101, B75, C60: who was shown a question is shown that nobody can answer it any more."""
    boss = team([[delegate("asker")], [text("Done.")]], "asker", visibility="hidden")
    async with open_bread(boss, asker()) as bread:
        handle = bread.run("boss", "go")
        asked = question(await read(handle))
        await bread.cancel(asked.run_id, reason="enough")
        crumbs = await read(bread.observe(handle.run_id, after=asked.cursor))
    assert types(crumbs) == ["human:discarded", "tool:error", "text:delta", "agent:run:end"]
    assert [crumb.checkpoint_id for crumb in crumbs if crumb.type == "human:discarded"] == [asked.checkpoint_id]


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
        assert [type for type in types(crumbs) if type.startswith("human:")] == ASKED
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


# --- mixed turns ------------------------------------------------------------------------------------------------------


async def test_the_supervisors_own_question(open_bread: OpenBread) -> None:
    """B102: like any agent's."""
    boss = team([[call("human_ask", {"n": 1})], [text("Done.")]], "worker", tools=[asking()])
    async with open_bread(boss, worker()) as bread:
        crumbs = await read(bread.run("boss", "go"))
        assert question(crumbs).agent_id == "boss"
        assert await waiting(bread) == []
        assert await bread.resume(question(crumbs).checkpoint_id, "yes") == "Done."


@pytest.mark.parametrize("order", [*permutations(range(3)), None])
async def test_a_turn_with_all_kinds_of_questions(open_bread: OpenBread, order: tuple[int, ...] | None) -> None:
    """B113: a delegate's, its own, and an approval: all are asked, all are answered, in any order or at once."""
    counter = Counter()

    @define_tool
    async def pay(what: str) -> str:
        counter(what)
        return f"paid {what}"

    def script(request: Any) -> list[Any]:
        if request.turn:
            return tells(request)
        return [delegate("asker"), call("human_ask", {}), call("tool_pay", {"what": "x"})]

    boss = team(script, "asker", tools=[asking(), pay], permissions={"ask": ["tool:pay"]})
    async with open_bread(boss, asker()) as bread:
        handle = bread.run("boss", "go")
        crumbs = await read(handle)
        kinds = {(one.agent_id, one.kind): one for one in crumbs if one.type == "human:required"}
        assert kinds.keys() == {("asker", "input"), ("boss", "input"), ("boss", "approval")}
        answers: list[tuple[Any, Any]] = [
            (kinds["asker", "input"], "A"),
            (kinds["boss", "input"], "B"),
            (kinds["boss", "approval"], {"approved": True}),
        ]
        streams = [read(bread.resume(asked.checkpoint_id, answer)) for asked, answer in answers]
        if order is None:
            await asyncio.gather(*streams)
        left = {0, 1, 2}
        for number in order or ():
            left.remove(number)
            last = (await streams[number])[-1]
            assert bool(await waiting(bread)) == (0 in left)
            assert ((last.type, last.run_id) == ("agent:run:end", handle.run_id)) == (not left)
        assert (await bread.get_run(handle.run_id)).output == '["asker: A", "B", "paid x"]'
    assert counter.of == {"x": 1}


async def test_delegates_that_ask_several_times(open_bread: OpenBread) -> None:
    """B94, B105: the delegation's checkpoint follows what its delegates ask now."""
    async with open_bread(hands_on("a", "b"), asker("a", 2), asker("b")) as bread:
        handle = bread.run("boss", "go")
        asked = by_agent(await read(handle))
        [before] = await waiting(bread)
        crumbs = await read(bread.resume(asked["a"].checkpoint_id, "1"))
        again = question(crumbs)
        [found] = await waiting(bread)
        assert found.id == before.id
        assert pending(found) == {"a": (again.checkpoint_id,), "b": (asked["b"].checkpoint_id,)}
        await answer_all(bread, crumbs)
        last = await read(bread.resume(asked["b"].checkpoint_id, "2"))
        assert last[-1].type == "agent:run:end"
        assert (await bread.get_run(handle.run_id)).output == '["a: 1, yes", "b: 2"]'


async def test_a_delegate_that_asks_several_things_at_once(open_bread: OpenBread) -> None:
    """B29, B106, C7: the stream of an answer that leaves one open ends at once; the last answer continues all."""

    def script(request: Any) -> list[Any]:
        return tells(request) if request.turn else [call("human_ask", {"n": n}) for n in range(2)]

    async with open_bread(hands_on("both"), agent(script, asking(), id="both")) as bread:
        first, second = questions(await read(bread.run("boss", "go")))
        [found] = await waiting(bread)
        assert pending(found) == {"both": (first.checkpoint_id, second.checkpoint_id)}
        assert types(await read(bread.resume(second.checkpoint_id, 2))) == ["human:resumed"]
        [left] = await waiting(bread)
        assert (left.id, pending(left)) == (found.id, {"both": (first.checkpoint_id,)})
        assert await bread.resume(first.checkpoint_id, 1) == '["[1, 2]"]'


async def test_a_supervisor_delegates_in_several_turns(open_bread: OpenBread) -> None:
    """B103, B106: each turn that waits has a checkpoint of its own."""

    def script(request: Any) -> list[Any]:
        return [delegate("asker", request.turn)] if request.turn < 2 else [text(str(outcomes(request)))]

    async with open_bread(team(script, "asker"), asker()) as bread:
        handle = bread.run("boss", "go")
        crumbs = await read(handle)
        [first] = await waiting(bread)
        crumbs = await read(bread.resume(question(crumbs).checkpoint_id, "x"))
        [second] = await waiting(bread)
        assert first.id != second.id
        assert await bread.resume(question(crumbs).checkpoint_id, "y") == "['asker: y']"
