"""Runs that kill whoever performs them, and their neighbours."""

from __future__ import annotations

from bread.domain.commits import MOST_DEATHS
from bread.domain.run_events import RunFailed
from bread.runtime.sweep import SUSPECT_DEATHS
from crash.processes import Processes
from crash.stores import AT_LEISURE

NEIGHBOURS = ("run_a", "run_b")


@AT_LEISURE
def test_a_run_that_kills_ten_processes_fails_and_its_neighbours_end(processes: Processes) -> None:
    """C35: from its third dead owner on a run is performed beside none like it, and so only the one that kills dies on.
    A retry tries it again, for as long."""
    child = processes.child()
    for run in (*NEIGHBOURS, "run_poison"):
        child.call("start", script={"turns": [[{"gate": run}, {"say": "Done."}]]}, run=run, session=run)
    for life in range(MOST_DEATHS):
        if life <= SUSPECT_DEATHS:
            for run in (*NEIGHBOURS, "run_poison"):
                child.wait_for("at_gate", run=run)
        else:
            while (run := child.wait_for("at_gate")["run"]) != "run_poison":
                child.call("let", gate=run)
        assert processes.log.state("run_poison").status == "active"
        child.kill()
        child = processes.child()
    for run in NEIGHBOURS:
        assert child.call("rest", run=run)["output"] == "Done."
        assert len(processes.log.takers(run)) <= SUSPECT_DEATHS + 1
    assert child.call("rest", run="run_poison")["code"] == "AGENT_ERROR"
    [failed] = processes.log.events("run_poison", RunFailed)
    assert failed.message == "10 processes died one after the other while they performed it"
    retrying = child.send("retry", run="run_poison")
    child.wait_for("at_gate", run="run_poison")
    child.call("let", gate="run_poison")
    assert child.reply(retrying) == "Done."
    processes.log.assert_sound()
    processes.assert_quiet()
