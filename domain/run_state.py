"""The state of a run: the fold of its stream, and what is due in it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from .checkpoint import CheckpointKind, IdempotencyKey, ParentLink
from .children import Child, Loop, Steps, all_ended, changes_of, to_be_retried
from .events import Erased, Event, JsonValue
from .messages import read_turn
from .records import changed
from .run_events import (
    ChildReturned,
    IterationFinished,
    ModelFailed,
    ModelResponded,
    OutputRejected,
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

LOAD_SKILL = "core_load_skill"

Activity = Literal["running", "suspended", "ended"]
RunStatus = Literal["new", "active", "completed", "failed", "cancelled", "erased"]


@dataclass(frozen=True)
class Call:
    """One call of the present turn. ready: no intent yet; called: intent, no outcome; asked: waits for a person;
    waiting: for a child run."""

    key: str
    tool: str
    id: str
    args: JsonValue
    args_at: int
    status: Literal["ready", "called", "asked", "waiting", "settled"] = "ready"
    called_at: int = 0
    idempotent: bool = False
    checkpoint: str | None = None
    kind: CheckpointKind | None = None


@dataclass(frozen=True)
class RunState:
    """The fold of a run's stream. `base` is the version from which the next model attempt starts.

    `loaded` are the skills that the run began with or that the model has loaded, in that order. `deaths` counts
    the owners before this one that died one after the other, and none of them got any further.
    """

    id: str = ""
    version: int = 0
    status: RunStatus = "new"
    kind: RunKind = "agent"
    agent: str = ""
    session: str = ""
    root: str = ""
    started: float = 0.0
    input: JsonValue = None
    parent: ParentLink | None = None
    skill: str | None = None
    loaded: tuple[str, ...] = ()
    key: IdempotencyKey | None = None
    owner: str | None = None
    epoch: int = 0
    deaths: int = 0
    max_steps: int = 20
    turn: int = 0
    tool_turns: int = 0
    attempt: int = 0
    misfits: int = 0
    base: int = 0
    retry_at: float | None = None
    calls: tuple[Call, ...] = ()
    call_ids: frozenset[str] = frozenset()
    children: tuple[Child, ...] = ()
    steps: Steps | None = None
    loop: Loop | None = None
    answer: str = ""
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
        if self.status != "active" or self.kind != "agent":
            return False
        return self.settled or any(c.status in ("ready", "called") for c in self.calls)

    @property
    def activity(self) -> Activity:
        """What the run's parent is told of: it has work or a child that runs, it rests on questions, it has ended."""
        if self.has_ended:
            return "ended"
        if self.has_work or any(child.status == "running" for child in self.children):
            return "running"
        return "suspended"

    @property
    def asks_with(self) -> str | None:
        """The skill that its questions name: the one that it began with, else the last that its model has loaded."""
        return self.skill or (self.loaded[-1] if self.loaded else None)

    @property
    def result(self) -> JsonValue:
        """The output of a run that is completed."""
        if self.output_of is None:
            return self.output
        return self.answer if self.steps is None else self.steps.output

    def child(self, slot: str) -> Child | None:
        return next((child for child in self.children if child.slot == slot), None)

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
    if not state.has_work:
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
    version = state.version + 1
    changes = {"version": version, "parked": False, "deaths": _deaths(state, event), **_changes(state, event, version)}
    after = changed(state, **changes)
    # Who is named to perform what the next event of the same commit makes due stays named.
    keeps = after.owner is None or after.has_work or isinstance(event, ChildReturned | IterationFinished)
    return after if keeps else changed(after, owner=None)


