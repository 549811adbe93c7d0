"""Every interleaving of two processes on one run: a turn with a slow tool and two questions.

The deciders and the commits are the real ones; the processes are the least that a runtime can be. Each may at any step
look, perform, stall for as long as it likes, commit, be replaced while it stalls and wake up again, or die with all
that it holds. Persons answer through either process, also both to the same question at once.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Hashable, Iterator
from dataclasses import dataclass

import pytest

from bread.domain import commits
from bread.domain import run as runs
from bread.domain.checkpoint import CheckpointClaimed, CheckpointKind
from bread.domain.errors import NotFound
from bread.domain.events import Event, JsonValue
from bread.domain.messages import ToolUse, read_turn
from bread.domain.plans import Execute
from bread.domain.records import changed
from bread.domain.run_events import (
    ModelResponded,
    Parked,
    QuestionAsked,
    Resumed,
    ToolCalled,
    ToolFailed,
    ToolReturned,
    Verdict,
)
from bread.domain.run_state import AskDoubt, CallModel, CallTool, RunState, StartCalls, due

from .support import NOTHING, A, B, Planned, World, answer_command, ask, soaking, turn_command

RUN, WORKERS = "r1", (A, B)
CHECKPOINTS = ("first", "second", "doubt-0", "doubt-1", "doubt-2")


@dataclass(frozen=True)
class Held:
    """What a process is about to do, or has done and not yet told: the model's turn `of`, or a tool call `of`."""

    kind: str
    of: str
    version: int
    done: bool


@dataclass(frozen=True)
class Process:
    """`held` is what it works on, `begun` the calls that it does not begin again."""

    alive: bool = True
    held: frozenset[Held] = frozenset()
    begun: frozenset[tuple[str, int]] = frozenset()

    def holding(self, held: Held) -> Process:
        return changed(self, held=self.held | {held})

    def without(self, held: Held) -> Process:
        return changed(self, held=self.held - {held})


IDLE = (Process(), Process())


@dataclass(frozen=True)
class Outside:
    """What is true outside of the streams: processes, effects of tools, answers that were accepted, faults to come."""

    processes: tuple[Process, Process] = IDLE
    effects: tuple[str, ...] = ()
    answers: tuple[tuple[str, str], ...] = ()
    retries: tuple[str, ...] = ()
    deaths: int = 1
    seizures: int = 0

    def put(self, index: int, process: Process) -> Outside:
        first, second = self.processes
        return changed(self, processes=(process, second) if index == 0 else (first, process))


@dataclass(frozen=True)
class Step:
    """A way on. `alone`: a living process goes it by itself, with no person, fault or wrong suspicion."""

    world: World
    outside: Outside
    alone: bool = True


