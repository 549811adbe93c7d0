"""Answers to siblings at the same instant, in one process and from four: each is used once, and all go on once."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from dataclasses import asdict
from random import Random
from typing import Any

import pytest

from bread import Bread, RunStopped, RunSuspended, define_tool
from bread.domain.events import Event
from bread.domain.run_events import ChildReturned, ModelResponded, Resumed, StepFinished
from compositions.play import ENDED
from compositions.trees import Shape, agents_of, answer_to, canonical, digest, nodes, numbered, output_of, steps_of
from crash.processes import Child, Log, Processes
from crash.stores import ALSO_WITH_NATS, Shared, place_of, trials_on
from scenes import Checked

ASKS, TWICE, SAYS = Shape("leaf", asks=1), Shape("leaf", asks=2), Shape("leaf")


def team(*parts: Shape, **more: Any) -> Shape:
    return Shape("team", parts, **more)


def together(*parts: Shape) -> Shape:
    return Shape("parallel", parts)


BRANCHES = [together(*[ASKS] * count) for count in range(2, 9)]
DELEGATIONS = [team(*[ASKS] * count) for count in range(2, 9)]
# A supervisor in a branch, a parallel in a parallel, supervisors of supervisors, mixed turns, leaves that ask twice.
NESTED = [
    together(team(ASKS, ASKS), ASKS, together(ASKS, TWICE)),
    together(team(ASKS, team(ASKS, ASKS), asks=1), SAYS, ASKS),
    team(team(ASKS, TWICE), team(ASKS, asks=1), asks=1),
    Shape("sequence", (together(ASKS, TWICE), Shape("map", (ASKS,), rounds=2), team(ASKS, ASKS))),
    team(Shape("host", (together(ASKS, ASKS),), rounds=2), TWICE, ASKS),
]
KINDS = {"branches": BRANCHES, "delegations": DELEGATIONS, "nested": NESTED}
EACH_KIND = pytest.mark.parametrize("kind", KINDS)


def shapes_of(kind: str) -> list[Shape]:
    return [numbered(shape, first=100 * number) for number, shape in enumerate(KINDS[kind])]


@EACH_KIND
async def test_in_one_process(kind: str, shared: Shared) -> None:
    """B93, B94, B95, B111, B113, C6, C45: 0 wrong, where others could have been in between."""
    counted: Counter[str] = Counter()

    @define_tool
    async def count(what: str) -> None:
        counted[what] += 1

    shapes = shapes_of(kind)
    bread = Checked(
        agents=[one for shape in shapes for one in agents_of(shape, count)],
        pipelines={shape.id: [steps_of(shape)] for shape in shapes if not shape.is_agent},
        **place_of(shared),
    )
    async with bread:
        for trial in range(trials_on(shared, 14, 500)):
            await once(bread, shapes[trial % len(shapes)])
    assert {*counted.values()} <= {1}
    check_log(Log.of(shared))


async def once(bread: Bread, shape: Shape) -> None:
    """A composition, each of whose rests ends by answers to all of its questions at once."""
    if shape.is_agent:
        run_id = await bread.start(shape.id, "go")
    else:
        run_id = await bread.start_pipeline(shape.id, "go")
    async for _ in bread.observe(run_id, until="rest"):
        pass
    while checkpoints := (await bread.get_run(run_id)).checkpoints:
        asked = [await bread.get_checkpoint(one) for one in checkpoints]
        answers = [resume(bread, one.id, answer_to(one.args)) for one in asked]
        await asyncio.gather(*answers)
        async for _ in bread.observe(run_id, until="rest"):
            pass
    run = await bread.get_run(run_id)
    assert (run.status, run.output) == ("completed", output_of(shape, "go"))


async def resume(bread: Bread, checkpoint_id: str, answer: Any) -> None:
    try:
        await bread.resume(checkpoint_id, answer)
    except RunSuspended:
        return
    except RunStopped as error:
        raise AssertionError("a composition failed") from error


@EACH_KIND
def test_from_four_processes(kind: str, processes: Processes) -> None:
    """B93, B94, B95, B111, B113, C6, C47: all have looked before the first one claims; 0 wrong."""
    shapes = shapes_of(kind)
    children = processes.several(4, trees=[asdict(shape) for shape in shapes])
    chance = Random(kind)
    for trial in range(trials_on(processes.shared, 7, 500)):
        shape = shapes[trial % len(shapes)]
        run = children[trial % 4].call("plant", tree=shape.id)
        found = children[0].call("settled", run=run)
        while found["questions"]:
            answer_together(children, found["questions"], chance)
            found = children[chance.randrange(4)].call("settled", run=run)
        assert (found["status"], found["output"]) == ("completed", output_of(shape, "go"))
    for child in children:
        child.close()
    done = Counter(effect["what"] for effect in processes.effects(tool="count"))
    assert {*done.values()} <= {1}
    check_log(processes.log)
    processes.assert_quiet()


Given = list[list[Any]]


def answer_together(children: list[Child], questions: list[dict[str, Any]], chance: Random) -> None:
    """Every question gets its answer from one of the processes, and some of them another one from a second process."""
    given: list[Given] = [[] for _ in children]
    for question in questions:
        first, second = chance.sample(range(4), 2)
        for process in (first, second)[: 1 + chance.randrange(2)]:
            given[process].append([question["id"], answer_to(question["args"])])
    won = Counter(checkpoint for checkpoint, _ in winners(children, given))
    assert won == Counter(question["id"] for question in questions)


def winners(children: list[Child], given: list[Given]) -> list[tuple[str, Any]]:
    """What is left of answers that are claimed all at the same instant; a null fits nothing and never gets there."""
    busy = [(child, mine) for child, mine in zip(children, given, strict=True) if mine]
    claiming = [(child, sum(response is not None for _, response in mine)) for child, mine in busy]
    claiming = [(child, count) for child, count in claiming if count]
    for child, count in claiming:
        child.call("door", count=count)
    replies = [child.send("answers", given=mine) for child, mine in busy]
    for child, _ in claiming:
        child.wait_for("at_door")
    for child, _ in claiming:
        child.send("go")
    won: list[tuple[str, Any]] = []
    for (child, mine), reply in zip(busy, replies, strict=True):
        for (checkpoint, response), outcome in zip(mine, child.reply(reply), strict=True):
            if outcome == "won":
                won.append((checkpoint, response))
            else:
                # A null is not held at the door, and so it may come when the question is gone.
                assert outcome == "CHECKPOINT_NOT_FOUND" or (outcome, response) == ("RESPONSE_INVALID", None)
    return won


def heard_by(used: dict[str, Any]) -> Callable[[Any], Any]:
    return lambda args: used[canonical(args)]


@ALSO_WITH_NATS
def test_two_answer_each_question_and_a_third_one_gives_nothing(processes: Processes) -> None:
    """B50, B53, B58, B64, B93, C1, C4, C47: one of two answers is used, and it is what its winner said."""
    shapes = shapes_of("nested")
    children = processes.several(4, trees=[asdict(shape) for shape in shapes])
    chance, said = Random(0), dict[str, Any]()
    for trial in range(trials_on(processes.shared, 5, 200)):
        shape = shapes[trial % len(shapes)]
        run = children[trial % 4].call("plant", tree=shape.id)
        used: dict[str, Any] = {}
        while questions := (found := children[chance.randrange(4)].call("settled", run=run))["questions"]:
            given: list[Given] = [[] for _ in children]
            for question in questions:
                third, *both = chance.sample(range(4), 3)
                given[third].append([question["id"], None])
                for process in both:
                    given[process].append([question["id"], digest("answer", question["args"], process)])
            won = winners(children, given)
            assert sorted(checkpoint for checkpoint, _ in won) == sorted(question["id"] for question in questions)
            said |= won
            used |= {canonical(question["args"]): said[question["id"]] for question in questions}
        assert (found["status"], found["output"]) == ("completed", output_of(shape, "go", heard_by(used)))
    for child in children:
        child.close()
    log = processes.log
    check_log(log)
    assert {checkpoint: answer for run in log.runs for checkpoint, answer in log.answered(run).items()} == said
    processes.assert_quiet()


def check_log(log: Log) -> None:
    """Each answer was used once, each run ended once, each child was heard of once, and each turn was taken once."""
    log.assert_sound()
    for checkpoint in log.checkpoints:
        assert len(log.events(checkpoint)) == 2
    for run in log.runs:
        names = log.names(run)
        assert sum(names.count(end) for end in ENDED) == 1
        assert names[-1] in ENDED
        for kind, key in KEYS.items():
            keys = [key(event) for event in log.events(run, kind)]
            assert len(keys) == len({*keys})


KEYS: dict[type[Event], Any] = {
    ChildReturned: lambda event: event.slot,
    ModelResponded: lambda event: event.turn,
    Resumed: lambda event: event.checkpoint,
    StepFinished: lambda event: event.path,
}


def test_the_shapes_ask_several_people_at_once() -> None:
    """The trials above are about what they say they are."""
    for kind, shapes in KINDS.items():
        for shape in shapes:
            assert sum(one.asks > 0 for one in nodes(shape)) >= 2, kind
