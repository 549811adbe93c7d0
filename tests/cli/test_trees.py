"""Compositions on the command line: invoked, drawn, listed, answered."""

from __future__ import annotations

import re
from typing import Any

from cli_kit import Done, Shell, error_line


def bread(shell: Shell, *words: str) -> Done:
    return shell.plain("--store", shell.store, "--app", "tree_agents:everybody", *words)


def invoke(shell: Shell, name: str, input: str = "go") -> Any:
    """What `bread invoke --json` says, which ends with code 0, or 1 where it asks."""
    done = bread(shell, "invoke", name, input, "--json")
    assert done.code == (1 if done.json["status"] == "suspended" else 0), done
    return done.json


def asked_by(shell: Shell) -> dict[str, str]:
    """The pending checkpoints, by agent."""
    return {one["agentId"]: one["id"] for one in bread(shell, "checkpoints", "list", "--json").json["items"]}


def tree(shell: Shell, run: str) -> list[str]:
    """The drawn tree, its ids left out."""
    found = bread(shell, "runs", "show", run)
    assert found.code == 0, found
    _, _, drawn = found.out.partition("\n\n")
    return [re.sub(r" *\b(run|cp|loop)_[\w.]+", "", line) for line in drawn.splitlines()]


def test_a_pipeline_is_invoked(shell: Shell) -> None:
    """B153, B79: its output on stdout; a failure with its code, exit code 4; what is not there is named."""
    done = bread(shell, "invoke", "plain", "hello")
    assert (done.code, done.out) == (0, "echo: echo: hello\n")
    failed = bread(shell, "invoke", "faulty", "hello", "--json")
    assert (failed.code, failed.json["status"], failed.json["error"]["code"]) == (4, "failed", "MODEL_ERROR")
    assert error_line(failed)[0] == "MODEL_ERROR"
    skilled = bread(shell, "invoke", "plain", "hello", "--json", "--skill", "polite")
    assert (skilled.code, error_line(skilled)[0]) == (1, "INPUT_INVALID")
    unknown = bread(shell, "invoke", "nothing", "hello", "--json")
    code, message = error_line(unknown)
    assert (unknown.code, code) == (1, "AGENT_NOT_FOUND")
    assert message.endswith("host, broken, contract, case, plain, faulty")


def test_the_questions_of_a_pipeline_are_named(shell: Shell) -> None:
    """B153, B89: exit code 1; each with the agent that asks, and the way to answer it; the same in JSON."""
    done = bread(shell, "invoke", "contract", "go")
    assert (done.code, done.out) == (1, "")
    for agent, checkpoint in asked_by(shell).items():
        assert f"approve of {agent} waits for a person: {checkpoint} (input). To answer:\n" in done.err
        assert f"checkpoints show {checkpoint}\n" in done.err
    told = invoke(shell, "contract")["checkpoints"]
    assert {one["agentId"] for one in told} == {"law", "finance"}
    assert len({one["runId"] for one in told} | {one["checkpointId"] for one in told}) == 4


def test_a_tree_is_drawn_as_it_stands(shell: Shell) -> None:
    """B156, B95: with the place, the state and the questions of each run, on the way and at the end; the root and all
    below it in JSON and with --root, the root alone in the list; a run below shows its part."""
    told = invoke(shell, "case")
    run, asked = told["runId"], asked_by(shell)
    assert tree(shell, run) == [
        "case  suspended",
        "├─ 0/0 lead  suspended",
        "│  └─ expert  suspended  waits for",
        "└─ 0/1 law  suspended  waits for",
    ]
    shown = bread(shell, "runs", "show", run, "--json").json
    assert [one["agentId"] for one in shown["runs"]] == ["lead", "law", "expert"]
    assert set(shown["checkpoints"]) == {asked["expert"], asked["law"]}
    of_tree = bread(shell, "runs", "list", "--root", run, "--json").json["items"]
    assert {one["id"] for one in of_tree} == {run, *(one["id"] for one in shown["runs"])}
    assert [one["id"] for one in bread(shell, "runs", "list", "--json").json["items"]] == [run]
    lead, law, _ = shown["runs"]
    assert tree(shell, lead["id"]) == ["lead  suspended", "└─ expert  suspended  waits for"]
    part = bread(shell, "runs", "show", law["id"]).out
    assert re.search(f"^part of +pipeline {run} at 0/1$", part, re.MULTILINE)

    rests = bread(shell, "checkpoints", "approve", asked["expert"])
    assert (rests.code, f"checkpoints show {asked['law']}" in rests.out) == (3, True), rests
    assert tree(shell, run) == [
        "case  suspended",
        "├─ 0/0 lead  completed",
        "│  └─ expert  completed",
        "└─ 0/1 law  suspended  waits for",
    ]
    ended = bread(shell, "checkpoints", "approve", asked["law"], "--json")
    assert (ended.code, ended.lines[-1]["output"]) == (0, 'echo: ["lead: expert is done", "law is done"]')
    assert tree(shell, run)[0] == "case  completed"
    assert tree(shell, run)[-1] == "└─ 1 echo  completed"


