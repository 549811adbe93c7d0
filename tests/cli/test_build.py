"""`bread build`: everything that is wrong with an app, and what it consists of."""

from __future__ import annotations

from cli_kit import Done, Shell, error_line
from folders import agent_py, skill_md, tool_py, write, write_agent

CONFIG = "from bread import Config\nconfig = Config({})\n"
ASK = 'from bread import define_human_tool\napprove = define_human_tool("approve", {"type": "object"})\n'
WHOLE = {
    "agent.py": agent_py(more="permissions={'ask': ['tool:look'], 'deny': ['core:*']}"),
    "prompt.md": "You write.",
    "tools/look.py": tool_py("look") + ASK,
    "skills/style/SKILL.md": skill_md(),
}


def said(done: Done, kind: str) -> list[str]:
    """What stands on lines of a kind."""
    return [line.removeprefix(f"{kind:<6} ") for line in done.out.splitlines() if line.startswith(f"{kind:<6} ")]


def test_a_whole_app(shell: Shell) -> None:
    """B155: a table of its agents and exit code 0, or the same as JSON; no store is made."""
    write_agent(shell.folder / "agents", files=WHOLE)
    write_agent(shell.folder / "agents", "poet", {"prompt.md": "You rhyme."})
    write(shell.folder, {"bread.config.py": CONFIG.format("entrypoints=('writer',)")})
    done = shell.plain("build")
    assert (done.code, done.err) == (0, "")
    head, poet, writer = (line.split("  ") for line in done.out.splitlines())
    assert [word for word in head if word] == ["agent", " model", " tools", " skills", " permissions"] or head[
        0
    ] == "agent"
    assert [poet[0].strip(), writer[0].strip()] == ["poet", "writer"]
    assert "ask tool:look; deny core:*" in done.out
    data = shell.plain("build", "--json").json
    assert (data["ok"], data["problems"], data["warnings"]) == (True, [], [])
    assert data["agents"] == [
        {
            "id": "poet",
            "model": "scripted",
            "tools": [],
            "skills": [],
            "permissions": {"allow": [], "ask": [], "deny": []},
            "entrypoint": False,
        },
        {
            "id": "writer",
            "model": "scripted",
            "tools": ["tool_look", "human_approve", "core_load_skill"],
            "skills": ["style"],
            "permissions": {"allow": [], "ask": ["tool:look"], "deny": ["core:*"]},
            "entrypoint": True,
        },
    ]
    assert not (shell.folder / ".bread").exists()


def test_everything_that_is_wrong_is_said_at_once(shell: Shell) -> None:
    """B155, B32: one line each with file and line, in the configuration and in every agent; exit code 1."""
    write(shell.folder, {"bread.config.py": CONFIG.format("grace=-1, concurrency=0")})
    agents = shell.folder / "agents"
    write_agent(agents, "broken", {"tools/a.py": "1 / 0\n", "skills/style/SKILL.md": "x", "prompt.md": "x"})
    write_agent(agents, "selector", {"agent.py": agent_py("selector", "permissions={'ask': ['x:y']}")})
    write_agent(agents, "typo", {"prompt.txt": "x", "tool/a.py": ""})
    write(agents, {"empty/notes.txt": ""})
    write_agent(agents, files=WHOLE)
    done = shell.plain("build")
    assert done.code == 1
    assert said(done, "error") == [
        "bread.config.py:2: concurrency: expected greater than or equal to 1 (CONFIG_INVALID)",
        "bread.config.py:2: grace: expected greater than or equal to 0 (CONFIG_INVALID)",
        "agents/broken/tools/a.py:1: ZeroDivisionError: division by zero (CONFIG_INVALID)",
        "agents/broken/skills/style/SKILL.md:1: expected front matter between two --- lines, with name and description"
        " (CONFIG_INVALID)",
        'agents/empty/agent.py: expected a file with agent = define_agent("empty", ...) (CONFIG_INVALID)',
        "agents/selector/agent.py:4: 'x:y': expected tool:name, core:name or skill:skill/name (INVALID_PERMISSION)",
        "agents/typo/prompt.md: agent typo has no prompt: expected it here, or in agent.py (CONFIG_INVALID)",
        "agents/typo/prompt.txt: it is not looked at: expected prompt.md? (CONFIG_INVALID)",
        "agents/typo/tool: it is not looked at: expected tools? (CONFIG_INVALID)",
    ]
    code, message = error_line(done)
    assert code == "CONFIG_INVALID"
    assert message.startswith("9 problems, the first: bread.config.py:2: concurrency")
    assert "writer" in done.out  # what is whole is shown all the same
    data = shell.plain("build", "--json")
    assert (data.code, data.json["ok"], len(data.json["problems"])) == (1, False, 9)
    assert data.json["problems"][-4]["code"] == "INVALID_PERMISSION"


