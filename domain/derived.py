"""Ids that follow from what is there: those of child runs and of what a supervisor waits for.

A decision may run more than once, and gives the same ids each time. Who does not know the parent's id, which is drawn,
cannot guess them.
"""

from __future__ import annotations

import hashlib

_ALPHABET = "0123456789abcdefghjkmnpqrstvwxyz"


def derived_id(prefix: str, at: float, *parts: object) -> str:
    """`<prefix>_` and 26 letters in the shape of a UUIDv7: 48 bits of milliseconds, and 74 of a hash of the parts."""
    digest = hashlib.sha256("\n".join(map(str, parts)).encode("utf-8", "surrogatepass")).digest()
    hashed = int.from_bytes(digest[:10], "big")
    head, tail = hashed >> 62 & 0xFFF, hashed & ((1 << 62) - 1)
    number = (int(at * 1000) & ((1 << 48) - 1)) << 80 | 7 << 76 | head << 64 | 2 << 62 | tail
    return f"{prefix}_{''.join(_ALPHABET[number >> shift & 31] for shift in range(125, -1, -5))}"
