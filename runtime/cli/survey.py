"""What an app consists of, and everything that is wrong with it: read once for `bread build` and `bread doctor`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from ...domain.errors import BreadError, InvalidInput
from ..agents import Agent
from ..config import Config, check_entrypoints, check_pipelines
from ..inspection import doubtful, incomplete, unready
from ..loader import folders_of, read_agents
from ..sources import AGENTS_FOLDER, shown
from .place import Place, load_app, see_working_folder

NO_AGENTS = f"there are no agents here: expected {AGENTS_FOLDER}/ or --app module:attr; `bread new` writes an app"


@dataclass
class Survey:
    """The agents that are whole, what is wrong, and what keeps models from being used (by the agent)."""

    config: Config | None = None
    source: str = ""
    agents: list[Agent] = field(default_factory=list)
    config_problems: list[BreadError] = field(default_factory=list)
    problems: list[BreadError] = field(default_factory=list)
    doubts: list[BreadError] = field(default_factory=list)
    unready: dict[str, BreadError] = field(default_factory=dict)


async def survey(place: Place) -> Survey:
    """Read the configuration and every agent, whatever fails on the way. Stores are not touched."""
    found = Survey()
    with _noted(found.config_problems):
        found.config = place.config
    try:
        if place.app is not None:
            ids = _read_app(place.app, found)
        else:
            ids = _read_folder(None if found.config_problems else place.folder, found)
    except BreadError as error:
        found.problems.append(error)
        return found
    if found.config is not None:
        with _noted(found.config_problems):
            check_entrypoints(found.config, [*ids, *found.config.pipelines])
        if len(found.agents) == len(ids):  # of an agent that is broken nobody knows whether a step could run it
            with _noted(found.config_problems):
                check_pipelines(found.config, found.agents)
    for agent in found.agents:
        if (lack := await unready(agent)) is not None:
            found.unready[agent.id] = lack
    return found


def _read_app(app: str, found: Survey) -> list[str]:
    found.source = f"--app {app}"
    found.agents = load_app(app).agents
    return [agent.id for agent in found.agents]


def _read_folder(folder: Path | None, found: Survey) -> list[str]:
    """The ids of all agents that are meant, also of those that are broken."""
    if folder is None:
        folder = Path(AGENTS_FOLDER)  # where it is asked for, an agents folder without an agent is one that lacks it
        if not folder.is_dir():
            raise InvalidInput("CONFIG_INVALID", NO_AGENTS)
    found.source = f"{shown(folder)}/"
    see_working_folder()
    reading = read_agents(folder)
    found.agents = reading.agents
    found.problems += [*reading.problems, *incomplete(reading)]
    found.doubts += doubtful(reading)
    meant = [home.name for home in folders_of(folder)]
    if not meant and not found.problems:
        found.problems.append(InvalidInput("CONFIG_INVALID", f"{shown(folder)}: there is no agent in it"))
    return meant


@contextmanager
def _noted(problems: list[BreadError]) -> Iterator[None]:
    """What is raised inside is noted; an error that has several problems is as many."""
    try:
        yield
    except BreadError as error:
        several = error.details.get("problems", ())
        where = error.message.removesuffix("; ".join(several))
        problems.extend([InvalidInput(error.code, f"{where}{one}") for one in several] or [error])