def _changes(state: RunState, event: Event, version: int) -> dict[str, Any]:
    """The fields of the state that an event changes."""
    match event:
        case RunStarted():
            return {
                "status": "active",
                "kind": event.kind,
                "agent": event.agent,
                "session": event.session,
                "root": event.root,
                "started": event.started,
                "input": event.input,
                "parent": event.parent,
                "skill": event.skill,
                "loaded": (event.skill,) if event.skill else (),
                "key": event.key,
                "max_steps": event.max_steps,
                "steps": Steps(event.steps) if event.kind == "pipeline" else None,
                "base": version,
                **_owned(event.owner, version),
            }
        case ModelResponded():
            calls, ids = _calls(state, event, version)
            turns = state.tool_turns + (1 if calls else 0)
            return {
                "turn": state.turn + 1,
                "tool_turns": turns,
                "attempt": 0,
                "retry_at": None,
                "base": version,
                "calls": calls,
                "call_ids": ids,
                "answer": "" if calls else read_turn(event.message).text,
            }
        case ModelFailed():
            return {"attempt": event.attempt, "retry_at": event.retry_at, "base": version}
        case OutputRejected():
            return {"misfits": event.attempt, "base": version}
        case ToolCalled():
            return _call(state, version, event.call, status="called", called_at=version, idempotent=event.idempotent)
        case ToolReturned(tool=tool, result=dict(result)) if tool == LOAD_SKILL:
            return {**_loaded(state, result), **_call(state, version, event.call, status="settled", checkpoint=None)}
        case ToolReturned() | ToolFailed():
            return _call(state, version, event.call, status="settled", checkpoint=None)
        case Suspended():
            return _call(state, version, event.call, status="asked", checkpoint=event.checkpoint, kind=event.kind)
        case Resumed():
            answered = _call(state, version, event.call, checkpoint=None, kind=None, **_answer(event, version))
            return {"surfaced": state.surfaced - {event.checkpoint}, **answered, **_owned(event.owner, version)}
        case RunTaken():
            # What the previous owner's model attempt had streamed is void: the next attempt starts from here.
            return {"owner": None, "base": version, **_owned(event.owner, version)}
        case QuestionAsked():
            return {"surfaced": state.surfaced | {event.checkpoint}}
        case Parked():
            return {"parked": True}
        case RunRetried():
            return {
                "status": "active",
                "attempt": 0,
                "misfits": 0,
                "retry_at": None,
                "base": version,
                "code": None,
                "message": None,
                "max_steps": event.max_steps or state.max_steps,
                "children": to_be_retried(state.children),
                **_owned(event.owner, version),
            }
        case RunCompleted():
            return {"status": "completed", "output_of": event.of, "output": event.output, "calls": ()}
        case RunFailed():
            ended = {"calls": (), "children": all_ended(state.children), "loop": None}
            return {"status": "failed", "code": event.code, "message": event.message, **ended}
        case RunCancelled():
            ended = {"calls": (), "children": all_ended(state.children), "loop": None}
            return {"status": "cancelled", "code": "RUN_CANCELLED", "message": event.reason, **ended}
        case Erased():
            return {**RunState().__dict__, "id": state.id, "version": version, "status": "erased"}
        case ChildReturned():
            return {**changes_of(state, event, version), **_owned(event.owner, version)}
    return changes_of(state, event, version)


def _deaths(state: RunState, event: Event) -> int:
    match event:
        case RunTaken(reason="orphaned"):
            return state.deaths + 1
        case RunTaken() | ToolCalled():  # what is due is begun, as it was before
            return state.deaths
    return 0


def _owned(owner: str | None, version: int) -> dict[str, Any]:
    return {} if owner is None else {"owner": owner, "epoch": version}


def _loaded(state: RunState, result: dict[str, Any]) -> dict[str, Any]:
    skill = result.get("skill")
    return {"loaded": (*state.loaded, skill)} if isinstance(skill, str) and skill not in state.loaded else {}


def _call(state: RunState, version: int, key: str, **changes: Any) -> dict[str, Any]:
    calls = tuple(changed(c, **changes) if c.key == key else c for c in state.calls)
    # With the last outcome of a turn the next model attempt becomes due, from this event on.
    settled = all(call.status == "settled" for call in calls)
    return {"calls": calls, "base": version} if settled else {"calls": calls}


def _answer(event: Resumed, version: int) -> dict[str, Any]:
    if event.verdict == "approved" and isinstance(event.response, dict) and "args" in event.response:
        return {"status": "ready", "args": event.response["args"], "args_at": version}
    return {"status": "ready" if event.verdict in ("approved", "retry") else "settled"}


def _calls(state: RunState, event: ModelResponded, version: int) -> tuple[tuple[Call, ...], frozenset[str]]:
    uses = read_turn(event.message).calls
    if not uses:
        return (), state.call_ids
    seen, calls = set(state.call_ids), []
    for index, use in enumerate(uses):
        key = f"{event.base}.{index}"
        unique = unique_call_id(use.id, key, seen)
        seen.add(unique)
        calls.append(Call(key, use.tool, unique, use.args, version))
    return tuple(calls), frozenset(seen)


def unique_call_id(provider_id: str, key: str, seen: set[str] | frozenset[str]) -> str:
    """The id of a call as the outside sees it: the provider's, unless it is missing or was seen in this run."""
    unique = provider_id or f"call_{key}"
    while unique in seen:
        unique = f"{unique}~{key}"
    return unique


def status_of(state: RunState) -> str:
    """What a person sees: running, suspended, completed, failed, cancelled, or erased."""
    if state.status != "active":
        return state.status
    return state.activity
