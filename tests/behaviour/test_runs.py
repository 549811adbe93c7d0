"""Runs: how they begin, what they show and keep, how they end."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from bread import Bread, ModelRequest, RunSuspended, define_tool
from bread.testing import call, pause, text
from scenes import (
    Gate,
    Heard,
    OpenBread,
    Spy,
    agent,
    ask_first,
    asking,
    asks,
    double,
    ended,
    plain,
    refused,
)
from support import read, said, types, wire


async def test_a_stream_starts_with_the_input_and_ends_with_the_output(open_bread: OpenBread) -> None:
    """B1: agent:run:start with the input, text deltas, agent:run:end with output and durationMs."""
    async with open_bread(agent([[text("Hello, dear reader.")]])) as bread:
        handle = bread.run("a", {"topic": "bread"}, session="s1")
        crumbs = await read(handle)
        assert types(crumbs) == ["agent:run:start", "text:delta", "agent:run:end"]
        assert said(crumbs) == "Hello, dear reader."
        start, end = wire(crumbs[0]), wire(crumbs[-1])
        assert start["input"] == {"topic": "bread"}
        assert end["output"] == "Hello, dear reader."
        assert end["durationMs"] >= 0
        for crumb in map(wire, crumbs):
            assert crumb["runId"] == crumb["rootRunId"] == handle.run_id
            assert (crumb["agentId"], crumb["sessionId"], crumb["path"]) == ("a", "s1", [])
            assert crumb.keys() >= {"seq", "cursor", "timestamp", "type"}


async def test_an_unknown_skill_is_refused_before_anything_is_written(open_bread: OpenBread) -> None:
    """B1: the skill of a run is one that the agent has."""
    async with open_bread(agent([[text("Hi.")]])) as bread:
        with refused("SKILL_NOT_FOUND"):
            await bread.run("a", "go", skill="proofreading")
        assert (await bread.list_runs()).items == []


async def test_awaiting_gives_the_output_and_everybody_else_hears_the_crumbs(open_bread: OpenBread) -> None:
    """B2: the output for who awaits; listeners and the log have every durable crumb all the same."""
    heard = Heard("agent:run:end")
    async with open_bread(agent([[call("tool_double", {"number": 4})], [text("Eight.")]], double)) as bread:
        bread.on("crumb", heard)
        handle = bread.run("a", "go")
        assert await handle == "Eight."
        await heard.wait()
        logged = await ended(bread, handle.run_id)
        expected = ["agent:run:start", "tool:call", "tool:result", "text:delta", "agent:run:end"]
        assert types(heard) == types(logged) == expected
        assert said(heard) == said(logged) == "Eight."


async def test_awaiting_a_run_that_suspends_names_the_checkpoints(open_bread: OpenBread) -> None:
    """B2, Q RUN_SUSPENDED: the error has the run and the checkpoints that can be answered."""
    async with open_bread(agent(asks({"n": 1}, {"n": 2}), asking())) as bread:
        handle = bread.run("a", "go")
        with pytest.raises(RunSuspended) as caught:
            await handle
        listed = [one.id for one in (await bread.list_checkpoints()).items]
        assert caught.value.code == "RUN_SUSPENDED"
        assert caught.value.run_id == handle.run_id
        assert caught.value.checkpoints == caught.value.details["checkpoints"] == listed
        assert len(listed) == 2


async def test_sessions_are_made_reused_and_named(open_bread: OpenBread) -> None:
    """B3: no session option makes one, a known id is reused, an unknown one is created with its tags."""
    async with open_bread(agent([[text("Hi.")]])) as bread:
        made = (await read(bread.run("a", "one")))[0].session_id
        other = (await read(bread.run("a", "two")))[0].session_id
        assert made != other
        assert (await bread.sessions.get(made)).tags == {}

        await bread.run("a", "three", session="mine", tags={"team": "red", "tier": "gold"})
        assert (await bread.sessions.get("mine")).tags == {"team": "red", "tier": "gold"}
        await bread.run("a", "four", session="mine", tags={"tier": "blue"})
        assert (await bread.sessions.get("mine")).tags == {"team": "red", "tier": "blue"}
        assert [run.input for run in await runs_of(bread, "mine")] == ["three", "four"]
        assert {one.id for one in (await bread.sessions.list()).items} == {made, other, "mine"}
        assert [one.id for one in (await bread.sessions.list(tags={"team": "red"})).items] == ["mine"]
        assert (await bread.sessions.list(tags={"team": "red", "tier": "gold"})).items == []


async def runs_of(bread: Bread, session: str) -> list[Any]:
    """The runs of a session, oldest first, whole."""
    page = await bread.list_runs(session=session)
    return [await bread.get_run(run.id) for run in reversed(page.items)]


@pytest.mark.parametrize(
    ("given", "kept"),
    [("as it is", "as it is"), ({"a": [1, None]}, '{"a": [1, null]}'), (7, "7"), ("ünï", "ünï"), (["ü"], '["ü"]')],
)
async def test_the_users_message_is_there_before_the_model_is_called(
    open_bread: OpenBread, given: Any, kept: str
) -> None:
    """B4: a string as it is, anything else as JSON; in the store by the time the model thinks."""
    found: list[Any] = []

    async def turn(request: ModelRequest) -> list[Any]:
        found.extend(await bread.sessions.messages("s1"))
        assert [plain(message) for message in request.messages] == [("user", kept)]
        return [text("Hi.")]

    async with open_bread(agent(turn)) as bread:
        await bread.run("a", given, session="s1")
    assert found == [{"role": "user", "text": kept}]


async def test_the_whole_history_of_the_session_is_part_of_the_prompt(open_bread: OpenBread) -> None:
    """B5: messages, calls, results and answers of earlier runs of the session, in order; of no other session."""
    spy = Spy([[text("Wait."), call("tool_double", {"number": 2}), call("human_ask", {"q": 1})], [text("Done.")]])
    async with open_bread(agent(spy, double, asking())) as bread:
        asked = await ask_first(bread, input="first", session="s1")
        await bread.resume(asked.checkpoint_id, "yes")
        await ask_first(bread, input="elsewhere", session="s2")
        asked = await ask_first(bread, input="second", session="s1")
        assert await bread.resume(asked.checkpoint_id, "no") == "Done."
    calls = [("tool_double", {"number": 2}), ("human_ask", {"q": 1})]
    first = [
        ("user", "first"),
        ("assistant", "Wait.", calls),
        ("tool", "tool_double", 4, "ok"),
        ("tool", "human_ask", "yes", "ok"),
    ]
    second = [("user", "second"), ("assistant", "Wait.", calls), ("tool", "tool_double", 4, "ok")]
    answered = ("tool", "human_ask", "no", "ok")
    end: Any = ("assistant", "Done.", [])
    assert spy.seen[:2] == [[("user", "first")], first]
    assert spy.seen[2] == [("user", "elsewhere")]
    assert spy.seen[3:] == [[*first, end, ("user", "second")], [*first, end, *second, answered]]


async def test_a_tool_is_called_once_and_its_result_goes_to_the_model(open_bread: OpenBread) -> None:
    """B6: one tool:call, one tool:result with durationMs; the result is a message, and the model goes on with it."""
    spy = Spy([[call("tool_double", {"number": 21}, id="c1")], [text("42.")]])
    async with open_bread(agent(spy, double)) as bread:
        crumbs = await read(bread.run("a", "go", session="s1"))
        assert types(crumbs) == ["agent:run:start", "tool:call", "tool:result", "text:delta", "agent:run:end"]
        called, result = (wire(crumb) for crumb in crumbs if crumb.type in ("tool:call", "tool:result"))
        assert (called["toolName"], called["args"]) == ("double", {"number": 21})
        assert (result["toolName"], result["result"]) == ("double", 42)
        assert called["toolCallId"] == result["toolCallId"] == "c1"
        assert result["durationMs"] >= 0
        kept = (await bread.sessions.messages("s1"))[2]
        assert kept == {"role": "tool", "toolCallId": "c1", "tool": "tool_double", "content": 42, "outcome": "ok"}
    assert spy.seen[1][-1] == ("tool", "tool_double", 42, "ok")


async def fails_async() -> None:
    raise ValueError("the cake is a lie")


def fails_sync() -> None:
    raise ValueError("the cake is a lie")


async def fails_streaming() -> AsyncIterator[int]:
    yield 1
    raise ValueError("the cake is a lie")


@pytest.mark.parametrize("function", [fails_async, fails_sync, fails_streaming])
async def test_a_tool_that_raises_is_told_to_the_model(open_bread: OpenBread, function: Any) -> None:
    """B7, Q TOOL_ERROR: tool:error, the text of the error goes back to the model, the run goes on."""
    spy = Spy([[call("tool_bake")], [text("No cake, then.")]])
    async with open_bread(agent(spy, define_tool(name="bake")(function))) as bread:
        crumbs = await read(bread.run("a", "go"))
        assert types(crumbs) == ["agent:run:start", "tool:call", "tool:error", "text:delta", "agent:run:end"]
        error = next(wire(crumb) for crumb in crumbs if crumb.type == "tool:error")
        assert (error["code"], error["message"]) == ("TOOL_ERROR", "ValueError: the cake is a lie")
        assert error["durationMs"] >= 0
    assert spy.seen[1][-1] == ("tool", "tool_bake", "ValueError: the cake is a lie", "error")


async def test_a_streaming_tool_shows_its_values_and_the_last_one_is_the_result(open_bread: OpenBread) -> None:
    """B8: each value is a tool:result:partial, a live hint that is never replayed."""
    watched = asyncio.Event()

    @define_tool
    async def count() -> AsyncIterator[int]:
        await watched.wait()
        for number in (1, 2, 3):
            yield number

    async with open_bread(agent([[call("tool_count", id="c1")], [text("Three.")]], count)) as bread:
        handle, live = bread.run("a", "go"), []
        async for crumb in handle:
            live.append(crumb)
            if crumb.type == "tool:call":
                watched.set()
        partial = [crumb for crumb in live if crumb.type == "tool:result:partial"]
        assert [(one.result, one.tool_call_id, one.tool_name) for one in partial] == [
            (value, "c1", "count") for value in (1, 2, 3)
        ]
        assert [crumb.result for crumb in live if crumb.type == "tool:result"] == [3]
        assert "tool:result:partial" not in [crumb.type for crumb in await ended(bread, handle.run_id)]


async def test_streamed_arguments_come_ahead_of_the_call(open_bread: OpenBread) -> None:
    """B9: tool:input:start, delta*, end before the call, with its toolCallId; never replayed."""
    gate = Gate()
    script = [[pause(gate), call("tool_double", {"number": 3}, id="c1"), call("tool_double", {"number": 4}, id="c1")]]
    async with open_bread(agent([*script, [text("Done.")]], double)) as bread:
        handle, live = bread.run("a", "go"), []
        async for crumb in handle:
            live.append(crumb)
            gate.open()
        first, second = (crumb.tool_call_id for crumb in live if crumb.type == "tool:call")
        assert first == "c1"
        assert second != "c1"
        shown: dict[str, list[str]] = {first: [], second: []}
        for crumb in live:
            if crumb.type == "tool:input:delta":
                shown[crumb.tool_call_id].append(crumb.text)
            elif crumb.type in ("tool:input:start", "tool:input:end", "tool:call"):
                shown[crumb.tool_call_id].append(crumb.type)
        for number, parts in zip((3, 4), shown.values(), strict=True):
            assert parts == ["tool:input:start", f'{{"number": {number}}}', "tool:input:end", "tool:call"]
        replayed = {crumb.type for crumb in await ended(bread, handle.run_id)}
        assert not {kind for kind in replayed if kind.startswith("tool:input")}


async def test_too_many_steps_end_the_run_with_everything_kept(open_bread: OpenBread) -> None:
    """B10, Q STEPS_EXCEEDED: the run fails, its history is whole, and retry with more steps goes on from there."""

    def turn(request: ModelRequest) -> list[Any]:
        return [text("Done.")] if request.turn == 4 else [call("tool_double", {"number": request.turn})]

    spy = Spy(turn)
    async with open_bread(agent(spy, double)) as bread:
        handle = bread.run("a", "go", session="s1", max_steps=2)
        with refused("STEPS_EXCEEDED"):
            await handle
        failed = await bread.get_run(handle.run_id)
        assert (failed.status, failed.code) == ("failed", "STEPS_EXCEEDED")
        outcomes = [m["outcome"] for m in await bread.sessions.messages("s1") if m["role"] == "tool"]
        assert outcomes == ["ok", "ok", "error"]
        with refused("STEPS_EXCEEDED"):
            await bread.retry(handle.run_id)
        crumbs = await read(bread.retry(handle.run_id, max_steps=9))
        assert types(crumbs) == ["agent:run:retry", "text:delta", "agent:run:end"]
        assert said(crumbs) == "Done."
    assert [message[2] for message in spy.seen[-1] if message[0] == "tool" and message[3] == "ok"] == [0, 2]


async def test_the_default_is_twenty_steps(open_bread: OpenBread) -> None:
    """B10: twenty turns with tool calls pass, the twenty-first does not."""
    for turns, code in ((20, None), (21, "STEPS_EXCEEDED")):
        script = [*([[call("tool_double", {"number": 1})]] * turns), [text("Done.")]]
        async with open_bread(agent(script, double)) as bread:
            handle = bread.run("a", "go")
            crumbs = await read(handle)
            assert len([crumb for crumb in crumbs if crumb.type == "tool:result"]) == 20
            assert (await bread.get_run(handle.run_id)).code == code
