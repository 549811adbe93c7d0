"""Agents: a model, a prompt, tools, and which of them may be used."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from ..domain.errors import InvalidInput
from ..domain.names import check_name
from ..domain.permissions import Permissions
from ..domain.ports import Model, ToolSpec
from .tools import HumanTool, Tool

MAX_STEPS = 20


@dataclass(frozen=True)
class Agent:
    """An agent as it is configured now. What a suspended run uses after its answer is the agent of that time."""

    id: str
    model: Model
    prompt: str
    permissions: Permissions
    max_steps: int
    settings: Mapping[str, Any]
    tools: Mapping[str, Tool | HumanTool] = field(default_factory=dict)

    def access(self, tool: Tool | HumanTool) -> Literal["allow", "ask", "deny"]:
        """Human tools are exempt from permission lists."""
        return "allow" if isinstance(tool, HumanTool) else self.permissions.access(tool.selector)

    def offered(self) -> list[ToolSpec]:
        """The tools that the model is told about."""
        return [
            ToolSpec(name, tool.description, tool.schema)
            for name, tool in self.tools.items()
            if self.access(tool) != "deny"
        ]

    def idempotent(self) -> frozenset[str]:
        return frozenset(n for n, tool in self.tools.items() if isinstance(tool, Tool) and tool.idempotent)


def define_agent(
    id: str,
    *,
    model: Model,
    prompt: str = "",
    tools: Sequence[Tool | HumanTool] = (),
    permissions: Mapping[str, Iterable[str]] | None = None,
    max_steps: int = MAX_STEPS,
    settings: Mapping[str, Any] | None = None,
) -> Agent:
    """Make an agent. `max_steps` bounds the model turns with tool calls; `settings` go to the model as they are.

    `permissions` are lists of selectors under `allow`, `ask` and `deny`. Raises INVALID_NAME, INVALID_PERMISSION,
    TOOL_NAME_COLLISION or INPUT_INVALID.
    """
    check_name(id, "agent")
    if not isinstance(max_steps, int) or max_steps < 1:
        raise InvalidInput("INPUT_INVALID", f"agent {id}: max_steps must be a whole number of at least 1")
    if not callable(getattr(model, "stream", None)):
        raise InvalidInput("INPUT_INVALID", f"agent {id}: model has no stream(request): expected a Model")
    if not isinstance(getattr(model, "name", None), str):
        raise InvalidInput("INPUT_INVALID", f"agent {id}: model has no name: expected a Model")
    table: dict[str, Tool | HumanTool] = {}
    for tool in tools:
        if not isinstance(tool, Tool | HumanTool):
            raise InvalidInput(
                "INPUT_INVALID", f"agent {id}: tools: {tool!r} is not made by define_tool or define_human_tool"
            )
        if tool.model_name in table:
            raise InvalidInput("TOOL_NAME_COLLISION", f"agent {id}: two tools are called {tool.model_name}")
        table[tool.model_name] = tool
    return Agent(id, model, prompt, Permissions.of(permissions), max_steps, dict(settings or {}), table)
