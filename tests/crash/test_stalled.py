"""A worker that was given up as dead, replaced, and wakes up again: it does no harm, and what it has is not lost."""

from __future__ import annotations

import signal
from typing import Any, Literal, get_args

import pytest

from bread.domain.checkpoint import CheckpointDiscarded
from bread.domain.run_events import ModelResponded, RunTaken, ToolCalled, ToolFailed, ToolReturned
from crash.processes import Child, Processes
from crash.stores import ALSO_WITH_NATS, ON_SERVERS

IN_TOOL = {
    "turns": [
        [{"call": "tool_slow", "args": {"what": "s"}}],
        [{"call": "tool_note", "args": {"what": "n"}}],
        [{"say": "Done."}],
    ]
}
IN_MODEL = {
    "turns": [
        [{"say": "One two "}, {"gate": "model"}, {"say": "three. "}, {"call": "tool_note", "args": {"what": "n"}}],
        [{"say": "Done."}],
    ]
}
RUN = "run_1"
How = Literal["running", "stopped", "deaf"]
HASTY = [0.2, 2.0]
HOW = pytest.mark.parametrize("how", get_args(How))


def stalled_in(processes: Processes, script: Any, how: How) -> Child:
    """A process in the middle of something that counts as dead: it hears of that, or stands still, or does not hear."""
    child = processes.child(deaf=how == "deaf")
    child.call("start", script=script, run=RUN, session="s1")
    child.wait_for("at_gate", run=RUN)
    processes.declare_dead(child)
    if how == "stopped":
        child.stop()
    return child


def wake(processes: Processes, child: Child, gate: str, how: How) -> None:
    """Let it go on from where it was, and wait until it is awake."""
    letting = child.send("let", gate=gate)
    if how == "stopped":
        child.signal(signal.SIGCONT)
    child.reply(letting)
    if comes_back(processes, how):
        child.call("wake")


def comes_back(processes: Processes, how: How) -> bool:
    """Whether it counts as living again: a lock that is gone does not come back, a heart may be heard again."""
    return processes.shared.kind == "postgres" and how != "running"


def replaced(processes: Processes, first: Child) -> tuple[Child, str]:
    """Another process, which has taken the run and asks about the call that was under way."""
    second = processes.child()
    [question] = second.call("rest", run=RUN)["questions"]
    assert question["kind"] == "in_doubt"
    assert [event.previous for event in processes.log.events(RUN, RunTaken)] == [first.worker]
    return second, question["id"]


@HOW
def test_the_outcome_of_a_replaced_owner_settles_the_doubt(processes: Processes, how: How) -> None:
    """B67, C56: its tool went on; the outcome is appended, the question is discarded, the effect happened once."""
    first = stalled_in(processes, IN_TOOL, how)
    second, question = replaced(processes, first)
    wake(processes, first, "s", how)
    assert second.call("seen", run=RUN)[-1]["type"] == "agent:run:end"
    assert second.call("answer", checkpoint=question, response={"outcome": "retry"}) == ["CHECKPOINT_NOT_FOUND"]
    log = processes.log
    log.assert_sound()
    assert [event.result for event in log.events(RUN, ToolReturned)] == ["slowly s", "noted n"]
    assert [event.reason for event in log.events(question, CheckpointDiscarded)] == ["settled"]
    assert [event.turn for event in log.events(RUN, ModelResponded)] == [0, 1, 2]
    assert [len(processes.effects(tool=tool)) for tool in ("slow", "note")] == [1, 1]
    # Who counts as dead takes nothing more: the rest is for the other one, with no doubt about any of it.
    assert log.takers(RUN)[0] == second.worker
    assert log.takers(RUN)[1:] in ([second.worker], [first.worker])[: 1 + comes_back(processes, how)]
    assert log.doubts(RUN) == [(log.events(RUN, ToolCalled)[0].call, 3)]
    processes.assert_quiet(first)


@pytest.mark.parametrize(("how", "outcome"), [("running", "happened"), ("stopped", "failed"), ("deaf", "happened")])
def test_an_outcome_that_comes_after_the_answer_changes_nothing(processes: Processes, how: How, outcome: str) -> None:
    """B67, C3: a person has said what happened; what the first owner brings later is not a second outcome."""
    said: dict[str, Any] = {"outcome": "happened", "result": "seen"}
    if outcome == "failed":
        said = {"outcome": "failed", "error": "lost"}
    first = stalled_in(processes, IN_TOOL, how)
    second, question = replaced(processes, first)
    assert second.call("answer", checkpoint=question, response=said) == ["won"]
    assert second.call("rest", run=RUN)["status"] == "completed"
    wake(processes, first, "s", how)
    # The next commit of the first process comes after whatever it had to say about the tool.
    first.call("start", script={"turns": [[{"say": "Mine."}]]}, run="run_2")
    log = processes.log
    log.assert_sound()
    assert log.names(RUN)[-1] == "completed"
    slow = log.events(RUN, ToolCalled)[0].call
    assert [event.call for event in log.events(RUN, ToolReturned)].count(slow) == 0
    assert [event.call for event in log.events(RUN, ToolFailed)] == ([slow] if outcome == "failed" else [])
    assert processes.effects(model=1)[-1]["results"] == {"call_0_0": "seen" if outcome == "happened" else "lost"}
    assert len(processes.effects(tool="slow")) == 1
    processes.assert_quiet(first)


