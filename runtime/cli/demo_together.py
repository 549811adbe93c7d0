"""`bread demo --composition`: two branches of a pipeline ask at once, and two processes answer at the same instant.

One of the branches is a supervisor, whose delegate asks. The outputs are merged once, in the order of the branches,
whoever comes first.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import TypeAdapter

from ...domain.errors import BreadError
from ...domain.messages import ToolMessage, UserMessage
from ...domain.ports import ModelRequest
from ...projections.crumbs import HumanRequired, StepEnd
from ..agents import Agent, define_agent
from ..composing import Step, Supervisor, parallel, step
from ..scripted import ScriptedModel, Turn, call, text
from ..tools import define_human_tool
from .demo_alone import PATIENCE_SECONDS, Audience, check_audience
from .demo_checks import Promises
from .options import person
from .runs import tree_of

if TYPE_CHECKING:
    from ..app import Bread
    from .place import Place

PIPELINE = "demo_contract"
INPUT = "the lease of the bakery"
TERMS = "desk: the terms are signed"
PRICE = "finance: the price is signed"
FILED = f"Filed: {TERMS}; {PRICE}."
PEOPLE = ("ann", "bob")
APPROVED = {"approved": True}

sign = define_human_tool(
    "sign",
    {"type": "object"},
    response={"type": "object", "properties": {"approved": {"type": "boolean"}}, "required": ["approved"]},
    prompt="Sign {what}?",
)


def team() -> list[Agent]:
    """The agents of the pipeline, and the lawyer that the desk delegates to."""
    desk = ScriptedModel(_desk)
    return [
        define_agent("demo_desk", model=desk, supervisor=Supervisor(agents=["demo_lawyer"])),
        define_agent("demo_lawyer", model=ScriptedModel(lambda request: _signs(request, "the terms")), tools=[sign]),
        define_agent(
            "demo_finance", model=ScriptedModel(lambda request: _signs(request, "the price", "finance: ")), tools=[sign]
        ),
        define_agent("demo_clerk", model=ScriptedModel(_clerk)),
    ]


def pipelines() -> Mapping[str, Sequence[Step | str]]:
    return {PIPELINE: [parallel("demo_desk", "demo_finance"), step("demo_clerk")]}


def _desk(request: ModelRequest) -> Turn:
    if request.turn == 0:
        return [text("The lawyer reads it. "), call("core_delegate", {"agentId": "demo_lawyer", "input": INPUT})]
    return [text(f"desk: {_result(request)}")]


def _signs(request: ModelRequest, what: str, who: str = "") -> Turn:
    if request.turn == 0:
        return [call("human_sign", {"what": what})]
    answer = _result(request)
    signed = isinstance(answer, dict) and answer.get("approved") is True
    return [text(f"{who}{what} {'is' if what == 'the price' else 'are'} {'signed' if signed else 'refused'}")]


def _clerk(request: ModelRequest) -> Turn:
    """Its input is the list of what the branches gave, which a model reads as JSON."""
    said = request.messages[-1]
    given = TypeAdapter(list[str]).validate_json(said.text) if isinstance(said, UserMessage) else []
    return [text(f"Filed: {'; '.join(given)}.")]


def _result(request: ModelRequest) -> Any:
    last = request.messages[-1]
    return last.content if isinstance(last, ToolMessage) else None


# --- the play ---------------------------------------------------------------------------------------------------------


def bread_of(store: str, **options: Any) -> Bread:
    from ..app import Bread

    return Bread(agents=team(), pipelines=pipelines(), store=store, **options)


async def play_together(place: Place, database: Path) -> int:
    """Three acts on one run; 1 if a promise was broken."""
    promises = Promises()
    async with bread_of(place.store, executes=False) as bread:
        await _end_earlier(bread)
        run_id = await bread.start_pipeline(PIPELINE, INPUT, tags={"bread": "demo"}, by=person(None))
        print(f"run {run_id}  pipeline {PIPELINE}")
        async with Audience(bread.observe(run_id)) as audience:
            await _suspend(place, bread, run_id, audience, promises)
            await _answer(place, bread, run_id, audience, promises)
            await audience.sees_the_end()
        await _show(bread, run_id, "The tree now:")
        print("The promises of this run:")
        await _check(bread, run_id, audience, promises)
    print(f"\nLook at it again:  {place.command('runs', 'show', run_id)}")
    return promises.code()


async def _end_earlier(bread: Bread) -> None:
    """What an interrupted play has left in the middle."""
    for status in ("running", "suspended"):
        for run in (await bread.list_runs(agent=PIPELINE, status=status, limit=1000)).items:
            await bread.cancel(run.id, reason="another demo was begun", by=person(None))
            print(f"run {run.id} of an earlier demo is cancelled", flush=True)


async def _suspend(place: Place, bread: Bread, run_id: str, audience: Audience, promises: Promises) -> None:
    async with bread_of(place.store) as performing:
        async for _ in performing.observe(run_id, until="rest"):
            pass
    await audience.sees(HumanRequired, len(PEOPLE))
    audience.say("two people are asked at once, one of them from inside a delegation; nothing runs any more")
    await _show(bread, run_id, "The tree while it waits:")
    run = await bread.get_run(run_id)
    promises.check(
        run.status == "suspended" and len(run.checkpoints) == len(PEOPLE),
        "both questions are open, and nothing is performed",
        f"{run.status}, {len(run.checkpoints)} questions",
    )


async def _answer(place: Place, bread: Bread, run_id: str, audience: Audience, promises: Promises) -> None:
    """Two processes have opened the store and wait for the same word."""
    questions = (await bread.get_run(run_id)).checkpoints
    async with AsyncExitStack() as stack:
        children = [
            await stack.enter_async_context(_ready(place.store, question, name))
            for question, name in zip(questions, PEOPLE, strict=True)
        ]
        told = " and ".join(f"process {child.pid} as {name}" for child, name in zip(children, PEOPLE, strict=True))
        audience.say(f"{told} answer at the same instant")
        for child in children:
            if child.stdin is not None:
                child.stdin.write(b"go\n")
        async with asyncio.timeout(PATIENCE_SECONDS):
            errors = [(await child.communicate())[1].decode(errors="replace").strip() for child in children]
    codes = [child.returncode for child in children]
    said = "; ".join(filter(None, errors))
    promises.check(codes == [0, 0], "both answers were taken", said or f"exit codes {codes[0]} and {codes[1]}")


@asynccontextmanager
async def _ready(store: str, checkpoint_id: str, name: str) -> AsyncIterator[asyncio.subprocess.Process]:
    """A process that waits to be told to answer. It is gone when the block ends."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", f"{__package__}.demo_answer", store, checkpoint_id, name),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        async with asyncio.timeout(PATIENCE_SECONDS):
            line = await process.stdout.readline() if process.stdout else b""
        if line.strip() != b"ready":
            raise BreadError("PROMISE_BROKEN", f"the process of {name} did not begin")
        yield process
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


