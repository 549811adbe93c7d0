"""Permissions, and tools that a person has to approve first."""

from __future__ import annotations

from inspect import signature
from typing import Any

import pytest

from bread import AnswerCheckpoint, Bread, RunSuspended, StartRun, Tool
from bread.testing import call, text
from scenes import (
    DURABLE,
    Counter,
    OpenBread,
    Spy,
    agent,
    ask_first,
    ended,
    names,
    question,
    questions,
    refused,
    until,
)
from support import read, types

from .approvals import GATED, deletes, tool

# --- what may be used -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("lists", "free", "gated"),
    [
        (None, "read write delete", ""),
        ({}, "read write delete", ""),
        ({"allow": []}, "read write delete", ""),
        ({"allow": ["tool:read"]}, "read", ""),
        ({"allow": ["tool:read"], "ask": ["tool:write"]}, "read", "write"),
        ({"ask": ["tool:write"]}, "read delete", "write"),
        ({"allow": ["tool:write"], "ask": ["tool:write"]}, "", "write"),
        ({"deny": ["tool:write"]}, "read delete", ""),
        ({"allow": ["tool:*"], "deny": ["tool:write"]}, "read delete", ""),
        ({"ask": ["tool:*"], "deny": ["tool:*"]}, "", ""),
        ({"allow": ["tool:*te"]}, "write delete", ""),
        ({"allow": ["tool:r*d"], "ask": ["tool:w*"]}, "read", "write"),
        ({"allow": ["core:*"]}, "", ""),
        ({"allow": ["skill:*/*"]}, "", ""),
        ({"ask": ["core:delegate", "skill:review/*"]}, "read write delete", ""),
    ],
)
async def test_the_effective_set_is_allow_and_ask_less_deny(
    open_bread: OpenBread, lists: dict[str, list[str]] | None, free: str, gated: str
) -> None:
    """B31, B32, B34, B42: deny beats all, ask beats allow, an empty allow list means everything."""
    known = ("read", "write", "delete")
    spy = Spy([[call(f"tool_{name}") for name in known], [text("Done.")]])
    async with open_bread(agent(spy, *map(tool, known), permissions=lists)) as bread:
        crumbs = await read(bread.run("a", "go"))
    offered = [spec.name.removeprefix("tool_") for spec in spy.requests[0].tools]
    ran = [crumb.tool_name for crumb in crumbs if crumb.type == "tool:result"]
    denied = [crumb.tool_name for crumb in crumbs if crumb.type == "tool:error" and crumb.code == "FORBIDDEN"]
    assert sorted(ran) == sorted(free.split())
    assert [one.tool_name for one in questions(crumbs)] == gated.split()
    assert sorted(offered) == sorted([*free.split(), *gated.split()])
    assert sorted(denied) == sorted(set(known) - set(offered))


@pytest.mark.parametrize(
    "selector",
    [
        *("*", "tool", "tool:", ":read", "tools:read", "tool:a/b", "skill:a", "skill:a/b/c", "skill:/b", "core:a/b"),
        *("human:ask", "human:*", "*:read", "tool:Read", "tool:re ad", "tool:a:b", "", "TOOL:read", "tool:é", 7, None),
    ],
)
@pytest.mark.parametrize("under", ["allow", "ask", "deny"])
def test_a_selector_that_is_none_is_refused_when_the_agent_is_made(selector: Any, under: str) -> None:
    """B32, B25, Q INVALID_PERMISSION: bare *, unknown scope, missing sub, extra slash, human tools, and nonsense."""
    with refused("INVALID_PERMISSION"):
        agent([], tool("read"), permissions={under: [selector]})


@pytest.mark.parametrize("lists", [{"alow": ["tool:read"]}, {"ask": "tool:read"}])
def test_lists_of_another_shape_are_refused(lists: Any) -> None:
    """B32: a key that is none of the three; a string where a list belongs."""
    with refused("INVALID_PERMISSION"):
        agent([], tool("read"), permissions=lists)


async def test_a_denied_tool_that_is_called_anyway_never_executes(open_bread: OpenBread) -> None:
    """B33, C46, Q FORBIDDEN: no tool:call, no tool:result; the model is told so."""
    ran = Counter()
    spy = Spy(deletes("x"))
    async with open_bread(agent(spy, tool("delete_file", ran), permissions={"deny": ["tool:*"]})) as bread:
        crumbs = await read(bread.run("a", "go"))
        assert types(crumbs) == ["agent:run:start", "tool:error", "text:delta", "agent:run:end"]
        assert [crumb.code for crumb in crumbs if crumb.type == "tool:error"] == ["FORBIDDEN"]
    assert ran.total == 0
    assert spy.requests[0].tools == []
    assert spy.seen[1][-1][2:] == ("this agent may not use 'tool_delete_file'", "error")


