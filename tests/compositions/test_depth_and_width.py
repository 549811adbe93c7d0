"""Deep and wide trees: chains of 50 delegations, hundreds of siblings that ask; they cost as much as their nodes."""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass
from typing import Any

import pytest

from bread import Agent, AnyCrumb, Bread, map_, parallel
from bread.domain.commands import AnswerCheckpoint
from bread.testing import pause, text
from scenes import OpenBread, Spy, agent, engine_of, questions, refused
from support import read, soaking, trials
from teams import asker, delegate, hands_on, host, iterate, outcomes, start_loop, team, worker

DEEP = trials(50, 200)
WIDE = trials(200, 500)
# PostgreSQL decides the same, in more time.
KINDS = ["memory", "sqlite", "postgres"] if soaking() else ["memory", "sqlite"]
NOT_REPLAYED = pytest.mark.parametrize("mode", KINDS)
KEPT = pytest.mark.parametrize("mode", KINDS[1:])
SHAPES = pytest.mark.parametrize("shape", ["parallel", "map", "supervisor"])


def chain(levels: int) -> list[Agent]:
    """Supervisors below one another, and one who asks below the last of them; each says what it was told."""
    ids = [*(f"s{level}" for level in range(levels)), "asker"]

    def level(id: str, below: str) -> Agent:
        return team(
            lambda request: [text(f"{id}({outcomes(request)[0]})")] if request.turn else [delegate(below)], below, id=id
        )

    return [*map(level, ids, ids[1:]), asker()]


def said_by_chain(levels: int) -> str:
    return "".join(f"s{level}(" for level in range(levels)) + "asker: yes" + ")" * levels


@dataclass
class Cost:
    commits: int
    attempts: int

    @classmethod
    def of(cls, bread: Bread) -> Cost:
        writer = engine_of(bread).journal.writer
        return cls(writer.commits, writer.attempts)

    def since(self, before: Cost) -> Cost:
        return Cost(self.commits - before.commits, self.attempts - before.attempts)


async def begin(bread: Bread, shape: str, count: int) -> list[AnyCrumb]:
    """Run siblings of a shape until all of them ask."""
    if shape == "supervisor":
        return await read(bread.run("boss", "go"))
    return await read(bread.run_pipeline(shape, list(range(count))))


def wide(open_bread: OpenBread, shape: str, count: int, *more: Agent) -> Bread:
    pipelines = {"parallel": [parallel(*["asker"] * count)], "map": [map_("asker", concurrency=8)]}
    return open_bread(asker(), hands_on(*["asker"] * count), *more, pipelines={shape: pipelines.get(shape, ["asker"])})


async def answer_at_once(bread: Bread, crumbs: list[AnyCrumb]) -> list[str]:
    """Every question gets an answer of its own, all at the same instant; gives what the askers say then, in order."""
    asked = questions(crumbs)
    order = {one.checkpoint_id: str(one.path) for one in asked}
    answers = {one.checkpoint_id: f"answer {number}" for number, one in enumerate(asked)}
    await asyncio.gather(
        *(bread.send(AnswerCheckpoint(checkpoint_id=one, response=answer)) for one, answer in answers.items())
    )
    assert len(set(order.values())) == len(asked)
    said = {one.path: f"asker: {answers[one.checkpoint_id]}" for one in asked}
    return [said[path] for path in sorted(said, key=place)]


def place(path: tuple[str, ...]) -> list[int]:
    return [int(part) for slot in path for part in slot.replace(".", "/").split("/")]