async def _show(bread: Bread, run_id: str, title: str) -> None:
    print(f"\n{title}")
    for line in await tree_of(bread, run_id):
        print(f"  {line}")
    print(flush=True)


async def _check(bread: Bread, run_id: str, audience: Audience, promises: Promises) -> None:
    events = [event async for event in bread.audit(run_id)]
    claims = [event for event in events if event.name == "checkpoint.claimed"]
    by = sorted(claim.by.id for claim in claims)
    promises.check(by == sorted(PEOPLE), "every question was answered exactly once", f"by {', '.join(by) or 'nobody'}")
    merged = [crumb.output for crumb in audience.crumbs if isinstance(crumb, StepEnd) and crumb.path == ("0",)]
    promises.check(
        merged == [[TERMS, PRICE]], "the outputs were merged once, in the order of the branches", f"{merged}"
    )
    started = [event.data for event in events if event.name == "run.started"]
    clerks = sum(data["agent"] == "demo_clerk" for data in started)
    promises.check(clerks == 1, "the pipeline went on once", f"{clerks} x demo_clerk, {len(started)} runs in the tree")
    run = await bread.get_run(run_id)
    promises.check(run.output == FILED, "the output is whole", f"{run.status}: {run.output}")
    await check_audience(bread, run_id, audience, promises)
    whole = await bread.check()
    found = whole.problems[0] if whole.problems else f"{whole.streams} streams, {whole.events} events"
    promises.check(whole.ok, "the log verifies", found)
