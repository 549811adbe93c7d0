"""Run: one agent's work, from its input to its output, over any number of suspensions.

`decide` holds every rule, `evolve` (in run_state) none, and `due` says what may run now. Starting, resuming, recovering
and continuing are the same: fold the stream, ask what is due.
"""

from __future__ import annotations

from typing import Literal, assert_never

from .checkpoint import CheckpointOpened
from .errors import InvalidInput, Refused, checkpoint_not_found
from .events import Event
from .loops import closing, composing
from .plans import Accept, Ask, Delegate, Execute, FinishLoop, Iterate, Refuse, Reject, StartLoop
from .run_commands import (
    Answer,
    Cancel,
    Compose,
    Fail,
    RaiseDoubt,
    RecordError,
    RecordFailure,
    RecordResult,
    RecordTurn,
    Release,
    Retry,
    RunCommand,
    Start,
    StartIntents,
    Take,
)
from .run_events import (
    ModelFailed,
    ModelResponded,
    OutputRejected,
    Resumed,
    RunCancelled,
    RunCompleted,
    RunFailed,
    RunRetried,
    RunStarted,
    RunTaken,
    Suspended,
    ToolCalled,
    ToolFailed,
    ToolReturned,
)
from .run_state import Call, RunState, evolve, status_of


def decide(state: RunState, command: RunCommand) -> list[Event]:
    """The events that a command brings about; none where it is already true or comes too late to matter."""
    match command:
        case Start():
            return _start(state, command)
        case RecordTurn():
            return _record_turn(state, command) if _is_current(state, command.owner, command.base) else []
        case RecordFailure():
            if not _is_current(state, command.owner, command.base):
                return []
            failed: list[Event] = [
                ModelFailed(
                    turn=state.turn,
                    base=command.base_seq,
                    attempt=state.attempt + 1,
                    code=command.code,
                    message=command.message,
                    retry_at=command.retry_at,
                )
            ]
            ended = RunFailed(code=command.code, message=command.message)
            return failed if command.retry_at is not None else [*failed, *closing(state, "failed"), ended]
        case StartIntents():
            return list(_intents(state, command.idempotent)) if state.owner == command.owner else []
        case RecordResult():
            call = _unsettled(state, command.call)
            if call is None:
                return []
            return [
                ToolReturned(
                    call=call.key,
                    tool=call.tool,
                    tool_call_id=call.id,
                    result=command.result,
                    duration_ms=command.duration_ms,
                )
            ]
        case RecordError():
            call = _unsettled(state, command.call)
            return [_failed(call, command.code, command.message, command.duration_ms)] if call else []
        case Compose():
            call = state.call(command.call)
            if call is None or call.status != "called" or state.status != "active":
                return []
            if isinstance(command.plan, Refuse):
                return [_failed(call, command.plan.code, command.plan.message)]
            return composing(state, call, command.plan, command.at)
        case RaiseDoubt():
            call = state.call(command.call)
            if call is None or state.owner != command.owner or call.status != "called" or call.called_at > state.epoch:
                return []
            return [Suspended(call=call.key, checkpoint=command.ask.checkpoint, kind="in_doubt")]
        case Answer():
            return _answer(state, command)
        case Take():
            if not state.has_work or state.owner != command.previous:
                return []
            reason: Literal["queued", "orphaned"] = "queued" if command.previous is None else "orphaned"
            taken = RunTaken(owner=command.worker, reason=reason, previous=command.previous)
            return [taken, *_intents(evolve(state, taken), command.idempotent)]
        case Release():
            if state.owner != command.worker:
                return []
            return [RunTaken(owner=None, reason="handed_over", previous=command.worker)]
        case Cancel():
            if state.status != "active":
                return []
            return [
                *_unanswered(state, "RUN_CANCELLED", command.reason),
                *closing(state, "failed"),
                RunCancelled(reason=command.reason),
            ]
        case Fail():
            if state.status != "active" or state.owner != command.owner:
                return []
            return [
                *_unanswered(state, "AGENT_ERROR", command.message),
                *closing(state, "failed"),
                RunFailed(code="AGENT_ERROR", message=command.message),
            ]
        case Retry():
            return _retry(state, command)
        case _:
            assert_never(command)


def _start(state: RunState, command: Start) -> list[Event]:
    if state.status != "new":
        raise InvalidInput("INPUT_INVALID", f"run id {state.id!r} is already used", run_id=state.id)
    return [
        RunStarted(
            agent=command.agent,
            input=command.input,
            session=command.session,
            root=command.root,
            started=command.at,
            owner=command.owner,
            max_steps=command.max_steps,
            skill=command.skill,
            key=command.key,
            kind="agent" if command.steps is None else "pipeline",
            steps=command.steps,
        )
    ]


def _is_current(state: RunState, owner: str, base: int) -> bool:
    """A model outcome counts only for the attempt that is due now, from the owner: the text of no other is shown."""
    return state.has_work and state.settled and state.owner == owner and state.base == base


def _record_turn(state: RunState, command: RecordTurn) -> list[Event]:
    responded = ModelResponded(
        turn=state.turn,
        base=command.base_seq,
        message=command.message,
        model=command.model,
        finish=command.finish,
        usage=command.usage,
        duration_ms=command.duration_ms,
    )
    after = evolve(state, responded)
    events: list[Event] = [responded]
    if not after.calls:
        return [*events, *_final(after, command)]
    if after.tool_turns > state.max_steps:
        why = f"more than {state.max_steps} model turns with tool calls"
        events += [_failed(call, "STEPS_EXCEEDED", why) for call in after.calls]
        return [*events, *closing(state, "failed"), RunFailed(code="STEPS_EXCEEDED", message=why)]
    composed = after
    for call, plan in zip(after.calls, command.plans, strict=True):
        match plan:
            case Execute():
                events.append(_intent(call, plan.idempotent))
            case Ask():
                events.append(Suspended(call=call.key, checkpoint=plan.checkpoint, kind=plan.kind))
            case Refuse():
                events.append(_failed(call, plan.code, plan.message))
            case Delegate() | StartLoop() | Iterate() | FinishLoop():
                begun = composing(composed, call, plan, command.at)
                for event in begun:
                    composed = evolve(composed, event)
                events += begun
            case _:
                assert_never(plan)
    return events


