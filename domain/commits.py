"""The commits: which events of which streams become true together. One function a moment.

Each is a pure decision over `Streams`: it reads states, appends events and never writes. The journal may run it again
on fresher states; whatever it raises is the verdict, and then nothing was appended.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from . import checkpoint as questions
from . import run as runs
from . import session as sessions
from .checkpoint import CheckpointState, IdempotencyKey
from .errors import BreadError, Refused, checkpoint_not_found, run_not_found
from .events import Erased, Event, JsonValue
from .loops import iteration_input
from .names import check_session_id
from .plans import Ask, Delegate, Iterate, Plan
from .run import Answer, Compose, RaiseDoubt, RecordError, RecordFailure, RecordResult, RecordTurn, Retry, Start
from .run_events import ChildStarted, Suspended, Verdict
from .run_state import RunState, status_of
from .session import session_stream
from .streams import Streams
from .trees import (
    append,
    begin,
    discard_question,
    end,
    end_children,
    pending_of,
    retry_steps,
    spread,
    surface,
)

MOST_DEATHS = 10  # of owners in a row, none of whom got any further


def live_run(streams: Streams, run_id: str) -> RunState:
    """The state of a run that exists; RUN_NOT_FOUND if it never did or was erased."""
    state = streams.run(run_id)
    if state.status in ("new", "erased"):
        raise run_not_found(run_id)
    return state


# --- start ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Started:
    """The run that a start led to; `repeated` if the idempotency key had started it before."""

    run_id: str
    repeated: bool = False


def start(
    streams: Streams, run_id: str, command: Start, tags: dict[str, str], *, cancel_pending: bool = False
) -> Started:
    """SessionOpened if new + RunStarted; the session is open and nothing of it is pending or running."""
    if command.key is not None:
        known = streams.run_of_key(command.key.key)
        if known is not None:
            _check_key(live_run(streams, known).key, command.key)
            return Started(known, repeated=True)
    session_id = check_session_id(command.session)
    opened = sessions.decide(streams.session(session_id), sessions.OpenSession(session_id, tags))
    _clear_session(streams, session_id, cancel_pending=cancel_pending)
    if opened:
        streams.append(session_stream(session_id), *opened, root=None, session=session_id)
    events = runs.decide(streams.run(run_id), command)
    streams.append(run_id, *events, root=command.root, session=session_id)
    spread(streams, run_id, "running")
    return Started(run_id)


def _check_key(known: IdempotencyKey | None, given: IdempotencyKey) -> None:
    if known is None or known.digest != given.digest:
        raise Refused(
            "IDEMPOTENCY_CONFLICT", f"idempotency key {given.key!r} was used with another request", key=given.key
        )


def _clear_session(streams: Streams, session_id: str, *, cancel_pending: bool, but: str | None = None) -> None:
    active = [streams.run(run_id) for run_id in streams.active_roots(session_id) if run_id != but]
    for run in active:
        if run.activity == "running":
            raise Refused(
                "SESSION_BUSY",
                f"run {run.id} is running in session {session_id!r}",
                session_id=session_id,
                run_id=run.id,
            )
    for run in active:
        if not cancel_pending:
            pending = [checkpoint_id for checkpoint_id, _ in pending_of(streams, run)]
            raise Refused(
                "SESSION_SUSPENDED",
                f"session {session_id!r} waits for an answer to {', '.join(pending)}",
                session_id=session_id,
                run_id=run.id,
                checkpoints=pending,
            )
        cancel(streams, run.id, "superseded by a new run")


# --- model and tools --------------------------------------------------------------------------------------------------


def record_turn(streams: Streams, run_id: str, command: RecordTurn) -> None:
    """ModelResponded, and in the same commit everything that no outside effect separates from it."""
    run = live_run(streams, run_id)
    events = runs.decide(run, command)
    append(streams, run, *events)
    asks = {plan.checkpoint: plan for plan in command.plans if isinstance(plan, Ask)}
    for event in events:
        if isinstance(event, Suspended):
            _open(streams, run_id, event, asks[event.checkpoint])
    if any(isinstance(event, ChildStarted) for event in events):
        plans = zip(streams.run(run_id).calls, command.plans, strict=True)
        _begin_children(streams, run_id, events, {call.key: plan for call, plan in plans})
    spread(streams, run_id, run.activity)


def record_failure(streams: Streams, run_id: str, command: RecordFailure) -> None:
    run = live_run(streams, run_id)
    append(streams, run, *runs.decide(run, command))
    spread(streams, run_id, run.activity)


def compose(streams: Streams, run_id: str, command: Compose) -> None:
    """What an approved call to one of bread's own tools asks for: a delegation, an iteration, a loop."""
    run = live_run(streams, run_id)
    events = runs.decide(run, command)
    append(streams, run, *events)
    _begin_children(streams, run_id, events, {command.call: command.plan})
    spread(streams, run_id, run.activity)


