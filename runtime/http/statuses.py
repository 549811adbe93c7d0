"""The one table of errors and their statuses: the server answers by it, the client reads by it."""

from __future__ import annotations

from ...domain.errors import BreadError, InvalidInput, NotFound, Refused, StoreUnavailable, StoreUnreadable

# The class of an error gives its status, unless its code has one of its own here; the class stands beside it.
BY_CODE: dict[str, tuple[int, type[BreadError]]] = {
    "BODY_TOO_LARGE": (413, BreadError),
    "CONCURRENCY_LIMIT": (429, Refused),
    "FORBIDDEN": (403, BreadError),
    "IDEMPOTENCY_CONFLICT": (422, Refused),
    "MODEL_NOT_READY": (503, InvalidInput),
    "NOT_OPEN": (503, BreadError),
    "PROTOCOL_DECODE_ERROR": (400, InvalidInput),
    "UNAUTHORIZED": (401, BreadError),
}
BY_CLASS: list[tuple[type[BreadError], int]] = [
    (NotFound, 404),
    (InvalidInput, 422),
    (Refused, 409),
    (StoreUnavailable, 503),
]


def status_of(error: BreadError) -> int:
    """The status of an error; 500 for what is none of the caller's business."""
    if isinstance(error, StoreUnreadable):
        return 500  # whatever its code: the store is damaged, not the request
    if error.code in BY_CODE:
        return BY_CODE[error.code][0]
    return next((status for kind, status in BY_CLASS if isinstance(error, kind)), 500)


def class_of(code: str, status: int) -> type[BreadError]:
    """The class that an error of this code, told with this status, has in the library."""
    if code in BY_CODE:
        return BY_CODE[code][1]
    return next((kind for kind, one in BY_CLASS if one == status), BreadError)
