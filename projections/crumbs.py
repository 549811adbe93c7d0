"""Crumbs: an event as the outside sees it.

JSON on the wire is camelCase, Python snake_case; crumbs are a union discriminated by `type`.
"""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field
from pydantic.alias_generators import to_camel

from ..domain.checkpoint import CheckpointKind
from ..domain.events import JsonValue
from ..domain.run_events import Verdict


class Crumb(BaseModel):
    """What all crumbs carry. `seq` counts the events of the root's tree; `cursor` continues an observation after it."""

    model_config = ConfigDict(frozen=True, alias_generator=to_camel, populate_by_name=True, defer_build=True)

    seq: int
    cursor: str
    run_id: str
    root_run_id: str
    agent_id: str
    session_id: str
    path: tuple[str, ...] = ()
    timestamp: datetime

    def wire(self) -> dict[str, Any]:
        """The crumb as JSON data, camelCase, without what is not set; a payload of null is one."""
        data = self.model_dump(mode="json", by_alias=True)
        for name, field in type(self).model_fields.items():
            if not field.is_required() and getattr(self, name) is None:
                del data[field.alias or name]
        return data


class RunStart(Crumb):
    type: Literal["agent:run:start"] = "agent:run:start"
    input: JsonValue
    skill: str | None = None


class RunEnd(Crumb):
    type: Literal["agent:run:end"] = "agent:run:end"
    output: JsonValue
    duration_ms: float


class RunRetry(Crumb):
    """A failed run goes on."""

    type: Literal["agent:run:retry"] = "agent:run:retry"


class AgentError(Crumb):
    """The run ended without an output."""

    type: Literal["agent:error"] = "agent:error"
    code: str
    message: str


class TextDelta(Crumb):
    """Text of a model turn from code point `offset` on. `base` tells the attempts of all branches apart."""

    type: Literal["text:delta"] = "text:delta"
    text: str
    base: int
    offset: int = 0


class TextReset(Crumb):
    """What was shown of attempt `base` is void: it was cut off, and another one follows."""

    type: Literal["text:reset"] = "text:reset"
    base: int


class ReasoningDelta(Crumb):
    """Live hint, never replayed."""

    type: Literal["reasoning:delta"] = "reasoning:delta"
    text: str


class ToolInputStart(Crumb):
    """Live hint, never replayed, like the delta and the end."""

    type: Literal["tool:input:start"] = "tool:input:start"
    tool_call_id: str
    tool_name: str


class ToolInputDelta(Crumb):
    type: Literal["tool:input:delta"] = "tool:input:delta"
    tool_call_id: str
    text: str


class ToolInputEnd(Crumb):
    type: Literal["tool:input:end"] = "tool:input:end"
    tool_call_id: str


class ToolCall(Crumb):
    type: Literal["tool:call"] = "tool:call"
    tool_call_id: str
    tool_name: str
    args: JsonValue


class ToolResult(Crumb):
    type: Literal["tool:result"] = "tool:result"
    tool_call_id: str
    tool_name: str
    result: JsonValue
    duration_ms: float


class ToolResultPartial(Crumb):
    """A value that a streaming tool gave on its way: a live hint, never replayed."""

    type: Literal["tool:result:partial"] = "tool:result:partial"
    tool_call_id: str
    tool_name: str
    result: JsonValue


class ToolError(Crumb):
    """A call that raised or never ran."""

    type: Literal["tool:error"] = "tool:error"
    tool_call_id: str
    tool_name: str
    code: str
    message: str
    duration_ms: float | None = None


class ModelRetry(Crumb):
    """An attempt failed, or gave an answer that does not fit (OUTPUT_INVALID), and another one follows, not before
    `retry_at`."""

    type: Literal["model:retry"] = "model:retry"
    attempt: int
    code: str
    message: str
    retry_at: datetime


class ParentView(BaseModel):
    """Where a run hangs in its parent. `remaining`, of a checkpoint, are the steps of its pipeline that come after."""

    model_config = ConfigDict(frozen=True, alias_generator=to_camel, populate_by_name=True, defer_build=True)

    run_id: str
    root_run_id: str
    kind: Literal["pipeline", "supervisor", "loop"]
    slot: str
    remaining: JsonValue = Field(default=None, exclude_if=lambda steps: steps is None)


