"""Crumbs on the wire: names as documented, and a union that reads back what it wrote."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any, get_args

import pytest
from pydantic import TypeAdapter, ValidationError

from bread import AnyCrumb, Crumb
from bread.domain.events import JsonValue
from bread.projections import crumbs
from bread.projections.crumbs import (
    AgentError,
    HumanDiscarded,
    HumanRequired,
    HumanResumed,
    LoopEnd,
    LoopIterationEnd,
    LoopIterationStart,
    LoopStart,
    ModelRetry,
    ParentView,
    ReasoningDelta,
    RunEnd,
    RunRetry,
    RunStart,
    StepEnd,
    StepError,
    StepStart,
    SubagentEnd,
    SubagentStart,
    TextDelta,
    TextReset,
    ToolCall,
    ToolError,
    ToolInputDelta,
    ToolInputEnd,
    ToolInputStart,
    ToolResult,
    ToolResultPartial,
)

AT = datetime(2026, 1, 2, 3, 4, 5, 678901, UTC)
COMMON: dict[str, Any] = {
    "seq": 7,
    "cursor": "7~3:5",
    "run_id": "run_2",
    "root_run_id": "run_1",
    "agent_id": "publisher",
    "session_id": "s1",
    "path": ("2", "0"),
    "timestamp": AT,
}
WIRE = {"seq", "cursor", "runId", "rootRunId", "agentId", "sessionId", "path", "timestamp", "type"}
ODD: JsonValue = {
    "text": "\U0001f680 e\u0301 \u2028 \x00",
    "big": 2**70,
    "nested": [[], {}, [None, True, 1.5]],
    "camelCase": 1,
    "snake_case": 2,
}
CALL: dict[str, Any] = {"tool_call_id": "call_1", "tool_name": "fetch"}
STEP: dict[str, Any] = {"pipeline_id": "article", "step_index": 2, "child_run_id": "run_3"}
STEP_NAMES = {"pipelineId", "stepIndex", "childRunId"}
SUB: dict[str, Any] = {"sub_agent_id": "writer", "child_run_id": "run_3", "tool_call": "1.0"}
SUB_NAMES = {"subAgentId", "childRunId", "toolCall"}

# Every kind of crumb, full, and the names that it has on the wire beside those of all.
SAMPLES: list[tuple[Crumb, str, set[str]]] = [
    (RunStart(**COMMON, input=ODD, skill="law"), "agent:run:start", {"input", "skill"}),
    (RunEnd(**COMMON, output=ODD, duration_ms=1.5), "agent:run:end", {"output", "durationMs"}),
    (RunRetry(**COMMON), "agent:run:retry", set()),
    (AgentError(**COMMON, code="RUN_CANCELLED", message="no"), "agent:error", {"code", "message"}),
    (TextDelta(**COMMON, text="\U0001f680", base=3, offset=5), "text:delta", {"text", "base", "offset"}),
    (TextReset(**COMMON, base=3), "text:reset", {"base"}),
    (ReasoningDelta(**COMMON, text="hm"), "reasoning:delta", {"text"}),
    (ToolInputStart(**COMMON, **CALL), "tool:input:start", {"toolCallId", "toolName"}),
    (ToolInputDelta(**COMMON, tool_call_id="call_1", text="{"), "tool:input:delta", {"toolCallId", "text"}),
    (ToolInputEnd(**COMMON, tool_call_id="call_1"), "tool:input:end", {"toolCallId"}),
    (ToolCall(**COMMON, **CALL, args=ODD), "tool:call", {"toolCallId", "toolName", "args"}),
    (
        ToolResult(**COMMON, **CALL, result=ODD, duration_ms=1.5),
        "tool:result",
        {"toolCallId", "toolName", "result", "durationMs"},
    ),
    (ToolResultPartial(**COMMON, **CALL, result=ODD), "tool:result:partial", {"toolCallId", "toolName", "result"}),
    (
        ToolError(**COMMON, **CALL, code="TOOL_ERROR", message="no", duration_ms=1.5),
        "tool:error",
        {"toolCallId", "toolName", "code", "message", "durationMs"},
    ),
    (
        ModelRetry(**COMMON, attempt=1, code="MODEL_ERROR", message="busy", retry_at=AT),
        "model:retry",
        {"attempt", "code", "message", "retryAt"},
    ),
    (
        HumanRequired(
            **COMMON,
            **CALL,
            checkpoint_id="cp_1",
            kind="approval",
            args=ODD,
            schema={"type": "object"},
            response_schema={"type": "object"},
            prompt="Allow?",
            deadline=AT,
            skill="law",
            parent=ParentView(run_id="run_1", root_run_id="run_1", slot="2/0", kind="pipeline"),
        ),
        "human:required",
        {
            "checkpointId",
            "toolName",
            "toolCallId",
            "args",
            "schema",
            "responseSchema",
            "prompt",
            "kind",
            "deadline",
            "skill",
            "parent",
        },
    ),
    (
        HumanResumed(
            **COMMON, **CALL, checkpoint_id="cp_1", kind="input", verdict="answered", response=ODD, author="ann"
        ),
        "human:resumed",
        {"checkpointId", "response", "kind", "toolName", "toolCallId", "verdict", "author"},
    ),
    (
        HumanDiscarded(**COMMON, checkpoint_id="cp_1", reason="cancelled"),
        "human:discarded",
        {"checkpointId", "reason"},
    ),
    (StepStart(**COMMON, **STEP), "pipeline:step:start", STEP_NAMES),
    (StepEnd(**COMMON, **STEP, output=ODD), "pipeline:step:end", STEP_NAMES | {"output"}),
    (
        StepError(**COMMON, **STEP, code="EXPIRED", message="no"),
        "pipeline:step:error",
        STEP_NAMES | {"code", "message"},
    ),
    (SubagentStart(**COMMON, **SUB, input=ODD), "subagent:run:start", SUB_NAMES | {"input"}),
    (
        SubagentEnd(**COMMON, **SUB, status="failed", code="EXPIRED", message="no"),
        "subagent:run:end",
        SUB_NAMES | {"status", "code", "message"},
    ),
    (
        LoopStart(**COMMON, loop_id="loop_1", steps=[ODD], max_iterations=3, input=ODD),
        "loop:start",
        {"loopId", "steps", "maxIterations", "input"},
    ),
    (
        LoopIterationStart(**COMMON, loop_id="loop_1", iteration=1, child_run_id="run_3"),
        "loop:iteration:start",
        {"loopId", "iteration", "childRunId"},
    ),
    (
        LoopIterationEnd(**COMMON, loop_id="loop_1", iteration=1, output=ODD),
        "loop:iteration:end",
        {"loopId", "iteration", "output"},
    ),
    (
        LoopEnd(**COMMON, loop_id="loop_1", status="exhausted", iterations=3, result=ODD),
        "loop:end",
        {"loopId", "status", "iterations", "result"},
    ),
]
adapter: TypeAdapter[AnyCrumb] = TypeAdapter(AnyCrumb)


def crumb_id(value: Any) -> str:
    return value if isinstance(value, str) else ""


@pytest.mark.parametrize(("crumb", "kind", "names"), SAMPLES, ids=crumb_id)
def test_b21_b49_the_names_on_the_wire_are_camel_case(crumb: Crumb, kind: str, names: set[str]) -> None:
    wire = crumb.wire()
    assert wire["type"] == kind
    assert wire.keys() == WIRE | names
    assert wire["runId"] == "run_2"
    assert wire["path"] == ["2", "0"]
    assert wire["timestamp"] == "2026-01-02T03:04:05.678901Z"


@pytest.mark.parametrize(("crumb", "kind", "names"), SAMPLES, ids=crumb_id)
def test_b122_a_crumb_comes_back_from_the_wire_as_it_was(crumb: Crumb, kind: str, names: set[str]) -> None:
    text = json.dumps(crumb.wire())
    back = adapter.validate_json(text)
    assert type(back) is type(crumb)
    assert back == crumb
    assert back.wire() == crumb.wire()
    assert adapter.validate_python(json.loads(text)) == crumb


def test_b122_every_crumb_class_is_in_the_union_and_has_a_type_of_its_own() -> None:
    union = set(get_args(get_args(AnyCrumb)[0]))
    assert union == set(Crumb.__subclasses__())
    assert union == {
        value for value in vars(crumbs).values() if isinstance(value, type) and issubclass(value, Crumb)
    } - {Crumb}
    assert {type(crumb) for crumb, _, _ in SAMPLES} == union
    kinds = [get_args(cls.model_fields["type"].annotation) for cls in union]
    assert len(set(kinds)) == len(kinds)
    assert {kind for (kind,) in kinds} == {kind for _, kind, _ in SAMPLES}


@pytest.mark.parametrize("wrong", [{"type": "agent:run:stop"}, {}, {"type": None}, {"type": "text:delta"}], ids=str)
def test_what_is_no_crumb_is_refused(wrong: dict[str, Any]) -> None:
    """B122: a reader of the wire does not guess."""
    with pytest.raises(ValidationError):
        adapter.validate_python(SAMPLES[2][0].wire() | {"type": None} | wrong)


def test_what_is_not_set_is_left_out_of_the_wire() -> None:
    """B21: fields that a crumb need not have; a payload that is null is there."""
    question = HumanRequired(**COMMON, **CALL, checkpoint_id="cp_1", kind="input", args={}, schema={}, prompt="Well?")
    assert question.wire().keys().isdisjoint({"deadline", "skill", "parent", "responseSchema"})
    assert adapter.validate_python(question.wire()) == question


def test_crumbs_do_not_change() -> None:
    """B122: what listeners and streams share is frozen."""
    for crumb, _, _ in SAMPLES:
        with pytest.raises(ValidationError):
            crumb.seq = 1


def test_null_payloads_survive_the_wire() -> None:
    """B28, B122: a tool that gives nothing and a run that ends with nothing are read back like any other."""
    for crumb in (
        ToolResult(**COMMON, **CALL, result=None, duration_ms=1.0),
        RunEnd(**COMMON, output=None, duration_ms=1.0),
        RunStart(**COMMON, input=None),
        ToolCall(**COMMON, **CALL, args=None),
        HumanResumed(**COMMON, **CALL, checkpoint_id="cp_1", kind="input", verdict="expired", response=None),
        ToolResult(**COMMON, **CALL, result={"a": None, "b": [None]}, duration_ms=1.0),
        RunEnd(**COMMON, output={"x": None}, duration_ms=1.0),
    ):
        assert crumb.wire().keys() > WIRE
        assert adapter.validate_json(json.dumps(crumb.wire())) == crumb
