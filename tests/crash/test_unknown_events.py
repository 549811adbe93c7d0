"""Events of a newer release in the log: a run that has one stops, loudly, in a process that does not know it.

It is never failed, others go on, and a process that knows the event goes on with the run.
"""

from __future__ import annotations

import pytest

from bread.transport.codec import pack, unpack
from crash.processes import Child, Processes, Refusal
from crash.stores import ALSO_WITH_NATS, AT_LEISURE

UNHEARD = "run.of_the_future"
ASKS = {"turns": [[{"say": "May I? "}, {"call": "human_question", "args": {"what": "q"}}], [{"say": "Done."}]]}
TIMELY = {"turns": [[{"call": "human_timely"}], [{"say": "Done."}]]}
IN_MODEL = {"turns": [[{"gate": "model"}, {"call": "tool_note", "args": {"what": "a"}}], [{"say": "Done."}]]}
IN_TOOL = {"turns": [[{"call": "tool_slow", "args": {"what": "s"}}], [{"say": "Done."}]]}
ONE_TURN = {"turns": [[{"say": "Done."}]]}


def write_unheard(processes: Processes, run: str) -> None:
    """What a newer release would append to a run: the row of the event and its place in the log of the root."""
    with processes.shared.write() as cursor:
        cursor.execute(
            "SELECT originator_version, state FROM stored_events WHERE originator_id = ?"
            " ORDER BY originator_version DESC LIMIT 1",
            (run,),
        )
        version, state = cursor.fetchone()
        envelope = unpack(state)
        cursor.execute("SELECT MAX(seq) + 1 FROM bread_log WHERE root = ?", (run,))
        [seq] = cursor.fetchone()
        envelope[1] |= {"seq": seq, "worker": "w_of_the_future", "commit": "c_of_the_future"}
        cursor.execute(
            "INSERT INTO stored_events (originator_id, originator_version, topic, state) VALUES (?,?,?,?)"
            " RETURNING rowid",
            (run, version + 1, f"{UNHEARD}@1", pack([envelope[0], envelope[1], pack({"what": "who knows"})])),
        )
        [position] = cursor.fetchone()
        cursor.execute("INSERT INTO bread_log (root, seq, position) VALUES (?,?,?)", (run, seq, position))


def raw(processes: Processes, run: str) -> list[str]:
    """The topics of a stream, whoever can read them."""
    with processes.shared.read() as cursor:
        cursor.execute("SELECT topic FROM stored_events WHERE originator_id = ? ORDER BY originator_version", (run,))
        return [row[0] for row in cursor.fetchall()]


def status(child: Child, run: str) -> str:
    found: dict[str, str] = {listed["id"]: listed["status"] for listed in child.call("runs")}
    return found[run]


def goes_on(child: Child, run: str = "run_other") -> None:
    """Other runs are not touched by it."""
    child.call("start", script=ONE_TURN, run=run)
    assert child.call("rest", run=run)["output"] == "Done."


@ALSO_WITH_NATS
def test_an_orphan_with_an_unknown_event_is_left_alone(processes: Processes) -> None:
    """C37, EVENT_UNKNOWN: it is found at the start, named in the log, not failed; the orphan beside it is taken."""
    first = processes.child()
    for run in ("run_1", "run_2"):
        first.call("start", script=IN_MODEL, run=run)
        first.wait_for("at_gate", run=run)
    first.kill()
    write_unheard(processes, "run_1")
    before = raw(processes, "run_1")
    second = processes.child()
    second.call("let", gate="model")
    assert second.call("rest", run="run_2")["status"] == "completed"
    goes_on(second)
    assert status(second, "run_1") == "running"
    with pytest.raises(Refusal, match="EVENT_UNKNOWN"):
        second.call("get", run="run_1")
    with pytest.raises(Refusal, match="EVENT_UNKNOWN"):
        second.call("seen", run="run_1")
    assert raw(processes, "run_1") == before
    assert "run_1" in second.complaints()
    assert UNHEARD in second.complaints()
    assert "run_2" not in second.complaints()
    assert second.complaints().count("is left alone") == 1
    second.close()
    newer = processes.child(knows=[UNHEARD])
    newer.call("let", gate="model")
    assert newer.call("rest", run="run_1")["status"] == "completed"
    assert len(processes.effects(run="run_1", tool="note")) == 1
    processes.assert_quiet(first, second)


