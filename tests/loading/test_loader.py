"""Agents as folders: what becomes part of an agent, and what is said of one that is broken."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from bread import Bread, BreadError, HumanTool, InvalidInput, RunSuspended, define_agent
from bread.runtime.loader import load_agent, load_agents, read_agents
from bread.testing import ScriptedModel, text
from folders import HEAD, agent_py, skill_md, tool_py, write, write_agent

ASK = HEAD + 'approve = define_human_tool("approve", {"type": "object"}, prompt="Go on?")\n'
ASKING = agent_py().replace('[[text("Hi.")]]', '[[call("tool_look"), call("human_approve")], [text("Done.")]]')


def refused(folder: Path) -> InvalidInput:
    with pytest.raises(InvalidInput) as caught:
        load_agents(folder)
    return caught.value


async def test_human_tools_of_a_folder_ask(app: Path) -> None:
    """B30, B19, B49: a file of tools/ defines a human tool and an ordinary one; the run asks, and goes on."""
    write_agent(app / "agents", files={"agent.py": ASKING, "tools/both.py": ASK + tool_py("look")})
    async with Bread(agents_dir="agents", store="memory://") as bread:
        assert isinstance(bread.agents["writer"].tools["human_approve"], HumanTool)
        with pytest.raises(RunSuspended) as rests:
            await bread.run("writer", "go")
        [checkpoint] = rests.value.checkpoints
        assert (await bread.get_checkpoint(checkpoint)).prompt == "Go on?"
        assert await bread.resume(checkpoint, "yes") == "Done."


def test_all_parts_of_a_folder_become_the_agent(app: Path) -> None:
    """B30, B72: prompt, tools in the order of the files, skills; beside what agent.py gives itself."""
    write_agent(
        app / "agents",
        files={
            "agent.py": f"{tool_py('own')}\n\n{agent_py(more='tools=[own]')}",
            "prompt.md": "You write.\n",
            "tools/b.py": tool_py("last", "first"),
            "tools/a.py": ASK,
            "tools/_helper.py": tool_py("hidden"),
            "tools/.copy.py": "1 / 0",
            "tools/notes.md": "nothing",
            "tools/below/c.py": tool_py("deeper"),
            "skills/style/SKILL.md": skill_md(),
        },
    )
    [agent] = load_agents("agents")
    assert [*agent.tools] == ["tool_own", "human_approve", "tool_last", "tool_first", "core_load_skill"]
    assert (agent.prompt, [*agent.skills]) == ("You write.\n", ["style"])


def test_a_tool_that_is_met_twice_is_one(app: Path) -> None:
    """B12: agent.py and other files may import what a file defines; the same object is no collision."""
    write_agent(
        app / "agents",
        files={
            "agent.py": f"from .tools.a import look\n{agent_py(more='tools=[look]')}",
            "tools/a.py": f"{tool_py('look')}\nalias = look\n",
            "tools/b.py": "from .a import look\n",
        },
    )
    assert [*load_agents("agents")[0].tools] == ["tool_look"]


def test_agents_are_sorted_and_the_users_own_folders_are_skipped(app: Path) -> None:
    """Names that begin with `_` or `.` are no agents, nor are files."""
    write(app / "agents", {"_shared/words.py": "WORD = 'Hi.'\n", ".git/x": "", "__pycache__/x": "", "notes.txt": ""})
    for agent_id in ("writer", "artist", "poet_2"):
        write_agent(app / "agents", agent_id, {"prompt.md": agent_id})
    prompt = agent_py("artist", "prompt=WORD")
    write(app / "agents", {"artist/agent.py": f"from .._shared.words import WORD\n{prompt}"})
    (app / "agents/artist/prompt.md").unlink()
    assert [(agent.id, agent.prompt) for agent in load_agents(app / "agents")] == [
        ("artist", "Hi."),
        ("poet_2", "poet_2"),
        ("writer", "writer"),
    ]


WRONG: dict[str, tuple[dict[str, str], str, str]] = {
    "no agent.py": ({"agent.py": ""}, "CONFIG_INVALID", "agents/writer/agent.py:1: expected agent = define_agent("),
    "another id": (
        {"agent.py": agent_py("poet")},
        "INVALID_NAME",
        "agents/writer/agent.py:4: the agent is called 'poet', its folder 'writer'",
    ),
    "another type": (
        {"agent.py": "x = 1\nagent = {}\n"},
        "CONFIG_INVALID",
        'agents/writer/agent.py:2: expected agent = define_agent("writer", ...), found dict',
    ),
    "a selector": (
        {"agent.py": agent_py(more="permissions={'ask': ['human:approve']}")},
        "INVALID_PERMISSION",
        "agents/writer/agent.py:4: 'human:approve': human tools are exempt",
    ),
    "a selector without scope": (
        {"agent.py": agent_py(more="\n    permissions={'deny': ['*']},")},
        "INVALID_PERMISSION",
        "agents/writer/agent.py:4: '*': expected tool:name",
    ),
    "two prompts": (
        {"agent.py": agent_py(more="prompt='x'"), "prompt.md": "y"},
        "CONFIG_INVALID",
        "agents/writer/prompt.md: agent.py gives a prompt, too: expected one of both",
    ),
    "a name of a file": (
        {"tools/fetch-it.v2.py": ""},
        "CONFIG_INVALID",
        "agents/writer/tools/fetch-it.v2.py: expected a name that Python can import, such as fetch_it_v2.py",
    ),
    "two files with one tool": (
        {"tools/a.py": tool_py("look"), "tools/b.py": tool_py("look")},
        "TOOL_NAME_COLLISION",
        "agents/writer: tool_look is defined in tools/a.py and again in tools/b.py",
    ),
    "a tool that agent.py has": (
        {"agent.py": f"{tool_py('look')}\n{agent_py(more='tools=[look]')}", "tools/a.py": tool_py("look")},
        "TOOL_NAME_COLLISION",
        "agents/writer: tool_look is defined in agent.py and again in tools/a.py",
    ),
    "a skill that agent.py has": (
        {
            "agent.py": agent_py(more="skills=[define_skill('style', description='x', prompt='y')]"),
            "skills/style/SKILL.md": skill_md(),
        },
        "INVALID_NAME",
        "agents/writer: agent writer: two skills are called style",
    ),
    "a tool": (
        {"tools/a.py": f"{HEAD}\n\n@define_tool\ndef look(*args: int) -> None: ...\n"},
        "INPUT_INVALID",
        "agents/writer/tools/a.py:4: tool look: parameter 'args' must take a keyword",
    ),
}


@pytest.mark.parametrize("case", WRONG)
def test_what_is_wrong_is_named_with_its_place(app: Path, case: str) -> None:
    """B12, B32: at load time, with the file, the line where there is one, and what was expected."""
    files, code, message = WRONG[case]
    write_agent(app / "agents", files=files)
    error = refused(app / "agents")
    assert error.code == code
    assert error.message.startswith(message)


def test_missing_folders_and_files_are_named(app: Path) -> None:
    """With what was expected there."""
    assert refused(app / "agents").message.startswith(
        "agents: expected a folder of agents, each a folder with agent.py"
    )
    write(app, {"agents/writer/prompt.md": "x"})
    error = refused(app / "agents")
    assert (error.code, error.message) == (
        "CONFIG_INVALID",
        'agents/writer/agent.py: expected a file with agent = define_agent("writer", ...)',
    )
    write_agent(app / "more", "my-agent")
    assert refused(app / "more").message.startswith("more/my-agent: agent 'my-agent' must be lowercase snake_case")
    with pytest.raises(InvalidInput, match=r"^CONFIG_INVALID: agents/nobody: expected a folder with agent\.py"):
        load_agent("agents/nobody")


def test_prompts_that_are_no_text_are_named(app: Path) -> None:
    """A byte order mark, as some editors write it, is no part of the prompt."""
    home = write_agent(app / "agents")
    (home / "prompt.md").write_bytes(b"\xef\xbb\xbfYou write.")
    assert load_agents("agents")[0].prompt == "You write."
    (home / "prompt.md").write_bytes(b"caf\xe9")
    assert refused(app / "agents").message.startswith("agents/writer/prompt.md: expected UTF-8 text: ")


def test_a_reading_finds_everything_that_is_wrong(app: Path) -> None:
    """B32: not only the first; agents that are whole come all the same, and what fails in two places is said once."""
    broken = {
        "agent.py": f"from .tools.a import look\n{agent_py('broken')}",
        "tools/a.py": "1 / 0\n",
        "tools/b.py": "x = (\n",
        "skills/style/SKILL.md": "no front matter",
    }
    write_agent(app / "agents", "broken", broken)
    write_agent(app / "agents", "misnamed", {"agent.py": agent_py("other")})
    write_agent(app / "agents")
    reading = read_agents("agents")
    assert [agent.id for agent in reading.agents] == ["writer"]
    assert [problem.message.partition(": ")[0] for problem in reading.problems] == [
        "agents/broken/tools/a.py:1",
        "agents/broken/tools/b.py:1",
        "agents/broken/skills/style/SKILL.md:1",
        "agents/misnamed/agent.py:4",
    ]


async def test_a_folder_is_read_again_by_the_next_bread(app: Path) -> None:
    """Two Bread objects on one folder: each has what the files said when it was made, and both work."""
    home = write_agent(app / "agents", files={"words.py": "WORD = 'one'\n"})
    body = "from .words import WORD\n" + agent_py().replace('"Hi."', "WORD")
    (home / "agent.py").write_text(body)
    first = Bread(agents_dir="agents", store="memory://")
    (home / "words.py").write_text("WORD = 'two'\n")
    second = Bread(agents_dir="agents", store="memory://")
    async with first, second:
        assert [await bread.run("writer", "x") for bread in (first, second)] == ["one", "two"]


async def test_folders_and_code_stand_side_by_side(app: Path) -> None:
    """`agents_dir` comes beside `agents`; an id that both have is refused, as is a folder that is broken."""
    write_agent(app / "agents")
    coded = define_agent("coder", model=ScriptedModel([[text("Coded.")]]))
    async with Bread(agents=[coded], agents_dir=app / "agents", store="memory://") as bread:
        assert [*bread.agents] == ["coder", "writer"]
        assert await bread.run("coder", "x") == "Coded."
    same: Any = define_agent("writer", model=ScriptedModel([]))
    with pytest.raises(BreadError, match="two agents are called 'writer'") as caught:
        Bread(agents=[same], agents_dir="agents", store="memory://")
    assert caught.value.code == "INVALID_NAME"
    with pytest.raises(BreadError, match="nowhere: expected a folder of agents"):
        Bread(agents_dir="nowhere", store="memory://")


def test_one_agent_alone(app: Path) -> None:
    """load_agent reads one folder, and leaves the others alone."""
    write_agent(app / "agents", files={"tools/a.py": tool_py("look"), "prompt.md": "You write."})
    write_agent(app / "agents", "broken", {"agent.py": "1 / 0"})
    agent = load_agent("agents/writer")
    assert (agent.id, agent.prompt, [*agent.tools]) == ("writer", "You write.", ["tool_look"])
    with pytest.raises(InvalidInput, match=r"agents/broken/agent\.py:1: ZeroDivisionError"):
        load_agent("agents/broken")
