"""What the outside may ask for. Every door of bread sends one of these; all of them carry who wants it."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationInfo, field_validator

from .envelope import APP, Principal
from .events import JsonValue


class Command(BaseModel):
    """A request. Unknown fields are refused by name."""

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)

    by: Principal = APP
    command_id: str | None = Field(default=None, min_length=1, max_length=200)
    """An id of the caller's; the events that the command brings about have it as their `cause`."""
    tenant: str = "default"
    traceparent: str | None = None

    @field_validator("*")
    @classmethod
    def _is_text(cls, value: Any, info: ValidationInfo) -> Any:
        # A store can look for whole characters only; what is said with a command may hold anything.
        if isinstance(value, str) and info.field_name not in ("input", "response"):
            value.encode()
        return value


class StartRun(Command):
    """Start a root run. `run_id` is made if it is not given; `session` likewise."""

    agent: str
    input: JsonValue
    run_id: str | None = None
    session: str | None = None
    tags: dict[str, str] = Field(default_factory=dict)
    skill: str | None = None
    max_steps: int | None = Field(default=None, ge=1, le=10_000)
    idempotency_key: str | None = Field(default=None, min_length=1, max_length=200)
    on_busy: Literal["fail", "wait"] = "fail"
    on_pending: Literal["fail", "cancel"] = "fail"


class StartPipeline(Command):
    """Start a root run of a pipeline. `run_id` is made if it is not given; `session` likewise."""

    pipeline: str
    input: JsonValue
    run_id: str | None = None
    session: str | None = None
    tags: dict[str, str] = Field(default_factory=dict)
    idempotency_key: str | None = Field(default=None, min_length=1, max_length=200)
    on_busy: Literal["fail", "wait"] = "fail"
    on_pending: Literal["fail", "cancel"] = "fail"


class AnswerCheckpoint(Command):
    """Answer a question. `detach` leaves the continuation to another process."""

    checkpoint_id: str
    response: JsonValue = None
    comment: str | None = None
    idempotency_key: str | None = Field(default=None, min_length=1, max_length=200)
    detach: bool = False


class CancelRun(Command):
    run_id: str
    reason: str = "cancelled"


class RetryRun(Command):
    """Go on with a failed root run from where it failed."""

    run_id: str
    max_steps: int | None = Field(default=None, ge=1, le=10_000)


class DeleteSession(Command):
    """Erase a session and everything it owns. An unknown id is already true."""

    session: str
    reason: Literal["deleted", "cleanup"] = "deleted"


AnyCommand = StartRun | StartPipeline | AnswerCheckpoint | CancelRun | RetryRun | DeleteSession
