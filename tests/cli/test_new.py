"""`bread new`: the app that it writes works as its README says."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from bread.runtime.scaffold_files import FILES
from cli_kit import PATIENCE, Shell, environment, error_line

BIN = Path(sys.executable).parent


def run(line: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """A line as a person types it in a shell, with the environment's programs on the path."""
    return subprocess.run(
        ["sh", "-c", line],
        cwd=folder,
        env=environment(PATH=f"{BIN}{os.pathsep}{os.environ['PATH']}"),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )


def commands(readme: str) -> list[str]:
    """What the README shows to be typed, without the remarks."""
    blocks = re.findall(r"^```sh\n(.*?)^```$", readme, re.DOTALL | re.MULTILINE)
    return [line.partition("  #")[0].strip() for block in blocks for line in block.splitlines()]


def test_the_readme_works_as_typed(shell: Shell) -> None:
    """B156, B155, B153: every command of the README of a new app, in its order; without a key, without a network."""
    assert shell.plain("new", "myapp").code == 0
    app = shell.folder / "myapp"
    shown = commands((app / "README.md").read_text())
    assert [" ".join(line.split()[:2]) for line in shown] == [
        "bread build",
        "bread invoke",
        "bread checkpoints",
        "bread checkpoints",
        "bread runs",
        "bread audit",
        "pytest",
        "bread doctor",
    ]
    checkpoint = ""
    for line in shown:
        done = run(line.replace("cp_...", checkpoint), app)
        asks = line.startswith("bread invoke")
        assert done.returncode == (1 if asks else 0), f"{line}\n{done.stdout}\n{done.stderr}"
        if asks:
            [checkpoint] = set(re.findall(r"\bcp_\w+", done.stderr))
        if line.startswith("bread checkpoints list"):
            assert checkpoint in done.stdout
    [post] = (app / "published").iterdir()
    assert post.read_text().startswith("# We have launched")


def test_the_other_ways_of_the_readme(shell: Shell) -> None:
    """B152, B156: a rejection publishes nothing; chat is left at the end of its input; a real model needs its key."""
    shell.plain("new", "myapp")
    app = shell.folder / "myapp"
    readme = (app / "README.md").read_text()
    done = run('bread invoke publisher "publish"', app)
    [checkpoint] = set(re.findall(r"\bcp_\w+", done.stderr))
    reject = 'bread checkpoints reject cp_... --reason "too early"'
    assert f"`{reject}`" in readme
    assert "Not published." in run(reject.replace("cp_...", checkpoint), app).stdout
    assert not (app / "published").exists()
    assert "`bread chat publisher`" in readme
    assert run("bread chat publisher", app).returncode == 0
    shutil.copy(app / ".env.example", app / ".env")
    (app / ".env").write_text((app / ".env").read_text().replace("# BREAD_MODEL", "BREAD_MODEL"))
    strict = run("ANTHROPIC_API_KEY= bread build --strict", app)
    assert strict.returncode == 1
    assert strict.stderr.startswith("MODEL_NOT_READY: 1 problem: agent publisher: ")
    assert run("ANTHROPIC_API_KEY=x bread build --strict", app).returncode == 0


def test_what_is_written(shell: Shell) -> None:
    """B156: the files that are listed, with the name of the app, laid out as ruff has it; secrets stay out of git."""
    done = shell.plain("new", "apps/my_app-2", "--json")
    app = shell.folder / "apps/my_app-2"
    there = sorted(str(path.relative_to(app)) for path in app.rglob("*") if path.is_file())
    assert done.json == {"folder": "apps/my_app-2", "files": [*FILES]}
    assert there == sorted(FILES)
    assert (app / "README.md").read_text().startswith("# my_app-2\n")
    assert {".env", ".bread/", ".venv/"} <= set((app / ".gitignore").read_text().split())
    assert "{name}" not in "".join((app / name).read_text() for name in FILES)
    rules = "--isolated --line-length 120"
    assert (
        run(f"ruff check {rules} --select E,F,W,I,UP,B,RUF,PT . && ruff format {rules} --check .", app).returncode == 0
    )


def test_the_end_of_what_it_says_works(shell: Shell) -> None:
    """B155, B156: the last line is a command that is pasted where `bread new` was typed."""
    last = shell.plain("new", "myapp").out.splitlines()[-1].strip()
    assert last == "bread --cwd myapp build"
    assert run(last, shell.folder).returncode == 0


def test_an_empty_folder_is_filled(shell: Shell) -> None:
    """B156: also the one where the command is."""
    (shell.folder / "here").mkdir()
    assert shell.plain("new", ".", "--cwd", "here").code == 0
    assert (shell.folder / "here/README.md").read_text().startswith("# here\n")


@pytest.mark.parametrize(
    "name", ["full", "file", "file/app", "dangling", "2app", "my app", "-app", "..", "", "a" * 65, "é"]
)
def test_nothing_is_written_where_it_cannot_be(shell: Shell, name: str) -> None:
    """B156: a folder that holds something, a file, a name that is none; one line, exit code 1, nothing changed."""
    (shell.folder / "full").mkdir()
    (shell.folder / "full/mine.txt").write_text("mine")
    (shell.folder / "file").write_text("mine")
    (shell.folder / "dangling").symlink_to("nowhere/at/all")
    before = sorted(shell.folder.rglob("*"))
    done = shell.plain("new", "--", name)
    assert (done.code, error_line(done)[0]) == (1, "INPUT_INVALID")
    assert sorted(shell.folder.rglob("*")) == before
