"""What README shows is what happens: its steps are typed into a fresh clone."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from typer.main import get_command

from bread.runtime.cli.root import app
from cli_kit import Terminal
from doc_kit import Reader, blocks_of, environment

ROOT = Path(__file__).parent.parent
README = ROOT / "README.md"
NO_MAKE = {"MAKELEVEL": "0", "MAKEFLAGS": "", "MFLAGS": ""}  # as if no other make had started these tests


def git(*words: str) -> str:
    env = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    done = subprocess.run(("git", *words), cwd=ROOT, env=env, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """A clone of this repository as it would be if the working tree were committed, with its `.venv` built already.

    That the first `make` builds it, from an empty machine, is what a person or the CI tries.
    """
    clone = tmp_path / "bread"
    git("clone", "--quiet", str(ROOT), str(clone))
    changed = [
        git("diff", "--name-only", "--no-renames", "-z", "HEAD"),
        git("ls-files", "--others", "--exclude-standard", "-z"),
    ]
    for name in "".join(changed).split("\0")[:-1]:
        file = clone / name
        file.unlink(missing_ok=True)
        if (ROOT / name).exists():
            file.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, file, follow_symlinks=False)
    (clone / ".venv").mkdir()
    for part in Path(sys.prefix).iterdir():
        if not part.name.startswith(".ok"):
            (clone / ".venv" / part.name).symlink_to(part)
    (clone / ".venv" / ".ok").touch()
    return clone


@pytest.fixture
def reader(clone: Path) -> Reader:
    env = environment(clone / ".venv" / "bin", clone) | NO_MAKE
    return Reader(clone, env, {"make demo": lambda env: play_demo(clone, env)})


def play_demo(clone: Path, env: dict[str, str]) -> str:
    """The first screen of the demo at a terminal; then approve, and see it end well."""
    with Terminal(["make", "demo"], clone, PATH=env["PATH"], PYTHONPATH=env["PYTHONPATH"], **NO_MAKE) as terminal:
        screen = terminal.expect("fetch_draft is not run again.")
        terminal.type("a")
        terminal.expect("The promises of this run:")
        assert terminal.end() == 0
    assert "BROKEN" not in terminal.seen
    return screen


def test_the_steps_of_the_readme_typed_into_a_fresh_clone(reader: Reader) -> None:
    """B49, B65, B153, B156, B157: the demo, an agent, an answer from the command line, the audit, and Python."""
    where = reader.shell("python -c 'import bread.runtime as it; print(it.__file__)'")
    assert where.split() == [f"{reader.folder}/bread/runtime/__init__.py"]
    assert reader.read(reader.folder / "README.md") >= 7
    assert reader.env["BREAD_APP"] == "painter:painter"
    assert len(reader.ids) >= 4


def test_the_clone_is_this_tree(clone: Path) -> None:
    """Nothing that is ignored is in it, and nothing that belongs to it is missing."""
    own = {"README.md", "bread/__init__.py", "domain/run.py", "runtime/cli/root.py", "docs/index.md"}
    for name in own:
        assert (clone / name).read_bytes() == (ROOT / name).read_bytes()
    assert (clone / "bread" / "domain").is_symlink()
    assert {path.name for path in clone.iterdir() if path.name.startswith(".")} <= {
        ".ci", ".editorconfig", ".git", ".gitignore", ".venv", ".github", ".gitattributes", ".dockerignore",
        ".env.example",
    }  # fmt: skip


def test_the_readme_shows_each_step() -> None:
    """B156: the steps that a quick start has."""
    typed = "\n".join(block.text for block in blocks_of(README) if block.language == "console")
    for step in ("make demo", "bread invoke", "bread checkpoints answer", "bread audit show", "bread audit verify"):
        assert f"$ {step}" in typed
    [agent] = [block for block in blocks_of(README) if block.file == "painter.py"]
    assert len([line for line in agent.text.splitlines() if line.strip()]) <= 10
    assert "anthropic:" in agent.text


def test_the_commands_of_the_readme_exist() -> None:
    """B156, B152, B153, B155."""
    [listed] = [block.text for block in blocks_of(README) if block.text.startswith("bread chat")]
    root = get_command(app)
    there = {name: getattr(group, "commands", {}) for name, group in root.commands.items()}  # type: ignore[attr-defined]
    shown = set[str]()
    for line in listed.splitlines():
        words = line.partition("#")[0].replace("bread ", "", 1)
        first, _, rest = words.strip().partition(" ")
        if there.get(first):
            shown |= {f"{first} {name.strip()}" for name in rest.split("|")}
        else:
            shown |= {name.strip() for name in re.sub(r"\[\w+\]|\bagent\b", "", words).split("|")}
    everything = {f"{name} {sub}" for name, subs in there.items() for sub in subs}
    everything |= {name for name, subs in there.items() if not subs}
    assert shown == everything - {"demo"}


def test_the_make_targets_of_the_readme_exist() -> None:
    makefile = README.with_name("Makefile").read_text()
    targets = set(re.findall(r"`make ([a-z]+)|^\$ make ([a-z]+)", README.read_text(), re.M))
    named = {one or other for one, other in targets}
    assert named >= {"demo", "test", "bench"}
    for target in named:
        assert re.search(rf"^{target}:", makefile, re.M), target


def test_the_readme_is_one_page() -> None:
    """What is longer belongs into docs/."""
    assert len(README.read_text().split()) < 1700
    assert os.path.getsize(README) < 12_000