def _begin_children(streams: Streams, run_id: str, events: Sequence[Event], plans: Mapping[str, Plan]) -> None:
    """RunStarted of each delegation and iteration among the events."""
    for event in events:
        if not isinstance(event, ChildStarted):
            continue
        match plans[event.slot]:
            case Delegate(input=input, max_steps=max_steps):
                begin(streams, run_id, event, input, max_steps=max_steps)
            case Iterate(feedback=feedback):
                loop = streams.run(run_id).loop
                if loop is not None:
                    begin(streams, run_id, event, iteration_input(loop, feedback), steps=loop.steps)


def record_outcome(streams: Streams, run_id: str, command: RecordResult | RecordError) -> None:
    """ToolReturned or ToolFailed; a question whether it happened is settled by that."""
    run = live_run(streams, run_id)
    events = runs.decide(run, command)
    asked = run.call(command.call)
    if events and asked is not None and asked.checkpoint is not None:
        discard_question(streams, run, asked.checkpoint, "settled")
    append(streams, run, *events)
    spread(streams, run_id, run.activity)


def start_intents(streams: Streams, run_id: str, command: runs.StartIntents) -> None:
    run = live_run(streams, run_id)
    append(streams, run, *runs.decide(run, command))


def raise_doubt(streams: Streams, run_id: str, command: RaiseDoubt) -> None:
    run = live_run(streams, run_id)
    for event in runs.decide(run, command):
        append(streams, run, event)
        if isinstance(event, Suspended):
            _open(streams, run_id, event, command.ask)
    spread(streams, run_id, run.activity)


def _open(streams: Streams, run_id: str, event: Suspended, ask: Ask) -> None:
    run = streams.run(run_id)
    call = run.call(event.call)
    if call is None:
        raise BreadError("INTERNAL_ERROR", f"run {run_id} suspended on a call that it does not have")
    opened = questions.decide(streams.checkpoint(ask.checkpoint), questions.Open(runs.question_of(run, call, ask)))
    streams.append(ask.checkpoint, *opened, root=run.root, session=run.session)


# --- answers ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Answered:
    """What became of an answer. `expired`: the deadline had passed, and that is what was committed instead."""

    run_id: str
    root: str
    repeated: bool = False
    expired: bool = False


def answer(
    streams: Streams,
    checkpoint_id: str,
    command: Answer,
    *,
    claim: str,
    comment: str | None = None,
    key: IdempotencyKey | None = None,
) -> Answered:
    """CheckpointClaimed + Resumed with the answer, in one commit: after it the answer cannot be lost."""
    state = streams.checkpoint(checkpoint_id)
    question = state.asked
    if state.status == "claimed" and state.claim == claim:
        return Answered(question.run, question.root)  # our own commit, whose acknowledgement was lost
    if key is not None and state.key is not None and state.key.key == key.key:
        _check_key(state.key, key)
        return Answered(question.run, question.root, repeated=True)
    if state.status == "pending" and state.is_due(streams.at):
        expire(streams, checkpoint_id, command.worker, command.idempotent)
        return Answered(question.run, question.root, expired=True)
    _settle(
        streams,
        state,
        command,
        lambda resumed: questions.decide(state, questions.Claim(claim, resumed, comment, key)),
    )
    return Answered(question.run, question.root)


def expire(streams: Streams, checkpoint_id: str, worker: str | None, idempotent: frozenset[str]) -> bool:
    """CheckpointExpired + Resumed with the expiry's outcome, if the deadline has passed and nobody answered."""
    state = streams.checkpoint(checkpoint_id)
    if state.status != "pending" or not state.is_due(streams.at):
        return False
    verdict: Verdict = "expired"
    response: JsonValue = state.asked.on_timeout
    _settle(
        streams,
        state,
        Answer(checkpoint_id, verdict, response, worker, idempotent),
        lambda resumed: questions.decide(state, questions.Expire(streams.at, resumed)),
    )
    return True


def _settle(streams: Streams, state: CheckpointState, command: Answer, close: _Close) -> None:
    question = state.asked
    if state.status != "pending":
        raise checkpoint_not_found(state.id)
    run = streams.run(question.run)
    if run.status != "active":
        raise checkpoint_not_found(state.id)
    was = run.activity
    surface(streams, run, state.id)
    run = streams.run(question.run)
    events = runs.decide(run, command)
    streams.append(state.id, *close(run.version + 1), root=question.root, session=question.session)
    append(streams, run, *events)
    spread(streams, run.id, was)


