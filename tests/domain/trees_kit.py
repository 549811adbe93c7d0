"""A small world of a composition: its runs, two workers who perform them, people who answer, and every way on.

The deciders and commits are the real ones. A worker commits what a model or a tool gave, takes a run from whoever has
it, or carries an answer; a person may also answer through a door behind which nobody executes anything.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterator
from dataclasses import dataclass, replace
from typing import Any, Literal

from bread.domain import commits
from bread.domain import run as runs
from bread.domain.events import Event, JsonValue
from bread.domain.messages import ToolUse, read_turn
from bread.domain.plans import Delegate, Execute, FinishLoop, Iterate, StartLoop
from bread.domain.run_events import (
    ModelResponded,
    QuestionAsked,
    Resumed,
    RunRetried,
    ToolFailed,
    ToolReturned,
)
from bread.domain.run_state import CallModel, CallTool, RunState, due
from compositions.trees import ERROR, Fails, Shape, answer_to, canonical, digest, nodes, output_of

from .support import A, B, Planned, World, ask

ROOT, WORKERS = "r1", (A, B)
DOORS = (A, B, None)


@dataclass(frozen=True)
class Way:
    """A way on. `alone`: a worker goes it by itself; `person`: somebody answers; `fault`: nothing relies on it."""

    world: World
    kind: Literal["alone", "person", "fault"]
    worker: str | None


@dataclass(frozen=True)
class SmallTree:
    """What may be in the world: leaves that fail or not, as it happens, a cancel of the whole or of any part, a retry
    of what failed, and a tool beside each first question of a leaf."""

    shape: Shape
    may_fail: frozenset[str] = frozenset()
    cancels: Literal["none", "root", "any"] = "root"
    retries: bool = False
    tools: bool = False
    doors: tuple[str | None, ...] = DOORS
    least: int = 0

    @property
    def by_id(self) -> dict[str, Shape]:
        return {one.id: one for one in nodes(self.shape)}

    def begin(self) -> World:
        world = World(at=100.0)
        world.worker = A
        steps: JsonValue = None if self.shape.is_agent else [node_of(self.shape)]
        owner = A if self.shape.is_agent else None
        start = runs.Start(self.shape.id, "go", "s1", ROOT, world.at, owner, 20, steps=steps)
        world.commit(lambda streams: commits.start(streams, ROOT, start, {}))
        return world

    # --- every way on

    def ways(self, world: World) -> Iterator[Way]:
        family = tree_of(world)
        for role, run in family.items():
            if run.has_work:
                yield from self._performed(world, role, run)
                yield from self._taken(world, run)
            if run.status == "active" and (self.cancels == "any" or (self.cancels == "root" and run.is_root)):
                after = as_worker(world, A)
                after.cancel(run.id)
                yield Way(after, "fault", A)
        for checkpoint, run_id in world.pending(ROOT):
            response = answer_to(world.checkpoint(checkpoint).asked.args)
            for door in self.doors:
                after = as_worker(world, door)
                after.answer(checkpoint, response, worker=door, claim="first")
                assert not (door is None and world.run(run_id).owner is None and after.run(run_id).owner)
                yield Way(after, "person", door)
        if self.retries and world.run(ROOT).status == "failed" and not was_retried(world):
            after = as_worker(world, B)
            after.retry(ROOT, worker=B)
            yield Way(after, "fault", B)

    def _taken(self, world: World, run: RunState) -> Iterator[Way]:
        for worker in WORKERS:
            if worker != run.owner:
                after = as_worker(world, worker)
                assert after.take(worker, run.owner, run_id=run.id)
                yield Way(after, "fault" if run.owner else "alone", worker)

    def _performed(self, world: World, role: str, run: RunState) -> Iterator[Way]:
        if run.owner is None:
            return
        for effect in due(run):
            match effect:
                case CallModel():
                    planned, text = self._turn(world, role, run)
                    if text != ERROR:
                        after = as_worker(world, run.owner)
                        after.respond(*planned, run_id=run.id, text=text)
                        yield Way(after, "alone", run.owner)
                    if text == ERROR or (not planned and run.agent in self.may_fail):
                        after = as_worker(world, run.owner)
                        after.model_fails(None, run_id=run.id)
                        yield Way(after, "alone", run.owner)
                case CallTool(call=call):
                    after = as_worker(world, run.owner)
                    after.returns(call.key, run_id=run.id)
                    yield Way(after, "alone", run.owner)
                case _:
                    raise AssertionError(f"{effect} is never due here")

    # --- what models say

    def _turn(self, world: World, role: str, run: RunState) -> tuple[list[Planned], str]:
        """The calls of the turn that is due, or the text of the last one, ERROR where the model fails."""
        shape, heard = self.by_id[run.agent], canonical(run.input)
        told = told_of(world.events(run.id))
        question = ToolUse("human_ask", {"by": shape.id, "n": run.turn, "about": heard})
        name = f"c:{role}:{run.turn}"
        # A step that begins anew with a retry asks anew.
        asks = (question, ask(name if world.checkpoint(name).status == "new" else f"{name} again"))
        match shape.kind:
            case "leaf" if run.turn < shape.asks:
                tool: list[Planned] = [(ToolUse("count", None), Execute(idempotent=True))]
                return [asks, *(tool if self.tools and run.turn == 0 else [])], ""
            case "leaf":
                answers = [content for name, content in told if name == "human_ask"]
                return [], ERROR if shape.fails else digest(shape.id, heard, answers)
            case "team" if run.turn < shape.rounds:
                given = digest(heard, run.turn)
                calls: list[Planned] = [
                    (ToolUse("core_delegate", None), Delegate(part.id, given, 20)) for part in shape.parts
                ]
                return [*calls, *([asks] if run.turn == 0 and shape.asks else [])], ""
            case "team":
                return [], digest(shape.id, [content for _, content in told])
            case _ if run.turn == 0:
                steps: JsonValue = [node_of(part) for part in shape.parts]
                return [(ToolUse("start", None), StartLoop(steps, digest(heard), shape.rounds))], ""
            case _ if run.turn <= shape.rounds:
                feedback = run.turn - 1 if (run.turn - 1) % 2 else None
                return [(ToolUse("iterate", None), Iterate(feedback))], ""
            case _ if run.turn == shape.rounds + 1:
                return [(ToolUse("finish", None), FinishLoop())], ""
            case _:
                iterated = [content for name, content in told if name == "iterate"]
                return [], digest(shape.id, [one["output"] if isinstance(one, dict) else ERROR for one in iterated])

    def expected(self, failed: set[str]) -> Any:
        """What comes out where these parts have failed or were cancelled; None if nothing does."""

        def happened(one: Shape) -> Shape:
            if one.id in failed:
                return Shape("leaf", fails=True, id=one.id)
            return replace(one, parts=tuple(happened(part) for part in one.parts))

        try:
            return output_of(happened(self.shape), "go")
        except Fails:
            return None


def node_of(shape: Shape) -> JsonValue:
    """The node of a pipeline as it is stored with a run."""
    parts: list[JsonValue] = [node_of(part) for part in shape.parts]
    match shape.kind:
        case "map":
            return {"kind": "map", "step": parts[0], "concurrency": shape.rounds}
        case "parallel" | "sequence":
            return {"kind": shape.kind, "steps": parts}
        case _:
            return {"kind": "agent", "agent": shape.id}


def as_worker(world: World, worker: str | None) -> World:
    """A copy in which the next commit is this worker's; None executes nothing."""
    copy = world.copy()
    copy.worker = worker
    return copy


