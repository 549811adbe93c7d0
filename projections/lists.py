"""What lists and look-ups give: plain records with the names that users see."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any, Generic, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field
from pydantic.alias_generators import to_camel

from ..domain.answers import response_schema_of
from ..domain.checkpoint import CheckpointKind, CheckpointOpened, CheckpointStatus
from ..domain.envelope import Principal
from ..domain.events import JsonValue
from ..domain.run_events import RunKind, Verdict
from .crumbs import ParentView
from .render import moment, parent_view

T = TypeVar("T")


class View(BaseModel):
    """A record for people and programs: snake_case in Python, camelCase on the wire."""

    model_config = ConfigDict(frozen=True, alias_generator=to_camel, populate_by_name=True, defer_build=True)

    def wire(self) -> dict[str, Any]:
        """The record as JSON data, camelCase."""
        return self.model_dump(mode="json", by_alias=True)


class Delegation(View):
    """What a supervisor waits for: a call, the run that performs it, and the questions to answer there."""

    tool_call_id: str
    child_run_id: str
    sub_agent_id: str
    child_checkpoint_ids: tuple[str, ...]


class Checkpoint(View):
    """A question. What follows `version` is set once it is settled.

    One of kind `delegation` is not answered itself: `pending` says where.
    """

    id: str
    kind: CheckpointKind
    status: CheckpointStatus
    agent_id: str
    run_id: str
    root_run_id: str
    session_id: str
    tool_name: str
    tool_call_id: str
    args: JsonValue
    args_schema: JsonValue = Field(alias="schema")
    response_schema: JsonValue = None
    prompt: str
    skill: str | None = None
    parent: ParentView | None = None
    pending: tuple[Delegation, ...] = ()
    created_at: datetime
    deadline: datetime | None = None
    version: int
    verdict: Verdict | None = None
    response: JsonValue = None
    comment: str | None = None
    settled_by: Principal | None = None
    settled_at: datetime | None = None


class Run(View):
    """A run as of its last event. `checkpoints` are the pending ones of it and of what is below it, `owner` the worker
    that performs it. `kind` is agent or pipeline; a child run has a `parent`."""

    id: str
    root_run_id: str
    session_id: str
    agent_id: str
    kind: RunKind = "agent"
    parent: ParentView | None = None
    status: str
    owner: str | None = None
    created_at: datetime
    updated_at: datetime
    checkpoints: tuple[str, ...] = ()
    input: JsonValue = None
    output: JsonValue = None
    code: str | None = None
    message: str | None = None
    orphaned: bool = False


class Iteration(View):
    """An iteration of a loop; without `output` as long as it runs, or where it failed."""

    iteration: int
    child_run_id: str
    output: JsonValue = None


RunStatus = Literal["running", "suspended", "completed", "failed", "cancelled"]
LoopStatus = Literal["running", "completed", "exhausted", "failed"]


class LoopView(View):
    """A loop that an agent composed, read from the log of its run."""

    id: str
    run_id: str
    root_run_id: str
    session_id: str
    agent_id: str
    status: LoopStatus
    max_iterations: int
    steps: JsonValue
    input: JsonValue = None
    result: JsonValue = None
    iterations: tuple[Iteration, ...] = ()
    created_at: datetime


class Session(View):
    id: str
    tags: dict[str, str]
    created_at: datetime
    updated_at: datetime


@dataclass(frozen=True, slots=True)
class Page(Generic[T]):
    """One page of a list; `next` is the cursor of the following page, None on the last."""

    items: list[T]
    next: str | None = None


def checkpoint_view(
    checkpoint_id: str, question: CheckpointOpened, created: float, remaining: JsonValue = None
) -> Checkpoint:
    """A pending question; `remaining` are the steps of its pipeline that come after it."""
    return Checkpoint(
        id=checkpoint_id,
        kind=question.kind,
        status="pending",
        agent_id=question.agent,
        run_id=question.run,
        root_run_id=question.root,
        session_id=question.session,
        tool_name=question.tool,
        tool_call_id=question.tool_call_id,
        args=question.args,
        schema=question.args_schema,
        response_schema=response_schema_of(question),
        prompt=question.prompt,
        skill=question.skill,
        parent=parent_view(question.parent, question.root, remaining),
        created_at=moment(created),
        deadline=moment(question.deadline) if question.deadline else None,
        version=1,
    )
