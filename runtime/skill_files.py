"""A skill as a folder: `SKILL.md` (front matter and body), `scripts/*.py` (tools), `references/*.md` (inlined)."""

from __future__ import annotations

import os
from pathlib import Path

import yaml

from ..domain.errors import BreadError, InvalidInput
from ..domain.names import check_name
from .skills import Skill, define_skill
from .sources import Files, invalid, prefixed, shown
from .tools import HumanTool, Tool

SKILL, SCRIPTS, REFERENCES = "SKILL.md", "scripts", "references"
FRONT = "front matter between two --- lines, with name and description"


def read_skill(files: Files, folder: Path, problems: list[BreadError]) -> Skill | None:
    """The skill of a folder below the reading. What is wrong is appended to `problems`; None if there is no skill."""
    try:
        check_name(folder.name, "skill")
        _check_inside(folder)
    except BreadError as error:
        problems.append(prefixed(error, shown(folder)))
        return None
    tools = module_tools(files, folder / SCRIPTS, problems)
    try:
        references = {f"{REFERENCES}/{file.name}": read_text(file) for file in files_of(folder / REFERENCES, ".md")}
        return _skill(folder, [tool for tool, _ in tools], references)
    except BreadError as error:
        problems.append(error)
        return None


def _check_inside(folder: Path) -> None:
    """What a skill consists of lies in the skills folder, wherever links point to; INVALID_NAME."""
    home = folder.parent.resolve()
    for place in (folder, *(Path(at, name) for at, dirs, names in os.walk(folder) for name in (*dirs, *names))):
        if place.is_symlink() and not place.resolve().is_relative_to(home):
            raise InvalidInput("INVALID_NAME", f"{place.name} is a link that leads out of {shown(folder.parent)}")


def _skill(folder: Path, tools: list[Tool | HumanTool], references: dict[str, str]) -> Skill:
    file = folder / SKILL
    if not file.is_file():
        raise invalid(file, f"expected a file with {FRONT}, and the instructions below it")
    lines = read_text(file).splitlines()
    fences = [number for number, line in enumerate(lines) if line.rstrip() == "---"][:2]
    if len(fences) < 2 or fences[0] != 0:
        raise invalid(file, f"expected {FRONT}", 1)
    front = _front(file, "\n".join(lines[1 : fences[1]]))
    name, line = front["name"]
    if name != folder.name:
        raise invalid(file, f"name is {name!r}, expected {folder.name!r} as its folder is called", line)
    description, line = front["description"]
    try:
        body = "\n".join(lines[fences[1] + 1 :])
        return define_skill(folder.name, description=description, prompt=body, tools=tools, references=references)
    except BreadError as error:
        raise prefixed(error, f"{shown(file)}:{line}") from error


def _front(file: Path, text: str) -> dict[str, tuple[str, int]]:
    """Name and description with their lines. All is taken as text; other keys are left to other programs."""
    try:
        root = yaml.compose(text, Loader=yaml.BaseLoader)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        problem = getattr(error, "problem", None) or "it cannot be read"
        hint = "; a text with a colon needs quotes" if "mapping values" in problem else ""
        raise invalid(file, f"front matter: {problem}{hint}", 2 + (mark.line if mark else 0)) from error
    if not isinstance(root, yaml.MappingNode):
        raise invalid(file, f"expected {FRONT}", 1)
    given = {key.value: value for key, value in root.value if isinstance(key, yaml.ScalarNode)}
    found = {}
    for key in ("name", "description"):
        node = given.get(key)
        if node is None:
            raise invalid(file, f"front matter: {key} is missing", 1)
        line = node.start_mark.line + 2
        if not isinstance(node, yaml.ScalarNode):
            raise invalid(file, f"front matter: {key}: expected text", line)
        found[key] = (str(node.value), line)
    return found


# --- what agents and skills share


def module_tools(files: Files, folder: Path, problems: list[BreadError]) -> list[tuple[Tool | HumanTool, Path]]:
    """Every tool that stands at the module level of the files of a folder, with its file; each once."""
    found: list[tuple[Tool | HumanTool, Path]] = []
    for file in files_of(folder, ".py"):
        try:
            if not file.stem.isidentifier():
                raise invalid(file, f"expected a name that Python can import, such as {_importable(file.stem)}.py")
            module = files.module(file)
        except BreadError as error:
            problems.append(error)
            continue
        for value in vars(module).values():
            if isinstance(value, Tool | HumanTool) and all(value is not tool for tool, _ in found):
                found.append((value, file))
    return found


def _importable(stem: str) -> str:
    name = "".join(char if char.isalnum() else "_" for char in stem)
    return name if name.isidentifier() else f"tool_{name}"


def files_of(folder: Path, suffix: str) -> list[Path]:
    """The files of one kind, by name; those that begin with `_` or `.` are helpers, and are not looked at."""
    if not folder.is_dir():
        return []
    return sorted(
        file for file in folder.iterdir() if file.suffix == suffix and file.name[0] not in "._" and file.is_file()
    )


def read_text(file: Path) -> str:
    """The text of a file; CONFIG_INVALID if it is not UTF-8 or cannot be read."""
    try:
        return file.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise invalid(file, f"expected UTF-8 text: {error.reason} at byte {error.start}") from error
    except OSError as error:
        raise invalid(file, f"it cannot be read: {error.strerror}") from error
