"""What the tests of approvals share."""

from __future__ import annotations

from typing import Any

from bread import Tool, define_tool
from bread.testing import call, text
from scenes import (
    Counter,
)

GATED = {"ask": ["tool:delete_*"]}


def tool(name: str, ran: Counter | None = None) -> Tool:
    """A tool that counts how often it ran with which path."""

    async def function(path: str = "") -> str:
        count = ran(path) if ran is not None else 0
        return f"{name} {path} {count}"

    return define_tool(name=name)(function)


def deletes(*paths: str) -> list[Any]:
    """A script that deletes these paths in one turn and then says done."""
    return [[call("tool_delete_file", {"path": path}) for path in paths], [text("Done.")]]
