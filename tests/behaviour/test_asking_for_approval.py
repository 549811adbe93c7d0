"""A gated tool asks first: what is stored, shown, edited and executed, and what is no answer."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from bread import ToolContext, define_tool
from bread.testing import call, text
from scenes import (
    DURABLE,
    Counter,
    OpenBread,
    Spy,
    agent,
    ask_first,
    asking,
    ended,
    names,
    question,
    questions,
    refused,
)
from support import read, types, wire

from .approvals import GATED, deletes, tool

# --- asking -----------------------------------------------------------------------------------------------------------


async def test_a_gated_tool_asks_before_it_executes(open_bread: OpenBread) -> None:
    """B35, B38: human:required of kind approval with the leaf name and the arguments; nothing is executed."""
    ran = Counter()
    async with open_bread(agent(deletes("x"), tool("delete_file", ran), permissions=GATED)) as bread:
        crumbs = await read(bread.run("a", "go"))
        assert types(crumbs) == ["agent:run:start", "human:required"]
        asked = question(crumbs)
        assert (asked.kind, asked.tool_name, asked.args) == ("approval", "delete_file", {"path": "x"})
        assert "delete_file" in asked.prompt
        assert (await bread.get_checkpoint(asked.checkpoint_id)).kind == "approval"
        assert wire(asked)["responseSchema"]["required"] == ["approved"]
    assert ran.total == 0


async def test_an_approved_tool_executes_once_with_the_stored_arguments(open_bread: OpenBread) -> None:
    """B36: human:resumed, tool:call, tool:result, then the continuation; ctx has who approved."""
    ran = Counter()
    approvers: list[str | None] = []

    @define_tool
    async def delete_file(path: str, ctx: ToolContext) -> str:
        approvers.append(ctx.approved_by)
        return f"deleted {path} {ran(path)}"

    spy = Spy(deletes("x"))
    async with open_bread(agent(spy, delete_file, permissions=GATED)) as bread:
        asked = await ask_first(bread)
        answer = {"approved": True, "reason": "old", "comment": "go ahead"}
        crumbs = await read(bread.resume(asked.checkpoint_id, answer, author="ann"))
        assert types(crumbs) == ["human:resumed", "tool:call", "tool:result", "text:delta", "agent:run:end"]
        resumed, called, result = map(wire, crumbs[:3])
        assert (resumed["kind"], resumed["verdict"], resumed["author"]) == ("approval", "approved", "ann")
        assert called["args"] == {"path": "x"}
        assert called["toolCallId"] == result["toolCallId"] == asked.tool_call_id
    assert ran.of == {"x": 1}
    assert approvers == ["ann"]
    assert spy.seen[1][-1] == ("tool", "tool_delete_file", "deleted x 1", "ok")


async def test_edited_arguments_are_validated_and_executed_and_all_of_them_are_logged(open_bread: OpenBread) -> None:
    """B36, C23, C30: shown, edited and executed arguments are all in the log; those that do not fit are refused."""
    ran = Counter()
    async with open_bread(agent(deletes("x"), tool("delete_file", ran), permissions=GATED)) as bread:
        asked = await ask_first(bread, session="s1")
        wrong: list[Any] = [{"path": 7}, {"path": "y", "force": True}, "y", [], None, {"path": None}]
        for args in wrong:
            with refused("RESPONSE_INVALID"):
                await bread.resume(asked.checkpoint_id, {"approved": True, "args": args})
        assert (await bread.get_checkpoint(asked.checkpoint_id)).status == "pending"
        crumbs = await read(bread.resume(asked.checkpoint_id, {"approved": True, "args": {"path": "y"}}))
        assert [crumb.args for crumb in crumbs if crumb.type == "tool:call"] == [{"path": "y"}]
        assert [crumb.result for crumb in crumbs if crumb.type == "tool:result"] == ["delete_file y 1"]
        log = {event.name: event async for event in bread.audit(asked.run_id)}
        assert log["checkpoint.opened"].data["args"] == {"path": "x"}
        assert log["run.resumed"].data["response"] == {"approved": True, "args": {"path": "y"}}
        assert log["run.tool_called"].data["args_at"] == log["run.resumed"].version
        assert log["run.tool_returned"].data["result"] == "delete_file y 1"
        history = await bread.sessions.messages("s1")
        assert history[1]["calls"][0]["args"] == {"path": "x"}  # type: ignore[index,call-overload]
        assert history[2]["content"] == "delete_file y 1"
        replayed = [crumb for crumb in await ended(bread, asked.run_id) if crumb.type == "tool:call"]
        assert [crumb.args for crumb in replayed] == [{"path": "y"}]
    assert ran.of == {"y": 1}


@pytest.mark.parametrize(
    "answer",
    [
        {"approved": False},
        {"approved": False, "reason": "too risky"},
        {"approved": "true"},
        {"approved": 1},
        {"approved": None},
        {"approved": [True]},
        {"approve": True},
        {"reason": "too risky"},
        {"reason": None},
        {"answer": "yes"},
        {"approved": False, "args": {"path": "y"}, "anything": "else"},
    ],
)
async def test_any_other_object_is_a_rejection(open_bread: OpenBread, answer: dict[str, Any]) -> None:
    """B37, C31, C51: nothing but the boolean true approves; the model is told it was denied, and why."""
    ran = Counter()
    spy = Spy(deletes("x"))
    async with open_bread(agent(spy, tool("delete_file", ran), permissions=GATED)) as bread:
        asked = await ask_first(bread)
        crumbs = await read(bread.resume(asked.checkpoint_id, answer))
        assert types(crumbs) == ["human:resumed", "tool:error", "text:delta", "agent:run:end"]
        resumed, denied = map(wire, crumbs[:2])
        assert (resumed["kind"], resumed["verdict"], resumed["response"]) == ("approval", "rejected", answer)
        assert denied["code"] == "REJECTED"
        settled = await bread.get_checkpoint(asked.checkpoint_id)
        assert (settled.verdict, settled.response) == ("rejected", answer)
    assert ran.total == 0
    *_, (role, name, content, outcome) = spy.seen[1]
    assert (role, name, outcome) == ("tool", "tool_delete_file", "denied")
    assert content == (f"denied by a person: {answer['reason']}" if answer.get("reason") else "denied by a person")


@pytest.mark.parametrize(
    "answer",
    [
        None,
        {},
        "",
        "yes",
        True,
        1,
        [],
        [{"approved": True}],
        {"approved": True, "force": True},
        {"approved": True, "Args": {}},
        {"approved": True, "reason": 7},
        {"approved": False, "comment": ["x"]},
    ],
)
async def test_what_is_no_answer_leaves_the_question(open_bread: OpenBread, answer: Any) -> None:
    """B37, B58, C31: null, nothing, no object, another key beside a true `approved`: RESPONSE_INVALID, pending."""
    ran = Counter()
    async with open_bread(agent(deletes("x"), tool("delete_file", ran), permissions=GATED)) as bread:
        asked = await ask_first(bread)
        before = await names(bread, asked.run_id)
        with refused("RESPONSE_INVALID"):
            await bread.resume(asked.checkpoint_id, answer)
        assert await names(bread, asked.run_id) == before
        assert [one.id for one in (await bread.list_checkpoints(kind="approval")).items] == [asked.checkpoint_id]
    assert ran.total == 0


async def test_the_kind_is_stored_and_never_guessed(open_bread: OpenBread) -> None:
    """B38, C32: an answer that looks like an approval answers an input question, and the other way round."""
    spy = Spy([[call("human_ask"), call("tool_delete_file", {"path": "x"})], [text("Done.")]])
    ran = Counter()
    async with open_bread(agent(spy, asking(), tool("delete_file", ran), permissions=GATED)) as bread:
        first, second = questions(await read(bread.run("a", "go")))
        (resumed,) = await read(bread.resume(first.checkpoint_id, {"approved": True}))
        assert (wire(resumed)["kind"], wire(resumed)["verdict"]) == ("input", "answered")
        await bread.resume(second.checkpoint_id, {"answer": {"approved": True}})
    assert ran.total == 0
    assert [message[2:] for message in spy.seen[1][2:]] == [
        ({"approved": True}, "ok"),
        ("denied by a person", "denied"),
    ]


async def test_an_approved_streaming_tool_shows_its_values_while_it_runs(open_bread: OpenBread) -> None:
    """B39: its partial results surface on the stream of the resume."""
    watched = asyncio.Event()

    @define_tool
    async def delete_all() -> AsyncIterator[str]:
        await watched.wait()
        for step in ("one", "two", "all gone"):
            yield step

    async with open_bread(agent([[call("tool_delete_all")], [text("Done.")]], delete_all, permissions=GATED)) as bread:
        asked, live = await ask_first(bread), []
        async for crumb in bread.resume(asked.checkpoint_id, {"approved": True}):
            live.append(crumb)
            if crumb.type == "tool:call":
                watched.set()
        assert [crumb.result for crumb in live if crumb.type == "tool:result:partial"] == ["one", "two", "all gone"]
        assert [crumb.result for crumb in live if crumb.type == "tool:result"] == ["all gone"]


async def test_an_approved_tool_that_raises_is_an_error_for_the_model(open_bread: OpenBread) -> None:
    """B40, C3: as in a live turn the run goes on; and an approval that was used is used."""

    @define_tool
    async def delete_file(path: str) -> None:
        raise PermissionError(f"{path} is locked")

    spy = Spy(deletes("x"))
    async with open_bread(agent(spy, delete_file, permissions=GATED)) as bread:
        asked = await ask_first(bread)
        crumbs = await read(bread.resume(asked.checkpoint_id, {"approved": True}))
        assert types(crumbs) == ["human:resumed", "tool:call", "tool:error", "text:delta", "agent:run:end"]
        with refused("CHECKPOINT_NOT_FOUND"):
            await bread.resume(asked.checkpoint_id, {"approved": True})
    assert spy.seen[1][-1] == ("tool", "tool_delete_file", "PermissionError: x is locked", "error")


@DURABLE
async def test_a_gated_tool_that_is_gone_is_refused_before_the_claim(open_bread: OpenBread) -> None:
    """B41, C37, Q TOOL_NOT_FOUND: the checkpoint is kept; with the tool deployed again the same resume works."""
    ran = Counter()
    async with open_bread(agent(deletes("x"), tool("delete_file", ran), permissions=GATED)) as bread:
        asked = await ask_first(bread)
    renamed = agent(deletes("x"), tool("remove_file", ran), permissions=GATED)
    async with open_bread(renamed) as bread:
        for answer in ({"approved": True}, {"approved": True, "args": {"path": "y"}}):
            with refused("TOOL_NOT_FOUND"):
                await bread.resume(asked.checkpoint_id, answer)
        assert [one.id for one in (await bread.list_checkpoints()).items] == [asked.checkpoint_id]
    async with open_bread(agent(deletes("x"), tool("delete_file", ran), permissions=GATED)) as bread:
        assert await bread.resume(asked.checkpoint_id, {"approved": True}) == "Done."
    assert ran.of == {"x": 1}


@DURABLE
async def test_a_rejection_needs_no_tool(open_bread: OpenBread) -> None:
    """B41, B37: what is not to be executed need not be there."""
    async with open_bread(agent(deletes("x"), tool("delete_file"), permissions=GATED)) as bread:
        asked = await ask_first(bread)
    async with open_bread(agent(deletes("x"))) as bread:
        assert await bread.resume(asked.checkpoint_id, {"approved": False}) == "Done."


@DURABLE
async def test_a_human_tool_needs_no_code_to_be_answered(open_bread: OpenBread) -> None:
    """B41, C37: its stored schemas are enough, and they are what binds."""
    script = [[call("human_ask", {"q": 1})], [text("Done.")]]
    async with open_bread(agent(script, asking(response={"type": "string"}))) as bread:
        asked = await ask_first(bread)
    for changed in (agent(script), agent(script, asking(response={"type": "integer"}))):
        async with open_bread(changed) as bread:
            with refused("RESPONSE_INVALID"):
                await bread.resume(asked.checkpoint_id, 7)
    async with open_bread(agent(script)) as bread:
        assert await bread.resume(asked.checkpoint_id, "seven") == "Done."


@DURABLE
async def test_stored_arguments_that_no_longer_fit_are_an_error_for_the_model(open_bread: OpenBread) -> None:
    """C37: a changed signature is told, never swallowed, and the tool is not called with half of its arguments."""
    ran = Counter()

    @define_tool
    async def delete_file(path: str, force: bool) -> str:
        return str(ran(path))

    async with open_bread(agent(deletes("x"), tool("delete_file"), permissions=GATED)) as bread:
        asked = await ask_first(bread)
    spy = Spy(deletes("x"))
    async with open_bread(agent(spy, delete_file, permissions=GATED)) as bread:
        crumbs = await read(bread.resume(asked.checkpoint_id, {"approved": True}))
        assert types(crumbs) == ["human:resumed", "tool:call", "tool:error", "text:delta", "agent:run:end"]
    assert ran.total == 0
    assert "force" in spy.seen[0][-1][2]


@DURABLE
async def test_a_tool_that_was_denied_meanwhile_is_not_executed(open_bread: OpenBread) -> None:
    """C27, B57: permissions are those of now; what was revoked cannot be approved any more, and stays pending."""
    ran = Counter()
    async with open_bread(agent(deletes("x"), tool("delete_file", ran), permissions=GATED)) as bread:
        asked = await ask_first(bread)
    denied = agent(deletes("x"), tool("delete_file", ran), permissions={"deny": ["tool:delete_*"]})
    async with open_bread(denied) as bread:
        with refused("TOOL_NOT_FOUND"):
            await bread.resume(asked.checkpoint_id, {"approved": True})
        assert [one.id for one in (await bread.list_checkpoints()).items] == [asked.checkpoint_id]
        assert await bread.resume(asked.checkpoint_id, {"approved": False}) == "Done."
    assert ran.total == 0