@dataclass(frozen=True)
class SmallModel:
    """What may be in the world: the kind of the second question, how often a living owner is taken for a dead one, a
    door through which persons answer without anybody behind it who executes, a cancel. `least` states are expected."""

    second: CheckpointKind
    seizures: int
    detached: bool
    cancels: bool
    least: int

    def __str__(self) -> str:
        return f"{self.second}-{self.seizures}"

    def begin(self) -> Step:
        world = World(at=100.0)
        world.start(RUN, owner=A)
        return Step(world, Outside(seizures=self.seizures))

    def turn(self) -> list[Planned]:
        return [
            (ToolUse("slow", None), Execute()),
            (ToolUse("first", None), ask("first")),
            (ToolUse("second", None), ask("second", self.second)),
        ]

    def steps(self, world: World, outside: Outside) -> Iterator[Step]:
        run = world.run(RUN)
        for index, process in enumerate(outside.processes):
            if process.alive:
                if run.owner == WORKERS[index]:
                    yield from self.owner_acts(world, outside, index)
                yield from self.goes_on(world, outside, index)
                yield from self.takes(world, outside, index, run)
                if outside.deaths:
                    dead = outside.put(index, Process(alive=False))
                    yield Step(world, changed(dead, deaths=outside.deaths - 1), alone=False)
        yield from self.persons(world, outside, run)
        if self.cancels and run.status == "active":
            after = world.copy()
            after.cancel(RUN)
            yield Step(after, outside, alone=False)

    def owner_acts(self, world: World, outside: Outside, index: int) -> Iterator[Step]:
        process, after = outside.processes[index], world.copy()
        for effect in due(world.run(RUN)):
            match effect:
                case CallModel():
                    held = Held("model", str(effect.turn), effect.base, done=True)
                    if held not in process.held:
                        if effect.turn:
                            assert unsettled(world.events(RUN)) == set(), "the model is called before all is settled"
                        yield Step(world, outside.put(index, process.holding(held)))
                case StartCalls():
                    after.start_intents(WORKERS[index])
                    yield Step(after, outside)
                case CallTool(call=call):
                    if (call.key, call.called_at) not in process.begun:
                        begun = changed(process, begun=process.begun | {(call.key, call.called_at)})
                        held = Held("tool", call.key, call.called_at, done=False)
                        yield Step(world, outside.put(index, begun.holding(held)))
                case AskDoubt(call=call):
                    after = world.copy()
                    count = sum(world.checkpoint(one).status != "new" for one in CHECKPOINTS[2:])
                    after.doubt(WORKERS[index], call.key, CHECKPOINTS[2 + count])
                    yield Step(after, outside)

    def goes_on(self, world: World, outside: Outside, index: int) -> Iterator[Step]:
        """What a process holds it goes on with, also when it was replaced in the meantime: it does not know."""
        process = outside.processes[index]
        for held in process.held:
            left = process.without(held)
            if not held.done:
                effects = tuple(sorted((*outside.effects, index_of(held.of))))
                outside_after = changed(outside, effects=effects)
                yield Step(world, outside_after.put(index, left.holding(changed(held, done=True))))
                continue
            after = world.copy()
            if held.kind == "tool":
                after.returns(held.of, WORKERS[index])
                call = world.run(RUN).call(held.of)
                if call is not None and call.status in ("called", "asked"):
                    assert call.key not in unsettled(after.events(RUN)), "what was done is not told"
            else:
                planned = self.turn() if held.of == "0" else []
                after.respond(*planned, owner=WORKERS[index], base=held.version, text="Done.")
            yield Step(after, outside.put(index, left))

    def takes(self, world: World, outside: Outside, index: int, run: RunState) -> Iterator[Step]:
        if not run.has_work or run.owner == WORKERS[index]:
            return
        suspected = run.owner is not None and outside.processes[WORKERS.index(run.owner)].alive
        if suspected and not outside.seizures:
            return
        after = world.copy()
        assert after.take(WORKERS[index], run.owner)
        yield Step(after, changed(outside, seizures=outside.seizures - suspected), alone=not suspected)

    def persons(self, world: World, outside: Outside, run: RunState) -> Iterator[Step]:
        """Any question is answered through either process, or through one that only answers and leaves the rest."""
        living = [worker for worker, process in zip(WORKERS, outside.processes, strict=True) if process.alive]
        doors = (*living, None) if self.detached else tuple(living)
        for checkpoint in run.questions:
            asked = world.checkpoint(checkpoint).asked
            for door in doors:
                for response, verdict in self.possible(asked.kind, door):
                    again = (index_of(asked.call),) if verdict == "retry" else ()
                    if again and outside.retries:
                        continue
                    after = world.copy()
                    after.answer(checkpoint, response, verdict, worker=door, claim=f"{checkpoint} by {door}")
                    if after.run(RUN).owner != door:
                        assert not any(isinstance(event, ToolCalled) for event in after.events(RUN)[run.version :])
                    accepted = tuple(sorted((*outside.answers, (checkpoint, repr(response)))))
                    yield Step(after, changed(outside, answers=accepted, retries=outside.retries + again), alone=False)

    def possible(self, kind: CheckpointKind, door: str | None) -> list[tuple[JsonValue, Verdict]]:
        match kind:
            case "in_doubt":
                return [({"outcome": "happened", "result": door}, "happened"), ({"outcome": "retry"}, "retry")]
            case "approval":
                return [({"approved": True}, "approved"), ({"approved": False, "reason": door}, "rejected")]
            case _:
                return [(f"said at {door}", "answered")]


def index_of(call: str) -> str:
    return call.rpartition(".")[2]


def unsettled(events: list[Event]) -> set[str]:
    """The calls of the newest turn without an outcome, read from the events without any help of the domain's fold."""
    calls: set[str] = set()
    for event in events:
        match event:
            case ModelResponded():
                calls = {f"{event.base}.{index}" for index, _ in enumerate(read_turn(event.message).calls)}
            case ToolReturned() | ToolFailed():
                calls.discard(event.call)
            case Resumed() if event.verdict not in ("approved", "retry"):
                calls.discard(event.call)
    return calls


def fingerprint(step: Step) -> Hashable:
    """All that the future depends on. Of versions and numbers only the order matters, so they become ranks."""
    run, outside = step.world.run(RUN), step.outside
    called = {(call.key, call.called_at) for call in run.calls if call.status == "called"}
    processes = [changed(process, begun=process.begun & called) for process in outside.processes]
    epoch = run.epoch if run.owner else 0
    seen = {epoch, run.base} | {call.called_at for call in run.calls} | {call.args_at for call in run.calls}
    seen |= {held.version for process in processes for held in process.held}
    rank = {version: place for place, version in enumerate(sorted(seen))}
    calls = tuple(
        changed(call, key=index_of(call.key), id="", called_at=rank[call.called_at], args_at=rank[call.args_at])
        for call in run.calls
    )
    plain = changed(
        run,
        version=0,
        epoch=rank[epoch],
        base=rank[run.base],
        calls=calls,
        call_ids=frozenset(),
        output_of=None,
        deaths=0,
    )
    busy = tuple(
        (
            process.alive,
            frozenset(changed(held, of=index_of(held.of), version=rank[held.version]) for held in process.held),
            frozenset(index_of(call) for call, _ in process.begun),
        )
        for process in processes
    )
    asked = tuple((one, step.world.checkpoint(one).status) for one in CHECKPOINTS)
    return plain, busy, asked, changed(outside, processes=IDLE, answers=())


