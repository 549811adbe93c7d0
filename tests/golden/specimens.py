"""Every event twice: with what it must have, and with everything."""

from __future__ import annotations

from bread.domain.checkpoint import (
    CheckpointClaimed,
    CheckpointDiscarded,
    CheckpointExpired,
    CheckpointOpened,
    IdempotencyKey,
    ParentLink,
)
from bread.domain.events import Erased, Event, JsonValue
from bread.domain.run_events import (
    ChildResumed,
    ChildReturned,
    ChildStarted,
    ChildSuspended,
    IterationFinished,
    IterationStarted,
    LoopFinished,
    LoopStarted,
    ModelFailed,
    ModelResponded,
    OutputRejected,
    Parked,
    QuestionAsked,
    Resumed,
    RunCancelled,
    RunCompleted,
    RunFailed,
    RunRetried,
    RunStarted,
    RunTaken,
    StepFinished,
    StepStarted,
    Suspended,
    ToolCalled,
    ToolFailed,
    ToolReturned,
)
from bread.domain.session import SessionDeleted, SessionOpened, SessionTagged

from .tape import DECISION_SCHEMA, A, B

_KEY = IdempotencyKey(key="k", digest="6b86b273")
_LINK = ParentLink(run="run_00", slot="2/0", kind="supervisor")
_STEPS: JsonValue = [{"kind": "agent", "agent": "a"}]
_CALL: dict[str, object] = {"call": "7.1", "tool": "tool_x", "tool_call_id": "id_1"}
QUESTION: dict[str, object] = {"kind": "input", "run": "run_01", "root": "run_00", "session": "s1", "agent": "a"}
QUESTION |= {"args": {"n": 1}, "args_schema": {"type": "object"}, "prompt": "Go?"} | _CALL

# Every event twice: with what it must have, and with everything.
SPECIMENS: list[tuple[type[Event], dict[str, object], dict[str, object]]] = [
    (
        RunStarted,
        {"agent": "a", "input": None, "session": "s1", "root": "run_01", "started": 1.5},
        {
            "kind": "pipeline",
            "owner": A,
            "max_steps": 7,
            "parent": _LINK,
            "skill": "review",
            "steps": _STEPS,
            "key": _KEY,
        },
    ),
    (
        ModelResponded,
        {"turn": 0, "base": 1, "message": {"codec": "bread/1", "data": {}}, "model": "m", "finish": "stop"},
        {"usage": {"input_tokens": 5, "output_tokens": 7, "cached_tokens": 3}, "duration_ms": 12.25},
    ),
    (
        ModelFailed,
        {"turn": 1, "base": 9, "attempt": 2, "code": "MODEL_ERROR", "message": "529"},
        {"retry_at": 1_760_000_001.5},
    ),
    (OutputRejected, {"turn": 2, "attempt": 1, "message": "year: 'soon' is not of type 'integer'"}, {"last": True}),
    (ToolCalled, _CALL | {"args_at": 3}, {"idempotent": True}),
    (ToolReturned, _CALL | {"result": {"n": [1, 2.5, None, True, "x"]}}, {"duration_ms": 3.5}),
    (ToolFailed, _CALL | {"code": "TOOL_ERROR", "message": "broken"}, {"duration_ms": 3.5}),
    (Suspended, {"call": "7.1", "checkpoint": "cp_01", "kind": "in_doubt"}, {}),
    (QuestionAsked, {"checkpoint": "cp_01"}, {"run": "run_02"}),
    (
        Resumed,
        _CALL | {"checkpoint": "cp_01", "kind": "approval", "verdict": "approved"},
        {"response": {"approved": True, "args": {"n": 2}}, "owner": B},
    ),
    (ChildStarted, {"slot": "2/0", "child": "run_02", "agent": "a", "kind": "loop"}, {"visibility": "mediate"}),
    (ChildSuspended, {"slot": "2/0", "child": "run_02"}, {}),
    (ChildResumed, {"slot": "2/0", "child": "run_02"}, {}),
    (
        ChildReturned,
        {"slot": "2/0", "child": "run_02", "status": "failed"},
        {"output": "x", "code": "MODEL_ERROR", "message": "529", "owner": A},
    ),
    (StepStarted, {"path": "2/0", "agent": "a"}, {"child": "run_02"}),
    (StepFinished, {"path": "2/0"}, {"output": [1, None], "agent": "a", "child": "run_02"}),
    (LoopStarted, {"loop": "7.1", "call": "7.1", "steps": _STEPS, "max_iterations": 3}, {"input": {"topic": "x"}}),
    (IterationStarted, {"loop": "7.1", "iteration": 2, "call": "9.0", "child": "run_02"}, {}),
    (IterationFinished, {"loop": "7.1", "iteration": 2, "call": "9.0"}, {"output": "x"}),
    (LoopFinished, {"loop": "7.1", "status": "exhausted", "iterations": 3}, {"result": {"n": 1}}),
    (RunTaken, {"owner": None, "reason": "handed_over"}, {"previous": B}),
    (Parked, {"pending": 2}, {}),
    (RunRetried, {}, {"owner": A, "max_steps": 50}),
    (RunCompleted, {}, {"of": 4, "output": "x", "duration_ms": 12.25}),
    (RunFailed, {"code": "STEPS_EXCEEDED", "message": "more than 20"}, {}),
    (RunCancelled, {"reason": "enough"}, {}),
    (
        CheckpointOpened,
        QUESTION,
        {
            "response_schema": DECISION_SCHEMA,
            "skill": "review",
            "parent": _LINK,
            "deadline": 1_760_003_600.0,
            "on_timeout": {"publish": False},
        },
    ),
    (CheckpointClaimed, {"claim": "claim_01", "resumed": 5}, {"comment": "fine", "key": _KEY}),
    (CheckpointExpired, {"resumed": 5}, {}),
    (CheckpointDiscarded, {"reason": "settled"}, {}),
    (SessionOpened, {"session": "s1"}, {"tags": {"team": "press"}}),
    (SessionTagged, {"tags": {"team": "mail"}}, {}),
    (SessionDeleted, {}, {"reason": "cleanup"}),
    (Erased, {}, {}),
]
