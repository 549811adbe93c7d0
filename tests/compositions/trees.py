"""Compositions as plain data: the agents that play them, and what has to come out, computed without bread."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from bread import Agent, Loop, Step, Supervisor, Tool, define_agent, map_, parallel, sequence, step
from bread.domain.events import JsonValue
from bread.domain.messages import ToolMessage
from bread.domain.ports import ModelRequest
from bread.runtime.scripted import Part
from bread.testing import ScriptedModel, call, fail, text
from scenes import asking

Kind = Literal["leaf", "team", "host", "parallel", "sequence", "map"]
AGENTS = ("leaf", "team", "host")
Turn = Callable[[ModelRequest], Sequence[Part]]
Said = Callable[[Any], Any]


@dataclass(frozen=True)
class Shape:
    """A node of a composition.

    A leaf asks `asks` times, each time beside a call of a tool, and fails in the end if it `fails`. A team delegates to
    its parts in `rounds` turns, asks in the first of them if `asks` is 1; a host runs its parts as a loop, `rounds`
    times. `rounds` of a map is how many items run at once.
    """

    kind: Kind
    parts: tuple[Shape, ...] = ()
    asks: int = 0
    fails: bool = False
    rounds: int = 1
    id: str = ""

    @staticmethod
    def of(data: dict[str, Any]) -> Shape:
        """The shape again from its `asdict`."""
        return Shape(**data | {"parts": tuple(Shape.of(part) for part in data["parts"])})

    @property
    def is_agent(self) -> bool:
        return self.kind in AGENTS


def numbered(shape: Shape, first: int = 0) -> Shape:
    """The shape with an id on every node, each different."""
    numbers = iter(range(first, first + 10_000))

    def number(one: Shape) -> Shape:
        mine = f"{one.kind}_{next(numbers)}"
        return replace(one, id=mine, parts=tuple(number(part) for part in one.parts))

    return number(shape)


def nodes(shape: Shape) -> Iterator[Shape]:
    yield shape
    for part in shape.parts:
        yield from nodes(part)


def steps_of(shape: Shape) -> Step:
    """The node as a step of a pipeline."""
    parts = [steps_of(part) for part in shape.parts]
    match shape.kind:
        case "parallel":
            return parallel(*parts)
        case "sequence":
            return sequence(*parts)
        case "map":
            return map_(parts[0], concurrency=shape.rounds)
        case _:
            return step(shape.id)


def composed(shape: Shape) -> Any:
    """The node as a model writes it."""
    parts = [composed(part) for part in shape.parts]
    match shape.kind:
        case "parallel":
            return {"parallel": parts}
        case "sequence":
            return parts
        case "map":
            return {"map": parts[0], "concurrency": shape.rounds}
        case _:
            return shape.id


# --- what comes out ---------------------------------------------------------------------------------------------------


class Fails(Exception):
    """The node has no output."""


ERROR = "error"


def canonical(value: Any) -> str:
    """A value as a model reads it, the same whatever way it came."""
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except ValueError:
            return str(value)
    return value if isinstance(value, str) else json.dumps(value, sort_keys=True)


def digest(*parts: Any) -> str:
    return hashlib.sha1(canonical(list(parts)).encode(), usedforsecurity=False).hexdigest()[:10] + "_"


def answer_to(args: Any) -> str:
    """What people answer: it depends on who asks, what about, and the how manieth question it is."""
    return digest("answer", args)


def output_of(shape: Shape, input: Any, said: Said = answer_to) -> Any:
    """What has to come out of a node where people said this; Fails if nothing does."""
    heard = canonical(input)
    match shape.kind:
        case "leaf":
            answers = [said({"by": shape.id, "n": n, "about": heard}) for n in range(shape.asks)]
            if shape.fails:
                raise Fails(shape.id)
            return digest(shape.id, heard, answers)
        case "team":
            told: list[Any] = []
            for turn in range(shape.rounds):
                told += [_or_error(part, digest(heard, turn), said) for part in shape.parts]
                if turn == 0 and shape.asks:
                    told.append(said({"by": shape.id, "n": 0, "about": heard}))
            return digest(shape.id, told)
        case "host":
            told, given = [], digest(heard)
            for turn in range(shape.rounds):
                wanted = {"previousOutput": given, "feedback": turn} if turn % 2 else given
                try:
                    given = _in_turn(shape.parts, wanted, said)
                    told.append(given)
                except Fails:
                    told.append(ERROR)
            return digest(shape.id, told)
        case "sequence":
            return _in_turn(shape.parts, input, said)
        case "parallel":
            return _all(shape.parts, [input] * len(shape.parts), said)
        case "map":
            items = input if isinstance(input, list) else [input]
            return _all(shape.parts * len(items), items, said)


def _or_error(shape: Shape, input: Any, said: Said) -> Any:
    try:
        return output_of(shape, input, said)
    except Fails:
        return ERROR


def _in_turn(parts: Sequence[Shape], input: Any, said: Said) -> Any:
    for part in parts:
        input = output_of(part, input, said)
    return input


def _all(parts: Sequence[Shape], inputs: Sequence[Any], said: Said) -> list[Any]:
    return [output_of(part, input, said) for part, input in zip(parts, inputs, strict=True)]


# --- who plays it -----------------------------------------------------------------------------------------------------


def agents_of(shape: Shape, count: Tool, *, before: Callable[[], Sequence[Part]] = lambda: ()) -> list[Agent]:
    """The agents of a composition. `count` is a tool that takes a text, `before` what a model does before it speaks."""
    return [_agent(one, count, before) for one in nodes(shape) if one.is_agent]


def _agent(shape: Shape, count: Tool, before: Callable[[], Sequence[Part]]) -> Agent:
    turns: dict[str, Turn] = {
        "leaf": lambda request: _leaf(shape, request),
        "team": lambda request: _team(shape, request),
        "host": lambda request: _host(shape, request),
    }

    def script(request: ModelRequest) -> Sequence[Part]:
        return [*before(), *turns[shape.kind](request)]

    more: dict[str, Any] = {}
    if shape.kind == "team":
        more["supervisor"] = Supervisor(agents=[part.id for part in shape.parts])
    if shape.kind == "host":
        inner = dict.fromkeys(one.id for part in shape.parts for one in _within(part))
        more["loop"] = Loop(pool=list(inner), max_iterations=shape.rounds)
    return define_agent(shape.id, model=ScriptedModel(script), tools=[asking(), count], **more)


def _within(shape: Shape) -> Iterator[Shape]:
    """The agents that a step names itself."""
    if shape.is_agent:
        yield shape
    else:
        for part in shape.parts:
            yield from _within(part)


def _heard(request: ModelRequest) -> str:
    return canonical(getattr(request.messages[0], "text", None))


def _told(request: ModelRequest) -> list[ToolMessage]:
    return [message for message in request.messages if isinstance(message, ToolMessage)]


def _content(message: ToolMessage) -> Any:
    return message.content if message.outcome == "ok" else ERROR


def _leaf(shape: Shape, request: ModelRequest) -> Sequence[Part]:
    heard = _heard(request)
    if request.turn < shape.asks:
        asked: JsonValue = {"by": shape.id, "n": request.turn, "about": heard}
        return [call("human_ask", asked), call("tool_count", {"what": f"{request.run_id} {request.turn}"})]
    if shape.fails:
        return [fail("broken", times=9, retryable=False)]
    answers = [_content(message) for message in _told(request) if message.tool == "human_ask"]
    return [text(digest(shape.id, heard, answers))]


def _team(shape: Shape, request: ModelRequest) -> Sequence[Part]:
    heard = _heard(request)
    if request.turn < shape.rounds:
        given = digest(heard, request.turn)
        calls = [call("core_delegate", {"agentId": part.id, "input": given}) for part in shape.parts]
        if request.turn == 0 and shape.asks:
            calls.append(call("human_ask", {"by": shape.id, "n": 0, "about": heard}))
        return calls
    return [text(digest(shape.id, [_content(message) for message in _told(request)]))]


def _host(shape: Shape, request: ModelRequest) -> Sequence[Part]:
    match request.turn:
        case 0:
            given = digest(_heard(request))
            return [call("core_start_loop", {"pipeline": [composed(part) for part in shape.parts], "input": given})]
        case turn if turn <= shape.rounds:
            return [call("core_iterate_loop", {"feedback": turn - 1} if (turn - 1) % 2 else {})]
        case turn if turn == shape.rounds + 1:
            return [call("core_finish_loop", {})]
    told = [message for message in _told(request) if message.tool == "core_iterate_loop"]
    outputs = [message.content["output"] if isinstance(message.content, dict) else ERROR for message in told]
    return [text(digest(shape.id, outputs))]
