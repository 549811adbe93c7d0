"""What can happen to a run. Names, fields and versions are final: golden logs are for ever.

A payload is stored once: a model's turn lives in ModelResponded, a question's arguments and schemas in
CheckpointOpened, an answer in Resumed. Other events point to them by version (`of`, `args_at`) or by checkpoint id.
`owner` is the worker that an event names to perform the run's effects; its version is that owner's epoch.
`call` is `<base>.<index>`: the place of a call in the log, unique in the tree whatever ids a provider repeats.
"""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict

from .checkpoint import CheckpointKind, IdempotencyKey, ParentLink
from .events import Event, JsonValue, event, upcaster
from .messages import Message

RunKind = Literal["agent", "pipeline"]
Verdict = Literal["answered", "approved", "rejected", "expired", "happened", "retry", "failed"]
Visibility = Literal["passthrough", "mediate", "hidden"]


class Usage(BaseModel):
    """Tokens of one model call, as the provider counts them."""

    model_config = ConfigDict(frozen=True, extra="allow", defer_build=True)

    input_tokens: int = 0
    output_tokens: int = 0


@event("run.started")
class RunStarted(Event):
    """A run exists. `started` is unix seconds; `steps` is the pipeline's own copy of its steps."""

    kind: RunKind = "agent"
    agent: str
    input: JsonValue
    session: str
    root: str
    started: float
    owner: str | None = None
    max_steps: int = 20
    parent: ParentLink | None = None
    skill: str | None = None
    steps: JsonValue = None
    key: IdempotencyKey | None = None


@event("run.model_responded")
class ModelResponded(Event):
    """A whole model turn. `base` is the seq of the event from which the attempt started."""

    turn: int
    base: int
    message: Message
    model: str
    finish: str
    usage: Usage | None = None
    duration_ms: float = 0.0


@event("run.model_failed")
class ModelFailed(Event):
    """One attempt failed. `retry_at` (unix seconds) says when the next one may start; without it there is none."""

    turn: int
    base: int
    attempt: int
    code: str
    message: str
    retry_at: float | None = None


@event("run.output_rejected")
class OutputRejected(Event):
    """A final answer does not fit the agent's output schema: the model is told, and asked again unless it is `last`."""

    turn: int
    attempt: int
    message: str
    last: bool = False


@event("run.tool_called")
class ToolCalled(Event):
    """The intent to execute a call, committed before the effect. `args_at` is the version that holds the arguments."""

    call: str
    tool: str
    tool_call_id: str
    args_at: int
    idempotent: bool = False


@event("run.tool_returned")
class ToolReturned(Event):
    call: str
    tool: str
    tool_call_id: str
    result: JsonValue
    duration_ms: float = 0.0


@event("run.tool_failed")
class ToolFailed(Event):
    """A call that raised, or that never ran: `code` tells which (TOOL_ERROR, FORBIDDEN, RUN_CANCELLED, ...)."""

    call: str
    tool: str
    tool_call_id: str
    code: str
    message: str
    duration_ms: float | None = None


@event("run.suspended")
class Suspended(Event):
    """A call waits for a person; the checkpoint is opened in the same commit."""

    call: str
    checkpoint: str
    kind: CheckpointKind


@event("run.question_asked")
class QuestionAsked(Event):
    """On the root's stream: a question of the tree surfaces, once. `run` asks it; without one the root itself."""

    checkpoint: str
    run: str | None = None


@event("run.resumed")
class Resumed(Event):
    """The answer, in the commit of its claim."""

    call: str
    tool: str
    tool_call_id: str
    checkpoint: str
    kind: CheckpointKind
    verdict: Verdict
    response: JsonValue = None
    owner: str | None = None


@event("run.child_started")
class ChildStarted(Event):
    slot: str
    child: str
    agent: str
    kind: Literal["pipeline", "supervisor", "loop"]
    visibility: Visibility = "passthrough"


@event("run.child_suspended")
class ChildSuspended(Event):
    slot: str
    child: str


@event("run.child_resumed")
class ChildResumed(Event):
    slot: str
    child: str


@event("run.child_returned")
class ChildReturned(Event):
    slot: str
    child: str
    status: Literal["completed", "failed", "cancelled"]
    output: JsonValue = None
    code: str | None = None
    message: str | None = None
    owner: str | None = None


@event("run.step_started")
class StepStarted(Event):
    path: str
    agent: str
    child: str | None = None


@event("run.step_finished", 2)
class StepFinished(Event):
    """A step is done; `agent` is `parallel` or `map` where it holds others. Version 1 named neither agent nor child."""

    path: str
    output: JsonValue = None
    agent: str = ""
    child: str | None = None


@upcaster("run.step_finished", 1)
def _step_finished_2(data: dict[str, Any]) -> dict[str, Any]:
    return data


@event("run.loop_started")
class LoopStarted(Event):
    loop: str
    call: str
    steps: JsonValue
    max_iterations: int
    input: JsonValue = None


@event("run.iteration_started")
class IterationStarted(Event):
    """An iteration of a loop begins, as the child run of the call `call`."""

    loop: str
    iteration: int
    call: str
    child: str


@event("run.iteration_finished")
class IterationFinished(Event):
    loop: str
    iteration: int
    call: str
    output: JsonValue = None


@event("run.loop_finished")
class LoopFinished(Event):
    loop: str
    status: Literal["completed", "exhausted", "failed"]
    iterations: int
    result: JsonValue = None


@event("run.taken")
class RunTaken(Event):
    """The run got another owner, or none: then it is ready for whoever takes it."""

    owner: str | None
    reason: Literal["queued", "orphaned", "handed_over"]
    previous: str | None = None


@event("run.parked")
class Parked(Event):
    """On the root's stream: the whole tree rests on `pending` questions."""

    pending: int


@event("run.retried")
class RunRetried(Event):
    owner: str | None = None
    max_steps: int | None = None


@event("run.completed")
class RunCompleted(Event):
    """The run ended. The output is the text of the model turn at version `of`, or `output` where there is none."""

    of: int | None = None
    output: JsonValue = None
    duration_ms: float = 0.0


@event("run.failed")
class RunFailed(Event):
    code: str
    message: str


@event("run.cancelled")
class RunCancelled(Event):
    reason: str
