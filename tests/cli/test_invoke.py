"""`bread invoke`: one run for programs, through pipes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from typing import Any

import pytest

from bread import Bread
from chat_agents import echo, gates, marks
from cli_kit import PATIENCE, Shell, Terminal, environment, error_line

APP = "chat_agents:everybody"


def invoke(shell: Shell, *words: str, stdin: str = "") -> Any:
    return shell.plain("--store", shell.store, "--app", APP, "invoke", *words, stdin=stdin)


def bread(shell: Shell, *words: str) -> Any:
    return shell.plain("--store", shell.store, "--app", APP, *words)


def test_only_the_output_is_on_stdout(shell: Shell) -> None:
    """B153, B157: text as it is; where the data is stands on stderr, first and alone."""
    done = invoke(shell, "echo", "hello", "-s", "one")
    assert (done.code, done.out) == (0, "You said 'hello'.\n"), done
    assert done.err.splitlines() == [f"bread 0.1.0 data: SQLite {shell.file} (new) bus: in-process"]
    again = invoke(shell, "echo", "and again", "-s", "one")
    assert again.out == "You said 'and again'.\n"
    assert len(bread(shell, "runs", "list", "--session", "one", "--json").json["items"]) == 2


@pytest.mark.parametrize(
    ("words", "stdin", "input"),
    [
        ((), "from a pipe\n", "from a pipe"),
        ((), "two\nlines\n\n", "two\nlines\n"),
        ((), '{"a": [1]}\n', {"a": [1]}),
        (('[1, "x"]',), "", [1, "x"]),
        (("12",), "", "12"),
        (('{"a": NaN}',), "", '{"a": NaN}'),
        (('{"a": 1}', "--text"), "", '{"a": 1}'),
        (("",), "not read", ""),
    ],
)
def test_what_is_given(shell: Shell, words: tuple[str, ...], stdin: str, input: Any) -> None:
    """B153, B4: an argument, else stdin; a JSON object or list is given as such, anything else as text."""
    done = invoke(shell, "echo", *words, "--json", stdin=stdin)
    assert (done.code, done.err) == (0, ""), done
    assert bread(shell, "runs", "show", done.json["runId"], "--json").json["input"] == input


def test_without_an_input(shell: Shell) -> None:
    """B153: nobody is waited for: a terminal is no input, and neither is a pipe that ends at once; closed streams are
    left alone."""
    empty = invoke(shell, "echo", stdin=" \n")
    assert (empty.code, error_line(empty)[0]) == (1, "INPUT_INVALID")
    with Terminal(shell.argv("--store", shell.store, "--app", APP, "invoke", "echo"), shell.folder) as terminal:
        assert terminal.end() == 1
    assert terminal.seen == "INPUT_INVALID: no input: give it as an argument, or on stdin\n"
    unknown = invoke(shell, "nobody", "hello", "--json")
    assert (unknown.code, error_line(unknown)[0], unknown.out) == (1, "AGENT_NOT_FOUND", "")
    argv = shell.argv("--store", shell.store, "--app", APP, "invoke", "echo", "hello")
    closed = subprocess.run(
        ["sh", "-c", '"$@" <&- >&- 2>&-', "sh", *argv], cwd=shell.folder, env=environment(), timeout=PATIENCE
    )
    assert closed.returncode == 0


def test_an_output_that_is_no_text(shell: Shell) -> None:
    """B153, B11: JSON on one line for programs, laid out for a person; what a model says steers no terminal."""
    assert invoke(shell, "numbers", "go").out == '{"sum": 3}\n'
    argv = shell.argv("--store", shell.store, "--app", APP, "invoke")
    with Terminal([*argv, "numbers", "go"], shell.folder) as terminal:
        assert terminal.end() == 0
    assert terminal.seen.endswith('{\n  "sum": 3\n}\n')
    with Terminal([*argv, "echo", "\x07 \u202e"], shell.folder) as terminal:
        assert terminal.end() == 0
    assert terminal.seen.endswith(r"You said '\x07 \u202e'." + "\n")


def test_json_for_programs(shell: Shell) -> None:
    """B153: one object that says how the run ended; its exit code says it, too."""
    ended = invoke(shell, "numbers", "go", "--json", "-s", "one", "--author", "ann")
    assert (ended.code, ended.err) == (0, "")
    run = ended.json["runId"]
    assert ended.json == {"runId": run, "sessionId": "one", "status": "completed", "output": {"sum": 3}}
    failed = invoke(shell, "broken", "go", "--json")
    assert failed.code == 4, failed
    assert (failed.json["status"], failed.json["error"]["code"]) == ("failed", "MODEL_ERROR")
    assert error_line(failed)[0] == "MODEL_ERROR"
    asks = invoke(shell, "buyer", "go", "--json")
    assert (asks.code, asks.json["status"]) == (1, "suspended")
    [question] = asks.json["checkpoints"]
    assert (question["toolName"], question["kind"], question["args"]["count"]) == ("order", "approval", 2)
    assert bread(shell, "checkpoints", "show", question["checkpointId"], "--json").json["status"] == "pending"


def test_a_run_that_fails(shell: Shell) -> None:
    """B153: nothing on stdout, its error as the last line on stderr, exit code 4."""
    done = invoke(shell, "broken", "go")
    assert (done.code, done.out) == (4, ""), done
    assert done.err.splitlines()[-1] == "MODEL_ERROR: out of order"


def test_a_question_is_not_waited_for(shell: Shell) -> None:
    """B153, B65: exit code 1; stderr names the tools and how to answer; the questions stay, and the answers of others
    go on with the run."""
    done = invoke(shell, "painter", "go")
    assert (done.code, done.out) == (1, ""), done
    pending = bread(shell, "checkpoints", "list", "--json").json["items"]
    assert len(pending) == 2
    for question in pending:
        assert f"colour waits for a person: {question['id']} (input)" in done.err
        assert f"checkpoints show {question['id']}\n" in done.err
        answered = bread(shell, "checkpoints", "answer", question["id"], '"red"')
        assert answered.code == 3
    busy = invoke(shell, "echo", "hello", "-s", pending[0]["sessionId"])
    assert busy.code == 1
    assert "SESSION_SUSPENDED" in busy.err


def test_the_trace(shell: Shell) -> None:
    """B153: every crumb on stderr, as lines for people or as JSON; stdout has only the output."""
    done = invoke(shell, "buyer", "go", "--trace")
    assert (done.code, done.out) == (1, "")
    for line in ('#1   run started     "go"', "WAITING         order", "order waits for a person"):
        assert line in done.err
    traced = invoke(shell, "echo", "hello", "--trace", "--json")
    assert (traced.code, traced.json["output"]) == (0, "You said 'hello'.")
    types = [json.loads(line)["type"] for line in traced.err.splitlines()]
    assert (types[0], types[-1]) == ("agent:run:start", "agent:run:end")
    assert "text:delta" in types


def test_the_same_key_again(shell: Shell) -> None:
    """B153, B56: the same request under the same key gets the same run, whatever became of it since."""
    words = ("host", "a room", "-s", "desk", "--idempotency-key", "k", "--json")
    asks = invoke(shell, *words)
    assert asks.code == 1
    [question] = asks.json["checkpoints"]
    assert invoke(shell, *words).json == asks.json
    answered = bread(shell, "checkpoints", "answer", question["checkpointId"], '{"room": "red", "nights": 1}')
    assert answered.code == 0
    ended = invoke(shell, *words)
    assert (ended.code, ended.json["runId"], ended.json["output"]) == (0, asks.json["runId"], "Booked for Ann.")


def test_skills(shell: Shell) -> None:
    """B153: --skill is the run's from its start; one that is not there is named before anything runs."""
    done = invoke(shell, "echo", "hello", "--skill", "polite", "--json")
    [start, *_] = bread(shell, "runs", "watch", done.json["runId"], "--json").lines
    assert start["skill"] == "polite"
    rude = invoke(shell, "echo", "hello", "--skill", "rude", "--json")
    assert (rude.code, error_line(rude)[0]) == (1, "SKILL_NOT_FOUND")


