"""Ports: what the domain's decisions and the runtime need from the outside, as small protocols.

The journal is the event log and the views in one transaction; the transport tells others; the model thinks. Adapters
live in runtime/ and transport/.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, NamedTuple, Protocol, TypeVar, runtime_checkable

from .envelope import Principal, Recorded
from .events import JsonValue
from .messages import AnyMessage, Message
from .run_events import Usage
from .run_state import RunState
from .streams import Streams

T = TypeVar("T")
Decision = Callable[[Streams], T]


class Logged(NamedTuple):
    """An entry of a root's log. `subject` is the recorded event that holds the payload which `recorded` points to."""

    recorded: Recorded
    subject: Recorded | None = None


@dataclass(frozen=True)
class Commit(Generic[T]):
    """A committed decision: what it gave, its events in order, and the states of the runs that it changed.

    `history` has the earlier events of those runs whose streams were read for the decision; `alone` are the runs that
    got an owner and whose sessions have no other root run.
    """

    result: T
    events: Sequence[Logged]
    runs: Mapping[str, RunState]
    history: Mapping[str, Sequence[Recorded]] = field(default_factory=dict)
    alone: frozenset[str] = frozenset()


class Journal(Protocol):
    """The event log and its views. Every method may raise StoreUnavailable; none blocks the event loop."""

    async def commit(
        self,
        decide: Decision[T],
        *,
        by: Principal,
        cause: str | None = None,
        tenant: str = "default",
        traceparent: str | None = None,
        reads: Sequence[str] = (),
    ) -> Commit[T]:
        """Run a decision and write what it appends, all or nothing. The decision may run more than once.

        `reads` are streams that it is likely to read: a store may read those of many decisions at once.
        """

    async def events(self, stream: str, after: int = 0) -> list[Recorded]:
        """The events of a stream with a version above `after`, in order."""

    async def log(self, root: str, after: int, limit: int) -> list[Logged]:
        """The entries of a root's log with a seq above `after`, in order."""


# --- models -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ToolSpec:
    """A tool as the model sees it."""

    name: str
    description: str
    schema: JsonValue


@dataclass(frozen=True, slots=True)
class ModelRequest:
    """One model call. `turn` counts the turns that the run already has, `attempt` the failed attempts at this one.

    `output` is the JSON Schema that the final text has to fit as JSON, if there is one.
    """

    run_id: str
    agent_id: str
    turn: int
    attempt: int
    prompt: str
    messages: Sequence[AnyMessage]
    tools: Sequence[ToolSpec]
    settings: Mapping[str, Any] = field(default_factory=dict)
    output: JsonValue = None


@dataclass(frozen=True, slots=True)
class TextDelta:
    text: str


@dataclass(frozen=True, slots=True)
class ReasoningDelta:
    text: str


@dataclass(frozen=True, slots=True)
class ToolInputDelta:
    """A piece of the arguments of the turn's call number `index`; `done` with its last one."""

    index: int
    tool: str
    call_id: str
    text: str
    done: bool = False


@dataclass(frozen=True, slots=True)
class TurnDone:
    """The end of a turn. A stream that stops without it was cut short: that is an error, not an answer."""

    message: Message
    finish: str = "stop"
    usage: Usage | None = None


ModelEvent = TextDelta | ReasoningDelta | ToolInputDelta | TurnDone


class Model(Protocol):
    """A model that streams one turn at a time. Raises ModelError; what else it raises counts as not retryable."""

    @property
    def name(self) -> str: ...

    def stream(self, request: ModelRequest) -> AsyncIterator[ModelEvent]: ...


@runtime_checkable
class ManagedModel(Model, Protocol):
    """A model that holds connections. Whoever opened it closes it; `prepare` raises what keeps it from answering."""

    def open(self) -> None: ...

    async def close(self) -> None: ...

    async def prepare(self, settings: Mapping[str, Any] | None = None) -> None: ...


class ModelError(Exception):
    """A model attempt failed. `retry_after` is what the provider asked for, in seconds."""

    def __init__(self, message: str, *, retryable: bool = True, retry_after: float | None = None) -> None:
        super().__init__(message)
        self.retryable = retryable
        self.retry_after = retry_after
