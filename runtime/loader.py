"""Agents as folders, by convention:

    agents/<id>/agent.py              agent = define_agent("<id>", model=...)
    agents/<id>/prompt.md             the prompt, unless agent.py gives one
    agents/<id>/tools/*.py            every tool and human tool at module level
    agents/<id>/skills/<skill>/       SKILL.md, scripts/*.py, references/*.md

Names that begin with `_` or `.` are the user's own: such folders are no agents, such files are not looked at, and can
be imported (`from ._shared import x`).
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TypeVar

from ..domain.errors import BreadError, InvalidInput
from ..domain.names import check_name
from .agents import Agent
from .skill_files import module_tools, read_skill, read_text
from .skills import Skill
from .sources import Files, invalid, line_of, prefixed, shown
from .tools import HumanTool, Tool

T = TypeVar("T")
AGENT, PROMPT, TOOLS, SKILLS = "agent.py", "prompt.md", "tools", "skills"


@dataclass(frozen=True)
class Reading:
    """What a folder of agents gives: those that are whole, and everything that is wrong."""

    files: Files
    agents: list[Agent] = field(default_factory=list)
    problems: list[BreadError] = field(default_factory=list)


def load_agents(folder: str | Path) -> list[Agent]:
    """The agents of a folder, by their ids.

    The files are executed as they stand now. Raises the first problem; its message begins with the file and, where
    there is one, the line: CONFIG_INVALID, or what define_agent, define_tool, ... raise.
    """
    reading = read_agents(folder)
    if reading.problems:
        raise reading.problems[0]
    return reading.agents


def load_agent(folder: str | Path) -> Agent:
    """The agent of one folder `.../<id>`; raises as `load_agents`."""
    place = Path(folder).absolute()
    if not place.is_dir():
        raise invalid(place, f"expected a folder with {AGENT}")
    problems: list[BreadError] = []
    agent = _read_agent(Files(place.parent), place, problems)
    return _first(agent, problems)


def load_skill(folder: str | Path) -> Skill:
    """The skill of one folder `.../<id>`; raises as `load_agents`. A link out of the folder above is INVALID_NAME."""
    place = Path(folder).absolute()
    if not place.is_dir():
        raise invalid(place, "expected a folder with SKILL.md")
    problems: list[BreadError] = []
    skill = read_skill(Files(place.parent), place, problems)
    return _first(skill, problems)


def _first(found: T | None, problems: list[BreadError]) -> T:
    if problems or found is None:
        raise problems[0]
    return found


def read_agents(folder: str | Path) -> Reading:
    """All that is in a folder of agents, and all that is wrong with it; raises nothing."""
    place = Path(folder).absolute()
    reading = Reading(Files(place))
    if not place.is_dir():
        reading.problems.append(invalid(place, f"expected a folder of agents, each a folder with {AGENT}"))
    problems: list[BreadError] = []
    for home in folders_of(place):
        agent = _read_agent(reading.files, home, problems)
        if agent is not None:
            reading.agents.append(agent)
    # A tool that cannot be read fails once in its folder, and again in whatever imports it.
    reading.problems.extend({problem.message: problem for problem in problems}.values())
    return reading


def folders_of(folder: Path) -> list[Path]:
    """The folders in it, by name, without the user's own."""
    if not folder.is_dir():
        return []
    return sorted(place for place in folder.iterdir() if place.name[0] not in "._" and place.is_dir())


def _read_agent(files: Files, home: Path, problems: list[BreadError]) -> Agent | None:
    """The agent of a folder below the reading, with all its parts; None if there is something wrong with it."""
    before = len(problems)
    agent = prompt = None
    try:
        agent = _defined(files, home)
        prompt = _prompt(agent, home / PROMPT)
    except BreadError as error:
        problems.append(error)
    tools = module_tools(files, home / TOOLS, problems)
    skills = [read_skill(files, folder, problems) for folder in folders_of(home / SKILLS)]
    if agent is None or prompt is None or len(problems) > before:
        return None
    try:
        return _composed(agent, prompt, tools, [skill for skill in skills if skill is not None])
    except BreadError as error:
        problems.append(prefixed(error, shown(home)))
        return None


def _defined(files: Files, home: Path) -> Agent:
    try:
        check_name(home.name, "agent")
    except BreadError as error:
        raise prefixed(error, shown(home)) from None
    file = home / AGENT
    expected = f'agent = define_agent("{home.name}", ...)'
    if not file.is_file():
        raise invalid(file, f"expected a file with {expected}")
    module = files.module(file)
    if not hasattr(module, "agent"):
        raise invalid(file, f"expected {expected}, found no agent", 1)
    agent = module.agent
    if not isinstance(agent, Agent):
        raise invalid(file, f"expected {expected}, found {type(agent).__name__}", line_of(file, "agent"))
    if agent.id != home.name:
        line = line_of(file, "agent")
        raise InvalidInput(
            "INVALID_NAME", f"{shown(file)}:{line}: the agent is called {agent.id!r}, its folder {home.name!r}"
        )
    return agent


def _prompt(agent: Agent, file: Path) -> str:
    if not file.exists():
        return agent.prompt
    if agent.prompt:
        raise invalid(file, f"{AGENT} gives a prompt, too: expected one of both")
    return read_text(file)


def _composed(agent: Agent, prompt: str, tools: list[tuple[Tool | HumanTool, Path]], skills: list[Skill]) -> Agent:
    origin = {id(tool): AGENT for tool in agent.own_tools}
    own = list(agent.own_tools)
    for tool, file in tools:
        if id(tool) in origin:
            continue
        for other in own:
            if other.model_name == tool.model_name:
                raise InvalidInput(
                    "TOOL_NAME_COLLISION",
                    f"{tool.model_name} is defined in {origin[id(other)]} and again in {TOOLS}/{file.name}",
                )
        origin[id(tool)] = f"{TOOLS}/{file.name}"
        own.append(tool)
    return replace(agent, prompt=prompt, own_tools=tuple(own), own_skills=(*agent.own_skills, *skills))