def test_an_unknown_event_is_appended_while_a_tool_of_the_run_executes(processes: Processes) -> None:
    """C37, EVENT_UNKNOWN: the run stops where it is; its tool is not run twice, the run is not failed."""
    first = processes.child()
    first.call("start", script=IN_TOOL, run="run_1")
    first.wait_for("at_gate", run="run_1")
    write_unheard(processes, "run_1")
    before = raw(processes, "run_1")
    first.call("let", gate="s")
    goes_on(first, "run_2")
    goes_on(first, "run_3")
    assert raw(processes, "run_1") == before
    assert status(first, "run_1") == "running"
    assert len(processes.effects(tool="slow")) == 1
    assert UNHEARD in first.complaints()
    first.close()
    newer = processes.child(knows=[UNHEARD])
    [question] = newer.call("rest", run="run_1")["questions"]
    assert question["kind"] == "in_doubt"
    assert newer.call("answer", checkpoint=question["id"], response={"outcome": "happened", "result": 1}) == ["won"]
    assert newer.call("rest", run="run_1")["status"] == "completed"
    assert len(processes.effects(tool="slow")) == 1
    processes.assert_quiet(first)


@AT_LEISURE
def test_a_suspended_run_with_an_unknown_event_keeps_its_question(processes: Processes) -> None:
    """C37, EVENT_UNKNOWN: an answer is refused with that code and not lost in silence; a newer process takes it."""
    first = processes.child()
    first.call("start", script=ASKS, run="run_1", session="s1")
    [question] = first.call("rest", run="run_1")["questions"]
    write_unheard(processes, "run_1")
    assert first.call("answer", checkpoint=question["id"], response="yes") == ["EVENT_UNKNOWN"]
    assert first.call("questions", session="s1") == [question]
    goes_on(first)
    newer = processes.child(knows=[UNHEARD])
    assert newer.call("answer", checkpoint=question["id"], response="yes") == ["won"]
    assert newer.call("rest", run="run_1")["status"] == "completed"
    assert newer.call("seen", run="run_1")[-1]["type"] == "agent:run:end"
    processes.assert_quiet(first)


@AT_LEISURE
def test_an_unknown_event_of_an_earlier_run_stops_the_next_one_and_does_not_fail_it(processes: Processes) -> None:
    """C37, EVENT_UNKNOWN: the history cannot be read here, so the run waits for who can; nothing piles up."""
    first = processes.child()
    first.call("start", script=ONE_TURN, run="run_1", session="s1")
    assert first.call("rest", run="run_1")["status"] == "completed"
    write_unheard(processes, "run_1")
    first.call("start", script=ONE_TURN, run="run_2", session="s1")
    goes_on(first, "run_3")
    goes_on(first, "run_4")
    assert status(first, "run_2") == "running"
    assert raw(processes, "run_2") == ["run.started@1"]
    assert "run_2" in first.complaints()
    first.close()
    newer = processes.child(knows=[UNHEARD])
    assert newer.call("rest", run="run_2")["status"] == "completed"
    processes.assert_quiet(first)


@AT_LEISURE
def test_a_deadline_of_a_run_with_an_unknown_event_holds_up_no_other(processes: Processes) -> None:
    """C37, C59: questions expire although one whose deadline was earlier belongs to a run that cannot be read."""
    first = processes.child(clock=1000)
    for run in ("run_1", "run_2"):
        first.call("start", script=TIMELY, run=run)
        assert first.call("rest", run=run)["status"] == "suspended"
    first.close()
    write_unheard(processes, "run_1")
    before = raw(processes, "run_1")
    later = processes.child(clock=2000)
    assert later.call("seen", run="run_2")[-1]["type"] == "agent:run:end"
    assert processes.effects(run="run_2", model=1)[-1]["results"] == {"call_0_0": "nobody came"}
    goes_on(later)
    assert raw(processes, "run_1") == before
    assert UNHEARD in later.complaints()
    processes.assert_quiet(later)
