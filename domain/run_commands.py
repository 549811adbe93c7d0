"""The commands of a run: what may be asked of it, with the time and the ids that the decision needs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from .checkpoint import IdempotencyKey
from .events import JsonValue
from .messages import Message
from .plans import Ask, Delegate, FinishLoop, Iterate, Plan, Refuse, StartLoop, Verification
from .run_events import Usage, Verdict


@dataclass(frozen=True, slots=True)
class Start:
    agent: str
    input: JsonValue
    session: str
    root: str
    at: float
    owner: str | None
    max_steps: int
    skill: str | None = None
    key: IdempotencyKey | None = None
    steps: JsonValue = None


@dataclass(frozen=True, slots=True)
class RecordTurn:
    """A model attempt that started from version `base` (seq `base_seq` of the tree) gave a whole turn.

    `plans` are one a call; `verified` says whether a turn without calls is the output, where that has a schema.
    """

    owner: str
    base: int
    base_seq: int
    at: float
    message: Message
    plans: Sequence[Plan]
    model: str
    finish: str
    usage: Usage | None = None
    duration_ms: float = 0.0
    verified: Verification | None = None


@dataclass(frozen=True, slots=True)
class RecordFailure:
    """A model attempt failed; `retry_at` is None when there is to be no further one."""

    owner: str
    base: int
    base_seq: int
    code: str
    message: str
    retry_at: float | None


@dataclass(frozen=True, slots=True)
class StartIntents:
    owner: str
    idempotent: frozenset[str]


@dataclass(frozen=True, slots=True)
class RecordResult:
    call: str
    result: JsonValue
    duration_ms: float


@dataclass(frozen=True, slots=True)
class RecordError:
    call: str
    code: str
    message: str
    duration_ms: float


@dataclass(frozen=True, slots=True)
class Compose:
    """A call whose intent is committed begins a child run, or opens or ends a loop."""

    call: str
    at: float
    plan: Delegate | StartLoop | Iterate | FinishLoop | Refuse


@dataclass(frozen=True, slots=True)
class RaiseDoubt:
    owner: str
    call: str
    ask: Ask


@dataclass(frozen=True, slots=True)
class Answer:
    """An answer to `checkpoint`; `worker` performs what it makes due, if nobody owns the run (None: left ready)."""

    checkpoint: str
    verdict: Verdict
    response: JsonValue
    worker: str | None
    idempotent: frozenset[str]


@dataclass(frozen=True, slots=True)
class Take:
    """Become the owner of a run that `previous` (None: nobody) owned when it was looked at."""

    worker: str
    previous: str | None
    idempotent: frozenset[str]


@dataclass(frozen=True, slots=True)
class Release:
    worker: str


@dataclass(frozen=True, slots=True)
class Cancel:
    reason: str


@dataclass(frozen=True, slots=True)
class Fail:
    """The owner cannot go on with the run: something in bread or in the agent's definition is broken."""

    owner: str
    message: str


@dataclass(frozen=True, slots=True)
class Retry:
    worker: str | None
    max_steps: int | None


RunCommand = (
    Start
    | RecordTurn
    | RecordFailure
    | StartIntents
    | RecordResult
    | RecordError
    | Compose
    | RaiseDoubt
    | Answer
    | Take
    | Release
    | Cancel
    | Fail
    | Retry
)
