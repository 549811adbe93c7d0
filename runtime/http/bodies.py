"""What requests bring, as JSON: camelCase, and nothing that is not known."""

from __future__ import annotations

from typing import Annotated, Any, Generic, TypeVar

from pydantic import BaseModel, ConfigDict, Field, JsonValue
from pydantic.alias_generators import to_camel

T = TypeVar("T")
_Short = Annotated[str, Field(min_length=1, max_length=200)]
Tags = Annotated[dict[_Short, _Short], Field(max_length=32)]


class Body(BaseModel):
    """Base of what is sent: an unknown field is an error, since nobody would notice that it does nothing, and so is
    `false` for a number: it would be a 0."""

    model_config = ConfigDict(alias_generator=to_camel, populate_by_name=True, extra="forbid", strict=True)


class SessionBody(Body):
    """The session that a run belongs to: an id that may exist already, and tags for a new one."""

    id: str | None = None
    tags: Tags = {}


class PipelineBody(Body):
    """A run of a pipeline. The same `idempotencyKey` (or header `Idempotency-Key`) gets the same run."""

    input: JsonValue
    session: SessionBody = SessionBody()
    idempotency_key: str | None = None


class RunBody(PipelineBody):
    """A run of an agent."""

    skill: str | None = None
    max_steps: int | None = Field(default=None, ge=1, le=10_000)


class AnswerBody(Body):
    """An answer to a question: what its response schema says."""

    response: JsonValue = None
    author: str | None = None
    comment: str | None = None
    idempotency_key: str | None = None


class CancelBody(Body):
    """Why a run is stopped; kept in the log."""

    reason: str = "cancelled"


class RetryBody(Body):
    """How a failed run goes on."""

    max_steps: int | None = Field(default=None, ge=1, le=10_000)


class CleanupBody(Body):
    """Which sessions are deleted: idle for so many days, and with all of the tags. Without days none is."""

    older_than_days: float | None = Field(default=None, ge=0, le=36_500)
    tags: Tags = {}


class AcceptedBody(BaseModel):
    """A run that was begun: `GET /runs/{runId}/stream` shows it."""

    run_id: str = Field(alias="runId")


class AgentBody(BaseModel):
    """An agent of the process. `outputFormat` is `text`, or the JSON schema of its output."""

    id: str
    model: str
    output_format: str | dict[str, Any] = Field(alias="outputFormat")
    tools: list[str]


class PageBody(BaseModel, Generic[T]):
    """A page of a list; `next` is the cursor of the following one, null on the last."""

    items: list[T]
    next: str | None


class ErrorPart(BaseModel):
    """`code` is what programs match on; `details` has what a program needs."""

    code: str
    message: str
    details: dict[str, Any] | None = None


class ErrorBody(BaseModel):
    """Every error has this shape."""

    error: ErrorPart
