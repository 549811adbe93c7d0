"""Ids: ordered by time, not to be guessed."""

from __future__ import annotations

import secrets

import uuid_utils

_ALPHABET = "0123456789abcdefghjkmnpqrstvwxyz"


def new_id(prefix: str) -> str:
    """`<prefix>_` and 26 letters: a UUIDv7 (48 bits of milliseconds, 74 random bits) in Crockford's base 32."""
    number = uuid_utils.uuid7().int
    letters = [_ALPHABET[number >> shift & 31] for shift in range(125, -1, -5)]
    return f"{prefix}_{''.join(letters)}"


def short_id(prefix: str) -> str:
    """`<prefix>_` and 12 hex digits: for names of processes and commits, where nothing hangs on guessing."""
    return f"{prefix}_{secrets.token_hex(6)}"