@pytest.mark.parametrize(
    ("mode", "shape"),
    [
        (mode, shape)
        for mode in KINDS
        for shape in ("parallel", "map", "supervisor")
        if mode != "memory" or shape == "parallel"
    ],
)
async def test_hundreds_of_siblings_are_answered_at_once(open_bread: OpenBread, shape: str) -> None:
    """B81, B89, B91, B93, B106, B111, C9, C47: all are asked, once; all are answered at the same instant, and the
    outputs are in order; nobody else is starved."""
    async with wide(open_bread, shape, WIDE, worker()) as bread:
        crumbs = await begin(bread, shape, WIDE)
        assert len({one.checkpoint_id for one in questions(crumbs)}) == len(questions(crumbs)) == WIDE
        root = crumbs[0].root_run_id
        beside, said = await asyncio.gather(bread.run("worker", "beside"), answer_at_once(bread, crumbs))
        assert beside == "worker: beside"
        await read(bread.observe(root))
        assert output_of((await bread.get_run(root)).output) == said


def output_of(output: Any) -> list[str]:
    """The list that a pipeline gives, or that a supervisor says."""
    found: list[str] = json.loads(output) if isinstance(output, str) else output
    return found


@SHAPES
@KEPT
async def test_hundreds_of_siblings_are_cancelled(open_bread: OpenBread, shape: str) -> None:
    """B18, B89, C60: in one commit; every question is discarded with a crumb, nothing runs or waits below."""
    async with wide(open_bread, shape, WIDE) as bread:
        crumbs = await begin(bread, shape, WIDE)
        root, before = crumbs[0].root_run_id, Cost.of(bread)
        await bread.cancel(root)
        assert Cost.of(bread).since(before).commits == 1
        gone = [crumb.checkpoint_id for crumb in await read(bread.observe(root)) if crumb.type == "human:discarded"]
        assert sorted(gone) == sorted(one.checkpoint_id for one in questions(crumbs))
        assert {run.status for run in (await bread.list_runs(root=root, limit=1000)).items} == {"cancelled"}
        assert (await bread.list_checkpoints()).items == []


@SHAPES
@KEPT
async def test_commits_grow_with_the_siblings(open_bread: OpenBread, shape: str) -> None:
    """B43, B50: one commit a sibling to its question, two from its answer to its end, and at most 1.2 attempts each;
    beside that what the whole takes, which does not grow."""
    above = 2 if shape == "supervisor" else 1
    for count in (50, 100):
        async with wide(open_bread, shape, count) as bread:
            before = Cost.of(bread)
            crumbs = await begin(bread, shape, count)
            asking = Cost.of(bread).since(before)
            before = Cost.of(bread)
            await answer_at_once(bread, crumbs)
            await read(bread.observe(crumbs[0].root_run_id))
            ending = Cost.of(bread).since(before)
        assert (asking.commits, ending.commits) == (count + above, 2 * count + above - 1)
        assert asking.attempts <= 1.2 * (count + above)
        assert ending.attempts <= 1.2 * (2 * count + above)


@KEPT
async def test_siblings_that_end_at_once_share_the_work(open_bread: OpenBread) -> None:
    """B43: 100 branches end at the same instant in one process: at most 1.2 commit attempts each."""
    ends = asyncio.Barrier(100)
    slow = agent(lambda request: [pause(ends.wait), text("met")], id="slow")
    async with open_bread(slow, pipelines={"wide": [parallel(*["slow"] * 100)]}) as bread:
        before = Cost.of(bread)
        assert await bread.run_pipeline("wide", "go") == ["met"] * 100
        cost = Cost.of(bread).since(before)
        assert cost.commits == 101
        assert cost.attempts <= 120 + 1


@KEPT
async def test_fifty_streams_read_the_log_once_each(open_bread: OpenBread) -> None:
    """B130, B93: who answers at the same instant and reads on has the log from there, with few looks at the store."""
    async with wide(open_bread, "parallel", 50) as bread:
        asked = questions(await begin(bread, "parallel", 50))
        before = engine_of(bread).journal.queries
        streams = await asyncio.gather(*(read(bread.resume(one.checkpoint_id, "yes")) for one in asked))
        assert engine_of(bread).journal.queries - before <= 10 * len(streams)
        whole = [crumb.seq for crumb in await read(bread.observe(asked[0].root_run_id)) if crumb.type != "text:delta"]
        for stream in streams:
            seen = [crumb.seq for crumb in stream if crumb.type != "text:delta"]
            assert seen == [seq for seq in whole if seen[0] <= seq <= seen[-1]]