class HumanRequired(Crumb):
    """A question to a person. `args_schema` is `schema` on the wire."""

    type: Literal["human:required"] = "human:required"
    checkpoint_id: str
    kind: CheckpointKind
    tool_name: str
    tool_call_id: str
    args: JsonValue
    args_schema: JsonValue = Field(alias="schema")
    response_schema: JsonValue = None
    prompt: str
    deadline: datetime | None = None
    skill: str | None = None
    parent: ParentView | None = None


class HumanResumed(Crumb):
    """A question is settled: answered by `author`, or expired (verdict 'expired')."""

    type: Literal["human:resumed"] = "human:resumed"
    checkpoint_id: str
    kind: CheckpointKind
    tool_name: str
    tool_call_id: str
    verdict: Verdict
    response: JsonValue
    author: str | None = None


class HumanDiscarded(Crumb):
    """A question can no longer be answered."""

    type: Literal["human:discarded"] = "human:discarded"
    checkpoint_id: str
    reason: str


class StepStart(Crumb):
    """A step of a pipeline begins: an agent as the run `child_run_id`, or `parallel` or `map` around others.

    `path` ends with the step's place in the pipeline; `agent_id` is the step's.
    """

    type: Literal["pipeline:step:start"] = "pipeline:step:start"
    pipeline_id: str
    step_index: int
    child_run_id: str | None = None


class StepEnd(Crumb):
    type: Literal["pipeline:step:end"] = "pipeline:step:end"
    pipeline_id: str
    step_index: int
    child_run_id: str | None = None
    output: JsonValue


class StepError(Crumb):
    """The agent of a step failed or was cancelled. The pipeline fails when what runs beside it has settled."""

    type: Literal["pipeline:step:error"] = "pipeline:step:error"
    pipeline_id: str
    step_index: int
    child_run_id: str
    code: str
    message: str


class SubagentStart(Crumb):
    """A supervisor delegates to `sub_agent_id`, as the run `child_run_id`."""

    type: Literal["subagent:run:start"] = "subagent:run:start"
    sub_agent_id: str
    child_run_id: str
    tool_call: str
    input: JsonValue


class SubagentEnd(Crumb):
    """A delegation has ended; with a `code` where it gave no output. The output is the result of the call."""

    type: Literal["subagent:run:end"] = "subagent:run:end"
    sub_agent_id: str
    child_run_id: str
    tool_call: str
    status: Literal["completed", "failed", "cancelled"]
    code: str | None = None
    message: str | None = None


class LoopStart(Crumb):
    """An agent has composed a loop; `steps` are those of each iteration."""

    type: Literal["loop:start"] = "loop:start"
    loop_id: str
    steps: JsonValue
    max_iterations: int
    input: JsonValue


class LoopIterationStart(Crumb):
    type: Literal["loop:iteration:start"] = "loop:iteration:start"
    loop_id: str
    iteration: int
    child_run_id: str


class LoopIterationEnd(Crumb):
    type: Literal["loop:iteration:end"] = "loop:iteration:end"
    loop_id: str
    iteration: int
    output: JsonValue


class LoopEnd(Crumb):
    type: Literal["loop:end"] = "loop:end"
    loop_id: str
    status: Literal["completed", "exhausted", "failed"]
    iterations: int
    result: JsonValue = None


AnyCrumb = Annotated[
    RunStart
    | RunEnd
    | RunRetry
    | AgentError
    | TextDelta
    | TextReset
    | ReasoningDelta
    | ToolInputStart
    | ToolInputDelta
    | ToolInputEnd
    | ToolCall
    | ToolResult
    | ToolResultPartial
    | ToolError
    | ModelRetry
    | HumanRequired
    | HumanResumed
    | HumanDiscarded
    | StepStart
    | StepEnd
    | StepError
    | SubagentStart
    | SubagentEnd
    | LoopStart
    | LoopIterationStart
    | LoopIterationEnd
    | LoopEnd,
    Field(discriminator="type"),
]
