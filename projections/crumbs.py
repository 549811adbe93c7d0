"""Crumbs: an event as the outside sees it.

JSON on the wire is camelCase, Python snake_case; crumbs are a union discriminated by `type`.
"""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field
from pydantic.alias_generators import to_camel

from ..domain.checkpoint import CheckpointKind, ParentLink
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
    parent: ParentLink | None = None


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
    | HumanDiscarded,
    Field(discriminator="type"),
]
