"""Models and tools that give what is none: told to the model, or the end of the run, and never a half."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
from pydantic import BaseModel

from bread import ModelRequest, define_agent, define_human_tool, define_tool
from bread.domain.messages import ToolUse, native_message
from bread.domain.ports import TurnDone
from bread.testing import call, text
from scenes import (
    Counter,
    OpenBread,
    Spy,
    agent,
    engine_of,
)
from support import read, types, wire

from .bad_input import IN_MEMORY, nested

# --- models -----------------------------------------------------------------------------------------------------------


@define_tool
async def typed(number: int, names: list[str] | None = None) -> int:
    return number


@pytest.mark.parametrize(
    "args",
    [
        {"number": "many"},
        {"number": None},
        {"number": 1.5},
        {"number": [1]},
        {},
        {"number": 1, "names": "x"},
        {"number": 1, "extra": True},
        {"INVALID_JSON": '{"number": 1'},
        "number",
        7,
        [],
        [{"number": 1}],
        True,
        {"number": float("nan")},
        {"number": nested(200)},
        {"\ud800": 1},
    ],
    ids=lambda args: ascii(args)[:24],
)
async def test_arguments_that_do_not_fit_are_told_to_the_model(open_bread: OpenBread, args: Any) -> None:
    """B6, Q INPUT_INVALID: nothing is executed, the model reads what is wrong, and the run goes on."""
    spy = Spy([[call("tool_typed", args), call("tool_typed", {"number": 3})], [text("Sorry.")]])
    async with open_bread(agent(spy, typed)) as bread:
        crumbs = await read(bread.run("a", "go"))
        assert sorted(types(crumbs)) == sorted(
            ["agent:run:start", "tool:error", "tool:call", "tool:result", "text:delta", "agent:run:end"]
        )
        assert [crumb.code for crumb in crumbs if crumb.type == "tool:error"] == ["INPUT_INVALID"]
        for crumb in crumbs:
            json.dumps(wire(crumb), allow_nan=False)
    wrong, right = spy.seen[1][2:]
    assert wrong[3] == "error"
    assert "tool_typed do not fit" in wrong[2]
    assert right[2:] == (3, "ok")


@IN_MEMORY
@pytest.mark.parametrize("args", ["text", 7, [], True, {"url": 7}, {}])
async def test_arguments_of_a_question_have_to_fit_too(open_bread: OpenBread, args: Any) -> None:
    """B19, Q INPUT_INVALID: no person is bothered with a question that is none."""

    class Publish(BaseModel):
        url: str

    spy = Spy([[call("human_publish", args)], [text("Sorry.")]])
    async with open_bread(agent(spy, define_human_tool("publish", Publish))) as bread:
        assert types(await read(bread.run("a", "go"))) == [
            *("agent:run:start", "tool:error"),
            *("text:delta", "agent:run:end"),
        ]
        assert (await bread.list_checkpoints()).items == []


@IN_MEMORY
@pytest.mark.parametrize(
    "name", ["tool_gone", "typed", "", "human_", "tool_typed ", "core_delegate", "tool_\ud800", "x" * 9999]
)
async def test_a_tool_that_is_not_there_is_told_to_the_model(open_bread: OpenBread, name: str) -> None:
    """B6, Q TOOL_NOT_FOUND: with the names that there are; no tool:call, and the run goes on."""
    spy = Spy([[call(name, {"number": 1})], [text("Sorry.")]])
    async with open_bread(agent(spy, typed)) as bread:
        crumbs = await read(bread.run("a", "go"))
        assert types(crumbs) == ["agent:run:start", "tool:error", "text:delta", "agent:run:end"]
        assert [crumb.code for crumb in crumbs if crumb.type == "tool:error"] == ["TOOL_NOT_FOUND"]
    assert "tool_typed" in spy.seen[1][-1][2]


@IN_MEMORY
@pytest.mark.parametrize(
    "args",
    [object(), {1: 2}, nested(300), nested(5000), 10**5000, {"a": {1, 2}}],
    ids=["object", "key", "deep", "deeper", "huge", "set"],
)
async def test_arguments_that_are_no_json_fail_the_model(open_bread: OpenBread, args: Any) -> None:
    """B59, Q MODEL_ERROR: an adapter that gives them is broken; everything before is kept, and retry goes on."""
    sane = False

    def turn(request: ModelRequest) -> list[Any]:
        if request.turn == 0:
            return [call("tool_typed", {"number": 1})]
        return [text("Done.")] if sane else [call("tool_typed", args)]

    async with open_bread(agent(turn, typed)) as bread:
        crumbs = await read(bread.run("a", "go"))
        assert types(crumbs) == ["agent:run:start", "tool:call", "tool:result", "agent:error"]
        assert wire(crumbs[-1])["code"] == "MODEL_ERROR"
        sane = True
        assert await bread.retry(crumbs[0].run_id) == "Done."


@IN_MEMORY
@pytest.mark.parametrize("nonsense", ["no event", None, 7, "no generator", "huge"])
async def test_a_model_that_is_none_fails_its_run(open_bread: OpenBread, nonsense: Any) -> None:
    """B59, Q MODEL_ERROR, Q AGENT_ERROR: loudly and once, with everything kept; nothing loops."""
    calls = Counter()

    class Broken:
        name = "broken"

        async def stream(self, request: ModelRequest) -> AsyncIterator[Any]:
            calls()
            if nonsense == "huge":
                yield TurnDone(native_message("", (ToolUse("tool_typed", {"number": 10**5000}),)))
            else:
                yield nonsense

    class NoGenerator(Broken):
        def stream(self, request: ModelRequest) -> Any:
            calls()
            return 7

    model: Any = NoGenerator() if nonsense == "no generator" else Broken()
    async with open_bread(define_agent("a", model=model, tools=[typed]), backoff=(0.0,)) as bread:
        crumbs = await read(bread.run("a", "go"))
        assert wire(crumbs[-1])["code"] == ("AGENT_ERROR" if nonsense == "huge" else "MODEL_ERROR")
    assert calls.total in (1, 4)


class Quits(BaseException):
    """Something of a library that is no Exception."""


@IN_MEMORY
@pytest.mark.parametrize("error", [asyncio.CancelledError(), Quits("bye"), SystemExit(3), GeneratorExit()], ids=repr)
async def test_a_model_that_raises_what_is_no_exception(open_bread: OpenBread, error: BaseException) -> None:
    """B59, Q MODEL_ERROR: the run fails once, the program goes on, and retry does too."""
    calls = Counter()

    def turn(request: ModelRequest) -> list[Any]:
        if calls() == 1:
            raise error
        return [text("Hi.")]

    async with open_bread(agent(turn)) as bread:
        crumbs = await read(bread.run("a", "go"))
        assert types(crumbs) == ["agent:run:start", "agent:error"]
        assert wire(crumbs[-1])["code"] == "MODEL_ERROR"
        assert await bread.retry(crumbs[0].run_id) == "Hi."
    assert calls.total == 2


# --- tools ------------------------------------------------------------------------------------------------------------


def _cycle() -> Any:
    found: list[Any] = []
    found.append(found)
    return found


@IN_MEMORY
@pytest.mark.parametrize(
    "result",
    [object(), b"\xff", _cycle(), nested(300), 10**5000, lambda: None, {object(): 1}],
    ids=["object", "bytes", "cycle", "deep", "huge", "function", "key"],
)
@pytest.mark.parametrize("kind", ["async", "sync", "stream"])
async def test_a_result_without_a_json_form_is_an_error_of_the_tool(
    open_bread: OpenBread, result: Any, kind: str
) -> None:
    """B7, Q TOOL_ERROR: told to the model; the tool ran once, the run goes on, nobody is asked what happened."""
    ran = Counter()

    async def give() -> Any:
        ran()
        return result

    def give_sync() -> Any:
        ran()
        return result

    async def give_stream() -> Any:
        ran()
        yield result

    function = {"async": give, "sync": give_sync, "stream": give_stream}[kind]
    spy = Spy([[call("tool_give")], [text("Odd.")]])
    async with open_bread(agent(spy, define_tool(name="give")(function))) as bread:
        crumbs = await read(bread.run("a", "go"))
        assert types(crumbs) == ["agent:run:start", "tool:call", "tool:error", "text:delta", "agent:run:end"]
        assert [crumb.code for crumb in crumbs if crumb.type == "tool:error"] == ["TOOL_ERROR"]
    assert ran.total == 1
    assert "no JSON form" in spy.seen[1][-1][2]


@IN_MEMORY
@pytest.mark.parametrize(
    "error",
    [
        asyncio.CancelledError(),
        Quits("bye"),
        SystemExit(3),
        GeneratorExit(),
        StopIteration(5),
        StopAsyncIteration(),
        RecursionError("deep"),
        MemoryError(),
        TimeoutError(),
        ValueError("\udcff broken name"),
        ExceptionGroup("several", [ValueError("a"), KeyError("b")]),
    ],
    ids=lambda error: type(error).__name__,
)
@pytest.mark.parametrize("kind", ["async", "sync", "stream"])
async def test_whatever_a_tool_raises_is_told_to_the_model(
    open_bread: OpenBread, error: BaseException, kind: str
) -> None:
    """B7, Q TOOL_ERROR: also what is no Exception; once, without taking the program or the run with it."""
    ran = Counter()

    async def act() -> None:
        ran()
        raise error

    def act_sync() -> None:
        ran()
        raise error

    async def act_stream() -> AsyncIterator[int]:
        ran()
        yield 1
        raise error

    function: Any = {"async": act, "sync": act_sync, "stream": act_stream}[kind]
    spy = Spy([[call("tool_act")], [text("Odd.")]])
    async with open_bread(agent(spy, define_tool(name="act")(function))) as bread:
        crumbs = await read(bread.run("a", "go"))
        assert types(crumbs) == ["agent:run:start", "tool:call", "tool:error", "text:delta", "agent:run:end"]
        assert [crumb.code for crumb in crumbs if crumb.type == "tool:error"] == ["TOOL_ERROR"]
        assert not engine_of(bread).actors
    assert ran.total == 1
    assert spy.seen[1][-1][3] == "error"


async def test_a_streaming_tool_that_gives_nothing_has_no_result(open_bread: OpenBread) -> None:
    """B8: that is a result too."""

    @define_tool
    async def silent() -> AsyncIterator[int]:
        for number in list[int]():
            yield number

    spy = Spy([[call("tool_silent")], [text("Done.")]])
    async with open_bread(agent(spy, silent)) as bread:
        await bread.run("a", "go")
    assert spy.seen[1][-1][2:] == (None, "ok")