@NOT_REPLAYED
async def test_a_chain_of_fifty_delegations_is_answered(open_bread: OpenBread) -> None:
    """B105, B112, C13, C33: the question of the lowest surfaces at the top; its answer goes up level by level."""
    async with open_bread(*chain(DEEP)) as bread:
        crumbs = await read(bread.run("s0", "go"))
        [asked] = questions(crumbs)
        assert len(asked.path) == DEEP
        assert len((await bread.list_checkpoints(kind="delegation", limit=1000)).items) == DEEP
        assert await bread.resume(asked.checkpoint_id, "yes") == said_by_chain(DEEP)


@KEPT
async def test_a_chain_of_fifty_delegations_is_cancelled(open_bread: OpenBread) -> None:
    """B18, B112, C60: from the top, in one commit, down to the question; from the bottom, up to the top."""
    async with open_bread(*chain(DEEP)) as bread:
        crumbs = await read(bread.run("s0", "go"))
        root, before = crumbs[0].root_run_id, Cost.of(bread)
        await bread.cancel(root)
        assert Cost.of(bread).since(before).commits == 1
        assert {run.status for run in (await bread.list_runs(root=root, limit=1000)).items} == {"cancelled"}
        assert (await bread.list_checkpoints(limit=1000)).items == []

        [asked] = questions(await read(bread.run("s0", "again")))
        await bread.cancel(asked.run_id)
        [*_, last] = await read(bread.observe(asked.root_run_id))
        assert last.type == "agent:run:end"
        assert (await bread.list_checkpoints(limit=1000)).items == []


@KEPT
async def test_commits_grow_with_the_levels(open_bread: OpenBread) -> None:
    """B43, B112: one a level on the way down and one on the way up, the question and its answer beside that."""
    for levels in (10, 20):
        async with open_bread(*chain(levels)) as bread:
            before = Cost.of(bread)
            [asked] = questions(await read(bread.run("s0", "go")))
            down = Cost.of(bread).since(before)
            before = Cost.of(bread)
            assert await bread.resume(asked.checkpoint_id, "yes") == said_by_chain(levels)
            up = Cost.of(bread).since(before)
        assert (down.commits, up.commits) == (levels + 2, levels + 2)
        assert down.attempts + up.attempts <= 1.2 * (2 * levels + 4)


def nested(depth: int) -> Any:
    """A step so many levels deep, as a model writes it."""
    return {"parallel": [nested(depth - 1)]} if depth > 1 else "worker"


@pytest.mark.parametrize(("depth", "fits"), [(50, True), (51, False)])
async def test_steps_nest_fifty_levels_deep(open_bread: OpenBread, depth: int, fits: bool) -> None:
    """B79, B118: more are refused where they are defined, and told to a model that composes them."""
    steps = worker_in(depth)
    spy = Spy([[start_loop(nested(depth), input="x"), iterate()], [text("Done.")]])
    if not fits:
        with refused("INPUT_INVALID") as caught:
            open_bread(worker(), pipelines={"p": [steps]})
        assert "nested more than 50 levels" in str(caught.value)
    async with open_bread(worker(), host(spy, "worker"), pipelines={"p": [steps]} if fits else {}) as bread:
        if fits:
            output: Any = await bread.run_pipeline("p", "go")
            for _ in range(depth - 1):
                [output] = output
            assert output == "worker: go"
        crumbs = await read(bread.run("host", "go"))
        assert [crumb.code for crumb in crumbs if crumb.type == "tool:error"] == (
            [] if fits else ["LOOP_ERROR", "NO_ACTIVE_LOOP"]
        )


def worker_in(depth: int) -> Any:
    step: Any = "worker"
    for _ in range(depth - 1):
        step = parallel(step)
    return step
