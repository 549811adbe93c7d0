"""Runs whose process is gone, and processes that go on with them."""

from __future__ import annotations

import contextlib
import signal
from typing import Any

import pytest

from bread.domain.checkpoint import CheckpointClaimed
from bread.domain.events import Erased
from bread.domain.run_events import ModelResponded, RunFailed, RunTaken
from crash.processes import Child, Died, Processes, Refusal
from crash.stores import ALSO_WITH_NATS, AT_LEISURE
from support import trials

IN_MODEL = {
    "turns": [[{"say": "Let me "}, {"gate": "model"}, {"call": "tool_note", "args": {"what": "a"}}], [{"say": "Done."}]]
}
IN_TOOL = {"turns": [[{"call": "tool_slow", "args": {"what": "s"}}], [{"say": "Done."}]]}
ASKS = {"turns": [[{"say": "May I? "}, {"call": "human_question", "args": {"what": "q"}}], [{"say": "Done."}]]}
APPROVAL = {"turns": [[{"call": "tool_refund", "args": {"what": "r"}}], [{"say": "Done."}]]}
HAPPENED = {"outcome": "happened", "result": "seen"}


def orphans(processes: Processes, scripts: dict[str, Any]) -> None:
    """Runs that were in the middle of something when their process died."""
    first = processes.child()
    for run, script in scripts.items():
        first.call("start", script=script, run=run, session=run)
        first.wait_for("at_gate", run=run)
    first.kill()


def together(children: list[Child], do: str, **arguments: Any) -> list[Any]:
    """The same command to all of them before anyone is waited for."""
    numbers = [child.send(do, **arguments) for child in children]
    return [child.reply(number) for child, number in zip(children, numbers, strict=True)]


@pytest.mark.parametrize("trial", range(trials(1, 20)))
def test_processes_that_recover_at_once_take_each_run_once(processes: Processes, trial: int) -> None:
    """B48, B67, C35, C56: three processes start together on twenty orphans: one takes each, each tool runs once."""
    in_model = {f"run_model_{n}": IN_MODEL for n in range(10)}
    in_tool = {f"run_tool_{n}": IN_TOOL for n in range(10)}
    orphans(processes, in_model | in_tool)
    children = [processes.child(open=False) for _ in range(3)]
    for child in children:
        child.wait_for("loaded")
    workers = together(children, "open")
    log = processes.log
    log.assert_sound()
    for run in (*in_model, *in_tool):
        [taken] = log.events(run, RunTaken)
        assert taken.reason == "orphaned"
        assert taken.owner in workers
    together(children, "let", gate="model")
    for run in in_tool:
        [question] = children[0].call("rest", run=run)["questions"]
        assert question["kind"] == "in_doubt"
        outcomes = [
            code
            for codes in together(children, "answer", checkpoint=question["id"], response=HAPPENED)
            for code in codes
        ]
        assert sorted(outcomes) == ["CHECKPOINT_NOT_FOUND", "CHECKPOINT_NOT_FOUND", "won"]
    for run in (*in_model, *in_tool):
        assert children[0].call("rest", run=run)["status"] == "completed"
    log = processes.log
    log.assert_sound()
    for run in (*in_model, *in_tool):
        assert len(log.events(run, RunTaken)) == 1
        assert [event.turn for event in log.events(run, ModelResponded)] == [0, 1]
        assert len([effect for effect in processes.effects(run=run) if "tool" in effect]) == 1
        assert len(log.doubts(run)) == (1 if run in in_tool else 0)
    for child in children:
        child.close()
    processes.assert_quiet()


@ALSO_WITH_NATS
def test_a_process_without_the_agent_leaves_a_run_alone(processes: Processes) -> None:
    """B48: shown as orphaned, not failed, and untouched; a process that has the agent goes on with it."""
    orphans(processes, {"run_1": IN_MODEL})
    before = processes.log.names("run_1")
    other = processes.child(agents=["another"])
    assert other.call("get", run="run_1")["orphaned"] is True
    # Its own work goes on meanwhile, and each end of it makes the process look for more to do.
    for n in range(3):
        other.call("start", script={"turns": [[{"say": "Mine."}]]}, run=f"run_mine_{n}", agent="another")
        assert other.call("rest", run=f"run_mine_{n}")["output"] == "Mine."
    assert {run["id"]: (run["status"], run["orphaned"]) for run in other.call("runs")} == {
        "run_1": ("running", True),
        "run_mine_0": ("completed", False),
        "run_mine_1": ("completed", False),
        "run_mine_2": ("completed", False),
    }
    reader = processes.child(executes=False)
    assert reader.call("get", run="run_1")["orphaned"] is True
    assert processes.log.names("run_1") == before
    able = processes.child()
    assert other.call("get", run="run_1")["orphaned"] is False
    able.call("let", gate="model")
    assert other.call("rest", run="run_1")["status"] == "completed"
    assert processes.log.takers("run_1") == [able.worker]
    processes.log.assert_sound()
    processes.assert_quiet()