async def test_runs_of_others_are_not_performed(shell: Shell) -> None:
    """B153, B48: a run that is ready is left to processes that take runs."""
    async with Bread(agents=[echo], store=shell.store, executes=False) as desk:
        ready = await desk.start("echo", "not here")
    before = bread(shell, "runs", "show", ready, "--json").json
    assert (before["status"], before["owner"]) == ("running", None)
    assert invoke(shell, "echo", "hello").out == "You said 'hello'.\n"
    assert bread(shell, "runs", "show", ready, "--json").json == before
    taken = bread(shell, "runs", "watch", ready, "--execute", "--json")
    assert (taken.code, taken.lines[-1]["output"]) == (0, "You said 'not here'.")


def test_ctrl_c_keeps_the_run(shell: Shell) -> None:
    """B153, B48, B26: interrupted in a tool: exit code 130, the outcome is kept, the run is given back as ready, and
    the line says how it goes on; nothing is run again."""
    began, gate = gates(shell.folder)
    with shell.start("invoke", "worker", "go", app=APP) as process:
        assert process.stderr is not None
        assert began.read_text() == "x"
        process.send_signal(signal.SIGINT)
        while "stopping" not in process.stderr.readline():
            pass
        gate.write_text("slow done")
        out, error = process.communicate(timeout=PATIENCE)
    assert (process.returncode, out) == (130, "")
    [run] = bread(shell, "runs", "list", "--json").json["items"]
    assert (run["status"], run["owner"]) == ("running", None)
    assert f"runs watch {run['id']} --execute" in error
    went_on = bread(shell, "runs", "watch", run["id"], "--execute", "--json")
    assert (went_on.code, went_on.lines[-1]["output"]) == (0, "All is done.")
    assert marks(shell.folder) == ["first", "slow"]


def test_nobody_reads_the_output(shell: Shell) -> None:
    """B153: a pipe that is closed before the output comes is no error, and nobody sees a traceback."""
    reading, writing = os.pipe()
    os.close(reading)
    try:
        done = subprocess.run(
            shell.argv("--store", shell.store, "--app", APP, "invoke", "echo", "hello", "--json"),
            cwd=shell.folder,
            env=environment(),
            stdin=subprocess.DEVNULL,
            stdout=writing,
            stderr=subprocess.PIPE,
            text=True,
            timeout=PATIENCE,
        )
    finally:
        os.close(writing)
    assert (done.returncode, done.stderr) == (0, "")
    [run] = bread(shell, "runs", "list", "--json").json["items"]
    assert run["status"] == "completed"
