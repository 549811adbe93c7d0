"""Checkpoint: one question to a person. It is claimed at most once; the claim is the append of CheckpointClaimed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, assert_never

from pydantic import BaseModel, ConfigDict

from .errors import InvalidInput, checkpoint_not_found
from .events import Erased, Event, JsonValue, event
from .records import changed

CheckpointKind = Literal["input", "approval", "delegation", "in_doubt"]
CheckpointStatus = Literal["new", "pending", "claimed", "expired", "discarded"]
DiscardReason = Literal["cancelled", "settled", "failed", "deleted"]


class IdempotencyKey(BaseModel):
    """A caller's key and the digest of the request that came with it."""

    model_config = ConfigDict(frozen=True, extra="allow", defer_build=True)

    key: str
    digest: str


class ParentLink(BaseModel):
    """Where a run hangs in its parent: a tool call or a step path. `kind` is the shape of the parent."""

    model_config = ConfigDict(frozen=True, extra="allow", defer_build=True)

    run: str
    slot: str
    kind: Literal["pipeline", "supervisor", "loop"]


@event("checkpoint.opened")
class CheckpointOpened(Event):
    """The question as the person sees it. `deadline` is unix seconds; schemas are JSON Schema."""

    kind: CheckpointKind
    run: str
    root: str
    session: str
    agent: str
    call: str
    tool: str
    tool_call_id: str
    args: JsonValue
    args_schema: JsonValue
    response_schema: JsonValue = None
    prompt: str
    skill: str | None = None
    parent: ParentLink | None = None
    deadline: float | None = None
    on_timeout: JsonValue = None


@event("checkpoint.claimed")
class CheckpointClaimed(Event):
    """Somebody answered. The answer itself stands in the run's Resumed event, at version `resumed`."""

    claim: str
    resumed: int
    comment: str | None = None
    key: IdempotencyKey | None = None


@event("checkpoint.expired")
class CheckpointExpired(Event):
    resumed: int


@event("checkpoint.discarded")
class CheckpointDiscarded(Event):
    """Nobody can answer it any more, and why."""

    reason: DiscardReason


CheckpointEvent = CheckpointOpened | CheckpointClaimed | CheckpointExpired | CheckpointDiscarded


@dataclass(frozen=True, slots=True)
class Open:
    question: CheckpointOpened


@dataclass(frozen=True, slots=True)
class Claim:
    claim: str
    resumed: int
    comment: str | None
    key: IdempotencyKey | None


@dataclass(frozen=True, slots=True)
class Expire:
    at: float
    resumed: int


@dataclass(frozen=True, slots=True)
class Discard:
    reason: DiscardReason


CheckpointCommand = Open | Claim | Expire | Discard


@dataclass(frozen=True)
class CheckpointState:
    id: str = ""
    version: int = 0
    status: CheckpointStatus = "new"
    question: CheckpointOpened | None = None
    claim: str | None = None
    key: IdempotencyKey | None = None
    resumed: int = 0

    @property
    def asked(self) -> CheckpointOpened:
        """The question; a checkpoint that was never opened is not found."""
        if self.question is None:
            raise checkpoint_not_found(self.id)
        return self.question

    def is_due(self, at: float) -> bool:
        """Whether the deadline has passed at `at` (unix seconds)."""
        return self.question is not None and self.question.deadline is not None and at >= self.question.deadline


def evolve(state: CheckpointState, event: Event) -> CheckpointState:
    state = changed(state, version=state.version + 1)
    match event:
        case CheckpointOpened():
            return changed(state, status="pending", question=event)
        case CheckpointClaimed():
            return changed(state, status="claimed", claim=event.claim, key=event.key, resumed=event.resumed)
        case CheckpointExpired():
            return changed(state, status="expired", resumed=event.resumed)
        case CheckpointDiscarded():
            return changed(state, status="discarded")
        case Erased():
            return CheckpointState(id=state.id, version=state.version, status="discarded")
    return state


def decide(state: CheckpointState, command: CheckpointCommand) -> list[CheckpointEvent]:
    match command:
        case Open():
            if state.status != "new":
                raise InvalidInput("INPUT_INVALID", f"checkpoint id {state.id!r} is already used")
            return [command.question]
        case Claim():
            if state.status == "claimed" and state.claim == command.claim:
                return []
            if state.status != "pending":
                raise checkpoint_not_found(state.id)
            return [
                CheckpointClaimed(
                    claim=command.claim, resumed=command.resumed, comment=command.comment, key=command.key
                )
            ]
        case Expire():
            if state.status != "pending" or not state.is_due(command.at):
                return []
            return [CheckpointExpired(resumed=command.resumed)]
        case Discard():
            return [CheckpointDiscarded(reason=command.reason)] if state.status == "pending" else []
        case _:
            assert_never(command)
