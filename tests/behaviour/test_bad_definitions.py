"""Definitions that are none: names, schemas, options and arguments, refused when they are made."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from bread import Bread, ModelRequest, ToolContext, define_agent, define_human_tool, define_tool
from bread.testing import ScriptedModel, call, text
from scenes import (
    ANY,
    OpenBread,
    Spy,
    agent,
    asking,
    question,
    refused,
)
from support import read, types

MODEL = ScriptedModel([[text("Hi.")]])


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
        with uncollected():
            crumbs = await read(bread.run("a", "go"))
            assert types(crumbs) == ["agent:run:start", "tool:error", "human:required"]
            for _ in range(2):
                with refused("RESPONSE_INVALID"):
                    await bread.resume(question(crumbs).checkpoint_id, "yes")


@contextmanager
def uncollected() -> Iterator[None]:
    """What other tests have left cannot be finalized at the bottom of a recursion, and would be blamed on this one."""
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


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
