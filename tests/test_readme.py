"""What README shows is what happens."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from typer.core import TyperGroup
from typer.main import get_command

from bread.runtime.cli.root import app

README = Path(__file__).parent.parent / "README.md"


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", README.read_text(), re.DOTALL | re.MULTILINE)


def run(*words: str, folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(words, cwd=folder, capture_output=True, text=True, timeout=60, check=False)


def test_the_agent_of_the_readme_runs(tmp_path: Path) -> None:
    """B1, B49, B157: as it stands there, in an empty folder; the command line finds what it has left."""
    script = tmp_path / "painter.py"
    script.write_text(blocks("python")[0])
    done = run(sys.executable, str(script), folder=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == ["agent:run:start", "text:delta", "human:required", "Painted."]
    listed = run(sys.executable, "-m", "bread.runtime.cli", "runs", "list", folder=tmp_path)
    assert listed.returncode == 0, listed.stderr
    assert ".bread/bread.db" in listed.stdout.splitlines()[0]
    assert "painter" in listed.stdout
    assert run(sys.executable, "-m", "bread.runtime.cli", "audit", "verify", folder=tmp_path).returncode == 0


def test_the_commands_of_the_readme_exist() -> None:
    """B156."""
    shown = {
        (group, name.strip())
        for group, names in re.findall(
            r"^bread (checkpoints|runs|sessions|audit) ([a-z]+(?: \| [a-z]+)*)", README.read_text(), re.MULTILINE
        )
        for name in names.split("|")
    }
    root = get_command(app)
    assert isinstance(root, TyperGroup)
    there = {
        (name, sub) for name, group in root.commands.items() if isinstance(group, TyperGroup) for sub in group.commands
    }
    assert len(shown) >= 15
    assert shown <= there


def test_the_make_targets_of_the_readme_exist() -> None:
    makefile = README.with_name("Makefile").read_text()
    for target in re.findall(r"^make ([a-z]+)", README.read_text(), re.M):
        assert re.search(rf"^{target}:", makefile, re.M), target
