"""From events to crumbs. There is no second log: a crumb is computed from the event whenever somebody asks.

`crumb_of` is pure and gives at most one crumb an event.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from ..domain.answers import response_schema_of
from ..domain.checkpoint import CheckpointDiscarded, CheckpointOpened, ParentLink
from ..domain.envelope import Recorded
from ..domain.events import Erased, Event, JsonValue
from ..domain.messages import read_turn
from ..domain.ports import Logged
from ..domain.run_events import (
    ChildReturned,
    ChildStarted,
    IterationFinished,
    IterationStarted,
    LoopFinished,
    LoopStarted,
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
    StepFinished,
    StepStarted,
    ToolCalled,
    ToolFailed,
    ToolReturned,
    Visibility,
)
from .crumbs import (
    AgentError,
    Crumb,
    HumanDiscarded,
    HumanRequired,
    HumanResumed,
    LoopEnd,
    LoopIterationEnd,
    LoopIterationStart,
    LoopStart,
    ModelRetry,
    ParentView,
    RunEnd,
    RunRetry,
    RunStart,
    StepEnd,
    StepError,
    StepStart,
    SubagentEnd,
    SubagentStart,
    TextDelta,
    ToolCall,
    ToolError,
    ToolResult,
)


@dataclass(frozen=True, slots=True)
class Link:
    """A step down in a tree: the run at its lower end, its slot in its parent, and who may see it."""

    run: str
    slot: str
    visibility: Visibility = "passthrough"


@dataclass(frozen=True, slots=True)
class RunInfo:
    """What is the same for every crumb of a run. `links` lead to it from the root, for which there are none."""

    run_id: str
    root: str
    session: str
    agent: str
    links: tuple[Link, ...] = ()

    @property
    def path(self) -> tuple[str, ...]:
        """The run's place in its tree: the slots on the way from the root."""
        return tuple(link.slot for link in self.links)

    def common(self, seq: int, cursor: str, timestamp: datetime) -> dict[str, Any]:
        """The fields that every crumb of the run has."""
        return {
            "seq": seq,
            "cursor": cursor,
            "run_id": self.run_id,
            "root_run_id": self.root,
            "agent_id": self.agent,
            "session_id": self.session,
            "path": self.path,
            "timestamp": timestamp,
        }

    def below(self, view: str) -> tuple[Link, ...] | None:
        """The links from the run `view` down to this one; None if it is not in the subtree of `view`."""
        if view == self.root:
            return self.links
        for index, link in enumerate(self.links):
            if link.run == view:
                return self.links[index + 1 :]
        return None


def leaf_name(tool: str) -> str:
    """`fetch` of `tool_fetch`: the name without the scope that a model sees."""
    return tool.partition("_")[2] or tool


def moment(at: float) -> datetime:
    """An aware datetime of unix seconds."""
    return datetime.fromtimestamp(at, UTC)


def visible(event: Event, info: RunInfo, view: str, child: Visibility = "passthrough") -> bool:
    """Whether who looks at the run `view` sees an event of a run; what people are asked and answer is always seen.

    `child` is the visibility of the child that the event is about: the frame of a mediated delegation is seen, that of
    a hidden one is not.
    """
    links = info.below(view)
    if links is None:
        return False
    if isinstance(event, QuestionAsked | Resumed | CheckpointDiscarded):
        return True
    return child != "hidden" and all(link.visibility == "passthrough" for link in links)


def subject_of(recorded: Recorded) -> tuple[str, int] | None:
    """Where the payload stands that an event points to, as (stream, version)."""
    match recorded.event:
        case QuestionAsked(checkpoint=checkpoint):
            return checkpoint, 1
        case CheckpointDiscarded():
            return recorded.stream, 1
        case ToolCalled(args_at=version) | RunCompleted(of=int(version)):
            return recorded.stream, version
        case ChildStarted(child=child) | ChildReturned(child=child):
            return child, 1
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
    common = info.common(recorded.meta.seq, cursor, moment(recorded.meta.at))
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
        case StepStarted() | StepFinished():
            return _step(common, event)
        case ChildStarted() | ChildReturned():
            return _child(common, event, entry.subject)
        case LoopStarted() | IterationStarted() | IterationFinished() | LoopFinished():
            return _loop(common, event)
        case RunCompleted():
            return RunEnd(**common, output=output_of(event, entry.subject), duration_ms=event.duration_ms)
        case RunFailed():
            return AgentError(**common, code=event.code, message=event.message)
        case RunCancelled():
            return AgentError(**common, code="RUN_CANCELLED", message=event.reason)
        case Erased() if recorded.stream == info.run_id:
            return AgentError(**common, code="SESSION_DELETED", message="the session was deleted")
    return None


def _step(common: dict[str, Any], event: StepStarted | StepFinished) -> StepStart | StepEnd:
    frame = _frame(common, event.path) | {"agent_id": event.agent, "child_run_id": event.child}
    return StepStart(**frame) if isinstance(event, StepStarted) else StepEnd(**frame, output=event.output)


def _frame(common: dict[str, Any], path: str) -> dict[str, Any]:
    index = int(path.partition("/")[0])
    return common | {"pipeline_id": common["agent_id"], "path": (*common["path"], path), "step_index": index}


def _child(
    common: dict[str, Any], event: ChildStarted | ChildReturned, subject: Recorded | None
) -> SubagentStart | SubagentEnd | StepError | None:
    """The frame of a delegation, or the failure of a step; its start and its end are StepStarted and StepFinished."""
    started = subject.event if subject else None
    if not isinstance(started, RunStarted) or started.parent is None:
        return None  # erased with its session
    sub: dict[str, Any] = {"sub_agent_id": started.agent, "child_run_id": event.child, "tool_call": event.slot}
    match event, started.parent.kind:
        case ChildStarted(), "supervisor":
            return SubagentStart(**common, **sub, input=started.input)
        case ChildReturned(), "supervisor":
            return SubagentEnd(**common, **sub, status=event.status, code=event.code, message=event.message)
        case ChildReturned(status="failed" | "cancelled"), "pipeline":
            frame = _frame(common, event.slot) | {"agent_id": started.agent}
            code, message = event.code or "AGENT_ERROR", event.message or event.status
            return StepError(**frame, child_run_id=event.child, code=code, message=message)
    return None


def _loop(
    common: dict[str, Any], event: LoopStarted | IterationStarted | IterationFinished | LoopFinished
) -> LoopStart | LoopIterationStart | LoopIterationEnd | LoopEnd:
    match event:
        case LoopStarted():
            given: dict[str, Any] = {"steps": event.steps, "max_iterations": event.max_iterations, "input": event.input}
            return LoopStart(**common, loop_id=event.loop, **given)
        case IterationStarted():
            return LoopIterationStart(**common, loop_id=event.loop, iteration=event.iteration, child_run_id=event.child)
        case IterationFinished():
            return LoopIterationEnd(**common, loop_id=event.loop, iteration=event.iteration, output=event.output)
        case LoopFinished():
            ended: dict[str, Any] = {"status": event.status, "iterations": event.iterations, "result": event.result}
            return LoopEnd(**common, loop_id=event.loop, **ended)


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
        case StepFinished() as step:
            return step.output
    return event.output


def parent_view(link: ParentLink | None, root: str, remaining: JsonValue = None) -> ParentView | None:
    if link is None:
        return None
    return ParentView(run_id=link.run, root_run_id=root, kind=link.kind, slot=link.slot, remaining=remaining)


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
                parent=parent_view(question.parent, question.root),
            )
    return None
