"""Chats at a terminal and through pipes: questions, answers, and what happens when somebody leaves."""

from __future__ import annotations

import asyncio
import re
from typing import Any

import pytest

from bread import Bread
from chat_agents import everybody, gates, marks
from cli_kit import Shell

from .chatting import bread, chatting, pending


def here(shell: Shell) -> Bread:
    """The same store in the process of the test."""
    return Bread(agents=everybody, store=shell.store)


def messages(shell: Shell, session: str) -> list[Any]:
    found: list[Any] = bread(shell, "sessions", "show", session, "--json").json["messages"]
    return found


# --- talking and answering


def test_a_conversation_with_questions(shell: Shell) -> None:
    """B152, B157, B27, B28: the first line says where the data is; a question is shown whole and asked until an answer
    fits, Enter alone answers nothing; the next words are of the same session."""
    with chatting(shell, "host", "-s", "desk", "--author", "ann") as chat:
        assert "bread.db (new)  bus: in-process\n" in chat.expect("\n")
        chat.expect("you>")
        chat.type("a room, please")
        assert "host: Let me ask." in chat.expect("QUESTION")
        question = chat.expect("answer>")
        for shown in ("Which room for Ann?", 'guest: "Ann"', 'room: one of "red", "blue", required', "how many", "cp_"):
            assert shown in question
        assert "note: text or null\n" in question
        chat.type("")
        chat.expect("answer>")
        chat.type("the red one")
        chat.expect("RESPONSE_INVALID: the answer does not fit: (answer): 'the red one' is not of type 'object'")
        chat.expect("answer>")
        chat.type('{"room": "green", "nights": 0}')
        chat.expect("room: 'green' is not one of")
        assert "nights: 0 is less than" in chat.expect("\n")
        chat.expect("answer>")
        chat.type('{"room": "red", "nights": 2}')
        chat.expect("answered by ann")
        chat.expect("host: Booked for Ann.")
        chat.expect("you>")
        chat.type("another one")
        chat.expect("answer>")
        chat.type('{"room": "blue", "nights": 1}')
        chat.expect("host: Booked for Ann.")
        chat.expect("you>")
        chat.type("/exit")
        assert "chat host -s desk" in chat.expect("desk\n")
        assert chat.end() == 0
    said = [message["text"] for message in messages(shell, "desk") if message["role"] == "user"]
    assert said == ["a room, please", "another one"]
    [first, second] = [message["content"] for message in messages(shell, "desk") if message["role"] == "tool"]
    assert (first, second) == ({"room": "red", "nights": 2}, {"room": "blue", "nights": 1})


def test_an_answer_field_by_field(shell: Shell) -> None:
    """B152: /fields asks for each field; text stays text, what is not required may be left out, Ctrl-D gives up."""
    with chatting(shell, "host", "-s", "desk") as chat:
        chat.expect("you>")
        chat.type("a room")
        chat.expect("answer>")
        chat.type("/fields")
        chat.expect("room>")
        chat.press("\x04")
        chat.expect("answer>")
        chat.type("/fields")
        chat.expect("room>")
        chat.type("")
        chat.expect("room>")
        chat.type("blue")
        chat.expect("nights>")
        chat.type("3")
        chat.expect("note>")
        chat.type("7")
        chat.expect("RESPONSE_INVALID: the answer does not fit: note: 7 is not")
        chat.expect("answer>")
        chat.type("/fields")
        chat.expect("room>")
        chat.type("blue")
        chat.expect("nights>")
        chat.type("3")
        chat.expect("note>")
        chat.type("")
        chat.expect("Booked for Ann.")
        chat.expect("you>")
        chat.press("\x04")
        assert chat.end() == 0
    assert [m["content"] for m in messages(shell, "desk") if m["role"] == "tool"] == [{"room": "blue", "nights": 3}]


def test_only_a_plain_yes_approves(shell: Shell) -> None:
    """B152, B36, B37, C31: Enter, a yes with conditions, and an object that says neither are asked again; `n` and why
    rejects; `y` approves what was shown, or an object with other arguments."""
    with chatting(shell, "buyer", "-s", "shop", "--author", "ann") as chat:
        chat.expect("you>")
        chat.type("buy")
        assert 'item: "two  words"' in chat.expect("approve? y/n>")
        for unclear in ("", "  ", "yes, but only one", "yep", "true", '"y"', '{"args": {"item": "salt", "count": 1}}'):
            chat.type(unclear)
            if unclear.strip():
                chat.expect("RESPONSE_INVALID")
            chat.expect("approve? y/n>")
        assert marks(shell.folder) == []
        chat.type("no  too much")
        chat.expect("rejected by ann")
        chat.expect("That is all.")
        chat.expect("you>")
        chat.type("buy")
        chat.expect("approve? y/n>")
        chat.type("Y")
        chat.expect("tool result order")
        chat.expect("you>")
        chat.type("buy")
        chat.expect("approve? y/n>")
        chat.type('{"approved": true, "args": {"item": "salt", "count": "many"}}')
        chat.expect("RESPONSE_INVALID: args do not fit")
        chat.expect("approve? y/n>")
        chat.type('{"approved": true, "args": {"item": "salt", "count": 1}}')
        chat.expect("That is all.")
        chat.expect("you>")
        chat.type("/quit")
        assert chat.end() == 0
    assert marks(shell.folder) == ["order 2 two  words", "order 1 salt"]
    [denied, *_] = [message for message in messages(shell, "shop") if message["role"] == "tool"]
    assert (denied["outcome"], "too much" in str(denied["content"])) == ("denied", True)


