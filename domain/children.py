"""What a run knows of the runs that it waits for: delegations, steps of a pipeline, iterations of a loop."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from .events import Event, JsonValue
from .records import changed
from .run_events import (
    ChildResumed,
    ChildReturned,
    ChildStarted,
    ChildSuspended,
    IterationFinished,
    IterationStarted,
    LoopFinished,
    LoopStarted,
    StepFinished,
    StepStarted,
)

if TYPE_CHECKING:
    from .run_state import RunState

ChildStatus = Literal["running", "suspended", "ended"]
ChildKind = Literal["pipeline", "supervisor", "loop"]


@dataclass(frozen=True)
class Child:
    """A child run. `slot` is the path of a step or the key of a call; `outcome` how it ended."""

    slot: str
    run: str
    status: ChildStatus = "running"
    agent: str = ""
    kind: ChildKind = "pipeline"
    outcome: Literal["completed", "failed", "cancelled"] | None = None
    code: str | None = None
    message: str | None = None


@dataclass(frozen=True)
class Steps:
    """The progress of a pipeline: which steps have begun, and the outputs of those that are done, by path."""

    nodes: JsonValue
    begun: frozenset[str] = frozenset()
    outputs: Mapping[str, JsonValue] = field(default_factory=dict)
    last: int = 0
    """The version of the last StepFinished."""
    output: JsonValue = None
    """What it was of: at the end of a pipeline, the output of the pipeline."""


@dataclass(frozen=True)
class Loop:
    """The open loop of a run. `output` is that of its last iteration, and the next one's `input`."""

    id: str
    steps: JsonValue
    max_iterations: int
    input: JsonValue
    iterations: int = 0
    output: JsonValue = None
    running: str | None = None
    """The call whose iteration is under way."""


def changes_of(state: RunState, event: Event, version: int) -> dict[str, Any]:
    """The fields of a run's state that an event about its children changes."""
    match event:
        case ChildStarted():
            child = Child(event.slot, event.child, agent=event.agent, kind=event.kind)
            others = tuple(c for c in state.children if c.slot != event.slot)
            return {"children": (*others, child), **_waits(state, event)}
        case ChildSuspended():
            return _child(state, event.slot, status="suspended")
        case ChildResumed():
            return _child(state, event.slot, status="running", outcome=None, code=None, message=None)
        case ChildReturned():
            ended = {"outcome": event.status, "code": event.code, "message": event.message}
            return _child(state, event.slot, status="ended", **ended)
        case StepStarted() if state.steps is not None:
            return {"steps": changed(state.steps, begun=state.steps.begun | {event.path})}
        case StepFinished() if state.steps is not None:
            outputs = {**state.steps.outputs, event.path: event.output}
            return {"steps": changed(state.steps, outputs=outputs, last=version, output=event.output)}
        case LoopStarted():
            return {"loop": Loop(event.loop, event.steps, event.max_iterations, event.input)}
        case IterationStarted() if state.loop is not None:
            return {"loop": changed(state.loop, iterations=event.iteration, running=event.call)}
        case IterationFinished() if state.loop is not None:
            came = {"output": event.output, "input": event.output}
            return {"loop": changed(state.loop, iterations=event.iteration, running=None, **came)}
        case LoopFinished():
            return {"loop": None}
    return {}


def _waits(state: RunState, event: ChildStarted) -> dict[str, Any]:
    """A delegated call waits for its child: it is executed by nobody, and in doubt never."""
    if not any(call.key == event.slot for call in state.calls):
        return {}
    return {"calls": tuple(changed(c, status="waiting") if c.key == event.slot else c for c in state.calls)}


def _child(state: RunState, slot: str, **changes: Any) -> dict[str, Any]:
    found = {"children": tuple(changed(c, **changes) if c.slot == slot else c for c in state.children)}
    if changes["status"] == "ended" and state.loop is not None and state.loop.running == slot:
        return {**found, "loop": changed(state.loop, running=None)}
    return found


def all_ended(children: tuple[Child, ...]) -> tuple[Child, ...]:
    """The children of a run that has ended itself: what it had not heard of ends alone."""
    return tuple(c if c.status == "ended" else changed(c, status="ended", outcome="cancelled") for c in children)


def to_be_retried(children: tuple[Child, ...]) -> tuple[Child, ...]:
    """The children of a pipeline that goes on: those that were cancelled begin anew."""
    return tuple(c for c in children if c.outcome != "cancelled")
