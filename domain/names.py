"""Names: what people write, and what a model sees."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Literal

from .errors import InvalidInput

Scope = Literal["tool", "skill", "core", "human"]
_SNAKE = re.compile(r"[a-z][a-z0-9_]{0,63}")


def check_name(name: str, what: str) -> str:
    """`name` if it is lowercase snake_case of at most 64 characters; else INVALID_NAME."""
    if not isinstance(name, str) or not _SNAKE.fullmatch(name):
        raise InvalidInput(
            "INVALID_NAME", f"{what} {name!r} must be lowercase snake_case, a letter first, at most 64 characters"
        )
    return name


def model_name(scope: Scope, name: str, sub: str | None = None) -> str:
    """The name that a model sees: `tool_fetch`, `human_approve`, `skill_review_lint`."""
    return f"{scope}_{sub}_{name}" if sub else f"{scope}_{name}"


def check_session_id(session_id: str) -> str:
    """A session id is the user's own: 1 to 200 printable characters; else INPUT_INVALID."""
    fits = isinstance(session_id, str) and 0 < len(session_id) <= 200 and session_id.isprintable()
    if not fits or session_id != session_id.strip():
        raise InvalidInput("INPUT_INVALID", "session: expected 1 to 200 printable characters, no blanks around them")
    return session_id


def check_tags(tags: Mapping[str, str] | None) -> dict[str, str]:
    """Tags are at most 32 pairs of non-empty strings of at most 200 characters; else INPUT_INVALID."""
    tags = {} if tags is None else tags
    fits = isinstance(tags, Mapping) and len(tags) <= 32
    if not fits or not all(_is_tag(text) for pair in tags.items() for text in pair):
        raise InvalidInput("INPUT_INVALID", "tags: expected at most 32 pairs of strings of 1 to 200 characters")
    return dict(tags)


def _is_tag(text: str) -> bool:
    # Half of a surrogate pair is no character, and no store takes it.
    return isinstance(text, str) and 0 < len(text) <= 200 and not re.search("[\ud800-\udfff]", text)
