"""Skills: a prompt part with tools of its own, which a run has from its start or loads when it needs it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from ..domain.errors import InvalidInput, NotFound
from ..domain.names import check_name
from .tools import HumanTool, Tool, define_tool

MAX_DESCRIPTION = 1024


@dataclass(frozen=True)
class Skill:
    """Know-how for one kind of work: `prompt` is what the model reads once the skill is loaded."""

    id: str
    description: str
    prompt: str
    tools: tuple[Tool | HumanTool, ...] = ()


def define_skill(
    id: str,
    *,
    description: str,
    prompt: str,
    tools: Sequence[Tool | HumanTool] = (),
    references: Mapping[str, str] = {},
) -> Skill:
    """Make a skill. The model sees its tools as `skill_<id>_<name>`, and only where the skill is loaded.

    `description` (up to 1,024 characters) says when to use it; `references` are texts that stand behind the prompt
    under their names. Raises INVALID_NAME or INPUT_INVALID.
    """
    check_name(id, "skill")
    if not isinstance(description, str) or not 0 < len(description.strip()) <= MAX_DESCRIPTION:
        raise InvalidInput(
            "INPUT_INVALID", f"skill {id}: description: expected a text of 1 to {MAX_DESCRIPTION:,} characters"
        )
    for tool in tools:
        if not isinstance(tool, Tool | HumanTool):
            raise InvalidInput(
                "INPUT_INVALID", f"skill {id}: tools: {tool!r} is not made by define_tool or define_human_tool"
            )
    parts = [prompt.strip(), *(f"## {name}\n\n{text.strip()}" for name, text in references.items())]
    return Skill(id, description.strip(), "\n\n".join(parts), tuple(replace(tool, skill=id) for tool in tools))


def find_skill(skills: Mapping[str, Skill], skill_id: str, agent_id: str) -> Skill:
    """The skill of that id; INVALID_NAME for what cannot be one, SKILL_NOT_FOUND for one that the agent has not."""
    found = skills.get(check_name(skill_id, "skill"))
    if found is None:
        raise NotFound(
            "SKILL_NOT_FOUND",
            f"agent {agent_id} has no skill {skill_id!r}; there are: {', '.join(skills) or 'none'}",
            skill=skill_id,
        )
    return found


def summary(skills: Mapping[str, Skill]) -> str:
    """What a model is told of the skills that it may load."""
    lines = [f"- {skill.id}: {' '.join(skill.description.split())}" for skill in skills.values()]
    return "\n".join(["Skills that core_load_skill loads, with instructions and tools of their own:", *lines])


def load_skill_tool(skills: Mapping[str, Skill], agent_id: str) -> Tool:
    """`core_load_skill`: the outcome in the log is what makes the skill part of the run."""

    @define_tool(name="load_skill", description="Load a skill: its instructions and tools.", idempotent=True)
    def load_skill(skill: str) -> dict[str, str]:
        return {"skill": find_skill(skills, skill, agent_id).id}

    return replace(load_skill, scope="core")
