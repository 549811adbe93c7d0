"""From events to crumbs. There is no second log: a crumb is computed from the event whenever somebody asks.

`crumb_of` is pure and gives at most one crumb an event.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from ..domain.answers import response_schema_of
from ..domain.checkpoint import CheckpointDiscarded, CheckpointOpened
from ..domain.envelope import Recorded
from ..domain.events import Erased, JsonValue
from ..domain.messages import read_turn
from ..domain.ports import Logged
from ..domain.run_events import (
    ModelFailed,
    ModelResponded,
    OutputRejected,
    QuestionAsked,
    Resumed,
    RunCancelled,
    RunCompleted,
    RunFailed,
    RunRetried,
    RunStarted,
    ToolCalled,
    ToolFailed,
    ToolReturned,
)
from .crumbs import (
    AgentError,
    Crumb,
    HumanDiscarded,
    HumanRequired,
    HumanResumed,
    ModelRetry,
    RunEnd,
    RunRetry,
    RunStart,
    TextDelta,
    ToolCall,
    ToolError,
    ToolResult,
)


@dataclass(frozen=True, slots=True)
class RunInfo:
    """What is the same for every crumb of a run. `path` is its place in the tree, empty for the root."""

    run_id: str
    root: str
    session: str
    agent: str
    path: tuple[str, ...] = ()


def leaf_name(tool: str) -> str:
    """`fetch` of `tool_fetch`: the name without the scope that a model sees."""
    return tool.partition("_")[2] or tool


def moment(at: float) -> datetime:
    """An aware datetime of unix seconds."""
    return datetime.fromtimestamp(at, UTC)


def subject_of(recorded: Recorded) -> tuple[str, int] | None:
    """Where the payload stands that an event points to, as (stream, version)."""
    match recorded.event:
        case QuestionAsked(checkpoint=checkpoint):
            return checkpoint, 1
        case CheckpointDiscarded():
            return recorded.stream, 1
        case ToolCalled(args_at=version) | RunCompleted(of=int(version)):
            return recorded.stream, version
    return None


def run_of(entry: Logged) -> str | None:
    """The run that an entry shows something of; None for entries that show nothing."""
    recorded = entry.recorded
    match recorded.event:
        case CheckpointDiscarded():
            question = entry.subject.event if entry.subject else None
            return question.run if isinstance(question, CheckpointOpened) else recorded.meta.root
        case QuestionAsked(run=run):
            return run or recorded.stream
        case Erased():
            return recorded.stream if recorded.stream == recorded.meta.root else None
    return recorded.stream if recorded.event.NAME.startswith("run.") else None


def crumb_of(entry: Logged, info: RunInfo, cursor: str) -> Crumb | None:
    """The crumb of a log entry, or None for an event that shows nothing."""
    recorded, event = entry.recorded, entry.recorded.event
    common: dict[str, Any] = {
        "seq": recorded.meta.seq,
        "cursor": cursor,
        "run_id": info.run_id,
        "root_run_id": info.root,
        "agent_id": info.agent,
        "session_id": info.session,
        "path": info.path,
        "timestamp": moment(recorded.meta.at),
    }
    match event:
        case RunStarted():
            return RunStart(**common, input=event.input, skill=event.skill)
        case ModelResponded():
            text = read_turn(event.message).text
            return TextDelta(**common, text=text, base=event.base) if text else None
        case ModelFailed():
            if event.retry_at is None:
                return None
            retry_at = moment(event.retry_at)
            return ModelRetry(
                **common, attempt=event.attempt, code=event.code, message=event.message, retry_at=retry_at
            )
        case OutputRejected():
            if event.last:
                return None
            code, now = "OUTPUT_INVALID", moment(recorded.meta.at)
            return ModelRetry(**common, attempt=event.attempt, code=code, message=event.message, retry_at=now)
        case ToolCalled():
            name = leaf_name(event.tool)
            return ToolCall(
                **common, tool_call_id=event.tool_call_id, tool_name=name, args=called_args(event, entry.subject)
            )
        case ToolReturned():
            return ToolResult(
                **common,
                tool_call_id=event.tool_call_id,
                tool_name=leaf_name(event.tool),
                result=event.result,
                duration_ms=event.duration_ms,
            )
        case ToolFailed():
            return ToolError(
                **common,
                tool_call_id=event.tool_call_id,
                tool_name=leaf_name(event.tool),
                code=event.code,
                message=event.message,
                duration_ms=event.duration_ms,
            )
        case QuestionAsked():
            return _required(common, event.checkpoint, entry.subject)
        case Resumed():
            author = recorded.meta.by.id if recorded.meta.by.kind == "user" else None
            return HumanResumed(
                **common,
                checkpoint_id=event.checkpoint,
                kind=event.kind,
                tool_name=leaf_name(event.tool),
                tool_call_id=event.tool_call_id,
                verdict=event.verdict,
                response=event.response,
                author=author,
            )
        case CheckpointDiscarded():
            return HumanDiscarded(**common, checkpoint_id=recorded.stream, reason=event.reason)
        case RunRetried():
            return RunRetry(**common)
        case RunCompleted():
            return RunEnd(**common, output=output_of(event, entry.subject), duration_ms=event.duration_ms)
        case RunFailed():
            return AgentError(**common, code=event.code, message=event.message)
        case RunCancelled():
            return AgentError(**common, code="RUN_CANCELLED", message=event.reason)
        case Erased() if recorded.stream == info.run_id:
            return AgentError(**common, code="SESSION_DELETED", message="the session was deleted")
    return None


def called_args(event: ToolCalled, subject: Recorded | None) -> JsonValue:
    """The arguments of a call: from the model's turn, or from the answer that edited them."""
    match subject.event if subject else None:
        case ModelResponded() as turn:
            return read_turn(turn.message).calls[int(event.call.rpartition(".")[2])].args
        case Resumed(response=dict(response)):
            return response.get("args")
    return None


def output_of(event: RunCompleted, subject: Recorded | None) -> JsonValue:
    """The output of a run: its own, or the text of the turn that it points to."""
    match subject.event if subject else None:
        case ModelResponded() as turn:
            return read_turn(turn.message).text
    return event.output


def _required(common: dict[str, Any], checkpoint_id: str, subject: Recorded | None) -> HumanRequired | None:
    match subject.event if subject else None:
        case CheckpointOpened() as question:
            return HumanRequired(
                **common,
                checkpoint_id=checkpoint_id,
                kind=question.kind,
                tool_name=question.tool,
                tool_call_id=question.tool_call_id,
                args=question.args,
                schema=question.args_schema,
                response_schema=response_schema_of(question),
                prompt=question.prompt,
                deadline=moment(question.deadline) if question.deadline else None,
                skill=question.skill,
                parent=question.parent,
            )
    return None
