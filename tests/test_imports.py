"""What is imported when: commands that need little of bread start fast. The seconds are in `make bench`."""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import bread

ROOT = Path(__file__).parent.parent
HEAVY = {
    "anthropic",
    "google.genai",
    "jsonschema",
    "nats",
    "openai",
    "fastapi",
    "jwt",
    "prompt_toolkit",
    "pydantic_ai",
    "starlette",
    "uvicorn",
    "yaml",
}


def loaded(code: str, folder: Path) -> set[str]:
    """The modules that a program has loaded at its end."""
    tail = "; import sys, json; print('\\n' + json.dumps(sorted(sys.modules)))"
    environment = {key: value for key, value in os.environ.items() if not key.startswith("BREAD_")}
    done = subprocess.run(
        [sys.executable, "-c", code + tail], capture_output=True, text=True, cwd=folder, env=environment, timeout=60
    )
    assert done.returncode == 0, done.stderr
    return set(json.loads(done.stdout.splitlines()[-1]))


def command(*words: str) -> str:
    run = f"sys.argv = ['bread', *{list(words)!r}]; main()"
    return f"""
import sys
from bread.runtime.cli import main
try:
    {run}
except SystemExit:
    pass
0"""


@pytest.mark.parametrize(
    ("words", "more"),
    [
        (["--help"], {"bread.runtime.app", "eventsourcing", "sqlite3", "pydantic_settings"}),
        (["checkpoints", "--help"], {"bread.runtime.app", "eventsourcing", "sqlite3", "pydantic_settings"}),
        (["checkpoints", "list"], {"bread.runtime.loader"}),
        (["runs", "list"], {"bread.runtime.loader"}),
        (["audit", "verify"], {"bread.runtime.loader"}),
    ],
)
def test_a_command_loads_what_it_needs(words: list[str], more: set[str], tmp_path: Path) -> None:
    """B156: neither the model layer nor what only chats, schemas or servers need; help not even the store."""
    found = loaded(command(*words), tmp_path)
    assert "bread.runtime.cli.root" in found
    assert found & (HEAVY | more) == set()


def test_an_agent_with_a_providers_model_loads_no_model_layer(tmp_path: Path) -> None:
    """The layer takes half a second: it is loaded with the first run."""
    code = "import bread; bread.Bread(agents=[bread.define_agent('a', model='openai:gpt-5')])"
    assert loaded(code, tmp_path) & HEAVY == set()


def test_names_are_imported_when_they_are_used(tmp_path: Path) -> None:
    """`import bread` alone loads nothing of it; what type checkers see is what there is."""
    found = {name for name in loaded("import bread", tmp_path) if name.startswith("bread.")}
    assert found == set()
    tree = ast.parse((ROOT / "bread" / "__init__.py").read_text())
    [checking] = [node for node in tree.body if isinstance(node, ast.If)]
    typed = {
        alias.name: node.module for node in checking.body if isinstance(node, ast.ImportFrom) for alias in node.names
    }
    assert typed == bread._HOMES
    assert sorted(typed) == bread.__all__ == dir(bread)
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = bread.nothing
