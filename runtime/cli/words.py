"""Values as words on a terminal. What comes from models and people cannot steer it: control characters are shown."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any
from unicodedata import category

SHORT = 160


def plain(text: str) -> str:
    """Text whose control, format and direction characters are written out (`\\x1b`); line breaks and tabs stay."""
    if text.isprintable():
        return text
    return "".join(char if _is_harmless(char) else char.encode("unicode_escape").decode() for char in text)


def _is_harmless(char: str) -> bool:
    kind = category(char)
    return char in "\n\t" or not (kind.startswith("C") or kind in ("Zl", "Zp"))


def one_line(text: str) -> str:
    return " ".join(plain(text).split())


def as_json(value: Any) -> str:
    """A value as JSON on one line. What a terminal may take for a command is escaped, as JSON allows."""
    text = json.dumps(value, ensure_ascii=False)
    return re.sub("[\x7f-\x9f\u2028\u2029]", lambda found: f"\\u{ord(found[0]):04x}", text)


def shown(value: Any, limit: int | None = SHORT) -> str:
    """A value as compact JSON on one line, cut at `limit` characters."""
    text = one_line(as_json(value))
    return text if limit is None else shorten(text, limit)


def shorten(text: str, limit: int) -> str:
    return text if len(text) <= limit else f"{text[: limit - 1]}… ({len(text)} characters)"


def steps(nodes: Any) -> str:
    """The steps of a pipeline as they are stored: `echo, parallel(law, finance), map(echo)`."""
    return ", ".join(_step(node) for node in nodes)


def _step(node: Any) -> str:
    if node["kind"] == "agent":
        return str(node["agent"])
    return f"{node['kind']}({steps(node['steps'] if 'steps' in node else [node['step']])})"


def moment(at: datetime) -> str:
    """A time, to the millisecond, in UTC."""
    return at.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S.%f")[:-3] + "Z"


def age(since: datetime) -> str:
    """How long ago: `12s`, `5m`, `3h`, `9d`."""
    return span(datetime.now(UTC) - since)


def span(time: timedelta) -> str:
    """How long: `12s`, `5m`, `3h`, `9d`; nothing is shorter than 0 s."""
    seconds = max(0, int(time.total_seconds()))
    for unit, size in (("d", 86_400), ("h", 3_600), ("m", 60)):
        if seconds >= size:
            return f"{seconds // size}{unit}"
    return f"{seconds}s"


def pairs(tags: Mapping[str, str]) -> str:
    return " ".join(f"{key}={value}" for key, value in sorted(tags.items()))