@HOW
def test_a_retry_and_the_first_owner_give_one_outcome(processes: Processes, how: How) -> None:
    """B67: a person said retry, and both executions end; the first outcome counts, the key was the same for both."""
    first = stalled_in(processes, IN_TOOL, how)
    second, question = replaced(processes, first)
    assert second.call("answer", checkpoint=question, response={"outcome": "retry"}) == ["won"]
    second.wait_for("at_gate", run=RUN)
    wake(processes, first, "s", how)
    assert second.call("rest", run=RUN)["status"] == "completed"
    second.call("let", gate="s")
    second.call("start", script={"turns": [[{"say": "Mine."}]]}, run="run_2")
    log = processes.log
    log.assert_sound()
    slow = log.events(RUN, ToolCalled)[0].call
    assert [event.call for event in log.events(RUN, ToolReturned)].count(slow) == 1
    assert [event.turn for event in log.events(RUN, ModelResponded)] == [0, 1, 2]
    assert len({effect["key"] for effect in processes.effects(tool="slow")}) == 1
    assert len(processes.effects(tool="slow")) == 2
    assert len(processes.effects(tool="note")) == 1
    processes.assert_quiet(first)


@ALSO_WITH_NATS
@HOW
def test_the_model_outcome_of_a_replaced_owner_is_dropped(processes: Processes, how: How) -> None:
    """B67, B124, C56: the new owner asks again; the turn that comes late is not recorded, no tool of it runs."""
    first = stalled_in(processes, IN_MODEL, how)
    second = processes.child()
    second.wait_for("at_gate", run=RUN)
    watching = second.send("seen", run=RUN)
    wake(processes, first, "model", how)
    first.call("start", script={"turns": [[{"say": "Mine."}]]}, run="run_2")
    assert processes.log.events(RUN, ModelResponded) == []
    second.call("let", gate="model")
    crumbs = second.reply(watching)
    log = processes.log
    log.assert_sound()
    assert log.state(RUN).status == "completed"
    assert [event.turn for event in log.events(RUN, ModelResponded)] == [0, 1]
    assert [(event.previous, event.owner) for event in log.events(RUN, RunTaken)] == [(first.worker, second.worker)]
    assert [effect["worker"] for effect in processes.effects(tool="note")] == [second.worker]
    assert len(processes.effects(run=RUN, model=0)) == 2
    assert "".join(crumb["text"] for crumb in crumbs if crumb["type"] == "text:delta") == "One two three. Done."
    processes.assert_quiet(first)


@ON_SERVERS
@pytest.mark.parametrize("script", [IN_TOOL, IN_MODEL], ids=["tool", "model"])
def test_a_process_that_stood_still_for_too_long_begins_nothing_more(processes: Processes, script: Any) -> None:
    """B67, C56: nobody pretends here: it is stopped until its beat is old and another one has its run, then goes on."""
    first = processes.child(heartbeat=HASTY)
    first.call("start", script=script, run=RUN, session="s1")
    first.wait_for("at_gate", run=RUN)
    first.stop()
    second = processes.child(heartbeat=HASTY)
    if script is IN_TOOL:
        [question] = second.call("rest", run=RUN)["questions"]
        assert question["kind"] == "in_doubt"
    else:
        second.wait_for("at_gate", run=RUN)
    gate = "s" if script is IN_TOOL else "model"
    letting = first.send("let", gate=gate)
    first.signal(signal.SIGCONT)
    first.reply(letting)
    second.call("let", gate=gate)
    for child in (first, second):
        assert child.call("seen", run=RUN)[-1]["type"] == "agent:run:end"
    log = processes.log
    log.assert_sound()
    assert log.takers(RUN)[0] == second.worker
    for tool in ("slow", "note"):
        assert len(processes.effects(tool=tool)) == (1 if tool == "note" or script is IN_TOOL else 0)
    owner = first.worker
    for recorded in log.streams[RUN]:
        if isinstance(recorded.event, RunTaken):
            owner = recorded.event.owner or ""
        elif isinstance(recorded.event, ToolCalled | ModelResponded):
            assert recorded.meta.worker == owner
    assert "may have counted as dead" in first.complaints()


@ON_SERVERS
def test_a_process_that_has_come_back_keeps_what_it_begins(processes: Processes) -> None:
    """B67, C56: others looked when it counted as dead, and look again in half a minute: nothing is taken from it."""
    first = stalled_in(processes, IN_MODEL, "running")
    second = processes.child(heartbeat=[30.0, 60.0])
    second.wait_for("at_gate", run=RUN)
    first.call("wake")
    for n in range(3):
        first.call("start", script=IN_TOOL, run=f"run_mine_{n}")
        first.wait_for("at_gate", run=f"run_mine_{n}")
        # Whoever hears of a commit looks at what is idle. All that it finds there is under way.
        second.call("start", script={"turns": [[{"say": "Mine."}]]}, run=f"run_other_{n}")
        assert second.call("rest", run=f"run_other_{n}")["status"] == "completed"
    first.call("let", gate="s")
    for n in range(3):
        assert first.call("seen", run=f"run_mine_{n}")[-1]["type"] == "agent:run:end"
    log = processes.log
    log.assert_sound()
    assert [log.takers(f"run_mine_{n}") for n in range(3)] == [[]] * 3
    assert [log.doubts(f"run_mine_{n}") for n in range(3)] == [[]] * 3


def test_a_tool_is_not_repeated_when_the_run_was_deleted_meanwhile(processes: Processes) -> None:
    """B77: another process deletes the session while a tool executes; the tool is not run again."""
    first = processes.child(deaf=True)
    first.call("start", script=IN_TOOL, run=RUN, session="s1")
    first.wait_for("at_gate", run=RUN)
    second = processes.child()
    assert second.call("delete", session="s1") is True
    first.call("let", gate="s")
    first.call("start", script={"turns": [[{"say": "Mine."}]]}, run="run_2")
    assert first.call("rest", run="run_2")["status"] == "completed"
    assert len(processes.effects(tool="slow")) == 1
    log = processes.log
    assert log.problems == []
    assert log.names(RUN) == ["erased"]
    processes.assert_quiet()