def test_what_a_process_that_does_not_execute_starts_and_answers_is_done_by_others(processes: Processes) -> None:
    """B48, B65, B66: an `executes=False` process leaves its facts ready; who is alive hears of them and performs."""
    executor, asker = processes.several(1)[0], processes.child(executes=False)
    asker.call("start", script=ASKS, run="run_1")
    [question] = asker.call("rest", run="run_1")["questions"]
    assert asker.call("answer", checkpoint=question["id"], response="yes") == ["won"]
    assert asker.call("rest", run="run_1")["status"] == "completed"
    log = processes.log
    assert [(taken.owner, taken.reason) for taken in log.events("run_1", RunTaken)] == [
        (executor.worker, "queued"),
        (executor.worker, "queued"),
    ]
    assert {effect["worker"] for effect in processes.effects()} == {executor.worker}
    log.assert_sound()
    processes.assert_quiet()


@ALSO_WITH_NATS
def test_suspended_on_one_process_answered_on_another(processes: Processes) -> None:
    """B65, B66: the first is closed, a fresh one lists the question and completes the run; a third sees it all."""
    first = processes.child()
    first.call("start", script=ASKS, run="run_1", session="s1")
    first.call("rest", run="run_1")
    first.close()
    passive, second = processes.child(agents=[]), processes.child()
    watching = passive.send("seen", run="run_1")
    [question] = second.call("questions", session="s1")
    assert second.call("answer", checkpoint=question["id"], response="yes", hows=["await"]) == ["won"]
    crumbs = passive.reply(watching)
    assert [crumb["type"] for crumb in crumbs] == [
        "agent:run:start",
        "text:delta",
        "human:required",
        "human:resumed",
        "text:delta",
        "agent:run:end",
    ]
    # Text has the number of its turn; heard over NATS, as it is said, that of what it follows.
    heard = "nats" in processes.shared.spec
    seqs = [crumb["seq"] for crumb in crumbs if not heard or crumb["type"] != "text:delta"]
    assert seqs == sorted({*seqs})
    assert processes.log.takers("run_1") == []  # the claim named its owner
    processes.log.assert_sound()
    processes.assert_quiet()


# --- clean shutdown ---------------------------------------------------------------------------------------------------


@AT_LEISURE
@pytest.mark.parametrize("inside", ["model", "tool"])
def test_a_clean_shutdown_gives_runs_back(processes: Processes, inside: str) -> None:
    """B48: a model call is cut off, a tool that ends in time keeps its outcome; then the run is anybody's, at once."""
    first = processes.child(grace=60.0)
    first.call("start", script=IN_MODEL if inside == "model" else IN_TOOL, run="run_1")
    first.wait_for("at_gate", run="run_1")
    closing = first.send("close")
    if inside == "tool":
        first.call("let", gate="s")
    first.reply(closing)
    assert first.gone() == 0
    log = processes.log
    log.assert_sound()
    assert [(event.owner, event.reason) for event in log.events("run_1", RunTaken)] == [(None, "handed_over")]
    second = processes.child()
    second.call("let", gate="model")
    assert second.call("rest", run="run_1")["status"] == "completed"
    log = processes.log
    assert log.takers("run_1") == [None, second.worker]
    assert [event.reason for event in log.events("run_1", RunTaken)] == ["handed_over", "queued"]
    assert log.doubts("run_1") == []
    assert len([effect for effect in processes.effects() if "tool" in effect]) == 1
    log.assert_sound()
    processes.assert_quiet()


@AT_LEISURE
def test_a_shutdown_that_cannot_wait_for_a_tool_leaves_it_in_doubt(processes: Processes) -> None:
    """B48, B67: a tool that outlasts the grace is cut off; the next process asks what became of it."""
    first = processes.child(grace=0.0)
    first.call("start", script=IN_TOOL, run="run_1")
    first.wait_for("at_gate", run="run_1")
    first.close()
    assert processes.log.takers("run_1") == [None]
    second = processes.child()
    [question] = second.call("rest", run="run_1")["questions"]
    assert question["kind"] == "in_doubt"
    assert second.call("answer", checkpoint=question["id"], response=HAPPENED) == ["won"]
    assert second.call("rest", run="run_1")["status"] == "completed"
    assert len(processes.effects(tool="slow")) == 1
    processes.log.assert_sound()
    processes.assert_quiet()


