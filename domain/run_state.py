"""The state of a run: the fold of its stream, and what is due in it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from .checkpoint import CheckpointKind, IdempotencyKey, ParentLink
from .events import Erased, Event, JsonValue
from .messages import read_turn
from .records import changed
from .run_events import (
    ChildResumed,
    ChildReturned,
    ChildStarted,
    ChildSuspended,
    ModelFailed,
    ModelResponded,
    Parked,
    QuestionAsked,
    Resumed,
    RunCancelled,
    RunCompleted,
    RunFailed,
    RunKind,
    RunRetried,
    RunStarted,
    RunTaken,
    Suspended,
    ToolCalled,
    ToolFailed,
    ToolReturned,
)

RunStatus = Literal["new", "active", "completed", "failed", "cancelled", "erased"]


@dataclass(frozen=True)
class Call:
    """One call of the present turn. ready: no intent yet; called: intent, no outcome; asked: waits for a person."""

    key: str
    tool: str
    id: str
    args: JsonValue
    args_at: int
    status: Literal["ready", "called", "asked", "settled"] = "ready"
    called_at: int = 0
    idempotent: bool = False
    checkpoint: str | None = None
    kind: CheckpointKind | None = None


@dataclass(frozen=True)
class Child:
    slot: str
    run: str
    status: Literal["running", "suspended", "ended"] = "running"


@dataclass(frozen=True)
class RunState:
    """The fold of a run's stream. `base` is the version from which the next model attempt starts."""

    id: str = ""
    version: int = 0
    status: RunStatus = "new"
    kind: RunKind = "agent"
    agent: str = ""
    session: str = ""
    root: str = ""
    started: float = 0.0
    parent: ParentLink | None = None
    skill: str | None = None
    key: IdempotencyKey | None = None
    owner: str | None = None
    epoch: int = 0
    max_steps: int = 20
    turn: int = 0
    tool_turns: int = 0
    attempt: int = 0
    base: int = 0
    retry_at: float | None = None
    calls: tuple[Call, ...] = ()
    call_ids: frozenset[str] = frozenset()
    children: tuple[Child, ...] = ()
    surfaced: frozenset[str] = frozenset()
    parked: bool = False
    output_of: int | None = None
    output: JsonValue = None
    code: str | None = None
    message: str | None = None

    @property
    def is_root(self) -> bool:
        return self.parent is None

    @property
    def has_ended(self) -> bool:
        return self.status in ("completed", "failed", "cancelled", "erased")

    @property
    def settled(self) -> bool:
        """Every call of the present turn has its outcome."""
        return all(call.status == "settled" for call in self.calls)

    @property
    def has_work(self) -> bool:
        """Something is due or in flight. An active run without work waits for facts that others append."""
        return self.status == "active" and (self.settled or any(c.status in ("ready", "called") for c in self.calls))

    @property
    def questions(self) -> tuple[str, ...]:
        """The checkpoints that this run waits for, in the order of their calls."""
        return tuple(c.checkpoint for c in self.calls if c.status == "asked" and c.checkpoint is not None)

    def call(self, key: str) -> Call | None:
        return next((call for call in self.calls if call.key == key), None)


@dataclass(frozen=True, slots=True)
class CallModel:
    """Ask the model for turn `turn`; not before `not_before` (unix seconds) when an attempt has failed."""

    turn: int
    attempt: int
    base: int
    not_before: float | None = None

    @property
    def key(self) -> tuple[str, int]:
        return "model", self.base


@dataclass(frozen=True, slots=True)
class StartCalls:
    """Calls whose intent is to be committed before they may be executed."""

    calls: tuple[str, ...]

    @property
    def key(self) -> tuple[str, str]:
        return "start", ",".join(self.calls)


@dataclass(frozen=True, slots=True)
class CallTool:
    call: Call

    @property
    def key(self) -> tuple[str, str, int]:
        return "tool", self.call.key, self.call.called_at


@dataclass(frozen=True, slots=True)
class AskDoubt:
    """A call that an earlier owner started and whose outcome nobody knows: a person is to say what happened."""

    call: Call

    @property
    def key(self) -> tuple[str, str]:
        return "doubt", self.call.key


Effect = CallModel | StartCalls | CallTool | AskDoubt


def due(state: RunState) -> list[Effect]:
    """The effects that may run now, by whoever owns the run."""
    if not state.has_work or state.kind != "agent":
        return []
    if state.settled:
        return [CallModel(state.turn, state.attempt, state.base, state.retry_at)]
    effects: list[Effect] = []
    ready = tuple(call.key for call in state.calls if call.status == "ready")
    if ready:
        effects.append(StartCalls(ready))
    for call in state.calls:
        if call.status == "called":
            in_doubt = call.called_at < state.epoch and not call.idempotent
            effects.append(AskDoubt(call) if in_doubt else CallTool(call))
    return effects


