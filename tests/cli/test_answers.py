"""Answers on the command line: the run goes on here, and the exit code says how far."""

from __future__ import annotations

import shlex
import signal

from bread import Bread
from cli_agents import everybody
from cli_kit import Shell, error_line


async def test_an_approval_is_carried_out_here(shell: Shell) -> None:
    """B156, B36, B49: approve shows the continuation as it comes and ends with the run; exit code 0."""
    _, checkpoint = await shell.ask("buyer")
    done = shell.bread("checkpoints", "approve", checkpoint, "--author", "ann", "--comment", "fine", "--json")
    assert (done.code, done.err) == (0, "")
    types = [crumb["type"] for crumb in done.lines]
    shown = [one for one in types if one != "text:delta"]
    assert shown == ["human:resumed", "tool:call", "tool:result", "agent:run:end"]
    assert done.lines[-1]["output"] == "Bought."
    settled = shell.bread("checkpoints", "show", checkpoint, "--json").json
    assert (settled["verdict"], settled["comment"]) == ("approved", "fine")
    assert settled["settledBy"] == {"kind": "user", "id": "ann"}


async def test_edited_arguments_are_executed(shell: Shell) -> None:
    """B36, C30: --args replaces the arguments; what does not fit is refused and the question stays."""
    _, checkpoint = await shell.ask("buyer")
    misfit = shell.bread("checkpoints", "approve", checkpoint, "--args", '{"item": "flour"}')
    assert (misfit.code, error_line(misfit)[0]) == (1, "RESPONSE_INVALID")
    done = shell.bread("checkpoints", "approve", checkpoint, "--args", '{"item": "salt", "count": 1}', "--json")
    [result] = [crumb for crumb in done.lines if crumb["type"] == "tool:result"]
    assert result["result"] == "ordered 1 salt"


async def test_a_rejection_is_told_to_the_model(shell: Shell) -> None:
    """B37, C51: reject with a reason; the tool is not called, and the run goes on to its end."""
    _, checkpoint = await shell.ask("buyer", "s1")
    done = shell.bread("checkpoints", "reject", checkpoint, "--reason", "too much")
    assert done.code == 0
    assert "tool call" not in done.out
    messages = shell.bread("sessions", "show", "s1", "--json").json["messages"]
    [denied] = [message for message in messages if message["role"] == "tool"]
    assert denied["outcome"] == "denied"
    assert "too much" in str(denied["content"])


async def test_a_run_that_asks_again_rests(shell: Shell) -> None:
    """B52: exit code 3 when the run comes to rest on the next question, which is named with the way to answer it."""
    run, first = await shell.ask("twice")
    done = shell.bread("checkpoints", "answer", first, '{"approved": true}')
    assert done.code == 3, done
    [second] = shell.bread("runs", "show", run, "--json").json["checkpoints"]
    assert second != first
    assert f"bread --store {shell.store} --app cli_agents:everybody checkpoints show {second}" in done.out
    assert shell.bread("checkpoints", "answer", second, "-", stdin='{"approved": true}').code == 0


async def test_the_second_answer_is_told_that_it_lost(shell: Shell) -> None:
    """B53, C4: a used question is not found; the same idempotency key gets the same continuation again."""
    _, checkpoint = await shell.ask("asker")
    key = ("--idempotency-key", "k1", "--author", "ann", "--json")
    first = shell.bread("checkpoints", "approve", checkpoint, *key)
    again = shell.bread("checkpoints", "approve", checkpoint, *key)
    assert (first.code, again.code) == (0, 0)
    assert [c["seq"] for c in again.lines][-1] == [c["seq"] for c in first.lines][-1]
    other = shell.bread("checkpoints", "reject", checkpoint)
    assert (other.code, error_line(other)[0]) == (1, "CHECKPOINT_NOT_FOUND")
    conflict = shell.bread("checkpoints", "reject", checkpoint, *key)
    assert (conflict.code, error_line(conflict)[0]) == (1, "IDEMPOTENCY_CONFLICT")


async def test_detached_answers_leave_the_run_to_others(shell: Shell) -> None:
    """B156: --detach records the answer and performs nothing; a process that has the agent goes on."""
    run, checkpoint = await shell.ask("asker")
    done = shell.plain("--store", shell.store, "checkpoints", "approve", checkpoint, "--detach", "--json")
    assert (done.code, done.json) == (0, {"rootRunId": run})
    assert shell.bread("runs", "show", run, "--json").json["status"] == "running"
    await finish(shell, run)
    assert shell.bread("runs", "show", run, "--json").json["output"] == "Thank you."


async def test_an_answer_needs_the_agent_or_detach(shell: Shell) -> None:
    """B54: without the agent the question stays pending, and the line says what to do."""
    _, checkpoint = await shell.ask("asker")
    done = shell.plain("--store", shell.store, "checkpoints", "approve", checkpoint)
    code, message = error_line(done)
    assert (done.code, code) == (1, "AGENT_NOT_FOUND")
    assert "--app" in message
    assert "--detach" in message
    assert shell.bread("checkpoints", "show", checkpoint, "--json").json["status"] == "pending"


async def test_ctrl_c_leaves_a_run_that_goes_on(shell: Shell) -> None:
    """B48, B67: interrupted in the continuation's model call: exit code 130, the answer is kept, and the line names
    the command that goes on."""
    run, checkpoint = await shell.ask("patient")
    with shell.start("checkpoints", "approve", checkpoint, "--json", BREAD_TEST_HOLD="1") as process:
        assert process.stdout is not None
        assert '"human:resumed"' in process.stdout.readline()
        process.send_signal(signal.SIGINT)
        _, error = process.communicate()
    assert process.returncode == 130
    way = error.splitlines()[-1].partition(" goes on with: bread ")[2]
    assert f"runs watch {run} --execute --after" in way
    assert shell.bread("runs", "show", run, "--json").json["owner"] is None
    went_on = shell.plain(*shlex.split(way))
    assert (went_on.code, went_on.out.splitlines()[-1].split()[-2:]) == (0, ["run", "finished"]), went_on


async def finish(shell: Shell, run: str) -> None:
    """Let a run that is ready go on, in this process, to its end."""
    async with Bread(agents=everybody, store=shell.store) as bread:
        async for _ in bread.observe(run):
            pass
