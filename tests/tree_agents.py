"""Compositions for the tests of the command line: named by --app in the processes, imported by the tests."""

from __future__ import annotations

from typing import Any

from bread import Agent, Bread, Loop, ModelRequest, Supervisor, define_agent, define_human_tool, parallel, step
from bread.domain.messages import ToolMessage, UserMessage
from bread.testing import ScriptedModel, call, fail, text

ANSWER = {"type": "object", "properties": {"approved": {"type": "boolean"}}, "required": ["approved"]}
approve = define_human_tool("approve", {"type": "object"}, response=ANSWER, prompt="Go on with {what}?")


def given(request: ModelRequest) -> str:
    [*_, message] = [message for message in request.messages if isinstance(message, UserMessage)]
    return message.text


def result(request: ModelRequest) -> Any:
    return next(message.content for message in reversed(request.messages) if isinstance(message, ToolMessage))


def asks(id: str) -> Agent:
    """Asks a person once, and says its name."""

    def script(request: ModelRequest) -> list[Any]:
        return [text(f"{id} is done")] if request.turn else [call("human_approve", {"what": id})]

    return define_agent(id, model=ScriptedModel(script), tools=[approve])


def echo(request: ModelRequest) -> list[Any]:
    return [text(f"echo: {given(request)}")]


def delegates(request: ModelRequest) -> list[Any]:
    return (
        [text(f"lead: {result(request)}")]
        if request.turn
        else [call("core_delegate", {"agentId": "expert", "input": "look"})]
    )


def composes(request: ModelRequest) -> list[Any]:
    turns: list[list[Any]] = [
        [call("core_start_loop", {"pipeline": ["echo"], "input": "first"})],
        [call("core_iterate_loop")],
        [call("core_iterate_loop", {"feedback": "again"})],
        [call("core_finish_loop", {"result": "good"})],
        [text("looped")],
    ]
    return turns[request.turn]


everybody = Bread(
    agents=[
        asks("law"),
        asks("finance"),
        asks("expert"),
        define_agent("echo", model=ScriptedModel(echo)),
        define_agent("lead", model=ScriptedModel(delegates), supervisor=Supervisor(agents=["expert"])),
        define_agent("host", model=ScriptedModel(composes), loop=Loop(pool=["echo", "law"], max_iterations=3)),
        define_agent("broken", model=ScriptedModel([[fail("out of order", times=99, retryable=False)]])),
    ],
    pipelines={
        "contract": [step("echo"), parallel("law", "finance"), step("echo")],
        "case": [parallel("lead", "law"), step("echo")],
        "plain": [step("echo"), step("echo")],
        "faulty": [step("echo"), step("broken")],
    },
)
