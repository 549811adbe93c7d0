"""Scenes that the tests of behaviour play: agents, questions, gates, and what is looked at afterwards."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterable, AsyncIterator, Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pytest

from bread import (
    Agent,
    AnyCrumb,
    Bread,
    BreadError,
    HumanTool,
    ModelRequest,
    Tool,
    define_agent,
    define_human_tool,
    define_tool,
)
from bread.domain.ports import ModelEvent
from bread.projections.crumbs import HumanRequired
from bread.runtime.engine import Engine
from bread.testing import ScriptedModel, call, text
from support import Mode, read

OpenBread = Callable[..., Bread]
Script = Sequence[Any] | Callable[[ModelRequest], Any]

# Nothing but a file outlives the object that opened it.
DURABLE = pytest.mark.parametrize("mode", ["sqlite", "replay"])
ONLY_FILE = pytest.mark.parametrize("mode", ["sqlite"])
SHARED = pytest.mark.parametrize("mode", ["sqlite", "postgres"])

ANY = {"type": "object"}
LIVE = {
    "text:delta",
    "text:reset",
    "reasoning:delta",
    "tool:input:start",
    "tool:input:delta",
    "tool:input:end",
    "tool:result:partial",
}


class Checked(Bread):
    """A Bread that compares its log and its views before it closes: nothing is lost, nothing half-written."""

    async def __aexit__(self, *exc: object) -> None:
        problems: list[str] = []
        if self._engine is not None and not self._engine.closing and exc[0] is None:
            problems = (await self._engine.journal.check()).problems
        await super().__aexit__(*exc)
        assert problems == []


def engine_of(bread: Bread) -> Engine:
    """What is inside an open bread."""
    assert bread._engine is not None
    return bread._engine


class Spy:
    """A model that plays a script and keeps what it was sent."""

    def __init__(self, script: Script, name: str = "spy") -> None:
        self.name = name
        self.requests: list[ModelRequest] = []
        self._model = ScriptedModel(script, name=name)

    async def stream(self, request: ModelRequest) -> AsyncIterator[ModelEvent]:
        self.requests.append(request)
        async for event in self._model.stream(request):
            yield event

    @property
    def seen(self) -> list[list[tuple[Any, ...]]]:
        """The messages of each request, as plain tuples."""
        return [[plain(message) for message in request.messages] for request in self.requests]


def plain(message: Any) -> tuple[Any, ...]:
    """A message as (role, text), with the calls of an assistant and the outcome of a tool."""
    match message.role:
        case "assistant":
            return "assistant", message.text, [(use.tool, use.args) for use in message.calls]
        case "tool":
            return "tool", message.tool, message.content, message.outcome
    return message.role, message.text


def agent(script: Script | Spy, *tools: Tool | HumanTool, id: str = "a", **options: Any) -> Agent:
    """An agent called `a` that plays a script."""
    return define_agent(id, model=script if isinstance(script, Spy) else ScriptedModel(script), tools=tools, **options)


def asking(name: str = "ask", **options: Any) -> HumanTool:
    """A human tool that takes any arguments."""
    return define_human_tool(name, ANY, **options)


def asks(*args: Any, after: str = "Thanks.") -> list[Any]:
    """A script that asks once with each of these arguments, in one turn, and then says thanks."""
    return [[call("human_ask", one) for one in args or ({},)], [text(after)]]


def question(crumbs: list[AnyCrumb]) -> HumanRequired:
    """The question that a stream ended with."""
    last = crumbs[-1]
    assert last.type == "human:required", last
    return last


def questions(crumbs: list[AnyCrumb]) -> list[HumanRequired]:
    """All questions of a stream, in order."""
    return [crumb for crumb in crumbs if crumb.type == "human:required"]


async def ask_first(bread: Bread, agent_id: str = "a", input: Any = "go", **options: Any) -> HumanRequired:
    """Run to the first question and give it."""
    return question(await read(bread.run(agent_id, input, **options)))


async def until(stream: Any, type: str) -> Any:
    """Read a stream to its first crumb of a type and leave it."""
    async for crumb in stream:
        if crumb.type == type:
            return crumb
    raise AssertionError(f"the stream ended without {type}")


async def ended(bread: Bread, run_id: str) -> list[AnyCrumb]:
    """The crumbs of a run from its beginning to its end."""
    return await read(bread.observe(run_id))


def durable(crumbs: Sequence[Any]) -> list[Any]:
    """The crumbs that every reader has the same of: without live hints, and without text, which may be cut anywhere."""
    return [crumb.wire() for crumb in crumbs if crumb.type not in LIVE]


async def names(bread: Bread, run_id: str) -> list[str]:
    """The names of a run's events, in order."""
    return [event.name.removeprefix("run.") async for event in bread.audit(run_id)]


