"""Bad input from programs, models and tools: one clear error with a code, and nothing lost by it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from datetime import timedelta
from typing import Any

import pytest
from pydantic import BaseModel

from bread import AnswerCheckpoint, Bread, ModelRequest, ToolContext, define_agent, define_human_tool, define_tool
from bread.domain.messages import ToolUse, native_message
from bread.domain.ports import TurnDone
from bread.testing import ScriptedModel, call, text
from scenes import (
    ANY,
    Counter,
    OpenBread,
    Spy,
    agent,
    ask_first,
    asking,
    asks,
    ended,
    engine_of,
    names,
    question,
    refused,
)
from support import read, types, wire

MODEL = ScriptedModel([[text("Hi.")]])

# What is refused before the store sees it, or is an outcome like any other, needs one store to be shown.
IN_MEMORY = pytest.mark.parametrize("mode", ["memory"])


def nested(depth: int) -> Any:
    value: Any = 0
    for _ in range(depth):
        value = [value]
    return value


# --- definitions ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name", ["", "Ask", "ask me", "1ask", "_ask", "ask-me", "äsk", "a" * 65, "ask\n", "../ask", "a.b", None, 7]
)
def test_a_name_that_is_none_is_refused(name: Any) -> None:
    """B13, B71, Q INVALID_NAME: lowercase snake_case, a letter first; agents, tools and human tools alike."""
    with refused("INVALID_NAME"):
        define_agent(name, model=MODEL)
    with refused("INVALID_NAME"):
        define_human_tool(name, ANY)
    if name:
        with refused("INVALID_NAME"):
            define_tool(name=name)(test_a_name_that_is_none_is_refused)
    with refused("INVALID_NAME"):
        define_tool(lambda: None)


async def test_names_of_all_scopes_are_what_the_model_sees(open_bread: OpenBread) -> None:
    """B13: <scope>_<name>; a plain and a human tool of one name do not collide."""

    @define_tool(name="ask")
    async def plain() -> str:
        return "plainly"

    spy = Spy([[call("tool_ask"), call("human_ask")], [text("Done.")]])
    async with open_bread(agent(spy, plain, asking())) as bread:
        crumbs = await read(bread.run("a", "go"))
        assert [crumb.tool_name for crumb in crumbs if crumb.type in ("tool:call", "human:required")] == ["ask"] * 2
    assert [spec.name for spec in spy.requests[0].tools] == ["tool_ask", "human_ask"]


def test_two_tools_of_one_name_are_refused_when_the_agent_is_made() -> None:
    """B12, Q TOOL_NAME_COLLISION."""

    @define_tool
    async def fetch() -> None: ...

    @define_tool(name="fetch")
    async def other() -> None: ...

    for tools in ([fetch, other], [fetch, fetch], [asking(), asking()]):
        with refused("TOOL_NAME_COLLISION"):
            define_agent("a", model=MODEL, tools=tools)
    define_agent("a", model=MODEL, tools=[fetch, asking("fetch")])


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "strin"},
        {"type": "object", "properties": []},
        {"pattern": "("},
        {"minimum": "3"},
        {"required": "url"},
        {"$ref": "#/$defs/nothing"},
        {"properties": {"a": {"items": {"$ref": "#/nowhere"}}}},
        {"$ref": "https://nobody.invalid/schema.json"},
        "object",
        True,
        None,
        [],
        int,
        dict,
    ],
    ids=str,
)
def test_a_schema_that_is_none_is_refused_at_definition(schema: Any) -> None:
    """B20, B27, Q INPUT_INVALID: of the arguments and of the response; nothing is fetched from elsewhere."""
    with refused("INPUT_INVALID"):
        define_human_tool("ask", schema)
    if schema is not None:
        with refused("INPUT_INVALID"):
            define_human_tool("ask", ANY, response=schema)


def test_schemas_may_refer_to_their_own_parts() -> None:
    """B20: trees, anchors and definitions are fine; so is a `$ref` that is data."""
    tree = {
        "$defs": {"node": {"properties": {"kids": {"type": "array", "items": {"$ref": "#/$defs/node"}}}}},
        "$ref": "#/$defs/node",
    }
    for schema in (tree, {"$defs": {"x": {"$anchor": "here"}}, "$ref": "#here"}, {"const": {"$ref": "#/nowhere"}}):
        define_human_tool("ask", schema, response=schema)


async def test_a_schema_that_goes_in_circles_lets_nothing_through(open_bread: OpenBread) -> None:
    """B27, Q RESPONSE_INVALID: the model or the person is told, nothing breaks, and the question stays."""
    loop = {"$ref": "#"}
    script = [[call("human_loop")], [call("human_ask")], [text("Done.")]]
    tools = define_human_tool("loop", loop), define_human_tool("ask", ANY, response=loop)
    async with open_bread(agent(script, *tools)) as bread:
        crumbs = await read(bread.run("a", "go"))
        assert types(crumbs) == ["agent:run:start", "tool:error", "human:required"]
        for _ in range(2):
            with refused("RESPONSE_INVALID"):
                await bread.resume(question(crumbs).checkpoint_id, "yes")


def test_definitions_of_another_shape_are_refused() -> None:
    """B12, Q INPUT_INVALID: each with the place that is wrong."""

    def positional(a: int, /) -> None: ...

    def many(*a: int) -> None: ...

    def named(**a: int) -> None: ...

    def hidden(_a: int) -> None: ...

    def unknown(a: Nothing) -> None: ...  # type: ignore[name-defined]  # noqa: F821

    def strange(a: Callable[[], Any]) -> None: ...

    for function in (positional, many, named, hidden, unknown, strange):
        with refused("INPUT_INVALID"):
            define_tool(name="t")(function)

    class Nameless:
        async def stream(self, request: ModelRequest) -> Any: ...

    wrong: list[dict[str, Any]] = [
        {"model": None},
        {"model": "gpt"},
        {"model": "openai:"},
        {"model": "OpenAI:gpt"},
        {"prompt": None},
        {"skills": [print]},
        {"output": "text"},
        {"output": {"type": "nothing"}},
        {"input": int},
        {"output_retries": -1},
        {"model": Nameless()},
        {"tools": [print]},
        {"tools": [None]},
        {"max_steps": 0},
        {"max_steps": "20"},
    ]
    for options in wrong:
        with refused("INPUT_INVALID"):
            define_agent("a", **({"model": MODEL} | options))
    for agents in ([print], [None]):
        with refused("INPUT_INVALID"):
            Bread(agents=agents)  # type: ignore[arg-type]
    with refused("INVALID_NAME"):
        Bread(agents=[define_agent("a", model=MODEL)] * 2)
    with refused("INPUT_INVALID"):
        Bread(concurrency=0)


async def test_any_argument_name_that_python_takes_works(open_bread: OpenBread) -> None:
    """B6: also those that pydantic's classes have for themselves."""

    @define_tool
    async def render(json: str, schema: str, copy: bool, model_name: str, class_: str = "c") -> str:
        return f"{json} {schema} {copy} {model_name} {class_}"

    args: Any = {"json": "j", "schema": "s", "copy": True, "model_name": "m"}
    spy = Spy([[call("tool_render", args)], [text("Done.")]])
    async with open_bread(agent(spy, render)) as bread:
        await bread.run("a", "go")
    assert spy.seen[1][-1][2:] == ("j s True m c", "ok")


