"""Shell completion: what a Tab offers, and what it must not do."""

from __future__ import annotations

from pathlib import Path

import pytest

from cli_kit import Shell
from folders import agent_py, write, write_agent


def tab(shell: Shell, line: str, **env: str) -> list[str]:
    """What bash is offered at the end of a line."""
    words = line.split(" ")
    protocol = {"_BREAD_COMPLETE": "complete_bash", "COMP_WORDS": line, "COMP_CWORD": str(len(words) - 1)}
    done = shell.plain(**protocol | env)
    assert (done.code, done.err) == (0, "")
    return done.out.split()


def test_commands_are_completed(shell: Shell) -> None:
    """B156: groups, their commands and options."""
    assert tab(shell, "bread ch") == ["chat", "checkpoints"]
    assert tab(shell, "bread checkpoints re") == ["reject"]
    assert tab(shell, "bread build --st") == ["--strict"]
    assert "complete -o default -F" in shell.plain("--show-completion", "bash", SHELL="/bin/bash").out


async def test_questions_and_runs_are_completed(shell: Shell) -> None:
    """B156: ids of the store that the line or the environment names; only questions that wait."""
    run, first = await shell.ask("asker")
    _, second = await shell.ask("buyer")
    store = {"BREAD_STORE": shell.store}
    assert tab(shell, "bread checkpoints show ", **store) == [first, second]
    assert tab(shell, f"bread checkpoints show {second}", **store) == [second]
    assert tab(shell, f"bread --store {shell.store} checkpoints approve cp_") == [first, second]
    assert run in tab(shell, "bread runs watch run_", **store)
    assert len(tab(shell, "bread audit export ", **store)) == 2
    assert tab(shell, "bread runs show cp_", **store) == []
    assert shell.bread("checkpoints", "reject", second).code == 0
    assert tab(shell, "bread checkpoints show ", **store) == [first]


def test_agents_are_completed_and_not_executed(shell: Shell) -> None:
    """B156: by their folders, in the place that the line names; those that the configuration lets people start."""
    assert tab(shell, "bread invoke ") == ["demo_publisher"]
    for agent_id in ("writer", "poet", "_shared"):
        write_agent(shell.folder / "app/agents", agent_id, {"agent.py": "open('executed', 'w').close()\n"})
    assert tab(shell, "bread --cwd app invoke ") == ["poet", "writer"]
    assert tab(shell, "bread chat --cwd app w") == ["writer"]
    write(
        shell.folder / "app", {"bread.config.py": "from bread import Config\nconfig = Config(entrypoints=('poet',))\n"}
    )
    assert tab(shell, "bread --cwd app invoke ") == ["poet"]
    assert tab(shell, "bread --app cli_agents:everybody invoke b") == ["buyer", "broken"]
    assert not list(shell.folder.rglob("executed"))


@pytest.mark.parametrize(
    "line",
    [
        "bread checkpoints show ",
        "bread --store sqlite:///none/bread.db runs show ",
        "bread --store nonsense runs show ",
        "bread --store sqlite:////proc/none.db runs show ",
        "bread --store sqlite:///letter.db runs show ",
        "bread --store memory:// runs show ",
        "bread --cwd nowhere runs show ",
        "bread --app no_such:app runs show ",
        "bread --app no_such:app invoke ",
        "bread --app talking:agents invoke ",
        "bread --cwd broken runs show ",
        "bread --cwd broken invoke ",
    ],
)
def test_nothing_is_offered_said_or_made_where_something_is_wrong(shell: Shell, line: str) -> None:
    """B156: no store, no error, no word of what is imported."""
    write(
        shell.folder,
        {
            "letter.db": "This is a letter.",
            "talking.py": "import sys\nprint('talking')\nprint('talking', file=sys.stderr)\nsys.exit(3)\n",
            "broken/bread.config.py": "print('talking')\n1 / 0\n",
            "broken/agents/x/agent.py": agent_py("x"),
        },
    )
    before = sorted(shell.folder.rglob("*"))
    assert tab(shell, line) == []
    assert [path for path in sorted(shell.folder.rglob("*")) if "__pycache__" not in path.parts] == before


def test_other_shells_are_told_what_an_id_is(shell: Shell, tmp_path: Path) -> None:
    """B156: zsh shows the model beside the agent."""
    env = {"_BREAD_COMPLETE": "complete_zsh", "_TYPER_COMPLETE_ARGS": "bread --app cli_agents:asker invoke "}
    assert '"asker":"scripted"' in shell.plain(**env).out