@contextmanager
def refused(code: str) -> Iterator[pytest.ExceptionInfo[BreadError]]:
    """Expect an error of bread's with this code."""
    with pytest.raises(BreadError) as caught:
        yield caught
    assert caught.value.code == code, caught.value


class Heard(list[Any]):
    """A listener that keeps what it hears, and tells when it has heard a type of crumb."""

    def __init__(self, last: str) -> None:
        super().__init__()
        self._last, self._heard = last, asyncio.Event()

    def __call__(self, crumb: AnyCrumb) -> None:
        self.append(crumb)
        if crumb.type == self._last:
            self._heard.set()

    async def wait(self) -> None:
        async with asyncio.timeout(10):
            await self._heard.wait()


async def come(true: Callable[[], object]) -> None:
    """Let everybody else go on until something is so that nobody tells."""
    while not true():  # noqa: ASYNC110  # what is waited for has no event
        await asyncio.sleep(0)


async def watch(bread: Bread, stream: AsyncIterable[AnyCrumb]) -> asyncio.Task[list[AnyCrumb]]:
    """Begin to read a stream of a run that is there, up to where it has to wait for more."""

    def observers() -> set[Any]:
        return {one for those in engine_of(bread).hub._subscriptions.values() for one in those}

    before = observers()
    task = asyncio.create_task(read(stream))
    await come(lambda: any(one._news._waiters for one in observers() - before) or task.done())
    return task


async def scrubbed(*breads: Bread) -> None:
    """Until what was erased is out of the write-ahead log too; a reader in the way makes that a little later."""
    await come(lambda: not any(engine_of(bread).journal.store.residue for bread in breads))


class Gate:
    """A place in a tool or a model: it tells when it was reached, and holds until it is opened."""

    def __init__(self) -> None:
        self.reached, self._opened = asyncio.Event(), asyncio.Event()
        self.passed = 0

    async def __call__(self) -> None:
        self.passed += 1
        self.reached.set()
        await self._opened.wait()

    def open(self) -> None:
        self._opened.set()


class Counter:
    """Counts what a tool did, by its argument."""

    def __init__(self) -> None:
        self.of: dict[Any, int] = {}

    def __call__(self, what: Any = None) -> int:
        self.of[what] = self.of.get(what, 0) + 1
        return self.of[what]

    @property
    def total(self) -> int:
        return sum(self.of.values())


__all__ = [
    "ANY",
    "DURABLE",
    "ONLY_FILE",
    "SHARED",
    "Checked",
    "Counter",
    "Gate",
    "Heard",
    "Mode",
    "OpenBread",
    "Spy",
    "agent",
    "ask_first",
    "asking",
    "asks",
    "come",
    "durable",
    "ended",
    "engine_of",
    "names",
    "plain",
    "question",
    "questions",
    "refused",
    "scrubbed",
    "until",
    "watch",
]


def as_any(value: Any) -> Any:
    """What the type checker is not to look into."""
    return value


async def output_of(handle: Any) -> Any:
    """What an awaited handle gives, as a coroutine that can be a task."""
    return await handle


@define_tool
async def double(number: int) -> int:
    """Twice a number."""
    return 2 * number
