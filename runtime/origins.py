"""Origins: the places of pages that a browser names when they call a server of another place."""

from __future__ import annotations

import re
from collections.abc import Iterable

from ..domain.errors import InvalidInput

ANY = "*"
_SHAPE = re.compile(r"https?://(?:[a-z0-9._-]+|\[[0-9a-f:.]+\])(?::\d{1,5})?")
EXPECTED = "expected scheme://host[:port] in lower case, as browsers say it, or * for every page"


def is_origin(text: str) -> bool:
    """Whether a text is an origin, as `https://app.example:8443`, or `*`."""
    return text == ANY or _SHAPE.fullmatch(text) is not None


def check_origins(origins: Iterable[str]) -> list[str]:
    """The origins; INPUT_INVALID names one that is none, which no browser would ever match."""
    found = [*origins]
    for origin in found:
        if not is_origin(origin):
            raise InvalidInput("INPUT_INVALID", f"cors {origin!r}: {EXPECTED}")
    return found
