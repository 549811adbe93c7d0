"""Every error that bread raises, one tree.

    BreadError
    ├── InvalidInput            INPUT_INVALID, INVALID_NAME, INVALID_PERMISSION, TOOL_NAME_COLLISION, RESPONSE_INVALID,
    │                           CONFIG_INVALID, MODEL_NOT_READY
    ├── NotFound                RUN_NOT_FOUND, SESSION_NOT_FOUND, CHECKPOINT_NOT_FOUND, AGENT_NOT_FOUND, SKILL_NOT_FOUND
    ├── Refused                 SESSION_BUSY, SESSION_SUSPENDED, RUN_NOT_RETRYABLE, CONCURRENCY_LIMIT, TOOL_NOT_FOUND
    ├── RunStopped              AGENT_ERROR, MODEL_ERROR, OUTPUT_INVALID, STEPS_EXCEEDED, RUN_CANCELLED, SESSION_DELETED
    ├── RunSuspended            RUN_SUSPENDED
    ├── StoreUnavailable        STORE_UNAVAILABLE
    └── StoreUnreadable         EVENT_UNKNOWN, STORE_INVALID, PROTOCOL_DECODE_ERROR

`code` is what programs match on and never changes; the message is for people; `details` holds what a program needs to
act (ids, the places that do not fit) and never a secret, a stack trace or a cause.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any


class BreadError(Exception):
    """Base of all errors: a stable `code`, a sentence, and details that a program can use."""

    def __init__(self, code: str, message: str, **details: Any) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.details: Mapping[str, Any] = details

    def __str__(self) -> str:
        return f"{self.code}: {self.message}"

    def __reduce__(self) -> tuple[Any, ...]:
        return rebuild, (type(self), self.code, self.message, dict(self.details))


def rebuild(kind: type[BreadError], code: str, message: str, details: Mapping[str, Any]) -> BreadError:
    """An error that another process raised, whatever its class takes to be made."""
    error = kind.__new__(kind)
    BreadError.__init__(error, code, message, **details)
    return error


class InvalidInput(BreadError):
    """What was given does not fit; nothing was written."""


class NotFound(BreadError):
    """There is nothing under that id (any more)."""


class Refused(BreadError):
    """The request is well formed but the present state does not allow it; nothing was written."""


class RunStopped(BreadError):
    """A run that was awaited ended without an output."""


class StoreUnavailable(BreadError):
    """The store did not answer in time: the outcome is undecided, repeat with the same idempotency key."""

    def __init__(self, message: str, **details: Any) -> None:
        super().__init__("STORE_UNAVAILABLE", message, **details)


class StoreUnreadable(BreadError):
    """The store or a frame holds what this release cannot read: it stops loudly and changes nothing."""


class RunSuspended(BreadError):
    """A run that was awaited came to rest on questions; `checkpoints` are the ids that can be answered."""

    def __init__(self, run_id: str, checkpoints: Sequence[str]) -> None:
        super().__init__(
            "RUN_SUSPENDED",
            f"run {run_id} waits for {len(checkpoints)} answer(s): {', '.join(checkpoints)}",
            run_id=run_id,
            checkpoints=list(checkpoints),
        )

    @property
    def run_id(self) -> str:
        return str(self.details["run_id"])

    @property
    def checkpoints(self) -> list[str]:
        return list(self.details["checkpoints"])


def checkpoint_not_found(checkpoint_id: str) -> NotFound:
    """The one answer for unknown, used, expired, discarded and erased checkpoints, and for losing the claim."""
    return NotFound("CHECKPOINT_NOT_FOUND", f"no pending checkpoint {checkpoint_id!r}", checkpoint_id=checkpoint_id)


def run_not_found(run_id: str) -> NotFound:
    return NotFound("RUN_NOT_FOUND", f"no run {run_id!r}", run_id=run_id)


def session_not_found(session_id: str) -> NotFound:
    return NotFound("SESSION_NOT_FOUND", f"no session {session_id!r}", session_id=session_id)


def response_invalid(message: str, problems: Sequence[str] = ()) -> InvalidInput:
    return InvalidInput("RESPONSE_INVALID", message, problems=list(problems))