async def test_a_subclass_of_a_tool_is_gated_all_the_same(open_bread: OpenBread) -> None:
    """C46: the loop asks, not the tool, so a class of somebody's own has no way around it."""

    class Sneaky(Tool):
        def problems(self, args: Any) -> list[str]:
            return []

    ran = Counter()
    plain = tool("delete_file", ran)
    sneaky = Sneaky(**{name: getattr(plain, name) for name in Tool.__dataclass_fields__})
    async with open_bread(agent(deletes("x"), sneaky, permissions=GATED)) as bread:
        assert (await ask_first(bread)).kind == "approval"
    assert ran.total == 0


# --- what an approval is worth ----------------------------------------------------------------------------------------


async def test_one_of_three_calls_is_rejected_and_only_that_one_is_not_executed(open_bread: OpenBread) -> None:
    """C22: each decision is bound to its own call."""
    ran = Counter()
    spy = Spy(deletes("x", "y", "z"))
    async with open_bread(agent(spy, tool("delete_file", ran), permissions=GATED)) as bread:
        asked = questions(await read(bread.run("a", "go")))
        for one in reversed(asked):
            approved = one.args != {"path": "y"}
            crumbs = await read(bread.resume(one.checkpoint_id, {"approved": approved}))
        assert crumbs[-1].type == "agent:run:end"
    assert ran.of == {"x": 1, "z": 1}
    assert [message[2] for message in spy.seen[1][2:]] == ["delete_file x 1", "denied by a person", "delete_file z 1"]


async def test_an_approval_is_worth_one_call(open_bread: OpenBread) -> None:
    """C61, C28: the same tool with the same arguments is asked for again; three gates give three results."""
    ran = Counter()
    script = [[call("tool_delete_file", {"path": "x"}, id="same")] for _ in range(3)]
    spy = Spy([*script, [text("Done.")]])
    async with open_bread(agent(spy, tool("delete_file", ran), permissions=GATED)) as bread:
        asked = await ask_first(bread, session="s1")
        for count in (1, 2, 3):
            crumbs = await read(bread.resume(asked.checkpoint_id, {"approved": True}))
            assert ran.of == {"x": count}
            if count < 3:
                again = question(crumbs)
                assert again.checkpoint_id != asked.checkpoint_id
                asked = again
        history = await bread.sessions.messages("s1")
    called = [one["toolCallId"] for m in history if m["role"] == "assistant" for one in m["calls"]]  # type: ignore[union-attr,index,call-overload]
    results = [m["toolCallId"] for m in history if m["role"] == "tool"]
    assert called == results
    assert len(set(called)) == 3


@pytest.mark.parametrize(("first", "second"), [(True, False), (False, True)])
async def test_a_decision_that_was_made_stands(open_bread: OpenBread, first: bool, second: bool) -> None:
    """C3, C4, B53: whatever is sent afterwards is refused and has no effect, also when the run has ended."""
    ran = Counter()
    async with open_bread(agent(deletes("x"), tool("delete_file", ran), permissions=GATED)) as bread:
        asked = await ask_first(bread)
        await bread.resume(asked.checkpoint_id, {"approved": first})
        before = await names(bread, asked.run_id)
        for answer in (second, first):
            with refused("CHECKPOINT_NOT_FOUND"):
                await bread.resume(asked.checkpoint_id, {"approved": answer})
        assert await names(bread, asked.run_id) == before
        assert (await bread.get_checkpoint(asked.checkpoint_id)).response == {"approved": first}
    assert ran.total == int(first)


async def test_what_clients_hold_is_a_copy(open_bread: OpenBread) -> None:
    """C26, C54: whoever changes the arguments in a record of his changes nothing but his record."""
    ran = Counter()
    async with open_bread(agent(deletes("x"), tool("delete_file", ran), permissions=GATED)) as bread:
        heard: list[Any] = []
        bread.on("crumb", lambda crumb: heard.append(crumb) if crumb.type == "human:required" else None)
        asked = await ask_first(bread)
        held = [asked, await bread.get_checkpoint(asked.checkpoint_id), (await bread.list_checkpoints()).items[0]]
        for record in [*held, *heard]:
            record.args["path"] = "forged"
            with pytest.raises(ValueError, match="frozen"):
                record.kind = "input"
        assert (await bread.get_checkpoint(asked.checkpoint_id)).args == {"path": "x"}
        await bread.resume(asked.checkpoint_id, {"approved": True})
        with refused("CHECKPOINT_NOT_FOUND"):
            await bread.resume(asked.checkpoint_id, {"approved": True})
    assert ran.of == {"x": 1}


async def test_a_listener_cannot_change_what_a_tool_gets(open_bread: OpenBread) -> None:
    """C26: crumbs of calls that are about to be executed are copies too."""
    ran = Counter()

    def forge(crumb: Any) -> None:
        if crumb.type == "tool:call":
            crumb.args["path"] = "forged"

    spy = Spy(deletes("x", "y"))
    async with open_bread(agent(spy, tool("delete_file", ran))) as bread:
        bread.on("crumb", forge)
        stream = bread.run("a", "go")
        async for crumb in stream:
            forge(crumb)
        assert [c.args for c in await ended(bread, stream.run_id) if c.type == "tool:call"] == [
            {"path": "x"},
            {"path": "y"},
        ]
    assert ran.of == {"x": 1, "y": 1}
    assert spy.seen[1][1] == ("assistant", "", [("tool_delete_file", {"path": path}) for path in ("x", "y")])