def check(step: Step, ways: list[Step]) -> None:
    world, outside, run = step.world, step.outside, step.world.run(RUN)
    events = world.events(RUN)
    world.verify()
    # Nothing was done twice unless a person said so.
    assert all(count <= 1 + outside.retries.count(call) for call, count in Counter(outside.effects).items())
    # Every accepted answer stands in the stream, once; no checkpoint has two claims.
    resumed = [(event.checkpoint, repr(event.response)) for event in events if isinstance(event, Resumed)]
    assert tuple(sorted(resumed)) == outside.answers
    for stream in world.streams():
        claims = [event for event in world.events(stream) if isinstance(event, CheckpointClaimed)]
        assert len(claims) <= 1
        assert all(events[claim.resumed - 1].checkpoint == stream for claim in claims)  # type: ignore[attr-defined]
    # Every question surfaces once, ahead of its answer; a run that rests says so, and nobody owns it.
    surfaced = [event.checkpoint for event in events if isinstance(event, QuestionAsked)]
    assert len(surfaced) == len(set(surfaced))
    assert {one for one in CHECKPOINTS if world.checkpoint(one).status not in ("new", "pending")} <= set(surfaced)
    if run.status == "active" and not run.has_work:
        assert isinstance(events[-1], Parked)
        assert set(run.questions) <= set(surfaced)
    assert run.has_work or run.owner is None
    # Whatever ended has an outcome for each call.
    if run.has_ended:
        assert unsettled(events) == set()
        assert run.questions == ()
        assert not any(world.checkpoint(one).status == "pending" for one in CHECKPOINTS)
    # Who comes too late, or does not own the run, changes nothing.
    for checkpoint, _ in outside.answers:
        with pytest.raises(NotFound):
            commits.answer(world, checkpoint, answer_command(checkpoint, "too late", worker=B), claim="late")
    for worker in WORKERS:
        if run.owner != worker:
            assert runs.decide(run, runs.StartIntents(worker, NOTHING)) == []
            assert runs.decide(run, turn_command(owner=worker, base=run.base)) == []
            for call in run.calls:
                assert runs.decide(run, runs.RaiseDoubt(worker, call.key, ask("nobody", "in_doubt"))) == []
        for previous in {None, A, B} - ({run.owner} if run.has_work else set()):
            assert runs.decide(run, runs.Take(worker, previous, NOTHING)) == []
    assert len(world.events(RUN)) == len(events)
    # Somebody can always go on: a living process by itself, or a person.
    if not any(way.alone for way in ways):
        assert run.has_ended or (run.parked and run.questions)


MODELS = [
    SmallModel("input", seizures=1, detached=True, cancels=True, least=2_000),
    SmallModel("approval", seizures=0, detached=True, cancels=True, least=2_000),
]
if soaking():
    MODELS += [
        SmallModel("input", seizures=2, detached=True, cancels=True, least=6_000),
        SmallModel("approval", seizures=1, detached=False, cancels=False, least=20_000),
        SmallModel("approval", seizures=2, detached=True, cancels=True, least=100_000),
    ]


@pytest.mark.parametrize("model", MODELS, ids=str)
def test_no_interleaving_ends_badly(model: SmallModel) -> None:
    """B26, B29, B48, B50, B51, B62, B67; C1, C3, C4, C7, C22, C32, C35, C44, C48, C56."""
    begin = model.begin()
    numbers = {fingerprint(begin): 0}
    queue, before = deque([(0, begin)]), [set[int]()]
    by_status: dict[str, set[int]] = {"active": set(), "completed": set(), "cancelled": set()}
    while queue:
        number, step = queue.popleft()
        ways = list(model.steps(step.world, step.outside))
        check(step, ways)
        by_status[step.world.run(RUN).status].add(number)
        for way in ways:
            key = fingerprint(way)
            if key not in numbers:
                numbers[key] = len(numbers)
                before.append(set())
                queue.append((numbers[key], way))
            before[numbers[key]].add(number)
        assert len(numbers) < 5 * model.least, "there is no end of it"
    # From everywhere the end can be reached: no interleaving leaves the run stuck or turning in a circle.
    reached, todo = set(by_status["completed"]), list(by_status["completed"])
    while todo:
        earlier = before[todo.pop()] - reached
        reached |= earlier
        todo += earlier
    assert reached == by_status["active"] | by_status["completed"]
    assert len(numbers) >= model.least