def test_what_was_typed_before_the_question_is_no_answer(shell: Shell) -> None:
    """B152, C31: a yes that was typed while the agent was working, or together with the words before, approves
    nothing."""
    began, gate = gates(shell.folder)
    with chatting(shell, "gated") as chat:
        chat.expect("you>")
        chat.type("go")
        assert began.read_text() == "x"
        chat.type("y")
        chat.expect("y\n")  # the terminal has it
        gate.write_text("open")
        chat.expect("approve? y/n>")
        chat.type("n")
        chat.expect("rejected by")
        chat.expect("So be it.")
        chat.expect("you>")
        chat.press("\x04")
        assert chat.end() == 0
    assert marks(shell.folder) == ["slow"]
    with chatting(shell, "buyer") as chat:
        chat.expect("you>")
        chat.press("buy\ny\n")
        chat.expect("approve? y/n>")
        chat.type("n")
        chat.expect("rejected by")
        chat.expect("you>")
        chat.press("\x04")
        assert chat.end() == 0
    assert marks(shell.folder) == ["slow"]


def test_several_questions_one_after_the_other(shell: Shell) -> None:
    """B152, B29, B52: the questions of one turn are asked in order, then those of the next turn of the same run."""
    with chatting(shell, "painter") as chat:
        chat.expect("you>")
        chat.type("paint")
        chat.expect("Paint the door? (1 of 2)")
        chat.expect("answer>")
        chat.type("red")
        chat.expect("Paint the wall?")
        chat.expect("answer>")
        chat.type('"blue"')
        chat.expect("painter: And now?")
        chat.expect("Paint the floor?")
        chat.expect("answer>")
        chat.type("red")
        chat.expect("painter: Painted.")
        chat.expect("you>")
        chat.press("\x04")
        assert chat.end() == 0
    assert pending(shell) == []


# --- leaving, and coming back


def test_a_question_for_later(shell: Shell) -> None:
    """B152, B65: /later leaves the question, says how to answer it, and exits with 3; the next chat of the session
    shows it first and goes on with the run."""
    with chatting(shell, "host", "-s", "desk") as chat:
        chat.expect("you>")
        chat.type("a room")
        chat.expect("answer>")
        chat.type("/later")
        assert chat.end() == 3
    [question] = pending(shell)
    assert re.search(rf"checkpoints show {question['id']}\n", chat.seen)
    assert "chat host -s desk\n" in chat.seen
    with chatting(shell, "echo", "-s", "desk") as chat:
        assert "Let me ask" not in chat.expect("Which room for Ann?")
        chat.expect("answer>")
        chat.type('{"room": "red", "nights": 1}')
        chat.expect("host: Booked for Ann.")
        chat.expect("you>")
        chat.type("hello")
        chat.expect("echo: You said 'hello'.")
        chat.expect("you>")
        chat.press("\x04")
        assert chat.end() == 0


def test_ctrl_c_and_the_finished_tool_is_not_run_again(shell: Shell) -> None:
    """B152, B26, B48, B67: Ctrl-C while a tool works: its outcome is kept, nothing is cancelled, and the line says how
    to come back; the next chat of the session goes on with the run, and repeats nothing."""
    began, gate = gates(shell.folder)
    with chatting(shell, "worker", "-s", "bench") as chat:
        chat.expect("you>")
        chat.type("work")
        assert began.read_text() == "x"
        chat.interrupt()
        chat.expect("stopping: calls under way get a moment")
        gate.write_text("slow done")
        assert chat.end() == 130
    assert "chat worker -s bench" in chat.seen
    [run] = bread(shell, "runs", "list", "--json").json["items"]
    assert (run["status"], run["owner"]) == ("running", None)
    with chatting(shell, "worker", "-s", "bench") as chat:
        assert 'you said: "work"' in chat.expect("tool result first")
        chat.expect("tool result slow")
        chat.expect("worker: All is done.")
        chat.expect("you>")
        chat.press("\x04")
        assert chat.end() == 0
    assert marks(shell.folder) == ["first", "slow"]


