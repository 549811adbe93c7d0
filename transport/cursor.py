"""Cursors: what an observer has seen. Opaque to clients; `<seq>` or `<seq>~<base>:<n>[,<base>:<n>...]`.

Everything durable up to `seq` was seen, and `n` code points of the text of the model attempt that started from event
`base`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from ..domain.errors import InvalidInput

MAX_LIVE = 8
_SHAPE = re.compile(r"(\d{1,15})(?:~(\d{1,15}:\d{1,15}(?:,\d{1,15}:\d{1,15}){0,7}))?", re.ASCII)


@dataclass(frozen=True, slots=True)
class Cursor:
    """`seq` of the last event seen, and the seen length of each live text by its base."""

    seq: int = 0
    texts: Mapping[int, int] = field(default_factory=dict)

    def __str__(self) -> str:
        live = ",".join(f"{base}:{length}" for base, length in self.texts.items() if length)
        return f"{self.seq}~{live}" if live else str(self.seq)


def parse_cursor(text: str | None) -> Cursor:
    """The cursor of its text; INPUT_INVALID if it is none. None stands for the beginning."""
    if text is None:
        return Cursor()
    shape = _SHAPE.fullmatch(text) if isinstance(text, str) else None
    if shape is None:
        raise InvalidInput("INPUT_INVALID", f"cursor {text!r}: expected the `cursor` of a crumb")
    pairs = [pair.split(":") for pair in shape[2].split(",")] if shape[2] else []
    cursor = Cursor(int(shape[1]), {int(base): int(length) for base, length in pairs})
    if any(not 0 < base <= cursor.seq for base in cursor.texts):
        raise InvalidInput("INPUT_INVALID", f"cursor {text!r}: a text that begins after it")
    return cursor
