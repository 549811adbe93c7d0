"""What a Bread is made of, checked: agents by their ids, filters that were given."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from ..domain.errors import InvalidInput
from .agents import Agent


def by_id(agents: Iterable[Agent]) -> dict[str, Agent]:
    found: dict[str, Agent] = {}
    for agent in agents:
        if not isinstance(agent, Agent):
            raise InvalidInput("INPUT_INVALID", f"agents: {agent!r} is not made by define_agent")
        if agent.id in found:
            raise InvalidInput("INVALID_NAME", f"two agents are called {agent.id!r}")
        found[agent.id] = agent
    return found


def in_folder(agents_dir: str | Path | None) -> list[Agent]:
    if agents_dir is None:
        return []
    from .loader import load_agents  # reading folders needs more than agents in code

    return load_agents(agents_dir)


def given(**filters: str | None) -> dict[str, str]:
    return {name: value for name, value in filters.items() if value is not None}
