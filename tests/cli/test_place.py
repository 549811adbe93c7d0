"""Where a command works: the folder, its configuration, its agents; and what it leaves alone."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path

import pytest

from bread import Bread, BreadError, RunSuspended
from bread.runtime.cli.demo import AGENT, publisher
from bread.runtime.cli.place import Place
from cli_kit import Shell, error_line
from folders import HEAD, agent_py, write, write_agent

CONFIG = "from bread import Config\nconfig = Config({})\n"
ASK = f'{HEAD}approve = define_human_tool("approve", {{"type": "object"}}, prompt="Go on?")\n'
ASKER = {
    "agent.py": agent_py("asker").replace('[[text("Hi.")]]', '[[call("human_approve")], [text("Thank you.")]]'),
    "tools/ask.py": ASK,
}


def configure(folder: Path, arguments: str) -> None:
    write(folder, {"bread.config.py": CONFIG.format(arguments)})


async def ask(folder: Path, store: str) -> str:
    """Let the agents of a folder ask: the checkpoint."""
    async with Bread(agents_dir=folder / "agents", store=store) as bread:
        with pytest.raises(RunSuspended) as rests:
            await bread.run("asker", "go")
    return str(rests.value.checkpoints[0])


def test_the_store_is_that_of_the_nearest_word(shell: Shell) -> None:
    """B157: --store, then the environment, then bread.config.py, then --app, then the default."""
    app = {"BREAD_APP": "cli_agents:elsewhere"}

    def first_line(*words: str, **env: str) -> str:
        return shell.plain(*words, "runs", "list", **env).out.splitlines()[0].split("  ")[1]

    assert first_line() == "data: SQLite .bread/bread.db (new)"
    configure(shell.folder, "grace=1")
    assert first_line(**app) == "data: SQLite named-by-the-app.db (new)"
    configure(shell.folder, "store='sqlite:///config.db'")
    assert first_line(**app) == "data: SQLite config.db (new)"
    named = app | {"BREAD_STORE": "sqlite:///variable.db"}
    assert first_line(**named) == "data: SQLite variable.db (new)"
    assert first_line("--store", "sqlite:///option.db", **named) == "data: SQLite option.db (new)"


def test_lists_execute_no_agents(shell: Shell) -> None:
    """B156: they need the store alone: of bread.config.py where nobody names another, and of no agent."""
    write_agent(shell.folder / "agents", files={"agent.py": "open('executed', 'w').close()\n1 / 0\n"})
    configure(shell.folder, "store='sqlite:///config.db'")
    for words in (
        ("runs", "list"),
        ("checkpoints", "list"),
        ("sessions", "list"),
        ("audit", "verify"),
        ("sessions", "cleanup", "--older-than", "1"),
    ):
        assert shell.plain(*words).code == 0
    assert not (shell.folder / "executed").exists()
    assert (shell.folder / "config.db").is_file()
    write(shell.folder, {"bread.config.py": "1 / 0\n"})
    code, message = error_line(shell.plain("runs", "list"))
    assert (code, message) == ("CONFIG_INVALID", "bread.config.py:1: ZeroDivisionError: division by zero")
    assert shell.plain("--store", "sqlite:///config.db", "runs", "list").code == 0


def test_what_is_not_needed_is_not_imported(shell: Shell) -> None:
    """B156: neither the help nor a list pays for configuration and loading where there is none."""
    for words in (("--help",), ("checkpoints", "list")):
        loaded = shell.fresh(*words, PYTHONPROFILEIMPORTTIME="1").err
        names = {line.rpartition("|")[2].strip() for line in loaded.splitlines()}
        assert "bread.runtime.cli.place" in names
        assert names.isdisjoint({"pydantic_settings", "yaml", "bread.runtime.config", "bread.runtime.loader"})


async def test_the_agents_of_the_folder_answer(shell: Shell) -> None:
    """B30, B65: a question of an agent in agents/ is answered by the command, which finds it there."""
    write_agent(shell.folder / "agents", "asker", ASKER)
    configure(shell.folder, f"store={shell.store!r}")
    checkpoint = await ask(shell.folder, shell.store)
    done = shell.plain("checkpoints", "answer", checkpoint, '"yes"')
    assert done.code == 0, done
    assert "Thank you." in done.out


@pytest.mark.parametrize("variable", [False, True])
async def test_entrypoints_must_exist(shell: Shell, variable: bool) -> None:
    """B156: what executes agents says so before anything happens; what is in a variable is not shown."""
    write_agent(shell.folder / "agents", "asker", ASKER)
    checkpoint = await ask(shell.folder, shell.store)
    env = {"BREAD_ENTRYPOINTS": "asker,secret"} if variable else {}
    configure(shell.folder, f"store={shell.store!r}" + ("" if variable else ", entrypoints=('secret',)"))
    done = shell.plain("checkpoints", "answer", checkpoint, "1", **env)
    assert (done.code, error_line(done)[0]) == (1, "CONFIG_INVALID")
    assert ("secret" in done.err) is not variable
    assert shell.plain("checkpoints", "show", checkpoint, "--json").json["status"] == "pending"


async def test_another_folder(shell: Shell) -> None:
    """B155: --cwd before the command; the lines that it prints are to be pasted where it was typed."""
    inner = shell.folder / "my app"
    write_agent(inner / "agents", "asker", ASKER)
    checkpoint = await ask(inner, f"sqlite:///{inner}/.bread/bread.db")
    shown = shell.plain("--cwd", "my app", "checkpoints", "show", checkpoint)
    assert shown.out.splitlines()[0].split("  ")[1] == "data: SQLite .bread/bread.db"
    [line] = [line for line in shown.out.splitlines() if "checkpoints approve" in line]
    words = shlex.split(line)
    assert words[:3] == ["bread", "--cwd", "my app"]
    done = shell.plain(*words[1:])
    assert done.code == 0, done
    assert not (shell.folder / ".bread").exists()


def test_another_folder_after_the_command(shell: Shell) -> None:
    """B155: `build` and the others take --cwd, too; below that of the command line, and in what is printed."""
    write_agent(shell.folder / "outer/inner/agents", files={"prompt.md": "You write."})
    assert shell.plain("build", "--cwd", "outer/inner").code == 0
    assert shell.plain("--cwd", "outer", "build", "--cwd", "inner").code == 0
    assert shell.plain("--cwd", "outer", "build").code == 1
    made = shell.plain("--cwd", "outer", "new", "--cwd", "inner", "app")
    words = shlex.split(made.out.splitlines()[-1])
    assert words == ["bread", "--cwd", "outer/inner/app", "build"]
    assert shell.plain(*words[1:]).code == 0


@pytest.mark.parametrize("words", [("--cwd", "nowhere", "runs", "list"), ("build", "--cwd", "file.txt")])
def test_no_folder_to_work_in(shell: Shell, words: tuple[str, ...]) -> None:
    """B155: what is no folder is named, and nothing is made."""
    write(shell.folder, {"file.txt": ""})
    done = shell.plain(*words)
    code, message = error_line(done)
    assert (done.code, code) == (1, "INPUT_INVALID")
    assert message.startswith("--cwd '")
    assert [file.name for file in shell.folder.iterdir()] == ["file.txt"]


async def test_the_limits_of_the_configuration_hold(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """B15: `concurrency` and `grace` are those of the process that a command is."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])  # where the command lets the working folder be imported from
    held = agent_py("busy").replace('text("Hi.")', "pause(asyncio.Event().wait)")
    write_agent(tmp_path / "agents", "busy", {"agent.py": f"import asyncio\nfrom bread.testing import pause\n{held}"})
    configure(tmp_path, "concurrency=1, grace=0")
    async with Place(None, None).open(executes=True) as bread:
        await bread.start("busy", "x")
        with pytest.raises(BreadError) as caught:
            await bread.start("busy", "x")
        assert caught.value.code == "CONCURRENCY_LIMIT"
        assert bread._grace == 0


async def test_the_demo_is_answered_in_an_app_too(shell: Shell) -> None:
    """B156: where the demo has played its agent is there beside those of the folder; elsewhere it is not."""
    write_agent(shell.folder / "agents", "asker", ASKER)
    asked = []
    for name in ("bread.db", "other/bread.db"):
        file = shell.folder / name
        file.parent.mkdir(exist_ok=True)
        async with Bread(agents=[publisher(file)], store=f"sqlite:///{file}") as bread:
            with pytest.raises(RunSuspended) as rests:
                await bread.run(AGENT, "go")
        asked.append(rests.value.checkpoints[0])
    (shell.folder / "other/demo-fetches.jsonl").unlink()
    assert shell.plain("--store", shell.store, "checkpoints", "approve", asked[0]).code == 0
    done = shell.plain("--store", "sqlite:///other/bread.db", "checkpoints", "approve", asked[1])
    assert (done.code, error_line(done)[0]) == (1, "AGENT_NOT_FOUND")