@pytest.mark.parametrize("optional", [False, True])
async def test_the_context_is_never_the_models(open_bread: OpenBread, optional: bool) -> None:
    """B6, C54: however it is annotated, it is no argument, and a model that sends one is told so."""
    contexts: list[Any] = []

    @define_tool(name="look")
    async def plain(ctx: ToolContext) -> str:
        contexts.append(ctx)
        return "looked"

    @define_tool(name="look")
    async def may_be_none(ctx: ToolContext | None = None) -> str:
        contexts.append(ctx)
        return "looked"

    forged: Any = {
        "ctx": {"run_id": "r", "session_id": "s", "agent_id": "a", "tool_call_id": "t", "idempotency_key": "k"}
    }
    spy = Spy([[call("tool_look", forged)], [call("tool_look", id="c2")], [text("Done.")]])
    async with open_bread(agent(spy, may_be_none if optional else plain)) as bread:
        crumbs = await read(bread.run("a", "go", session="s1"))
        assert [crumb.code for crumb in crumbs if crumb.type == "tool:error"] == ["INPUT_INVALID"]
    assert spy.requests[0].tools[0].schema["properties"] == {}  # type: ignore[index,call-overload]
    (context,) = contexts
    assert (context.run_id, context.session_id, context.agent_id) == (crumbs[0].run_id, "s1", "a")
    assert (context.tool_call_id, context.approved_by) == ("c2", None)
    assert context.idempotency_key.startswith(crumbs[0].run_id)


# --- ids, cursors and options -----------------------------------------------------------------------------------------

NO_IDS = ["nope", "", "\ud800", "x" * 100_000, "run_\x00", "session:s1", "'; DROP TABLE stored_events; --", "%", "ⅷ"]


