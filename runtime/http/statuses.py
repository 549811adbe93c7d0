"""The one table of errors and their statuses: the server answers by it, the client reads by it."""

from __future__ import annotations

from ...domain.errors import BreadError, InvalidInput, NotFound, Refused, StoreUnavailable

# The class of an error gives its status, unless its code has one of its own here.
BY_CODE = {
    "CONCURRENCY_LIMIT": 429,
    "FORBIDDEN": 403,
    "IDEMPOTENCY_CONFLICT": 422,
    "MODEL_NOT_READY": 503,
    "NOT_OPEN": 503,
    "PROTOCOL_DECODE_ERROR": 400,
    "UNAUTHORIZED": 401,
    "BODY_TOO_LARGE": 413,
}
BY_CLASS: list[tuple[type[BreadError], int]] = [
    (NotFound, 404),
    (InvalidInput, 422),
    (Refused, 409),
    (StoreUnavailable, 503),
]


def status_of(error: BreadError) -> int:
    """The status of an error; 500 for what is none of the caller's business."""
    known = BY_CODE.get(error.code)
    return known or next((status for kind, status in BY_CLASS if isinstance(error, kind)), 500)


def class_of(status: int) -> type[BreadError]:
    """The class that an error of this status has in the library."""
    return next((kind for kind, one in BY_CLASS if one == status), BreadError)
