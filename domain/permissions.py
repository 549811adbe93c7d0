"""Permissions: which tools an agent may use, and which of them a person has to approve first.

What is in allow or ask, less what is in deny. Deny beats all, ask beats allow, an empty allow list means everything.
Selectors are `scope:name`, or `scope:sub/name` for skills; `*` matches a segment or a part of it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Literal

from .errors import InvalidInput

Access = Literal["allow", "ask", "deny"]

_SEGMENT = r"[a-z0-9_*]+"
_SHAPES = {
    "tool": re.compile(_SEGMENT),
    "core": re.compile(_SEGMENT),
    "skill": re.compile(f"{_SEGMENT}/{_SEGMENT}"),
}


def _check(selector: object) -> None:
    if not isinstance(selector, str):
        raise InvalidInput("INVALID_PERMISSION", f"permission selector {selector!r}: expected text")
    scope, colon, target = selector.partition(":")
    if scope == "human":
        raise InvalidInput("INVALID_PERMISSION", f"{selector!r}: human tools are exempt from permissions")
    shape = _SHAPES.get(scope)
    if not colon or shape is None:
        raise InvalidInput("INVALID_PERMISSION", f"{selector!r}: expected tool:name, core:name or skill:skill/name")
    if not shape.fullmatch(target):
        expected = "skill:skill/name" if scope == "skill" else f"{scope}:name"
        raise InvalidInput("INVALID_PERMISSION", f"{selector!r}: expected {expected}, names in snake_case or *")


def _matches(selectors: Iterable[str], target: str) -> bool:
    return any(_matches_one(selector, target) for selector in selectors)


def _matches_one(selector: str, target: str) -> bool:
    # Segment by segment, so that `*` never reaches over a slash.
    wanted, given = re.split("[:/]", selector), re.split("[:/]", target)
    return len(wanted) == len(given) and all(fnmatchcase(g, w) for w, g in zip(wanted, given, strict=True))


@dataclass(frozen=True, slots=True)
class Permissions:
    """The lists of one agent; selectors are checked when they are made (INVALID_PERMISSION)."""

    allow: tuple[str, ...] = ()
    ask: tuple[str, ...] = ()
    deny: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for selector in (*self.allow, *self.ask, *self.deny):
            _check(selector)

    @classmethod
    def of(cls, lists: Mapping[str, Iterable[str]] | None) -> Permissions:
        """From `{"allow": [...], "ask": [...], "deny": [...]}`; anything else is refused."""
        if lists is not None and not isinstance(lists, Mapping):
            raise InvalidInput("INVALID_PERMISSION", "permissions: expected lists under allow, ask and deny")
        found: dict[str, tuple[str, ...]] = {}
        for key, selectors in (lists or {}).items():
            if key not in ("allow", "ask", "deny"):
                raise InvalidInput("INVALID_PERMISSION", f"permissions: {key!r} is not one of allow, ask, deny")
            if not isinstance(selectors, list | tuple | set | frozenset):
                raise InvalidInput("INVALID_PERMISSION", f"permissions.{key}: expected a list of selectors")
            found[key] = tuple(selectors)
        return cls(**found)

    def access(self, target: str) -> Access:
        """What is granted for `tool:name`, `core:name` or `skill:skill/name`."""
        if _matches(self.deny, target):
            return "deny"
        if _matches(self.ask, target):
            return "ask"
        return "allow" if not self.allow or _matches(self.allow, target) else "deny"