def test_a_shutdown_is_noticed_by_those_who_are_alive(processes: Processes) -> None:
    """B48, C56: what is given back is taken by a process that was there all the time; no wake-up is lost."""
    first, second = processes.several(2, grace=60.0)
    for n in range(5):
        first.call("start", script=IN_MODEL, run=f"run_{n}")
        first.wait_for("at_gate", run=f"run_{n}")
    second.call("let", gate="model")
    first.close()
    for n in range(5):
        assert second.call("rest", run=f"run_{n}")["status"] == "completed"
        assert processes.log.takers(f"run_{n}") == [None, second.worker]
    processes.log.assert_sound()
    processes.assert_quiet()


# --- the process that answers dies ------------------------------------------------------------------------------------


@ALSO_WITH_NATS
def test_an_answer_whose_process_dies_is_performed_by_the_living_owner(processes: Processes) -> None:
    """B62, B67, C18, C56: killed right after its claim was committed, while another process executes a tool."""
    owner = processes.child()
    calls = [{"call": "tool_slow", "args": {"what": "s"}}, {"call": "tool_refund", "args": {"what": "r"}}]
    both = {"turns": [calls, [{"say": "Done."}]]}
    owner.call("start", script=both, run="run_1", session="s1")
    owner.wait_for("at_gate", run="run_1")
    answering = processes.child(kill=["committed", 1])
    [question] = answering.call("questions", session="s1")
    with pytest.raises(Died):
        answering.call("answer", checkpoint=question["id"], response={"approved": True})
    assert answering.gone() == -signal.SIGKILL
    log = processes.log
    log.assert_sound()
    assert len(log.events(question["id"], CheckpointClaimed)) == 1
    owner.call("let", gate="s")
    assert owner.call("rest", run="run_1")["status"] == "completed"
    log = processes.log
    log.assert_sound()
    assert log.takers("run_1") == []
    assert log.doubts("run_1") == []
    assert [effect["worker"] for effect in processes.effects(tool="refund")] == [owner.worker]
    processes.assert_quiet()


@pytest.mark.parametrize("point", ["appended", "committed"])
def test_an_answer_whose_process_dies_is_taken_over_by_one_that_was_waiting(processes: Processes, point: str) -> None:
    """B67, C18, C56: nobody owned the run; before the commit nothing has happened, after it the answer is acted on."""
    asker = processes.child()
    asker.call("start", script=ASKS, run="run_1", session="s1")
    [question] = asker.call("rest", run="run_1")["questions"]
    answering = processes.child(kill=[point, 1])
    with pytest.raises(Died):
        answering.call("answer", checkpoint=question["id"], response="yes")
    answering.gone()
    if point == "appended":
        assert asker.call("rest", run="run_1")["questions"] == [question]
        assert asker.call("answer", checkpoint=question["id"], response="yes") == ["won"]
    assert asker.call("rest", run="run_1")["status"] == "completed"
    log = processes.log
    log.assert_sound()
    assert log.answered("run_1") == {question["id"]: "yes"}
    assert log.takers("run_1") == ([asker.worker] if point == "committed" else [])
    assert {effect["worker"] for effect in processes.effects()} == {asker.worker}
    processes.assert_quiet()


def test_two_processes_recover_a_continuation_and_the_tool_is_not_repeated(processes: Processes) -> None:
    """B67, C35: killed in the model call after an approved tool; two processes come for it at once."""
    script = {"turns": [APPROVAL["turns"][0], [{"say": "Well, "}, {"gate": "model"}, {"say": "done."}]]}
    first = processes.child()
    first.call("start", script=script, run="run_1")
    [question] = first.call("rest", run="run_1")["questions"]
    assert first.call("answer", checkpoint=question["id"], response={"approved": True}) == ["won"]
    first.wait_for("at_gate")
    first.kill()
    children = [processes.child(open=False) for _ in range(2)]
    workers = together(children, "open")
    together(children, "let", gate="model")
    assert children[0].call("rest", run="run_1")["output"] == "Well, done."
    log = processes.log
    log.assert_sound()
    [taken] = log.events("run_1", RunTaken)
    assert taken.owner in workers
    assert len(processes.effects(tool="refund")) == 1
    assert len(processes.effects(model=1)) == 2  # the one that was cut off, and the one that replaced it
    processes.assert_quiet()