def evolve(state: RunState, event: Event) -> RunState:
    """The state after one more event. Total and without rules: an event of the log is never refused."""
    state = _fold(changed(state, version=state.version + 1, parked=False), event)
    if state.owner is not None and not state.has_work:
        state = changed(state, owner=None)
    return state


def _fold(state: RunState, event: Event) -> RunState:
    match event:
        case RunStarted():
            return _owned(
                changed(
                    state,
                    status="active",
                    kind=event.kind,
                    agent=event.agent,
                    session=event.session,
                    root=event.root,
                    started=event.started,
                    parent=event.parent,
                    skill=event.skill,
                    key=event.key,
                    max_steps=event.max_steps,
                    base=state.version,
                ),
                event.owner,
            )
        case ModelResponded():
            calls, ids = _calls(state, event)
            return changed(
                state,
                turn=state.turn + 1,
                tool_turns=state.tool_turns + (1 if calls else 0),
                attempt=0,
                retry_at=None,
                base=state.version,
                calls=calls,
                call_ids=ids,
            )
        case ModelFailed():
            return changed(state, attempt=event.attempt, retry_at=event.retry_at, base=state.version)
        case ToolCalled():
            return _with_call(state, event.call, status="called", called_at=state.version, idempotent=event.idempotent)
        case ToolReturned() | ToolFailed():
            return _rebased(_with_call(state, event.call, status="settled", checkpoint=None))
        case Suspended():
            return _with_call(state, event.call, status="asked", checkpoint=event.checkpoint, kind=event.kind)
        case Resumed():
            state = changed(state, surfaced=state.surfaced - {event.checkpoint})
            return _owned(_rebased(_answered(state, event)), event.owner)
        case RunTaken():
            # What the previous owner's model attempt had streamed is void: the next attempt starts from here.
            return _owned(changed(state, owner=None, base=state.version), event.owner)
        case QuestionAsked():
            return changed(state, surfaced=state.surfaced | {event.checkpoint})
        case Parked():
            return changed(state, parked=True)
        case RunRetried():
            state = changed(
                state,
                status="active",
                attempt=0,
                retry_at=None,
                base=state.version,
                code=None,
                message=None,
                max_steps=event.max_steps or state.max_steps,
            )
            return _owned(state, event.owner)
        case RunCompleted():
            return changed(state, status="completed", output_of=event.of, output=event.output, calls=())
        case RunFailed():
            return changed(state, status="failed", code=event.code, message=event.message, calls=())
        case RunCancelled():
            return changed(state, status="cancelled", code="RUN_CANCELLED", message=event.reason, calls=())
        case Erased():
            return RunState(id=state.id, version=state.version, status="erased")
        case ChildStarted():
            return changed(state, children=(*state.children, Child(event.slot, event.child)))
        case ChildSuspended():
            return _with_child(state, event.slot, "suspended")
        case ChildResumed():
            return _with_child(state, event.slot, "running")
        case ChildReturned():
            return _owned(_with_child(state, event.slot, "ended"), event.owner)
    return state


def _owned(state: RunState, owner: str | None) -> RunState:
    return state if owner is None else changed(state, owner=owner, epoch=state.version)


def _rebased(state: RunState) -> RunState:
    return changed(state, base=state.version) if state.settled else state


def _with_call(state: RunState, key: str, **changes: Any) -> RunState:
    calls = tuple(changed(c, **changes) if c.key == key else c for c in state.calls)
    return changed(state, calls=calls)


def _with_child(state: RunState, slot: str, status: Literal["running", "suspended", "ended"]) -> RunState:
    children = tuple(changed(c, status=status) if c.slot == slot else c for c in state.children)
    return changed(state, children=children)


def _answered(state: RunState, event: Resumed) -> RunState:
    if event.verdict == "approved" and isinstance(event.response, dict) and "args" in event.response:
        edited = event.response["args"]
        return _with_call(
            state, event.call, status="ready", checkpoint=None, kind=None, args=edited, args_at=state.version
        )
    status = "ready" if event.verdict in ("approved", "retry") else "settled"
    return _with_call(state, event.call, status=status, checkpoint=None, kind=None)


def _calls(state: RunState, event: ModelResponded) -> tuple[tuple[Call, ...], frozenset[str]]:
    seen, calls = set(state.call_ids), []
    for index, use in enumerate(read_turn(event.message).calls):
        key = f"{event.base}.{index}"
        unique = unique_call_id(use.id, key, seen)
        seen.add(unique)
        calls.append(Call(key, use.tool, unique, use.args, state.version))
    return tuple(calls), frozenset(seen)


def unique_call_id(provider_id: str, key: str, seen: set[str] | frozenset[str]) -> str:
    """The id of a call as the outside sees it: the provider's, unless it is missing or was seen in this run."""
    if not provider_id:
        return f"call_{key}"
    return f"{provider_id}~{key}" if provider_id in seen else provider_id


def status_of(state: RunState) -> str:
    """What a person sees: running, suspended, completed, failed, cancelled, or erased."""
    if state.status != "active":
        return state.status
    return "running" if state.has_work else "suspended"