@IN_MEMORY
@pytest.mark.parametrize("wrong", NO_IDS, ids=lambda text: ascii(text[:12]))
async def test_an_id_of_nothing_is_not_found(open_bread: OpenBread, wrong: str) -> None:
    """B53, Q RUN_NOT_FOUND, Q SESSION_NOT_FOUND, Q AGENT_NOT_FOUND: whatever is sent, one code, nothing written."""
    async with open_bread(agent(asks(), asking())) as bread:
        asked = await ask_first(bread, session="s1")
        before = await names(bread, asked.run_id)
        cases: list[tuple[Callable[[], Any], str]] = [
            (lambda: bread.get_run(wrong), "RUN_NOT_FOUND"),
            (lambda: bread.cancel(wrong), "RUN_NOT_FOUND"),
            (lambda: _output(bread.retry(wrong)), "RUN_NOT_FOUND"),
            (lambda: _output(bread.observe(wrong)), "RUN_NOT_FOUND"),
            (lambda: anext(bread.audit(wrong)), "RUN_NOT_FOUND"),
            (lambda: bread.get_checkpoint(wrong), "CHECKPOINT_NOT_FOUND"),
            (lambda: _output(bread.resume(wrong, "yes")), "CHECKPOINT_NOT_FOUND"),
            (lambda: _output(bread.resume(wrong, "yes", idempotency_key="k")), "CHECKPOINT_NOT_FOUND"),
            (lambda: bread.sessions.get(wrong), "SESSION_NOT_FOUND"),
            (lambda: bread.sessions.messages(wrong), "SESSION_NOT_FOUND"),
            (lambda: _output(bread.run(wrong, "go")), "AGENT_NOT_FOUND"),
        ]
        broken = wrong == "\ud800"  # half a character: nothing can be looked up by it
        for one, code in cases:
            with refused("INPUT_INVALID" if broken else code):
                await one()
        lists: list[Callable[[], Any]] = [
            lambda: bread.list_checkpoints(agent=wrong),
            lambda: bread.list_checkpoints(tool=wrong),
            lambda: bread.list_checkpoints(session=wrong),
            lambda: bread.list_runs(agent=wrong),
            lambda: bread.list_runs(session=wrong),
        ]
        for look in lists:
            if broken:
                with refused("INPUT_INVALID"):
                    await look()
            else:
                assert (await look()).items == []
        for choose in (lambda: bread.list_checkpoints(kind=wrong), lambda: bread.list_runs(status=wrong)):
            with refused("INPUT_INVALID"):
                await choose()
        if not broken:
            assert not await bread.sessions.delete(wrong)
        assert await names(bread, asked.run_id) == before
        assert [one.id for one in (await bread.sessions.list()).items] == ["s1"]


async def _output(handle: Any) -> Any:
    return await handle


@IN_MEMORY
@pytest.mark.parametrize(
    "wrong",
    [
        {"session": ""},
        {"session": " s"},
        {"session": "s\n"},
        {"session": "\ud800"},
        {"session": "s" * 201},
        {"session": 7},
        {"tags": {"": "x"}},
        {"tags": {"a": ""}},
        {"tags": {"a": 1}},
        {"tags": {"a": "x" * 201}},
        {"tags": {"a": "\ud800"}},
        {"tags": {"\ud800": "a"}},
        {"tags": {str(n): "x" for n in range(33)}},
        {"tags": ["a"]},
        {"tags": "a"},
        {"max_steps": 0},
        {"max_steps": "many"},
        {"idempotency_key": ""},
        {"idempotency_key": "k" * 201},
        {"idempotency_key": 7},
        {"on_busy": "panic"},
        {"on_pending": "panic"},
    ],
    ids=lambda options: ascii(options)[:30],
)
async def test_an_option_that_does_not_fit_is_refused(open_bread: OpenBread, wrong: dict[str, Any]) -> None:
    """B3, B55, Q INPUT_INVALID: before anything is written."""
    async with open_bread(agent([[text("Hi.")]])) as bread:
        with refused("INPUT_INVALID"):
            await bread.run("a", "go", **wrong)
        assert (await bread.list_runs()).items == []
        assert (await bread.sessions.list()).items == []


@IN_MEMORY
@pytest.mark.parametrize(
    "wrong",
    [
        {"limit": 0},
        {"limit": -1},
        {"limit": 1001},
        {"limit": "5"},
        {"limit": None},
        {"limit": 2.0},
        {"cursor": "x"},
        {"cursor": "-1"},
        {"cursor": ""},
        {"cursor": "9" * 30},
        {"cursor": "٣"},
        {"cursor": 7},
        {"tags": {"a": 1}},
        {"tags": {"": "x"}},
        {"tags": {"a": "\ud800"}},
        {"tags": "a"},
    ],
    ids=lambda options: ascii(options)[:30],
)
async def test_a_page_that_is_none_is_refused(open_bread: OpenBread, wrong: dict[str, Any]) -> None:
    """B46, Q INPUT_INVALID: limits, cursors and tags of lists."""
    async with open_bread() as bread:
        with refused("INPUT_INVALID"):
            await bread.list_checkpoints(**wrong)
        if "cursor" not in wrong:
            with refused("INPUT_INVALID"):
                await bread.sessions.list(**wrong)
        if "limit" in wrong:
            with refused("INPUT_INVALID"):
                await bread.list_runs(**wrong)


