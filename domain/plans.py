"""Plans: what is to become of each call that a model asks for, or of its final answer where that has to fit a schema.

The runtime makes them, the Run decides with them.
"""

from __future__ import annotations

from dataclasses import dataclass

from .checkpoint import CheckpointKind
from .events import JsonValue
from .run_events import Visibility


@dataclass(frozen=True, slots=True)
class Execute:
    """Plan for a call: run the tool."""

    idempotent: bool = False


@dataclass(frozen=True, slots=True)
class Ask:
    """Plan for a call: open this checkpoint."""

    checkpoint: str
    kind: CheckpointKind
    tool: str
    args_schema: JsonValue
    response_schema: JsonValue
    prompt: str
    deadline: float | None = None
    on_timeout: JsonValue = None


@dataclass(frozen=True, slots=True)
class Refuse:
    """Plan for a call: it never runs, and the model is told why."""

    code: str
    message: str


@dataclass(frozen=True, slots=True)
class Delegate:
    """Plan for a call: a child run of `agent` performs it, unless as many as the limits allow are in flight."""

    agent: str
    input: JsonValue
    max_steps: int
    visibility: Visibility = "passthrough"
    limit: int | None = None
    limit_of_agent: int | None = None


@dataclass(frozen=True, slots=True)
class StartLoop:
    """Plan for a call: a loop over these steps is open from now on. Without an input it is the run's own."""

    steps: JsonValue
    input: JsonValue
    max_iterations: int


@dataclass(frozen=True, slots=True)
class Iterate:
    """Plan for a call: the next iteration of the open loop, as a child pipeline."""

    feedback: JsonValue = None


@dataclass(frozen=True, slots=True)
class FinishLoop:
    """Plan for a call: the open loop ends. Without a result it is the last output."""

    result: JsonValue = None


Plan = Execute | Ask | Refuse | Delegate | StartLoop | Iterate | FinishLoop


@dataclass(frozen=True, slots=True)
class Accept:
    """Plan for a final answer: it fits, and this is the output."""

    output: JsonValue


@dataclass(frozen=True, slots=True)
class Reject:
    """Plan for a final answer: it does not fit. The model is told why, at most `retries` times in a run."""

    message: str
    retries: int


Verification = Accept | Reject