@AT_LEISURE
@pytest.mark.parametrize("point", ["tool_start", "in_tool"])
def test_an_approved_idempotent_tool_is_retried_as_it_was_approved(processes: Processes, point: str) -> None:
    """B36, B67: killed just before or in it; called again with the same key, arguments and approver."""
    script = {"turns": [[{"call": "tool_refund_safely", "args": {"what": "r"}}], [{"say": "Done."}]]}
    first = processes.child(kill=[point, 1])
    first.call("start", script=script, run="run_1")
    [question] = first.call("rest", run="run_1")["questions"]
    edited = {"approved": True, "args": {"what": "less"}}
    with contextlib.suppress(Died):  # the answer may or may not have been acknowledged by then
        first.call("answer", checkpoint=question["id"], response=edited, by={"kind": "user", "id": "ann"})
    assert first.gone() == -signal.SIGKILL
    second = processes.child()
    assert second.call("rest", run="run_1")["status"] == "completed"
    effects = processes.effects(tool="refund_safely")
    assert len(effects) == (1 if point == "tool_start" else 2)
    assert {(effect["what"], effect["key"], effect["approved_by"]) for effect in effects} == {
        ("less", effects[0]["key"], "ann")
    }
    log = processes.log
    log.assert_sound()
    assert log.doubts("run_1") == []
    processes.assert_quiet()


# --- the provider fails after the claim -------------------------------------------------------------------------------


@AT_LEISURE
@pytest.mark.parametrize("killed", [False, True])
def test_a_provider_that_fails_after_the_claim_costs_no_answer_and_no_second_tool(
    processes: Processes, killed: bool
) -> None:
    """B59, B67, C40: the run fails with everything kept; retry goes on, in the same process or after a kill."""
    script = {"turns": [APPROVAL["turns"][0], [{"fail": "no credit"}]]}
    child = processes.child()
    child.call("start", script=script, run="run_1")
    [question] = child.call("rest", run="run_1")["questions"]
    assert child.call("answer", checkpoint=question["id"], response={"approved": True}) == ["won"]
    assert child.call("rest", run="run_1")["code"] == "MODEL_ERROR"
    assert child.call("answer", checkpoint=question["id"], response={"approved": True}) == ["CHECKPOINT_NOT_FOUND"]
    if killed:
        child.kill()
        child = processes.child()
        assert processes.log.takers("run_1") == []  # a failed run is nobody's orphan
    with pytest.raises(Refusal, match="MODEL_ERROR"):
        child.call("retry", run="run_1")
    log = processes.log
    log.assert_sound()
    assert len(log.events("run_1", RunFailed)) == 2
    assert log.answered("run_1") == {question["id"]: {"approved": True}}
    assert len(processes.effects(tool="refund")) == 1
    assert processes.effects(model=1)[-1]["results"] == {"call_0_0": "refunded r"}
    processes.assert_quiet()


# --- deletion ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("point", ["appended", "committed"])
def test_a_deletion_that_is_cut_off_is_whole_or_nothing(processes: Processes, point: str) -> None:
    """B73, B76, C18: killed inside `bread.sessions.delete`; run again, it is done, and no payload byte is left."""
    secret = "marzipan"
    script = {
        "turns": [[{"say": f"{secret} "}, {"call": "human_question", "args": {"what": secret}}], [{"say": "Done."}]]
    }
    first = processes.child()
    first.call("start", script=script, run="run_1", session="s1")
    [question] = first.call("rest", run="run_1")["questions"]
    first.close()
    deleting = processes.child(kill=[point, 1])
    with pytest.raises(Died):
        deleting.call("delete", session="s1")
    deleting.gone()
    log = processes.log
    if point == "appended":
        log.assert_sound()
        assert processes.shared.holds(secret)
        assert log.state("run_1").questions == (question["id"],)
    else:
        assert log.problems == []
        assert [type(event) for event in log.events("run_1")] == [Erased]
    last = processes.child()
    assert last.call("delete", session="s1") is (point == "appended")
    assert last.call("answer", checkpoint=question["id"], response="yes") == ["CHECKPOINT_NOT_FOUND"]
    last.close()
    assert processes.log.problems == []
    assert processes.log.names("run_1") == ["erased"]
    assert not processes.shared.holds(secret)
    processes.assert_quiet()
