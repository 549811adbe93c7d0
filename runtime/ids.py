"""Ids: ordered by time, not to be guessed."""

from __future__ import annotations

import secrets
import threading
import time

_ALPHABET = "0123456789abcdefghjkmnpqrstvwxyz"
_lock = threading.Lock()
_last = 0


def new_id(prefix: str) -> str:
    """`<prefix>_` and 26 letters: a UUIDv7 (48 bits of milliseconds, 74 random bits) in Crockford's base 32.

    Ids of one process are in order within a millisecond too, a random step of up to 64 bits apart: who knows one of
    them does not know the next.
    """
    head, tail = divmod(_next(), 1 << 62)
    number = (head >> 12) << 80 | 7 << 76 | (head & 0xFFF) << 64 | 2 << 62 | tail
    letters = [_ALPHABET[number >> shift & 31] for shift in range(125, -1, -5)]
    return f"{prefix}_{''.join(letters)}"


def _next() -> int:
    global _last
    fresh = _milliseconds() << 74 | secrets.randbits(74)
    with _lock:
        _last = fresh if fresh > _last else _last + 1 + secrets.randbits(64)
        return _last


def _milliseconds() -> int:
    return time.time_ns() // 1_000_000


def short_id(prefix: str) -> str:
    """`<prefix>_` and 12 hex digits: for names of processes and commits, where nothing hangs on guessing."""
    return f"{prefix}_{secrets.token_hex(6)}"
