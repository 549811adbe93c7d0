"""Questions below supervisors: what is listed, and what an answer continues, on any number of levels."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from bread import define_skill, parallel
from bread.testing import call, text
from scenes import (
    Gate,
    OpenBread,
    Spy,
    as_any,
    names,
    question,
    refused,
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