def _final(state: RunState, command: RecordTurn) -> list[Event]:
    duration = round(max(0.0, (command.at - state.started) * 1000), 3)
    match command.verified:
        case Reject(message=message, retries=retries):
            last = state.misfits >= retries
            rejected = OutputRejected(turn=state.turn - 1, attempt=state.misfits + 1, message=message, last=last)
            failed = [*closing(state, "failed"), RunFailed(code="OUTPUT_INVALID", message=message)]
            return [rejected, *failed] if last else [rejected]
        case Accept(output=output):
            return [*closing(state, "completed"), RunCompleted(output=output, duration_ms=duration)]
        case None:
            return [*closing(state, "completed"), RunCompleted(of=state.version, duration_ms=duration)]
        case _:
            assert_never(command.verified)


def _answer(state: RunState, command: Answer) -> list[Event]:
    call = next((c for c in state.calls if c.checkpoint == command.checkpoint and c.status == "asked"), None)
    if state.status != "active" or call is None:
        raise checkpoint_not_found(command.checkpoint)
    resumed = Resumed(
        call=call.key,
        tool=call.tool,
        tool_call_id=call.id,
        checkpoint=command.checkpoint,
        kind=call.kind or "input",
        verdict=command.verdict,
        response=command.response,
    )
    after = evolve(state, resumed)
    if after.has_work and after.owner is None and command.worker is not None:
        resumed = resumed.model_copy(update={"owner": command.worker})
        after = evolve(state, resumed)
    # Only the owner commits intents: the process that answers may be another one.
    intents = _intents(after, command.idempotent) if after.owner and after.owner == command.worker else ()
    refused = _refusal(call, resumed)
    return [resumed, *([refused] if refused else []), *intents]


def _refusal(call: Call, resumed: Resumed) -> ToolFailed | None:
    """An answer that keeps the call from running, or says that it failed, is an outcome that the model is told."""
    response = resumed.response
    given = response if isinstance(response, dict) else {}
    match resumed.verdict:
        case "rejected":
            reason = given.get("reason")
            return _failed(call, "REJECTED", f"denied by a person: {reason}" if reason else "denied by a person")
        case "failed":
            return _failed(call, "TOOL_ERROR", str(given.get("error")))
        case "expired" if resumed.kind != "input" or response is None:
            return _failed(call, "EXPIRED", "nobody answered before the deadline")
    return None


def _retry(state: RunState, command: Retry) -> list[Event]:
    if state.parent is not None:
        raise Refused(
            "RUN_NOT_RETRYABLE", f"run {state.id} is part of {state.root}: retry that one", root_run_id=state.root
        )
    if state.status != "failed":
        raise Refused(
            "RUN_NOT_RETRYABLE", f"run {state.id} did not fail: it is {status_of(state)}", status=status_of(state)
        )
    return [RunRetried(owner=command.worker, max_steps=command.max_steps)]


def _intent(call: Call, idempotent: bool) -> ToolCalled:
    return ToolCalled(call=call.key, tool=call.tool, tool_call_id=call.id, args_at=call.args_at, idempotent=idempotent)


def _intents(state: RunState, idempotent: frozenset[str]) -> list[ToolCalled]:
    return [_intent(call, call.tool in idempotent) for call in state.calls if call.status == "ready"]


def _unsettled(state: RunState, key: str) -> Call | None:
    """A call that an outcome may still settle: also one that a person is asked about, or wants to have made again,
    because its owner seemed dead. One that waits for a child run is settled by that run alone."""
    call = state.call(key)
    begun = call is not None and call.called_at > 0 and call.status not in ("settled", "waiting")
    return call if begun and state.status == "active" else None


def _failed(call: Call, code: str, message: str, duration_ms: float | None = None) -> ToolFailed:
    return ToolFailed(
        call=call.key, tool=call.tool, tool_call_id=call.id, code=code, message=message, duration_ms=duration_ms
    )


def _unanswered(state: RunState, code: str, message: str) -> list[ToolFailed]:
    """Synthetic results, so that no history ever dangles."""
    return [_failed(call, code, message) for call in state.calls if call.status != "settled"]


def question_of(state: RunState, call: Call, ask: Ask) -> CheckpointOpened:
    """The question that `ask` opens for a call of this run."""
    return CheckpointOpened(
        kind=ask.kind,
        run=state.id,
        root=state.root,
        session=state.session,
        agent=state.agent,
        call=call.key,
        tool=ask.tool,
        tool_call_id=call.id,
        args=call.args,
        args_schema=ask.args_schema,
        response_schema=ask.response_schema,
        prompt=ask.prompt,
        skill=state.asks_with,
        parent=state.parent,
        deadline=ask.deadline,
        on_timeout=ask.on_timeout,
    )


__all__ = [
    "Answer",
    "Cancel",
    "Compose",
    "Fail",
    "RaiseDoubt",
    "RecordError",
    "RecordFailure",
    "RecordResult",
    "RecordTurn",
    "Release",
    "Retry",
    "RunCommand",
    "Start",
    "StartIntents",
    "Take",
    "decide",
    "question_of",
]