# --- what is read of a world ------------------------------------------------------------------------------------------


def tree_of(world: World) -> dict[str, RunState]:
    """The runs of the tree by their place in it, parents before their children."""
    found = {"": world.run(ROOT)}
    todo = [("", found[""])]
    for role, run in todo:
        times: Counter[str] = Counter()
        for child in run.children:
            times[child.agent] += 1
            place = f"{role}>{child.slot if child.kind == 'pipeline' else f'{child.agent}*{times[child.agent]}'}"
            found[place] = world.run(child.run)
            todo.append((place, found[place]))
    return found


def told_of(events: list[Event]) -> list[tuple[str, Any]]:
    """The outcomes of a run's calls, in the order of the calls, read without any help of the domain's fold."""
    names: dict[str, str] = {}
    outcomes: dict[str, Any] = {}
    for event in events:
        match event:
            case ModelResponded():
                uses = read_turn(event.message).calls
                names |= {f"{event.base}.{index}": use.tool for index, use in enumerate(uses)}
            case ToolReturned():
                assert event.call not in outcomes
                outcomes[event.call] = event.result
            case ToolFailed():
                assert event.call not in outcomes
                outcomes[event.call] = ERROR
            case Resumed():
                assert event.call not in outcomes
                outcomes[event.call] = event.response
    return [(name, outcomes.get(key)) for key, name in names.items()]


def was_retried(world: World) -> bool:
    return any(isinstance(event, RunRetried) for event in world.events(ROOT))


def fingerprint(world: World) -> Hashable:
    """All that the future depends on, and all that was said of questions; workers are told apart, not named."""
    family = tree_of(world)
    letters: dict[str | None, int] = {None: -1}
    places = {run.id: role for role, run in family.items()}
    states = []
    for role, run in family.items():
        owner = letters.setdefault(run.owner, len(letters))
        calls = tuple((call.status, call.checkpoint) for call in run.calls)
        children = tuple(sorted((places[one.run], one.status, one.outcome or "") for one in run.children))
        steps = run.steps and (run.steps.begun, repr(sorted(run.steps.outputs.items())))
        loop = run.loop and (run.loop.iterations, run.loop.running is None, repr(run.loop.input))
        states.append((role, run.status, owner, run.turn, calls, children, steps, loop, run.parked, repr(run.result)))
    checkpoints = frozenset((one, world.checkpoint(one).status) for one in questions_of(world))
    return frozenset(states), checkpoints, surfaced(world), was_retried(world)


def questions_of(world: World) -> list[str]:
    return [stream for stream in world.streams() if stream.startswith("c:")]


def surfaced(world: World) -> frozenset[str]:
    return frozenset(event.checkpoint for event in world.events(ROOT) if isinstance(event, QuestionAsked))