class _Close(Protocol):
    def __call__(self, resumed: int, /) -> Sequence[Event]: ...


# --- owners -----------------------------------------------------------------------------------------------------------


def take(streams: Streams, run_id: str, command: runs.Take) -> bool:
    """RunTaken, if the run still has work and still the owner that was seen; the version makes one taker win.

    What has killed each of its last owners fails instead: a person may look at it, and have it tried again.
    """
    run = streams.run(run_id)
    deaths = run.deaths + 1
    if command.previous is not None and run.owner == command.previous and run.has_work and deaths >= MOST_DEATHS:
        why = f"{deaths} processes died one after the other while they performed it"
        fail(streams, run_id, runs.Fail(command.previous, why))
        return False
    events = runs.decide(run, command)
    append(streams, run, *events)
    return bool(events)


def release(streams: Streams, run_id: str, command: runs.Release) -> bool:
    run = streams.run(run_id)
    events = runs.decide(run, command)
    append(streams, run, *events)
    return bool(events)


# --- cancel, retry, delete --------------------------------------------------------------------------------------------


def cancel(streams: Streams, run_id: str, reason: str) -> str:
    """RunCancelled on a run and on all that is below it, their questions discarded, no call left open.

    Its parent, if it has one, is told. Gives the status of the run then.
    """
    run = live_run(streams, run_id)
    if run.status == "active":
        end(streams, run_id, reason, "cancelled")
        spread(streams, run_id, run.activity)
    return status_of(streams.run(run_id))


def fail(streams: Streams, run_id: str, command: runs.Fail) -> None:
    """RunFailed + CheckpointDiscarded on its questions + synthetic results; what is below it is cancelled."""
    run = live_run(streams, run_id)
    events = runs.decide(run, command)
    if events:
        end_children(streams, run_id, "the run that waits for it failed", "failed")
        for checkpoint_id in run.questions:
            discard_question(streams, streams.run(run_id), checkpoint_id, "failed")
        append(streams, streams.run(run_id), *events)
        spread(streams, run_id, run.activity)


def retry(streams: Streams, run_id: str, command: Retry) -> None:
    """RunRetried, if the run failed and its session has nothing else running or pending; in a pipeline also on each
    step that failed, so that it goes on from there."""
    run = live_run(streams, run_id)
    events = runs.decide(run, command)
    _clear_session(streams, run.session, cancel_pending=False, but=run_id)
    append(streams, run, *events)
    retry_steps(streams, run_id, command)
    spread(streams, run_id, "running")


@dataclass(frozen=True, slots=True)
class Spare:
    """What a cleanup spares: sessions with anything running, or younger than `idle_before`, or with questions."""

    idle_before: float
    keep_pending: bool = False


def delete_session(streams: Streams, session_id: str, command: sessions.EndSession, spare: Spare | None = None) -> bool:
    """SessionDeleted + a tombstone on every stream it owns + erasure of their payloads. False if there was nothing.

    Whether a session is spared is judged here, in the commit that deletes it.
    """
    state = streams.session(session_id)
    if state.status != "open":
        return False
    run_ids, checkpoint_ids = streams.owned(session_id)
    if spare is not None and _is_spared(streams, session_id, run_ids, spare):
        return False
    for checkpoint_id in checkpoint_ids:
        question = streams.checkpoint(checkpoint_id)
        dropped = questions.decide(question, questions.Discard("deleted"))
        tombstone = [*dropped, Erased()]
        streams.append(checkpoint_id, *tombstone, root=question.asked.root, session=session_id)
        streams.erase(checkpoint_id, len(tombstone))
    for run_id in run_ids:
        run = streams.run(run_id)
        streams.append(run_id, Erased(), root=run.root, session=session_id)
        streams.erase(run_id, 1)
    events = sessions.decide(state, command)
    streams.append(session_stream(session_id), *events, root=None, session=session_id)
    streams.erase(session_stream(session_id), len(events))
    return True


def _is_spared(streams: Streams, session_id: str, run_ids: Sequence[str], spare: Spare) -> bool:
    if streams.last_activity(session_id) >= spare.idle_before:
        return True
    states = [streams.run(run_id) for run_id in run_ids]
    return any(run.activity == "running" or (spare.keep_pending and run.questions) for run in states)


__all__ = [
    "Answered",
    "Spare",
    "Started",
    "answer",
    "cancel",
    "compose",
    "delete_session",
    "expire",
    "fail",
    "live_run",
    "raise_doubt",
    "record_failure",
    "record_outcome",
    "record_turn",
    "release",
    "retry",
    "start",
    "start_intents",
    "take",
]
