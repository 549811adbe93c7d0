"""`bread chat`: the line that one types, its commands, and a chat without a terminal."""

from __future__ import annotations

import stat
from datetime import UTC, datetime
from typing import Any

import pytest

from bread.projections.crumbs import TextDelta, TextReset
from bread.runtime.cli.crumbs import TalkPrinter
from chat_agents import MENDED, gates, marks
from cli_kit import Shell, Terminal, error_line

from .chatting import APP, bread, chatting, pending

# --- the line and the commands


def test_the_line_is_edited(shell: Shell) -> None:
    """B152: Ctrl-C clears a line and leaves where there is none; Alt-Enter and a paste make several lines."""
    with chatting(shell, app="chat_agents:only") as chat:
        chat.expect("agent echo")
        chat.expect("you>")
        chat.press("not this")
        chat.press("\x03")
        chat.type("hello")
        chat.expect("echo: You said 'hello'.")
        chat.expect("you>")
        chat.press("one\x1b\rtwo\r")
        chat.expect(r"echo: You said 'one\ntwo'.")
        chat.expect("you>")
        chat.press("\x1b[200~three\nfour\x1b[201~\r")
        chat.expect(r"echo: You said 'three\nfour'.")
        chat.expect("you>")
        chat.press("\x03")
        assert chat.end() == 0
    with chatting(shell, "echo") as chat:
        chat.expect("you>")
        chat.interrupt()
        assert chat.end() == 0


def test_what_was_said_is_kept_for_the_next_chat(shell: Shell) -> None:
    """B152: the history stands beside the store, for its owner's eyes; the next chat has it. Answers are not in it."""
    history = shell.folder / "chat_history"
    with chatting(shell, "buyer", "-s", "shop") as chat:
        chat.expect("you>")
        chat.type("buy the usual")
        chat.expect("approve? y/n>")
        chat.type("n it is a secret")
        chat.expect("That is all.")
        chat.expect("you>")
        chat.press("\x04")
        assert chat.end() == 0
    assert stat.S_IMODE(history.stat().st_mode) == 0o600
    assert "secret" not in history.read_text()
    with chatting(shell, "echo") as chat:
        chat.expect("you>")
        chat.press("\x1b[A\r")
        chat.expect("echo: You said 'buy the usual'.")
        chat.expect("you>")
        chat.press("\x04")
        assert chat.end() == 0


def test_a_history_that_cannot_be_kept(shell: Shell) -> None:
    """B152: it is told, and the chat goes on with the history of its own lines."""
    (shell.folder / "chat_history").mkdir()
    with chatting(shell, "echo") as chat:
        chat.expect("is not kept for the next chat")
        chat.expect("you>")
        chat.type("hello")
        chat.expect("echo: You said 'hello'.")
        chat.expect("you>")
        chat.press("\x1b[A\r")
        chat.expect("echo: You said 'hello'.")
        chat.expect("you>")
        chat.press("\x04")
        assert chat.end() == 0


def test_commands(shell: Shell) -> None:
    """B152, B3: sessions and skills are changed by commands, and what is no command is told, not said."""
    lines = [
        "/help",
        "/session",
        "/skill rude",
        "/skill polite",
        "hello",
        "/new",
        " /usr/bin",
        "/usr",
        "/later",
        "/quit",
    ]
    done = bread(shell, "chat", "echo", "-s", "one", stdin="\n".join(lines))
    assert done.code == 0, done
    assert "/retry" in done.out
    assert "session one; to come back:" in done.out
    assert done.err.startswith("SKILL_NOT_FOUND: ")
    assert "there is no command /usr " in done.out
    assert "/later is for questions" in done.out
    assert "You said ' /usr/bin'." in done.out
    runs = bread(shell, "runs", "list", "--json").json["items"]
    assert [run["sessionId"] == "one" for run in runs] == [False, True]
    [start, *_] = bread(shell, "runs", "watch", runs[1]["id"], "--json").lines
    assert (start["input"], start["skill"]) == ("hello", "polite")


def test_a_failed_run_goes_on(shell: Shell) -> None:
    """B152, B59: the failure is shown, and ends no chat; /retry goes on with the run, where there is one, also in a
    chat that comes back to it."""
    with chatting(shell, "broken") as chat:
        chat.expect("you>")
        chat.type("/retry")
        chat.expect("no run of this chat has failed")
        chat.expect("you>")
        chat.type("go")
        chat.expect("out of order")
        chat.expect("you>")
        chat.press("\x04")
        assert chat.end() == 4
    [run] = bread(shell, "runs", "list", "--json").json["items"]
    (shell.folder / MENDED).touch()
    with chatting(shell, "broken", "-s", run["sessionId"]) as chat:
        chat.expect('you said: "go"')
        chat.expect("out of order")
        chat.expect("you>")
        chat.type("/retry")
        chat.expect("broken: Mended.")
        chat.expect("you>")
        chat.press("\x04")
        assert chat.end() == 0
    [run] = bread(shell, "runs", "list", "--json").json["items"]
    assert run["status"] == "completed"


# --- without a terminal


