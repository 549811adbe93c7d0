"""Pipelines: what is due in a tree of steps, from what has become of its children so far.

A node is `{"kind": "agent", "agent": ..., "skill": ..., "max_steps": ...}`, `{"kind": "parallel", "steps": [...]}`,
`{"kind": "sequence", "steps": [...]}` or `{"kind": "map", "step": node, "concurrency": n}`; a pipeline is a sequence.
The path of a node is its place: `2`, `2/0`, `2/1/3`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from itertools import accumulate
from typing import Any, Literal

from .children import Child, Steps
from .events import JsonValue
from .run_state import RunState


@dataclass(frozen=True, slots=True)
class Begin:
    """Start the child run of a leaf."""

    path: str
    agent: str
    input: JsonValue
    skill: str | None
    max_steps: int


@dataclass(frozen=True, slots=True)
class Open:
    """A parallel or map step begins."""

    path: str
    kind: str


@dataclass(frozen=True, slots=True)
class Close:
    """A parallel or map step is done."""

    path: str
    kind: str
    output: JsonValue


Action = Begin | Open | Close


@dataclass(frozen=True, slots=True)
class Done:
    output: JsonValue


@dataclass(frozen=True, slots=True)
class Failed:
    """Which leaves failed: (path, code, message) each."""

    problems: tuple[tuple[str, str, str], ...]


Outcome = Done | Failed | Literal["running", "suspended"]


@dataclass
class Due:
    """What is to be done now, in order, and how the whole stands after it."""

    actions: list[Action] = field(default_factory=list)
    outcome: Outcome = "running"


def due_steps(run: RunState) -> Due:
    """What is due in a pipeline: pure, and computed anew from the folded outcomes each time one of them changes."""
    if run.steps is None:
        return Due()
    walk = _Walk(run.steps, {child.slot: child for child in run.children})
    outcome = walk.sequence(_nodes(run.steps.nodes), "", run.input)
    return Due(walk.actions, outcome)


def failure_of(outcome: Failed) -> tuple[str, str]:
    """The code and the message of a failed step: those of its failed leaf, or AGGREGATE_ERROR for several."""
    [first, *more] = outcome.problems
    if not more:
        return first[1], first[2]
    told = "; ".join(f"{path}: {code}: {message}" for path, code, message in outcome.problems)
    return "AGGREGATE_ERROR", f"{len(outcome.problems)} branches failed: {told}"[:2000]


def remaining(nodes: JsonValue, slot: str) -> list[JsonValue]:
    """The steps of a pipeline after the one that `slot` is in."""
    return _nodes(nodes)[int(slot.partition("/")[0]) + 1 :]


class _Walk:
    def __init__(self, steps: Steps, children: dict[str, Child]) -> None:
        self._steps, self._children = steps, children
        self.actions: list[Action] = []

    @cached_property
    def _begun(self) -> set[str]:
        """The paths of everything that has a child, or is above one."""
        return {above for slot in self._children for above in accumulate(slot.split("/"), "{}/{}".format)}

    def sequence(self, nodes: list[Any], path: str, input: JsonValue) -> Outcome:
        for index, node in enumerate(nodes):
            outcome = self._node(node, f"{path}/{index}" if path else str(index), input)
            if not isinstance(outcome, Done):
                return outcome
            input = outcome.output
        return Done(input)

    def _node(self, node: Any, path: str, input: JsonValue) -> Outcome:
        if path in self._steps.outputs:
            return Done(self._steps.outputs[path])
        match node["kind"]:
            case "agent":
                return self._leaf(node, path, input)
            case "sequence":
                return self.sequence(_nodes(node["steps"]), path, input)
            case "parallel":
                self._open(path, "parallel")
                branches = [self._node(step, f"{path}/{n}", input) for n, step in enumerate(node["steps"])]
                return self._together(branches, path, "parallel")
            case _:
                self._open(path, "map")
                return self._together(list(self._items(node, path, input)), path, "map")

    def _open(self, path: str, kind: str) -> None:
        if path not in self._steps.begun:
            self.actions.append(Open(path, kind))

    def _leaf(self, node: Any, path: str, input: JsonValue) -> Outcome:
        child = self._children.get(path)
        if child is None:
            self.actions.append(Begin(path, node["agent"], input, node.get("skill"), node.get("max_steps", 20)))
            return "running"
        if child.status != "ended":
            return child.status
        return Failed(((path, child.code or "AGENT_ERROR", child.message or str(child.outcome)),))

    def _items(self, node: Any, path: str, input: JsonValue) -> Iterator[Outcome]:
        """The items that have begun, and as many more as may run now; none once one has failed."""
        items = input if isinstance(input, list) else [input]
        paths = [f"{path}/{index}" for index in range(len(items))]
        has_begun = [one in self._begun or one in self._steps.outputs for one in paths]
        begun = {i: self._node(node["step"], f"{path}/{i}", items[i]) for i in range(len(items)) if has_begun[i]}
        running = sum(outcome == "running" for outcome in begun.values())
        fails = any(isinstance(outcome, Failed) for outcome in begun.values())
        for index, item in enumerate(items):
            if has_begun[index]:
                yield begun[index]
            elif not fails and running < node.get("concurrency", 1):
                outcome = self._node(node["step"], f"{path}/{index}", item)
                running += outcome == "running"
                yield outcome
            elif not fails:
                # Its turn has not come; what holds it back runs, since what rests frees its place.
                yield "running"

    def _together(self, outcomes: list[Outcome], path: str, kind: str) -> Outcome:
        """Siblings settle before their step fails: they have ended, or they ask people."""
        if "running" in outcomes:
            return "running"
        failed = [outcome for outcome in outcomes if isinstance(outcome, Failed)]
        if failed:
            return Failed(tuple(problem for outcome in failed for problem in outcome.problems))
        if "suspended" in outcomes:
            return "suspended"
        output: list[JsonValue] = [outcome.output for outcome in outcomes if isinstance(outcome, Done)]
        self.actions.append(Close(path, kind, output))
        return Done(output)


def _nodes(nodes: Any) -> list[Any]:
    return nodes if isinstance(nodes, list) else []
