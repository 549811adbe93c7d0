"""Plans: what is to become of each call that a model asks for. The runtime makes them, the Run decides with them."""

from __future__ import annotations

from dataclasses import dataclass

from .checkpoint import CheckpointKind
from .events import JsonValue


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


Plan = Execute | Ask | Refuse
