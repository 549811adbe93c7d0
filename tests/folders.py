"""Writing apps as folders: what users keep in agents/ and bread.config.py."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

HEAD = "from bread import define_agent, define_human_tool, define_skill, define_tool\n"


def agent_py(agent_id: str = "writer", more: str = "") -> str:
    """An agent.py whose model says `Hi.`; `more` are further arguments."""
    return (
        f"{HEAD}from bread.testing import ScriptedModel, call, text\n\n"
        f'agent = define_agent("{agent_id}", model=ScriptedModel([[text("Hi.")]]){more and ", " + more})\n'
    )


def tool_py(*names: str) -> str:
    """A file with these tools."""
    return HEAD + "".join(f'\n\n@define_tool\ndef {name}() -> str:\n    return "{name}"\n' for name in names)


def skill_md(skill_id: str = "style", body: str = "Short sentences.", more: str = "") -> str:
    return f"---\nname: {skill_id}\ndescription: How we write.\n{more}---\n\n{body}\n"


def write(folder: Path, files: Mapping[str, str]) -> Path:
    """Write the files below a folder; gives the folder."""
    for name, text in files.items():
        file = folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")
    return folder


def write_agent(agents: Path, agent_id: str = "writer", files: Mapping[str, str] = {}) -> Path:
    """Write an agent that loads, and these files beside its agent.py; gives its folder."""
    return write(agents / agent_id, {"agent.py": agent_py(agent_id), **files})
