"""What goes wrong is one line with a code, and nothing is lost."""

from __future__ import annotations

import json
import sqlite3
from unicodedata import category

import pytest

from bread.runtime.cli.words import as_json
from cli_kit import Shell, error_line

UNKNOWN = {
    ("checkpoints", "show", "cp_unknown"): "CHECKPOINT_NOT_FOUND",
    ("checkpoints", "answer", "cp_unknown", "1"): "CHECKPOINT_NOT_FOUND",
    ("runs", "show", "run_unknown"): "RUN_NOT_FOUND",
    ("runs", "watch", "run_unknown"): "RUN_NOT_FOUND",
    ("runs", "cancel", "run_unknown"): "RUN_NOT_FOUND",
    ("runs", "retry", "run_unknown"): "RUN_NOT_FOUND",
    ("sessions", "show", "unknown"): "SESSION_NOT_FOUND",
    ("audit", "show", "run_unknown"): "RUN_NOT_FOUND",
    ("checkpoints", "list", "--cursor", "nonsense"): "INPUT_INVALID",
    ("runs", "list", "--limit", "0"): "INPUT_INVALID",
    ("runs", "list", "--status", "nonsense"): "INPUT_INVALID",
    ("checkpoints", "list", "--kind", "nonsense"): "INPUT_INVALID",
    ("sessions", "cleanup", "--older-than", "nan"): "INPUT_INVALID",
}


@pytest.mark.parametrize("words", UNKNOWN, ids=" ".join)
def test_wrong_ids_and_values(shell: Shell, words: tuple[str, ...]) -> None:
    """B53, B138: an unknown id, or a value that does not fit, is named with its code."""
    done = shell.bread(*words)
    assert (done.code, error_line(done)[0]) == (1, UNKNOWN[words])


async def test_wrong_json_leaves_the_question(shell: Shell) -> None:
    """B27, B58, C31: what is no JSON, or does not fit, is refused, and the question stays pending."""
    _, checkpoint = await shell.ask("asker")
    for response, code in (('{"approved"', "INPUT_INVALID"), ("yes", "INPUT_INVALID"), ("null", "RESPONSE_INVALID")):
        done = shell.bread("checkpoints", "answer", checkpoint, response)
        assert (done.code, error_line(done)[0]) == (1, code)
    misfit = shell.bread("checkpoints", "answer", checkpoint, '{"approved": "yes"}')
    assert "approved" in error_line(misfit)[1]
    assert shell.bread("checkpoints", "show", checkpoint, "--json").json["status"] == "pending"


def test_wrong_stores(shell: Shell) -> None:
    """B157: another kind of store, a place that cannot be written, a damaged file, another program's database."""
    kind = shell.plain("--store", "mysql://x", "runs", "list")
    assert (kind.code, error_line(kind)[0]) == (1, "INPUT_INVALID")
    # Nobody can make a folder in /proc, root included.
    place = shell.plain("--store", "sqlite:////proc/bread/bread.db", "runs", "list")
    assert (place.code, error_line(place)[0]) == (1, "STORE_UNAVAILABLE")
    shell.file.write_bytes(b"This is a letter, and no database. " * 100)
    damaged = shell.bread("runs", "list")
    assert (damaged.code, error_line(damaged)[0]) == (1, "STORE_INVALID")
    assert shell.file.read_bytes().startswith(b"This is a letter")
    foreign = shell.folder / "foreign.db"
    with sqlite3.connect(foreign) as raw:
        raw.execute("CREATE TABLE theirs (x)")
    raw.close()
    before = foreign.read_bytes()
    other = shell.plain("--store", f"sqlite:///{foreign}", "audit", "verify")
    assert (other.code, error_line(other)[0]) == (1, "STORE_INVALID")
    assert foreign.read_bytes() == before


def test_wrong_apps(shell: Shell) -> None:
    """B156: an app that is not there, or holds no agents, is named."""
    (shell.folder / "crooked.py").write_text("raise RuntimeError('two\\nlines')\n")
    cases = {
        "nonsense": "INPUT_INVALID",
        "no_such_module:agents": "APP_NOT_FOUND",
        "cli_agents:no_such_name": "APP_NOT_FOUND",
        "cli_agents:nobody": "INPUT_INVALID",
        "crooked:agents": "APP_NOT_FOUND",
    }
    for app, code in cases.items():
        done = shell.plain("--app", app, "runs", "list")
        assert (done.code, error_line(done)[0]) == (1, code)


def test_usage_is_exit_code_2(shell: Shell) -> None:
    """B156: a command line that is not understood."""
    for words in (("nonsense",), ("checkpoints", "answer", "cp_x"), ("runs", "list", "--limit", "many")):
        assert shell.plain(*words).code == 2


def test_help_names_the_exit_codes_and_loads_little(shell: Shell) -> None:
    """B156: `bread --help` documents the exit codes; neither it nor a list imports what only others need."""
    done = shell.plain("--help")
    assert done.code == 0
    assert [line.split()[0] for line in done.out.partition("Exit codes:")[2].splitlines() if line.strip()] == [
        "0",
        "1",
        "2",
        "3",
        "4",
        "5",
        "130",
    ]
    for words in (("--help",), ("checkpoints", "list")):
        loaded = shell.fresh(*words, PYTHONPROFILEIMPORTTIME="1").err
        names = {line.rpartition("|")[2].strip() for line in loaded.splitlines()}
        assert "bread.runtime.cli.root" in names
        assert names.isdisjoint({"jsonschema", "nats", "psycopg", "pydantic_ai", "bread.runtime.cli.demo"})


@pytest.mark.parametrize("text", ["\x9b2J", "a\x7fb", "\u2028", "\x1b[31m", "\x85", "plain \u00e9 \U0001f35e"])
def test_json_for_programs_does_not_steer_a_terminal(text: str) -> None:
    """B156: what is escaped is the same value for a program; what is harmless stands as it is."""
    shown = as_json({"said": text})
    assert json.loads(shown) == {"said": text}
    assert not [letter for letter in shown if category(letter) in ("Cc", "Zl", "Zp")]
    assert (text in shown) == text.isprintable()