@IN_MEMORY
@pytest.mark.parametrize("wrong", [7, None, {}, ["x"], b"\xff", object()], ids=lambda value: type(value).__name__)
async def test_an_id_of_another_type_is_refused(open_bread: OpenBread, wrong: Any) -> None:
    """B55, Q INPUT_INVALID: or not found; never an error of the driver, never an undecided one."""
    async with open_bread(agent([[text("Hi.")]])) as bread:
        for one in (
            lambda: _output(bread.run(wrong, "go")),
            lambda: _output(bread.resume(wrong, "yes")),
            lambda: bread.cancel(wrong),
            lambda: _output(bread.retry(wrong)),
            lambda: bread.sessions.delete(wrong),
            lambda: _output(bread.resume("cp_x", "yes", comment=wrong)) if wrong is not None else bread.get_run("x"),
            lambda: _output(bread.resume("cp_x", "yes", author=wrong)) if wrong else bread.get_run("x"),
            lambda: bread.get_run(wrong),
            lambda: bread.get_checkpoint(wrong),
            lambda: bread.sessions.get(wrong),
            lambda: bread.sessions.messages(wrong),
            lambda: _output(bread.observe(wrong)),
        ):
            with pytest.raises(Exception) as caught:  # noqa: PT011
                await one()
            code = getattr(caught.value, "code", repr(caught.value))
            assert code == "INPUT_INVALID" or code.endswith("_NOT_FOUND"), code


@IN_MEMORY
@pytest.mark.parametrize(
    "wrong",
    [object(), b"\xff", nested(300), 10**5000, {object(): 1}, open],
    ids=["object", "bytes", "deep", "huge", "key", "function"],
)
async def test_a_value_without_a_json_form_is_refused(open_bread: OpenBread, wrong: Any) -> None:
    """B4, B58, Q INPUT_INVALID: as input and as answer; nothing is written, the question stays."""
    async with open_bread(agent(asks(), asking())) as bread:
        with refused("INPUT_INVALID"):
            await bread.run("a", wrong)
        assert (await bread.list_runs()).items == []
        asked = await ask_first(bread)
        with refused("INPUT_INVALID"):
            await bread.resume(asked.checkpoint_id, wrong)
        assert (await bread.get_checkpoint(asked.checkpoint_id)).status == "pending"


@pytest.mark.parametrize(
    "value",
    ["\ud800", "a\x00b", "🥖" * 1000, 10**300, -(10**30), 1e308, float("nan"), float("inf"), nested(200), ""],
    ids=lambda value: ascii(value)[:12],
)
async def test_strange_but_fitting_values_are_kept(open_bread: OpenBread, value: Any) -> None:
    """B4, B28: lone surrogates, NUL, huge numbers, deep lists: as input, answer and arguments; crumbs stay JSON."""
    spy = Spy([[call("human_ask", {"v": value})], [text("Thanks.")]])
    async with open_bread(agent(spy, asking(prompt="{v}"))) as bread:
        asked = await ask_first(bread, input=[value], session="s1")
        await bread.resume(asked.checkpoint_id, [value], comment="c")
        crumbs = await ended(bread, asked.run_id)
        start, resumed = (wire(crumb) for crumb in crumbs if crumb.type in ("agent:run:start", "human:resumed"))
        plain = "NaN" if value != value else "Infinity" if value == float("inf") else value
        assert start["input"] == resumed["response"] == [plain]
        for crumb in crumbs:
            json.dumps(wire(crumb), allow_nan=False)
        assert (await bread.sessions.messages("s1"))[-1]["text"] == "Thanks."


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


# --- wrong commands ---------------------------------------------------------------------------------------------------


def test_a_command_refuses_what_it_does_not_know() -> None:
    """C54, B56: fields by name, so that a typing error or a forgery is no silent default."""
    for fields in ({"checkpoint": "cp_x"}, {"checkpoint_id": "cp_x", "approved": True}, {}):
        with pytest.raises(ValueError, match=r"checkpoint|approved"):
            AnswerCheckpoint(**fields)


async def test_a_cleanup_takes_an_age(open_bread: OpenBread) -> None:
    """B74, Q INPUT_INVALID: of a timedelta."""
    async with open_bread() as bread:
        for wrong in (30, "30d", timedelta(-1)):
            with refused("INPUT_INVALID"):
                await bread.sessions.cleanup(older_than=wrong)  # type: ignore[arg-type]