def test_a_call_that_was_cut_off_is_asked_about(shell: Shell) -> None:
    """B152, B67: Ctrl-C twice leaves at once; nobody knows what became of the call, so the next chat asks, and only one
    of the three outcomes is taken for an answer."""
    began, _ = gates(shell.folder)
    with chatting(shell, "worker", "-s", "bench") as chat:
        chat.expect("you>")
        chat.type("work")
        assert began.read_text() == "x"
        chat.interrupt()
        chat.expect("stopping: calls under way get a moment")
        chat.interrupt()
        assert chat.end() == 130
    with chatting(shell, "worker", "-s", "bench") as chat:
        question = chat.expect("what happened?>")
        assert "slow (in_doubt)" in question
        assert "retry (call it again), failed and why, happened and its result" in question
        for unclear in ("y", "retry it", '{"outcome": "happened"}'):
            chat.type(unclear)
            chat.expect("RESPONSE_INVALID")
            chat.expect("what happened?>")
        chat.type("happened done by hand")
        chat.expect("worker: All is done.")
        chat.expect("you>")
        chat.press("\x04")
        assert chat.end() == 0
    assert marks(shell.folder) == ["first", "slow"]
    [_, slow] = [message for message in messages(shell, "bench") if message["role"] == "tool"]
    assert slow["content"] == "done by hand"


def test_a_cancelled_run(shell: Shell) -> None:
    """B152, B18: /cancel at a question stops the run for good, and the chat goes on in its session."""
    with chatting(shell, "painter", "-s", "p") as chat:
        chat.expect("you>")
        chat.type("paint")
        chat.expect("answer>")
        chat.type("/cancel")
        chat.expect("RUN_CANCELLED")
        chat.expect("you>")
        chat.type("paint again")
        chat.expect("Paint the door?")
        chat.expect("answer>")
        chat.type("/exit")
        assert chat.end() == 3
    cancelled = bread(shell, "runs", "list", "--status", "cancelled", "--json").json["items"]
    assert len(cancelled) == 1
    assert {checkpoint["runId"] for checkpoint in pending(shell)}.isdisjoint({cancelled[0]["id"]})


# --- others in the same session


async def test_somebody_else_answers_meanwhile(shell: Shell) -> None:
    """B152, B53, B66: while the prompt waits another process answers: the chat says so and follows the continuation."""
    with chatting(shell, "host", "-s", "desk") as chat:
        chat.expect("you>")
        chat.type("a room")
        chat.expect("answer>")
        async with here(shell) as other:
            [question] = (await other.list_checkpoints()).items
            await other.resume(question.id, {"room": "red", "nights": 5}, author="bob")
        chat.expect("settled meanwhile")
        chat.expect("answered by bob")
        chat.expect("host: Booked for Ann.")
        chat.expect("you>")
        chat.press("\x04")
        assert chat.end() == 0


async def test_a_run_of_another_process_comes_first(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    """B152, B60: a chat on a session whose run is performed elsewhere follows it to its end; what is said while such a
    run is under way is said after it."""
    began, gate = gates(shell.folder)
    monkeypatch.chdir(shell.folder)
    async with here(shell) as other:
        run = asyncio.create_task(_output(other, "worker"))
        assert await asyncio.to_thread(began.read_text) == "x"
        with chatting(shell, "echo", "-s", "bench") as chat:
            await asyncio.to_thread(chat.expect, "tool call slow")
            await asyncio.to_thread(gate.write_text, "open")
            await asyncio.to_thread(chat.expect, "worker: All is done.")
            await run
            await asyncio.to_thread(chat.expect, "you>")
            run = asyncio.create_task(_output(other, "worker"))
            assert await asyncio.to_thread(began.read_text) == "x"
            chat.type("hello")
            await asyncio.to_thread(chat.expect, "it comes first, then what you said")
            await asyncio.to_thread(chat.expect, "tool call slow")
            await asyncio.to_thread(gate.write_text, "open")
            await asyncio.to_thread(chat.expect, "echo: You said 'hello'.")
            await run
            await asyncio.to_thread(chat.expect, "you>")
            chat.press("\x04")
            assert await asyncio.to_thread(chat.end) == 0


async def _output(bread: Bread, agent: str) -> Any:
    return await bread.run(agent, "work", session="bench")


def test_a_question_that_expires(shell: Shell) -> None:
    """B152, C59: the deadline of a question is shown; one that passes while the prompt waits ends the waiting. An Enter
    is no answer, also where anything would be one."""
    with chatting(shell, "hasty", "-s", "h") as chat:
        chat.expect("you>")
        chat.type("go")
        assert re.search(r"deadline    .*Z \(in (59m|1h)\)", chat.expect("answer>"))
        chat.type("")
        chat.type("now")
        chat.expect("At once?")
        chat.expect("settled meanwhile")
        chat.expect("expired")
        chat.expect("hasty: Too late.")
        chat.expect("you>")
        chat.press("\x04")
        assert chat.end() == 0
    assert [m["content"] for m in messages(shell, "h") if m["role"] == "tool"] == ["now", "nobody"]
