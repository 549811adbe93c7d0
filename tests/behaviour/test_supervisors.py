"""Supervisors: what their models are told, what a delegation comes to, and what it is refused for."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from pydantic import BaseModel

from bread import SubAgent, Supervisor, define_agent, define_tool
from bread.testing import ScriptedModel, call, pause, text
from scenes import (
    Counter,
    Gate,
    OpenBread,
    Spy,
    agent,
    asking,
    names,
    question,
    refused,
)
from support import read, types
from teams import asker, children, delegate, outcomes, script, team, told, worker

# --- what the model is told -------------------------------------------------------------------------------------------


async def test_the_model_gets_a_tool_and_a_roster(open_bread: OpenBread) -> None:
    """B98: `core_delegate {agentId, input}`, and who may be delegated to, with what they are for."""
    spy = Spy([[text("Done.")]])
    roster = (SubAgent("writer", "Writes drafts."), "checker")
    async with open_bread(team(spy, *roster, prompt="You lead."), worker("writer"), worker("checker")) as bread:
        await bread.run("boss", "go")
    [request] = spy.requests
    [tool] = request.tools
    assert tool.name == "core_delegate"
    schema: Any = tool.schema
    assert schema["properties"].keys() == {"agentId", "input"}
    assert sorted(schema["required"]) == ["agentId", "input"]
    assert request.prompt.startswith("You lead.\n\n")
    assert request.prompt.splitlines()[-2:] == ["- writer: Writes drafts.", "- checker"]


async def test_the_output_of_the_child_is_the_result_of_the_call(open_bread: OpenBread) -> None:
    """B98, B6, B134: one tool:call, one tool:result; the child is a run of its own, framed by subagent:run."""
    spy = Spy(script(delegate("worker", "draft")))
    async with open_bread(team(spy, "worker"), worker()) as bread:
        handle = bread.run("boss", "go")
        crumbs = await read(handle)
        child = (await children(bread, handle.run_id))["worker"]
        run = await bread.get_run(child)
        assert "taken" not in await names(bread, handle.run_id)
    assert types(crumbs) == [
        *("agent:run:start", "tool:call", "subagent:run:start"),
        *("agent:run:start", "text:delta", "agent:run:end"),
        *("subagent:run:end", "tool:result", "text:delta", "agent:run:end"),
    ]
    assert told(spy) == ["worker: draft"]
    begun, done = (crumb for crumb in crumbs if crumb.type in ("subagent:run:start", "subagent:run:end"))
    assert begun.type == "subagent:run:start"
    assert (begun.agent_id, begun.sub_agent_id, begun.child_run_id, begun.input) == ("boss", "worker", child, "draft")
    assert done.type == "subagent:run:end"
    assert (done.child_run_id, done.status, done.code) == (child, "completed", None)
    inner = [crumb for crumb in crumbs if crumb.agent_id == "worker"]
    assert {(crumb.run_id, crumb.root_run_id, crumb.path) for crumb in inner} == {
        (child, handle.run_id, (begun.tool_call,))
    }
    assert (run.kind, run.output, run.input) == ("agent", "worker: draft", "draft")
    assert run.parent is not None
    assert (run.parent.run_id, run.parent.kind, run.parent.slot) == (handle.run_id, "supervisor", begun.tool_call)


@pytest.mark.parametrize("input", ["text", "", None, 0, 1.5, False, [], [1, [None]], {}, {"a": {"b": "ä\n"}}])
async def test_any_json_can_be_handed_on(open_bread: OpenBread, input: Any) -> None:
    """B98, B4: the child has it as its input; its model reads text as it is, anything else as JSON."""
    spy, seen = Spy(script(delegate("worker", input))), Spy([[text("ok")]])
    async with open_bread(team(spy, "worker"), agent(seen, id="worker")) as bread:
        handle = bread.run("boss", "go")
        await handle
        run = await bread.get_run((await children(bread, handle.run_id))["worker"])
    assert run.input == input
    assert type(run.input) is type(input)
    assert told(spy) == ["ok"]


async def test_the_result_may_be_any_json(open_bread: OpenBread) -> None:
    """B98, B11: what an agent with structured output gives is handed back as it is."""
    spy = Spy(script(delegate("counter", {})))
    shape = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
    counter = define_agent("counter", model=ScriptedModel([[text('{"n": 7}')]]), output=shape)
    async with open_bread(team(spy, "counter"), counter) as bread:
        await bread.run("boss", "go")
    assert told(spy) == [{"n": 7}]


async def test_several_delegations_of_a_turn_run_at_once(open_bread: OpenBread) -> None:
    """B98: each of three children waits in its model until all three have come there."""
    together = asyncio.Barrier(3)
    spy = Spy(script(*(delegate(f"w{n}", n) for n in range(3))))
    workers = [agent([[pause(together.wait), text(f"w{n} done")]], id=f"w{n}") for n in range(3)]
    async with open_bread(team(spy, "w0", "w1", "w2"), *workers) as bread:
        async with asyncio.timeout(20):
            await bread.run("boss", "go")
    assert told(spy) == ["w0 done", "w1 done", "w2 done"]


async def test_results_stand_in_the_order_of_the_calls(open_bread: OpenBread) -> None:
    """B98, B107: the same agent twice, and the later one is done first."""
    gate = Gate()
    spy = Spy(script(delegate("worker", "slow"), delegate("worker", "fast")))

    def work(request: Any) -> list[Any]:
        given = request.messages[0].text
        return [pause(gate), text(given)] if given == "slow" else [text(given)]

    async with open_bread(team(spy, "worker"), agent(work, id="worker")) as bread:
        stream = bread.run("boss", "go")
        crumbs = []
        async for crumb in stream:
            crumbs.append(crumb)
            if crumb.type == "subagent:run:end":
                gate.open()
    assert told(spy) == ["slow", "fast"]
    slots = [crumb.tool_call for crumb in crumbs if crumb.type == "subagent:run:end"]
    assert slots == sorted(slots, reverse=True)


async def test_a_child_sees_its_input_and_nothing_else(open_bread: OpenBread) -> None:
    """B78, B5: neither the history of the session nor what its supervisor said; and leaves none there."""
    spy, inner = Spy(lambda r: [delegate("worker", "draft")] if r.turn == 0 else [text("Led.")]), Spy([[text("Made.")]])
    async with open_bread(team(spy, "worker"), agent(inner, id="worker")) as bread:
        await bread.run("boss", "first", session="s")
        await bread.run("boss", "second", session="s")
        history = [message["role"] for message in await bread.sessions.messages("s")]
        runs = await bread.list_runs(session="s")
    assert inner.seen == [[("user", "draft")]] * 2
    assert [message[0] for message in spy.seen[2]] == ["user", "assistant", "tool", "assistant", "user"]
    assert history == ["user", "assistant", "tool", "assistant"] * 2
    assert [run.agent_id for run in runs.items] == ["boss", "boss"]


async def test_a_supervisor_has_its_own_tools_and_people(open_bread: OpenBread) -> None:
    """B102, B26: a human tool, a plain one, and then a delegation, as with any agent."""
    ran = Counter()

    @define_tool
    async def look(what: str) -> int:
        return ran(what)

    spy = Spy([[call("human_ask", {}), call("tool_look", {"what": "x"})], [delegate("worker", "y")], [text("Done.")]])
    async with open_bread(team(spy, "worker", tools=[asking(), look]), worker()) as bread:
        asked = question(await read(bread.run("boss", "go")))
        assert (asked.agent_id, asked.kind, asked.parent, ran.total) == ("boss", "input", None, 1)
        assert (await bread.list_checkpoints(kind="delegation")).items == []
        assert await bread.resume(asked.checkpoint_id, "yes") == "Done."
    assert outcomes(spy.requests[1]) == ["yes", 1]
    assert told(spy) == ["worker: y"]


# --- what a delegation is refused for ---------------------------------------------------------------------------------


async def test_who_is_not_in_the_roster_gets_nothing(open_bread: OpenBread) -> None:
    """B99: DELEGATE_AGENT_NOT_CONFIGURED names the roster; no child run, no subagent crumbs; the model goes on."""
    spy = Spy([[delegate("stranger", 1)], [delegate("worker", 2)], [text("Done.")]])
    async with open_bread(team(spy, "worker", "other"), worker(), worker("other"), worker("stranger")) as bread:
        handle = bread.run("boss", "go")
        crumbs = await read(handle)
        assert list(await children(bread, handle.run_id)) == ["worker"]
    error = next(crumb for crumb in crumbs if crumb.type == "tool:error")
    assert (error.code, error.tool_name) == ("DELEGATE_AGENT_NOT_CONFIGURED", "delegate")
    assert "worker, other" in error.message
    assert [crumb.child_run_id for crumb in crumbs if crumb.type == "subagent:run:start"] == [
        crumb.run_id for crumb in crumbs if crumb.type == "agent:run:start" and crumb.agent_id == "worker"
    ]
    assert [outcome for outcome, _ in outcomes(spy.requests[1])] == ["error"]
    assert told(spy) == ["worker: 2"]


async def test_an_agent_that_is_not_there(open_bread: OpenBread) -> None:
    """B99: AGENT_NOT_FOUND for a member of the roster that nobody has defined; the model goes on."""
    spy = Spy(script(delegate("ghost", 1), delegate("worker", 2)))
    async with open_bread(team(spy, "worker", "ghost"), worker()) as bread:
        crumbs = await read(bread.run("boss", "go"))
    assert [crumb.code for crumb in crumbs if crumb.type == "tool:error"] == ["AGENT_NOT_FOUND"]
    assert told(spy)[1] == "worker: 2"
    assert crumbs[-1].type == "agent:run:end"


@pytest.mark.parametrize("args", [{}, {"agentId": "worker"}, {"agentId": 1, "input": 1}, {"input": 1}, [1], "x"])
async def test_a_call_of_another_shape(open_bread: OpenBread, args: Any) -> None:
    """B99: arguments that do not fit are an error that says so, as with any tool."""
    spy = Spy(script(call("core_delegate", args)))
    async with open_bread(team(spy, "worker"), worker()) as bread:
        crumbs = await read(bread.run("boss", "go"))
    assert [crumb.code for crumb in crumbs if crumb.type == "tool:error"] == ["INPUT_INVALID"]
    assert crumbs[-1].type == "agent:run:end"


class Order(BaseModel):
    item: str


async def test_input_that_does_not_fit_the_agent(open_bread: OpenBread) -> None:
    """B98: an agent that takes an order gets nothing else, from a model as from a caller; the model may try again."""
    spy = Spy([[delegate("shop", "one tea")], [delegate("shop", {"item": "tea"})], [text("Done.")]])
    shop = define_agent("shop", model=ScriptedModel([[text("Sold.")]]), input=Order)
    async with open_bread(team(spy, "shop"), shop) as bread:
        crumbs = await read(bread.run("boss", "go"))
    assert types(crumbs)[:2] == ["agent:run:start", "tool:error"]
    [error] = [crumb for crumb in crumbs if crumb.type == "tool:error"]
    assert (error.code, error.agent_id) == ("INPUT_INVALID", "boss")
    assert "'shop'" in error.message
    assert types(crumbs).count("subagent:run:start") == 1
    assert told(spy) == ["Sold."]


@pytest.mark.parametrize(
    ("overall", "of_a", "calls", "refused_at"),
    [
        (2, None, "aab", [2]),
        (1, None, "ab", [1]),
        (None, 1, "aab", [1]),
        (2, 1, "aabb", [1, 3]),
        (3, 2, "aaab", [2]),
        (None, None, "aaaabbbb", []),
    ],
)
async def test_limits_of_what_is_in_flight(
    open_bread: OpenBread, overall: int | None, of_a: int | None, calls: str, refused_at: list[int]
) -> None:
    """B100: `max` overall and of a sub-agent; what is above is DELEGATION_LIMIT at once and is not queued."""
    spy = Spy([[delegate(one, n) for n, one in enumerate(calls)], [delegate("a", "again")], [text("Done.")]])
    roster = (SubAgent("a", max=of_a), SubAgent("b"))
    async with open_bread(team(spy, *roster, max=overall), worker("a"), worker("b")) as bread:
        crumbs = await read(bread.run("boss", "go"))
    errors = [crumb for crumb in crumbs if crumb.type == "tool:error"]
    assert [crumb.code for crumb in errors] == ["DELEGATION_LIMIT"] * len(refused_at)
    first = outcomes(spy.requests[1])
    assert [n for n, one in enumerate(first) if isinstance(one, tuple)] == refused_at
    assert [one for one in first if isinstance(one, str)] == [
        f"{one}: {n}" for n, one in enumerate(calls) if n not in refused_at
    ]
    assert told(spy) == ["a: again"]


@pytest.mark.parametrize(("limits", "in_flight"), [({"max": 1}, 1), ({"max": 2}, 2)])
async def test_what_is_suspended_is_in_flight(open_bread: OpenBread, limits: dict[str, Any], in_flight: int) -> None:
    """B100, B42: three gated delegations to one that asks; approved one after the other, each counts until it ends."""
    spy = Spy(script(*(delegate("asker", n) for n in range(3))))
    boss = team(spy, "asker", permissions={"ask": ["core:delegate"]}, **limits)
    async with open_bread(boss, asker()) as bread:
        gates = [one.checkpoint_id for one in await approvals(bread.run("boss", "go"))]
        crumbs = []
        for gate in gates:
            crumbs += await read(bread.resume(gate, {"approved": True}))
        errors = [crumb.code for crumb in crumbs if crumb.type == "tool:error"]
        assert errors == ["DELEGATION_LIMIT"] * (3 - in_flight)
        for found in (await bread.list_checkpoints(answerable=True)).items:
            crumbs = await read(bread.resume(found.id, "yes"))
        assert crumbs[-1].type == "agent:run:end"
    assert [one if isinstance(one, str) else one[0] for one in told(spy)] == [
        *["asker: yes"] * in_flight,
        *["error"] * (3 - in_flight),
    ]


async def approvals(stream: Any) -> list[Any]:
    crumbs = await read(stream)
    return [crumb for crumb in crumbs if crumb.type == "human:required" and crumb.kind == "approval"]


@pytest.mark.parametrize(
    "shape",
    [
        {"agents": []},
        {"agents": "worker"},
        {"agents": [5]},
        {"agents": 5},
        {"agents": ["Bad name"]},
        {"agents": ["a", "a"]},
        {"agents": [SubAgent("a", max=0)]},
        {"agents": [SubAgent("a", visibility="open")]},  # type: ignore[arg-type]
        {"agents": ["a"], "max": 0},
        {"agents": ["a"], "max": 1.5},
        {"agents": ["a"], "visibility": "none"},
    ],
)
def test_a_supervisor_of_another_shape_is_refused(shape: Any) -> None:
    """B98, B13: where it is written, with what is wrong."""
    with refused("INVALID_NAME" if shape["agents"] in (["Bad name"], ["a", "a"]) else "INPUT_INVALID"):
        Supervisor(**shape)


def test_an_agent_takes_a_supervisor_and_nothing_like_it() -> None:
    """B98: a list is none."""
    with refused("INPUT_INVALID"):
        define_agent("a", model=ScriptedModel([]), supervisor=["worker"])  # type: ignore[arg-type]


# --- permissions ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("selector", ["core:delegate", "core:*", "core:del*"])
async def test_delegating_can_be_denied(open_bread: OpenBread, selector: str) -> None:
    """B42, B33: neither offered nor in the prompt; called anyway it is FORBIDDEN and no child runs."""
    spy = Spy(script(delegate("worker", 1)))
    async with open_bread(team(spy, "worker", permissions={"deny": [selector]}), worker()) as bread:
        handle = bread.run("boss", "go")
        crumbs = await read(handle)
        assert await children(bread, handle.run_id) == {}
    assert spy.requests[0].tools == []
    assert "worker" not in spy.requests[0].prompt
    assert [crumb.code for crumb in crumbs if crumb.type == "tool:error"] == ["FORBIDDEN"]


@pytest.mark.parametrize("selector", ["core:delegate", "core:*"])
async def test_a_delegation_can_be_gated(open_bread: OpenBread, selector: str) -> None:
    """B42, B35, B36: nothing runs before the approval; then the child does, with the arguments that were shown."""
    spy = Spy(script(delegate("worker", "draft")))
    async with open_bread(team(spy, "worker", permissions={"ask": [selector]}), worker()) as bread:
        handle = bread.run("boss", "go")
        asked = question(await read(handle))
        assert (asked.kind, asked.tool_name, asked.args) == (
            "approval",
            "delegate",
            {"agentId": "worker", "input": "draft"},
        )
        assert await children(bread, handle.run_id) == {}
        crumbs = await read(bread.resume(asked.checkpoint_id, {"approved": True}))
        assert types(crumbs)[:3] == ["human:resumed", "tool:call", "subagent:run:start"]
        assert (await names(bread, handle.run_id)).count("tool_called") == 1
    assert told(spy) == ["worker: draft"]


async def test_a_gated_delegation_goes_where_the_answer_says(open_bread: OpenBread) -> None:
    """B36, B42, C23: edited arguments are what starts the child; the log has both."""
    spy = Spy(script(delegate("worker", "draft")))
    boss = team(spy, "worker", "other", permissions={"ask": ["core:delegate"]})
    async with open_bread(boss, worker(), worker("other")) as bread:
        handle = bread.run("boss", "go")
        asked = question(await read(handle))
        with refused("RESPONSE_INVALID"):
            await bread.resume(asked.checkpoint_id, {"approved": True, "args": {"agentId": "other"}})
        edited = {"agentId": "other", "input": ["x"]}
        crumbs = await read(bread.resume(asked.checkpoint_id, {"approved": True, "args": edited}))
        calls = [crumb.args for crumb in crumbs if crumb.type == "tool:call"]
        assert calls == [edited]
        assert list(await children(bread, handle.run_id)) == ["other"]
    assert told(spy) == ['other: ["x"]']


@pytest.mark.parametrize(
    ("sub", "input", "code"),
    [
        ("shop", "one tea", "INPUT_INVALID"),
        ("stranger", 1, "DELEGATE_AGENT_NOT_CONFIGURED"),
        ("ghost", 1, "AGENT_NOT_FOUND"),
    ],
)
async def test_nobody_is_asked_about_what_cannot_be(open_bread: OpenBread, sub: str, input: Any, code: str) -> None:
    """B42, B98, B99: a gated delegation that would be refused is refused at once, before a person sees it."""
    spy = Spy([[delegate(sub, input)], [delegate("shop", {"item": "tea"})], [text("Done.")]])
    shop = define_agent("shop", model=ScriptedModel([[text("Sold.")]]), input=Order)
    boss = team(spy, "shop", "ghost", permissions={"ask": ["core:delegate"]})
    async with open_bread(boss, shop, worker("stranger")) as bread:
        crumbs = await read(bread.run("boss", "go"))
        assert types(crumbs)[:2] == ["agent:run:start", "tool:error"]
        assert [crumb.code for crumb in crumbs if crumb.type == "tool:error"] == [code]
        asked = question(crumbs)
        assert asked.args == {"agentId": "shop", "input": {"item": "tea"}}
        assert await bread.resume(asked.checkpoint_id, {"approved": True}) == "Done."
    assert told(spy) == ["Sold."]


@pytest.mark.parametrize(
    ("response", "code"),
    [
        ({"approved": True, "args": {"agentId": "shop", "input": "one tea"}}, "INPUT_INVALID"),
        ({"approved": False, "reason": "no"}, "REJECTED"),
        ({"approved": True, "args": {"agentId": "stranger", "input": 1}}, "DELEGATE_AGENT_NOT_CONFIGURED"),
        ({"approved": True, "args": {"agentId": "ghost", "input": 1}}, "AGENT_NOT_FOUND"),
    ],
)
async def test_a_gated_delegation_that_comes_to_nothing(open_bread: OpenBread, response: Any, code: str) -> None:
    """B37, B99, C31: rejected, or approved for somebody that cannot have it; the model is told and goes on."""
    spy = Spy(script(delegate("worker", "draft")))
    boss = team(spy, "worker", "ghost", "shop", permissions={"ask": ["core:*"]})
    shop = define_agent("shop", model=ScriptedModel([]), input=Order)
    async with open_bread(boss, worker(), worker("stranger"), shop) as bread:
        handle = bread.run("boss", "go")
        asked = question(await read(handle))
        crumbs = await read(bread.resume(asked.checkpoint_id, response))
        assert [crumb.code for crumb in crumbs if crumb.type == "tool:error"] == [code]
        assert await children(bread, handle.run_id) == {}
        assert crumbs[-1].type == "agent:run:end"
