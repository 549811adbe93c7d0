"""What an app lacks that loads all the same: for `bread build` and `bread doctor`."""

from __future__ import annotations

from collections.abc import Iterator
from difflib import get_close_matches
from pathlib import Path

from ..domain.errors import BreadError, InvalidInput
from .agents import Agent
from .loader import AGENT, PROMPT, SKILLS, TOOLS, Reading, folders_of
from .skill_files import REFERENCES, SCRIPTS, SKILL, files_of
from .sources import Files, invalid
from .tools import HumanTool, Tool

ALIKE = 0.8  # of 1: `tool`, `skils` and `promt.md` are alike enough, `types.py` and `helpers` are not


def incomplete(reading: Reading) -> list[BreadError]:
    """What cannot be meant so: agents without a prompt, skills without instructions, names that miss the convention."""
    files = reading.files
    if not files.folder.is_dir():
        return []
    found: list[BreadError] = [
        invalid(file, f"no agent is a file: expected {file.with_suffix('').name}/{AGENT}")
        for file in files_of(files.folder, ".py")
        if not files.is_executed(file)
    ]
    for agent in reading.agents:
        found += _unwritten(files.folder / agent.id, agent)
    for home in folders_of(files.folder):
        found += _misnamed(files, home, {AGENT, PROMPT}, {TOOLS, SKILLS})
        found += _unseen(files, home / TOOLS)
        for folder in folders_of(home / SKILLS):
            found += _misnamed(files, folder, {SKILL}, {SCRIPTS, REFERENCES})
            found += _unseen(files, folder / SCRIPTS)
    return found


def doubtful(reading: Reading) -> list[BreadError]:
    """What may be meant so: files among the tools that define none."""
    found: list[BreadError] = []
    for agent in reading.agents:
        home = reading.files.folder / agent.id
        for folder in (home / TOOLS, *(skill / SCRIPTS for skill in folders_of(home / SKILLS))):
            for file in files_of(folder, ".py"):
                if not any(isinstance(value, Tool | HumanTool) for value in vars(reading.files.module(file)).values()):
                    found.append(invalid(file, "it defines no tool (names of helper files begin with _)"))
    return found


async def unready(agent: Agent) -> BreadError | None:
    """What keeps the model of an agent from being used: its package or key is missing. None if nothing does."""
    model = agent.managed
    if model is None:
        return None
    try:
        model.open()
        try:
            await model.prepare(agent.settings)
        finally:
            await model.close()
    except BreadError as error:
        return error
    except Exception as error:  # of a model of the user's own
        return InvalidInput("MODEL_NOT_READY", f"{model.name}: {type(error).__name__}: {error}")
    return None


def _unwritten(home: Path, agent: Agent) -> Iterator[BreadError]:
    if not agent.prompt.strip():
        yield invalid(home / PROMPT, f"agent {agent.id} has no prompt: expected it here, or in {AGENT}")
    for skill in agent.skills.values():
        if not skill.prompt and (home / SKILLS / skill.id).is_dir():
            yield invalid(home / SKILLS / skill.id / SKILL, "expected instructions below the front matter")


def _misnamed(files: Files, folder: Path, file_names: set[str], folder_names: set[str]) -> Iterator[BreadError]:
    """Entries that are called almost as the convention has it, or are of the wrong kind, and that nothing uses."""
    for place in sorted(folder.iterdir()):
        own, other = (folder_names, file_names) if place.is_dir() else (file_names, folder_names)
        if place.name in own or place.name[0] in "._" or files.is_executed(place):
            continue
        if place.name in other:
            yield invalid(place, f"expected a {'file' if place.is_dir() else 'folder'}")
            continue
        meant = _meant(place, own) or (_meant(place.with_suffix(""), other) if place.suffix == ".py" else None)
        # A file beside the one that it resembles is an older copy of it, or the like.
        if meant and (place.is_dir() or not (folder / meant).is_file()):
            yield invalid(place, f"it is not looked at: expected {meant}?")


def _meant(place: Path, names: set[str]) -> str | None:
    known = {name.lower(): name for name in names}
    if close := get_close_matches(place.name.lower(), known, 1, ALIKE):
        return known[close[0]]
    texts = (name for name in names if name.endswith(".md"))  # prompt.txt
    return next((name for name in texts if place.stem.lower() == Path(name).stem.lower()), None)


def _unseen(files: Files, tools: Path) -> Iterator[BreadError]:
    for folder in folders_of(tools):
        if any(folder.rglob("*.py")) and not files.is_executed(folder):
            yield invalid(folder, f"it is not looked at: the tools are the files of {tools.name}/")