def test_a_chat_through_a_pipe(shell: Shell) -> None:
    """B152: lines of a pipe are words and answers by the same rules; the last needs no line break."""
    answers = ["buy", "maybe", "yes", "", "buy", "/help", "n", "good bye"]
    done = bread(shell, "chat", "buyer", stdin="\r\n".join(answers))
    assert done.code == 3, done
    assert done.out.startswith("bread ")
    assert done.out.count("QUESTION") == 3
    assert done.err.count("RESPONSE_INVALID") == 1
    assert not any(prompt in done.out for prompt in ("you>", "y/n>"))
    assert marks(shell.folder) == ["order 2 two  words"]
    [question] = pending(shell)
    assert f"checkpoints show {question['id']}" in done.out


def test_a_pipe_that_stays_open(shell: Shell) -> None:
    """B152: what comes through a pipe is answered as it comes."""
    with shell.start("chat", "echo", app=APP, piped=True) as chat:
        assert chat.stdin is not None
        assert chat.stdout is not None
        for word in ("one", "two"):
            chat.stdin.write(f"{word}\n")
            chat.stdin.flush()
            while f"You said '{word}'." not in chat.stdout.readline():
                pass
        chat.stdin.close()
        chat.stdin = None
        _, error = chat.communicate()
    assert (chat.returncode, error) == (0, "")


def test_a_model_that_is_cut_off(shell: Shell, capsys: pytest.CaptureFixture[str]) -> None:
    """B152, B59, B124: an attempt that failed is told, and so is that what it was saying is void."""
    done = bread(shell, "chat", "flaky", stdin="go\n")
    assert done.code == 0, done
    assert "  model failed attempt 1: overloaded; it is tried again\n" in done.out
    assert done.out.count("flaky: Half a whole.\n") == 1
    common: dict[str, Any] = {"seq": 1, "cursor": "1", "run_id": "r", "root_run_id": "r", "agent_id": "a"}
    common |= {"session_id": "s", "timestamp": datetime.now(UTC), "base": 1}
    printer = TalkPrinter()
    for crumb in (TextDelta(**common, text="Half\na "), TextReset(**common), TextDelta(**common, text="It.")):
        printer.show(crumb)
    printer.rest()
    void = "  cut off what the model was saying is void; it is asked again"
    assert capsys.readouterr().out == f"a: Half\na \n{void}\na: It.\n"


def test_the_exit_code_is_that_of_the_last_run(shell: Shell) -> None:
    """B152: 4 where it failed, which is no end of the chat; 0 where the last one ended well."""
    assert bread(shell, "chat", "broken", stdin="go\n").code == 4
    assert bread(shell, "chat", "echo", stdin="go\n").code == 0
    assert bread(shell, "chat", "echo", stdin="").code == 0


def test_what_models_say_steers_no_terminal(shell: Shell) -> None:
    """B152: control characters in questions, arguments and text are written out."""
    done = bread(shell, "chat", "asks_back", stdin="go\nred\n")
    assert done.code == 0, done
    assert "\x1b" not in done.out
    assert "\u202e" not in done.out
    assert r"asks_back: \x1b[2J!" in done.out


def test_a_terminal_that_cannot_edit(shell: Shell) -> None:
    """B152, C31: the same at a dumb terminal, line by line; what was typed before the question is no answer to it."""
    began, gate = gates(shell.folder)
    argv = shell.argv("--store", shell.store, "--app", APP, "chat", "gated")
    with Terminal(argv, shell.folder, TERM="dumb") as chat:
        chat.expect("you> ")
        chat.type("go")
        assert began.read_text() == "x"
        chat.type("y")
        chat.expect("y\n")
        gate.write_text("open")
        chat.expect("approve? y/n> ")
        chat.type("")
        chat.expect("approve? y/n> ")
        chat.press("\x04")
        assert chat.end() == 3
    assert marks(shell.folder) == ["slow"]
    assert len(pending(shell)) == 1


# --- which agent


def test_which_agent(shell: Shell) -> None:
    """B152: the only one needs no name, nor does the first that the configuration lets people start; where there are
    several, or another one is meant, they are named."""
    done = shell.plain("--store", shell.store, "--app", "chat_agents:only", "chat", stdin="hello")
    assert (done.code, "echo: You said 'hello'." in done.out) == (0, True)
    several = bread(shell, "chat")
    assert (several.code, error_line(several)[0]) == (1, "INPUT_INVALID")
    assert "flaky, echo, host" in several.err
    unknown = bread(shell, "chat", "nobody")
    assert (unknown.code, error_line(unknown)[0]) == (1, "AGENT_NOT_FOUND")
    assert "flaky, echo, host" in unknown.err
    named = bread(shell, "chat", stdin="hello", BREAD_ENTRYPOINTS="broken,echo")
    assert (named.code, "agent broken" in named.out) == (4, True)
    hidden = bread(shell, "chat", "host", BREAD_ENTRYPOINTS="broken,echo")
    assert (hidden.code, error_line(hidden)[0]) == (1, "AGENT_NOT_FOUND")
    rude = bread(shell, "chat", "echo", "--skill", "rude")
    assert (rude.code, error_line(rude)[0]) == (1, "SKILL_NOT_FOUND")