def test_a_failed_and_a_cancelled_tree(shell: Shell) -> None:
    """B156, B83, C60: the code stands where it failed; a cancelled tree is cancelled down to its questions."""
    done = bread(shell, "invoke", "faulty", "go", "--json")
    assert tree(shell, done.json["runId"]) == [
        "faulty  failed  MODEL_ERROR",
        "├─ 0 echo  completed",
        "└─ 1 broken  failed  MODEL_ERROR",
    ]
    run = invoke(shell, "case")["runId"]
    assert bread(shell, "runs", "cancel", run).code == 0
    assert {line.split()[-2] for line in tree(shell, run)} == {"cancelled"}
    assert asked_by(shell) == {}


def test_delegations_are_listed_and_not_answered(shell: Shell) -> None:
    """B103, B104, B87: of kind delegation, with what they wait for; an answer is refused with the question to answer
    instead, and nothing is claimed; what is asked inside shows where it belongs and what comes after it."""
    invoke(shell, "case")
    asked = asked_by(shell)
    [listed] = bread(shell, "checkpoints", "list", "--kind", "delegation", "--json").json["items"]
    assert (listed["id"], listed["pending"][0]["childCheckpointIds"]) == (asked["lead"], [asked["expert"]])
    answerable = bread(shell, "checkpoints", "list", "--answerable", "--json").json["items"]
    assert {one["agentId"] for one in answerable} == {"expert", "law"}
    shown = bread(shell, "checkpoints", "show", asked["lead"]).out
    assert f"expert: {asked['expert']}" in shown
    assert shown.splitlines()[-1].endswith(f" checkpoints show {asked['expert']}")
    assert not re.search("approve|reject|answer", shown)
    for words in (
        ("answer", asked["lead"], '"yes"'),
        ("approve", asked["lead"]),
        ("reject", asked["lead"], "--detach"),
    ):
        refused = bread(shell, "checkpoints", *words, "--json")
        code, message = error_line(refused)
        assert (refused.code, code) == (1, "SUPERVISOR_CHECKPOINT_NOT_RESUMABLE")
        assert asked["expert"] in message
    assert asked_by(shell) == asked
    inside = bread(shell, "checkpoints", "show", asked["law"], "--json").json
    assert (inside["parent"]["kind"], inside["parent"]["slot"]) == ("pipeline", "0/1")
    text = bread(shell, "checkpoints", "show", asked["law"]).out
    assert re.search(f"^part of +pipeline {inside['rootRunId']} at 0/1$", text, re.MULTILINE)
    assert re.search("^then +echo$", text, re.MULTILINE)
    below = bread(shell, "checkpoints", "show", asked["expert"], "--json").json["parent"]
    assert (below["kind"], below["runId"]) == ("supervisor", listed["runId"])


def test_loops_are_listed_and_shown(shell: Shell) -> None:
    """B115, B144: with their iterations and outputs, for people and programs; drawn below the run of their host."""
    assert bread(shell, "loops", "list").out.splitlines()[-1] == "There are no loops."
    run = invoke(shell, "host", "write")["runId"]
    [loop] = bread(shell, "loops", "list", "--agent", "host", "--status", "completed", "--json").json["items"]
    assert (loop["runId"], len(loop["iterations"]), loop["maxIterations"]) == (run, 2, 3)
    row = bread(shell, "loops", "list").out.splitlines()[-1].split()
    assert (row[0], row[1:6]) == (loop["id"], ["completed", "2", "of", "3", "host"])
    assert bread(shell, "loops", "list", "--agent", "lead", "--json").json["items"] == []
    shown = bread(shell, "loops", "show", loop["id"], "--json").json
    assert shown == loop
    lines = bread(shell, "loops", "show", loop["id"]).out.splitlines()
    assert [line.split(None, 1)[1] for line in lines if line.startswith(("steps", "input", "result"))] == [
        "echo",
        '"first"',
        '"good"',
    ]
    assert sum("echo: " in line for line in lines) == 2
    assert tree(shell, run) == [
        "host  completed",
        "├─ iteration 1 of  completed",
        "│  └─ 0 echo  completed",
        "└─ iteration 2 of  completed",
        "   └─ 0 echo  completed",
    ]
    unknown = bread(shell, "loops", "show", "loop_nope", "--json")
    assert (unknown.code, error_line(unknown)[0]) == (1, "LOOP_NOT_FOUND")


def test_pipelines_are_completed(shell: Shell) -> None:
    """B156: a Tab offers them to invoke, and not to chat; entrypoints leave out what is not named."""
    from cli.test_completion import tab

    assert tab(shell, "bread --app tree_agents:everybody invoke ca") == ["case"]
    assert tab(shell, "bread --app tree_agents:everybody chat ca") == []
    assert tab(shell, "bread --app tree_agents:everybody invoke c", BREAD_ENTRYPOINTS="law,contract") == ["contract"]
    hidden = shell.plain(
        *("--store", shell.store, "--app", "tree_agents:everybody", "invoke", "plain", "go", "--json"),
        BREAD_ENTRYPOINTS="law,contract",
    )
    assert (hidden.code, error_line(hidden)[0]) == (1, "AGENT_NOT_FOUND")
    assert hidden.err.endswith("there are: law, contract\n")
