"""PostgreSQL dies in the middle of runs: a session of it, all of them, or the server. The processes of bread live on.

Nobody counts as dead meanwhile, and so nothing is taken and nothing is in doubt: every run goes on by itself.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any, Literal, get_args

import psycopg
import pytest

from bread.domain.run_events import ModelResponded, RunTaken, ToolCalled, ToolReturned
from bread.runtime.ids import short_id
from bread.runtime.servers import PostgresServer
from crash.processes import Child, Processes, Refusal, processes_on
from crash.stores import PostgresSchema, Shared
from observers.clients import Client, durable
from postgres import in_schema
from support import trials

How = Literal["sessions are ended", "a session is killed", "the server is killed"]
HOW = pytest.mark.parametrize("how", get_args(How))
SCRIPT = {
    "turns": [
        [{"say": "One moment. "}, {"call": "tool_note", "args": {"what": "a"}}],
        [
            {"say": "May I? "},
            {"call": "human_question", "args": {"what": "b"}},
            {"call": "tool_refund", "args": {"what": "c"}},
            {"call": "tool_ship", "args": {"what": "d"}},
        ],
        [{"say": "All of it "}, {"call": "tool_note", "args": {"what": "e"}}],
        [{"say": "is done."}],
    ]
}
SAID = "One moment. May I? All of it is done."
RUNS = 6


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    """A server of its own, which keeps on its disk what it has acknowledged."""
    server = PostgresServer()
    server.start()
    yield server
    server.stop()


@pytest.fixture
def shared(server: PostgresServer) -> Shared:
    schema = short_id("t")
    connected(server).execute(f"CREATE SCHEMA {schema}".encode()).connection.close()
    return PostgresSchema(in_schema(server.url(), schema))


@pytest.fixture
def processes(server: PostgresServer, shared: Shared, tmp_path: Path) -> Iterator[Processes]:
    with processes_on(shared, tmp_path) as processes:
        try:
            yield processes
        finally:
            server.start()  # the test may have failed while it was away


def connected(server: PostgresServer) -> psycopg.Connection[Any]:
    """A session, as soon as the server gives one."""
    while True:
        try:
            return psycopg.connect(server.url(), autocommit=True)
        except psycopg.OperationalError as error:
            last = error
        assert server.process is not None, last
        assert server.process.poll() is None, last


def strike(server: PostgresServer, how: How, chance: Random) -> None:
    """When this returns the server is there again, or about to be."""
    if how == "the server is killed":
        server.kill()
        server.start()
        return
    with connected(server) as session:
        sessions = "SELECT pid FROM pg_stat_activity WHERE application_name LIKE 'bread w%'"
        while not (pids := [pid for [pid] in session.execute(sessions).fetchall()]):
            pass  # they come back, from the blow before
        chance.shuffle(pids)
        if how == "a session is killed":
            os.kill(pids[0], signal.SIGKILL)  # the server ends all others, and reads its log again
        else:
            for pid in pids:
                session.execute("SELECT pg_terminate_backend(%s)", [pid])


def surely(child: Child, do: str, number: int | None = None, **arguments: Any) -> Any:
    """What is undecided is asked again until it is decided; `number` has been asked already."""
    while True:
        try:
            return child.reply(child.send(do, **arguments) if number is None else number)
        except Refusal as error:
            if error.code != "STORE_UNAVAILABLE":
                raise
        number = None


def answers(child: Child, question: dict[str, Any], person: str) -> int:
    """A person says who they are, in whatever answer the question takes."""
    said = person if question["kind"] == "input" else {"approved": True, "comment": person}
    key = f"{question['id']} {person}"
    return child.send("answer", checkpoint=question["id"], response=said, idempotency_key=key)


def decided(child: Child, number: int, question: dict[str, Any], person: str) -> str:
    """An answer that is undecided is given again, with the same key."""
    while (outcome := child.reply(number)) == ["STORE_UNAVAILABLE"]:
        number = answers(child, question, person)
    return str(outcome[0])


@HOW
def test_runs_go_on_when_it_comes_back(processes: Processes, server: PostgresServer, how: How) -> None:
    """B48, B56, B62, B66, B130, C1, C2, C18, C53: struck while runs start, while two people answer each question, and
    while what they said is done: one answer wins, no tool runs twice, who watches sees everything once."""
    chance = Random(how)
    for trial in range(trials(1, 12)):
        first, second = processes.several(2)
        watching = processes.child(executes=False)
        runs = [f"run_{trial}_{n}" for n in range(RUNS)]
        begun = [
            (child, {"script": SCRIPT, "run": run, "session": run, "idempotency_key": run})
            for run, child in zip(runs, (first, second) * RUNS, strict=False)
        ]
        sent = [child.send("start", **start) for child, start in begun]
        strike(server, how, chance)
        for (child, start), number in zip(begun, sent, strict=True):
            surely(child, "start", number, **start)
        seen = {run: watching.send("watch", run=run) for run in runs}
        questions = [question for run in runs for question in surely(first, "settled", run=run)["questions"]]
        assert len(questions) == 2 * RUNS
        given = [
            (child, answers(child, question, person), question, person)
            for question in questions
            for child, person in chance.sample([(first, "ann"), (second, "ben")], 2)
        ]
        strike(server, how, chance)
        won: dict[str, list[str]] = {question["id"]: [] for question in questions}
        for child, number, question, person in given:
            outcome = decided(child, number, question, person)
            if outcome == "won":
                won[question["id"]].append(person)
            else:
                assert outcome == "CHECKPOINT_NOT_FOUND"
        assert {len(winners) for winners in won.values()} == {1}
        strike(server, how, chance)
        shown = {run: watching.reply(number) for run, number in seen.items()}
        whole = {run: surely(second, "seen", run=run) for run in runs}
        for child in (first, second, watching):
            child.close()
            assert "not heard" in child.complaints()  # it was struck
        check(processes, runs, {checkpoint: winner for checkpoint, [winner] in won.items()})
        for run in runs:
            check_streams(shown[run], whole[run])


def check(processes: Processes, runs: list[str], won: dict[str, str]) -> None:
    log = processes.log
    log.assert_sound()
    answered: dict[str, str] = {}
    for run in runs:
        assert log.state(run).status == "completed"
        assert [event.turn for event in log.events(run, ModelResponded)] == [0, 1, 2, 3]
        assert len(log.events(run, ToolCalled)) == len(log.events(run, ToolReturned)) == 4
        assert log.doubts(run) == []
        assert {taken.reason for taken in log.events(run, RunTaken)} <= {"queued"}, [
            (t.owner, t.previous, t.reason) for t in log.events(run, RunTaken)
        ]
        done = sorted(effect["what"] for effect in processes.effects(run=run) if "tool" in effect)
        assert done == ["a", "c", "d", "e"]
        for checkpoint, said in log.answered(run).items():
            answered[checkpoint] = said if isinstance(said, str) else said["comment"]
    assert answered == won


def check_streams(shown: list[dict[str, Any]], whole: list[dict[str, Any]]) -> None:
    """What was watched over all that is what a reader is shown who comes later: no gap, nothing twice."""
    clients = Client(), Client()
    for client, crumbs in zip(clients, (shown, whole), strict=True):
        for crumb in crumbs:
            client.take(crumb)
    assert durable(shown) == durable(whole)
    assert clients[0].texts == clients[1].texts
    assert "".join(clients[0].texts.values()) == SAID


def test_an_answer_while_it_is_away_is_undecided_and_given_again(processes: Processes, server: PostgresServer) -> None:
    """B56, C2: STORE_UNAVAILABLE, nothing is written; with the same key it wins later, and another one does not."""
    child = processes.child(patience=0.3)
    child.call("start", script=SCRIPT, run="run_1", session="run_1", idempotency_key="run_1")
    questions = child.call("settled", run="run_1")["questions"]
    server.kill()
    undecided = [answers(child, question, "ann") for question in questions]
    assert [child.reply(number) for number in undecided] == [["STORE_UNAVAILABLE"]] * 2
    with pytest.raises(Refusal, match="STORE_UNAVAILABLE"):
        child.call("get", run="run_1")
    server.start()
    assert processes.log.answered("run_1") == {}
    for question in questions:
        assert decided(child, answers(child, question, "ann"), question, "ann") == "won"
        assert decided(child, answers(child, question, "ann"), question, "ann") == "won"
        assert decided(child, answers(child, question, "ben"), question, "ben") == "CHECKPOINT_NOT_FOUND"
    assert surely(child, "seen", run="run_1")[-1]["type"] == "agent:run:end"
    check(processes, ["run_1"], {question["id"]: "ann" for question in questions})


def test_an_outcome_waits_for_the_server(processes: Processes, server: PostgresServer) -> None:
    """C18, C35: a tool ends while the server is away: its outcome is kept until it is back; it runs once."""
    child = processes.child(patience=0.3)
    script = {"turns": [[{"call": "tool_slow", "args": {"what": "s"}}], [{"say": "Done."}]]}
    child.call("start", script=script, run="run_1")
    child.wait_for("at_gate", run="run_1")
    server.kill()
    child.call("let", gate="s")
    with pytest.raises(Refusal, match="STORE_UNAVAILABLE"):
        child.call("get", run="run_1")
    server.start()
    assert child.call("watch", run="run_1")[-1]["type"] == "agent:run:end"
    log = processes.log
    log.assert_sound()
    assert [event.result for event in log.events("run_1", ToolReturned)] == ["slowly s"]
    assert len(processes.effects(tool="slow")) == 1
    assert log.takers("run_1") == []
