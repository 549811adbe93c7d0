"""What loads and is not whole: names that miss the convention, agents without a prompt, models that are not ready."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from bread import InvalidInput, ModelEvent, ModelRequest, define_agent
from bread.runtime.inspection import doubtful, incomplete, unready
from bread.runtime.loader import read_agents
from folders import agent_py, skill_md, tool_py, write, write_agent

WHOLE = {
    "prompt.md": "You write.",
    "tools/look.py": tool_py("look"),
    "skills/style/SKILL.md": skill_md(),
    "skills/style/scripts/check.py": tool_py("check"),
}


def found(app: Path) -> list[str]:
    return [error.message for error in incomplete(read_agents(app / "agents"))]


def test_a_whole_agent_lacks_nothing(app: Path) -> None:
    """Files of the user's own, data, helpers and what is imported are no mistakes."""
    more = {
        "README.md": "",
        "AGENTS.md": "",
        "models.py": "",
        "types.py": "",
        "agent_test.py": "",
        "prompt.md.bak": "",
        "_tool/x.py": "",
        ".skill/x": "",
        "helpers/x.py": "",
        "tools/data.json": "",
        "tools/_words.py": "",
        "tools/web/page.py": "PAGE = 1\n",
        "tools/use.py": f"from .web.page import PAGE\nfrom ..tool import x\n{tool_py('use')}",
        "tool.py": "x = 1\n",
        "skills/style/references/a.md": "",
        "skills/README.md": "",
    }
    write_agent(app / "agents", files=WHOLE | more)
    write(app / "agents", {"_shared.py": "", "words.py": "WORD = 1\n", "__init__.py": "", "README.md": ""})
    write_agent(
        app / "agents", "poet", {"prompt.md": "x", "tools/look.py": f"from ...words import WORD\n{tool_py('a')}"}
    )
    assert found(app) == []


NOT_SEEN = "it is not looked at: expected"
MISNAMED = {
    "tool/look.py": f"tool: {NOT_SEEN} tools?",
    "Tools/look.py": f"Tools: {NOT_SEEN} tools?",
    "tools.py": f"tools.py: {NOT_SEEN} tools?",
    "skill/style/SKILL.md": f"skill: {NOT_SEEN} skills?",
    "prompt.txt": f"prompt.txt: {NOT_SEEN} prompt.md?",
    "prompts.md": f"prompts.md: {NOT_SEEN} prompt.md?",
    "promt.md": f"promt.md: {NOT_SEEN} prompt.md?",
    "prompt": f"prompt: {NOT_SEEN} prompt.md?",
    "skills/style/script/x.py": f"skills/style/script: {NOT_SEEN} scripts?",
    "skills/style/reference/x.md": f"skills/style/reference: {NOT_SEEN} references?",
    "tools/web/page.py": "tools/web: it is not looked at: the tools are the files of tools/",
    "skills/style/scripts/web/page.py": "skills/style/scripts/web: it is not looked at: the tools are the files",
}


@pytest.mark.parametrize("name", MISNAMED)
def test_names_that_miss_the_convention(app: Path, name: str) -> None:
    """B155: what is almost a part of the agent is named, with what it was probably meant to be."""
    files = {part: text for part, text in WHOLE.items() if part != "prompt.md"}
    prompted = agent_py(more="prompt='so that nothing but the name is wrong'")
    write_agent(app / "agents", files=files | {"agent.py": prompted, name: "x = 1"})
    [message] = found(app)
    assert message.startswith(f"agents/writer/{MISNAMED[name]}")


def test_parts_of_the_wrong_kind(app: Path) -> None:
    """B155: a file where a folder belongs, and the reverse."""
    write_agent(app / "agents", files={"tools": "", "prompt.md/x": ""})
    assert found(app)[-2:] == ["agents/writer/prompt.md: expected a file", "agents/writer/tools: expected a folder"]


def test_files_where_agents_belong(app: Path) -> None:
    """B155: an agent is a folder."""
    write_agent(app / "agents", files=WHOLE)
    write(app / "agents", {"poet.py": "agent = 1"})
    assert found(app) == ["agents/poet.py: no agent is a file: expected poet/agent.py"]


def test_what_is_not_written_yet(app: Path) -> None:
    """B155: an agent without a prompt, an empty prompt, a skill without instructions."""
    write_agent(app / "agents")
    write_agent(app / "agents", "poet", {"prompt.md": " \n", "skills/style/SKILL.md": skill_md(body=" ")})
    assert found(app) == [
        "agents/poet/prompt.md: agent poet has no prompt: expected it here, or in agent.py",
        "agents/poet/skills/style/SKILL.md: expected instructions below the front matter",
        "agents/writer/prompt.md: agent writer has no prompt: expected it here, or in agent.py",
    ]


def test_files_of_tools_without_a_tool(app: Path) -> None:
    """B155: it may be meant so, or the decorator was forgotten."""
    forgotten = {"tools/forgotten.py": "def look() -> None: ...\n", "skills/style/scripts/empty.py": ""}
    write_agent(app / "agents", files=WHOLE | forgotten)
    reading = read_agents("agents")
    assert [error.message.partition(": ")[0] for error in doubtful(reading)] == [
        "agents/writer/tools/forgotten.py",
        "agents/writer/skills/style/scripts/empty.py",
    ]
    assert incomplete(reading) == []


class Far:
    """A model with connections, that may lack something."""

    name = "far:model"

    def __init__(self, lack: Exception | None) -> None:
        self.lack, self.open_count, self.settings = lack, 0, dict[str, Any]()

    def open(self) -> None:
        self.open_count += 1

    async def close(self) -> None:
        self.open_count -= 1

    async def prepare(self, settings: Mapping[str, Any] | None = None) -> None:
        self.settings = dict(settings or {})
        if self.lack is not None:
            raise self.lack

    async def stream(self, request: ModelRequest) -> AsyncIterator[ModelEvent]:
        for event in list[ModelEvent]():
            yield event


async def test_models_are_asked_whether_they_are_ready() -> None:
    """With the settings of the agent; nothing is left open, whatever a model raises."""
    for lack, code in (
        (None, None),
        (InvalidInput("MODEL_NOT_READY", "set FAR_KEY"), "MODEL_NOT_READY"),
        (RuntimeError("of its own"), "MODEL_NOT_READY"),
    ):
        model = Far(lack)
        error = await unready(define_agent("writer", model=model, settings={"temperature": 1}))
        assert (error.code if error else None) == code
        assert (model.open_count, model.settings) == (0, {"temperature": 1})
