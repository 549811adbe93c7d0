"""Entries of a log, made by hand, and what those of compositions show."""

from __future__ import annotations

from typing import Any

from bread.domain.checkpoint import ParentLink
from bread.domain.envelope import Meta, Principal, Recorded
from bread.domain.events import Event
from bread.domain.ports import Logged
from bread.domain.run_events import (
    ChildReturned,
    ChildStarted,
    IterationFinished,
    IterationStarted,
    LoopFinished,
    LoopStarted,
    RunStarted,
    StepFinished,
    StepStarted,
)

ROOT, CHILD, ASKED = "run_root", "run_child", "cp_1"
COMMON = {
    "seq": 9,
    "cursor": "9~1:3",
    "runId": ROOT,
    "rootRunId": ROOT,
    "agentId": "publisher",
    "sessionId": "s1",
    "path": [],
    "timestamp": "1970-01-01T00:16:40Z",
}


def logged(event: Event, stream: str = ROOT, *, by: Principal | None = None, subject: Recorded | None = None) -> Logged:
    meta = Meta(1000.0, by or Principal(), "c_1", 9, ROOT, "s1")
    return Logged(Recorded(stream, 5, event, meta, 77), subject)


def held(event: Event, stream: str = ROOT, version: int = 2) -> Recorded:
    return Recorded(stream, version, event, Meta(999.0, Principal(), "c_0", 2, ROOT, "s1"), 70)


def begun(kind: Any, slot: str, input: Any = None) -> Recorded:
    """The beginning of a child run, to which the events about it point."""
    link = ParentLink(run=ROOT, slot=slot, kind=kind)
    started = RunStarted(agent="writer", input=input, session="s1", root=ROOT, started=1.0, parent=link)
    return held(started, CHILD, 1)


STEP: dict[str, Any] = {"pipelineId": "publisher", "stepIndex": 2}
SUB: dict[str, Any] = {"subAgentId": "writer", "childRunId": CHILD, "toolCall": "1.0"}
COMPOSED: list[tuple[Logged, dict[str, Any]]] = [
    (
        logged(StepStarted(path="2/0", agent="writer", child=CHILD)),
        {"type": "pipeline:step:start", **STEP, "agentId": "writer", "path": ["2/0"], "childRunId": CHILD},
    ),
    (
        logged(StepStarted(path="2", agent="parallel")),
        {"type": "pipeline:step:start", **STEP, "agentId": "parallel", "path": ["2"]},
    ),
    (
        logged(StepFinished(path="2/0", agent="writer", child=CHILD, output={"a": None})),
        {
            "type": "pipeline:step:end",
            **STEP,
            **{"agentId": "writer", "path": ["2/0"], "childRunId": CHILD, "output": {"a": None}},
        },
    ),
    (
        logged(
            ChildReturned(slot="2/0", child=CHILD, status="failed", code="EXPIRED", message="late"),
            subject=begun("pipeline", "2/0"),
        ),
        {
            "type": "pipeline:step:error",
            **STEP,
            **{"agentId": "writer", "path": ["2/0"], "childRunId": CHILD, "code": "EXPIRED", "message": "late"},
        },
    ),
    (
        logged(
            ChildStarted(slot="1.0", child=CHILD, agent="writer", kind="supervisor"),
            subject=begun("supervisor", "1.0", [1]),
        ),
        {"type": "subagent:run:start", **SUB, "input": [1]},
    ),
    (
        logged(ChildReturned(slot="1.0", child=CHILD, status="completed"), subject=begun("supervisor", "1.0")),
        {"type": "subagent:run:end", **SUB, "status": "completed"},
    ),
    (
        logged(
            ChildReturned(slot="1.0", child=CHILD, status="cancelled", code="RUN_CANCELLED", message="enough"),
            subject=begun("supervisor", "1.0"),
        ),
        {"type": "subagent:run:end", **SUB, "status": "cancelled", "code": "RUN_CANCELLED", "message": "enough"},
    ),
    (
        logged(LoopStarted(loop="l", call="1.0", steps=["a"], max_iterations=3, input={})),
        {"type": "loop:start", "loopId": "l", "steps": ["a"], "maxIterations": 3, "input": {}},
    ),
    (
        logged(IterationStarted(loop="l", iteration=2, call="1.0", child=CHILD)),
        {"type": "loop:iteration:start", "loopId": "l", "iteration": 2, "childRunId": CHILD},
    ),
    (
        logged(IterationFinished(loop="l", iteration=2, call="1.0", output=7)),
        {"type": "loop:iteration:end", "loopId": "l", "iteration": 2, "output": 7},
    ),
    (
        logged(LoopFinished(loop="l", status="exhausted", iterations=2, result=7)),
        {"type": "loop:end", "loopId": "l", "status": "exhausted", "iterations": 2, "result": 7},
    ),
]
# The frames of steps and loops have their own events; and nothing is shown of a child that is erased.
COMPOSED_SILENT: list[Logged] = [
    logged(ChildStarted(slot="2", child=CHILD, agent="writer", kind="pipeline"), subject=begun("pipeline", "2")),
    logged(ChildStarted(slot="1.0", child=CHILD, agent="l", kind="loop"), subject=begun("loop", "1.0")),
    logged(ChildReturned(slot="2", child=CHILD, status="completed"), subject=begun("pipeline", "2")),
    logged(ChildReturned(slot="1.0", child=CHILD, status="failed"), subject=begun("loop", "1.0")),
    logged(ChildStarted(slot="1.0", child=CHILD, agent="writer", kind="supervisor")),
]
