"""What tests share: how many trials, and small ways to look at streams."""

from __future__ import annotations

import os
from collections.abc import AsyncIterable
from typing import Any, Literal

from bread import AnyCrumb

Mode = Literal["memory", "sqlite", "replay", "postgres"]
MODES: tuple[Mode, ...] = ("memory", "sqlite", "replay", "postgres")


def trials(quick: int, soak: int) -> int:
    """How often to try: `quick` by default, `soak` with BREAD_TRIALS=soak, a multiple of quick with BREAD_TRIALS=n."""
    scale = os.environ.get("BREAD_TRIALS", "1")
    return soak if scale == "soak" else max(1, int(quick * float(scale)))


def soaking() -> bool:
    """Whether what is drawn by chance shall be another thing each time."""
    return os.environ.get("BREAD_TRIALS", "1") != "1"


async def read(stream: AsyncIterable[AnyCrumb]) -> list[AnyCrumb]:
    """Every crumb of a stream."""
    return [crumb async for crumb in stream]


def types(crumbs: list[AnyCrumb], *but: str) -> list[str]:
    """The types of crumbs in order, repeated text as one; live hints and `but` are left out."""
    hidden = {"tool:input:start", "tool:input:delta", "tool:input:end", "tool:result:partial", "reasoning:delta", *but}
    found: list[str] = []
    for crumb in crumbs:
        if crumb.type in hidden or (crumb.type == "text:delta" and found[-1:] == ["text:delta"]):
            continue
        found.append(crumb.type)
    return found


def said(crumbs: list[AnyCrumb]) -> str:
    """All text that was shown, less what was reset."""
    texts: dict[int, str] = {}
    for crumb in crumbs:
        if crumb.type == "text:delta":
            texts[crumb.base] = texts.get(crumb.base, "") + crumb.text
        elif crumb.type == "text:reset":
            texts.pop(crumb.base, None)
    return "".join(texts.values())


def wire(crumb: Any) -> dict[str, Any]:
    """A crumb as a client gets it."""
    found: dict[str, Any] = crumb.wire()
    return found