async def test_a_forged_answer_cannot_name_another_call(open_bread: OpenBread) -> None:
    """C54: arguments come from the store or from a validated edit, and ids cannot be guessed."""
    ran = Counter()
    async with open_bread(agent(deletes("x", "y"), tool("delete_file", ran), permissions=GATED)) as bread:
        first, second = questions(await read(bread.run("a", "go")))
        for extra in ("toolCallId", "tool", "checkpointId", "runId", "kind", "call"):
            with refused("RESPONSE_INVALID"):
                await bread.resume(first.checkpoint_id, {"approved": True, extra: second.tool_call_id})
        await read(bread.resume(first.checkpoint_id, {"approved": True}))
        assert ran.of == {"x": 1}
        one, other = (asked.checkpoint_id.removeprefix("cp_") for asked in (first, second))
        assert len(one) == len(other) == 26
        different = sum(a != b for a, b in zip(one[10:], other[10:], strict=True))
        assert different > 4  # 74 of the 128 bits are drawn by chance


def test_resume_takes_an_answer_and_nothing_that_could_replace_the_run() -> None:
    """C24: no agent, tool, skill, session or context comes in with an answer."""
    parameters = set(signature(Bread.resume).parameters) - {"self"}
    assert parameters == {"checkpoint_id", "response", "author", "comment", "idempotency_key", "by"}
    fields = set(AnswerCheckpoint.model_fields) - {"by", "command_id", "tenant", "traceparent"}
    assert fields == {"checkpoint_id", "response", "comment", "idempotency_key", "detach"}


@DURABLE
async def test_the_stored_decision_binds_whatever_configuration_comes_with_the_resume(open_bread: OpenBread) -> None:
    """C24, B57: another prompt, model and tool set execute the stored call with the stored arguments, once."""
    ran = Counter()
    async with open_bread(agent(deletes("x"), tool("delete_file", ran), permissions=GATED)) as bread:
        asked = await ask_first(bread)
    spy = Spy([[text("unused")], [text("New words.")]], name="other")
    new = agent(spy, tool("delete_file", ran), tool("extra"), prompt="Be brief.", settings={"temperature": 0})
    async with open_bread(new) as bread:
        assert await bread.resume(asked.checkpoint_id, {"approved": True}) == "New words."
    assert ran.of == {"x": 1}
    (request,) = spy.requests
    assert (request.prompt, request.settings, request.turn) == ("Be brief.", {"temperature": 0}, 1)
    assert [spec.name for spec in request.tools] == ["tool_delete_file", "tool_extra"]


@DURABLE
async def test_opening_the_store_again_decides_nothing(open_bread: OpenBread) -> None:
    """C32, B50: a gated call is never executed because its process came back."""
    ran = Counter()
    gated = agent(deletes("x"), tool("delete_file", ran), permissions=GATED)
    async with open_bread(gated) as bread:
        asked = await ask_first(bread)
        before = await names(bread, asked.run_id)
    for _ in range(2):
        async with open_bread(gated) as bread:
            assert await names(bread, asked.run_id) == before
            assert (await bread.get_run(asked.run_id)).status == "suspended"
    assert ran.total == 0


@pytest.mark.parametrize("how", ["iterate", "await", "send"])
@pytest.mark.parametrize("approved", [True, False])
async def test_every_way_to_start_and_to_answer_is_the_same(open_bread: OpenBread, how: str, approved: bool) -> None:
    """C29, C51, B2: streams, awaited calls and commands meet the same gate and leave the same log."""
    ran = Counter()
    async with open_bread(agent(deletes("x"), tool("delete_file", ran), permissions=GATED)) as bread:
        answer: Any = {"approved": approved}
        if how == "iterate":
            asked = await ask_first(bread)
            await read(bread.resume(asked.checkpoint_id, answer))
        elif how == "await":
            handle = bread.run("a", "go")
            with pytest.raises(RunSuspended) as caught:
                await handle
            assert await bread.resume(caught.value.checkpoints[0], answer) == "Done."
        else:
            started = await bread.send(StartRun(agent="a", input="go"))
            waiting = await until(bread.observe(str(started.run_id)), "human:required")
            await bread.send(AnswerCheckpoint(checkpoint_id=waiting.checkpoint_id, response=answer))
        (run,) = (await bread.list_runs()).items
        shown = types(await ended(bread, run.id))
        outcome = ["tool:call", "tool:result"] if approved else ["tool:error"]
        assert shown == ["agent:run:start", "human:required", "human:resumed", *outcome, "text:delta", "agent:run:end"]
    assert ran.total == int(approved)