def test_entrypoints_that_do_not_exist(shell: Shell) -> None:
    """B155: an agent that is broken exists all the same, and is not said to be missing."""
    write_agent(shell.folder / "agents", files=WHOLE)
    write_agent(shell.folder / "agents", "broken", {"agent.py": "1 / 0\n"})
    write(shell.folder, {"bread.config.py": CONFIG.format("entrypoints=('writer', 'broken', 'nobody')")})
    done = shell.plain("build")
    assert done.code == 1
    assert [line.partition(" (")[0] for line in said(done, "error")] == [
        "bread.config.py:2: entrypoints: there is no agent 'nobody'; there are: broken, writer",
        "agents/broken/agent.py:1: ZeroDivisionError: division by zero",
    ]


def test_a_model_that_is_not_ready_is_a_warning(shell: Shell) -> None:
    """B155: a key may be missing where the app is built; with --strict it may not."""
    model = {"agent.py": 'from bread import define_agent\nagent = define_agent("far", model="anthropic:claude")\n'}
    write_agent(shell.folder / "agents", "far", model | {"prompt.md": "x", "tools/forgotten.py": ""})
    done = shell.plain("build", ANTHROPIC_API_KEY="")
    assert done.code == 0
    [forgotten, unready] = said(done, "warn")
    assert forgotten.startswith("agents/far/tools/forgotten.py: it defines no tool")
    assert unready.startswith("agent far: ")
    assert unready.endswith("(MODEL_NOT_READY)")
    assert "ANTHROPIC_API_KEY" in unready
    strict = shell.plain("build", "--strict", ANTHROPIC_API_KEY="")
    assert (strict.code, len(said(strict, "error"))) == (1, 2)
    ready = shell.plain("build", "--json", ANTHROPIC_API_KEY="hunter2")
    assert [warning["code"] for warning in ready.json["warnings"]] == ["CONFIG_INVALID"]
    assert "hunter2" not in ready.out


def test_the_agents_of_an_app_in_code(shell: Shell) -> None:
    """B155: --app is built as it is; one that does not load is named."""
    done = shell.plain("--app", "cli_agents:everybody", "build", "--json")
    assert (done.code, len(done.json["agents"])) == (0, 6)
    missing = shell.plain("--app", "cli_agents:missing", "build")
    assert (missing.code, error_line(missing)[0]) == (1, "APP_NOT_FOUND")


def test_nothing_to_build(shell: Shell) -> None:
    """B155: without agents there is no app; an empty folder of agents is one that lacks them."""
    done = shell.plain("build")
    assert done.code == 1
    assert error_line(done)[1].startswith("1 problem: there are no agents here: expected agents/ or --app module:attr")
    (shell.folder / "agents").mkdir()
    assert error_line(shell.plain("build"))[1] == "1 problem: agents: there is no agent in it"
    env = {"BREAD_AGENTS": "elsewhere"}
    assert error_line(shell.plain("build", **env))[1].startswith("1 problem: elsewhere: expected a folder of agents")
