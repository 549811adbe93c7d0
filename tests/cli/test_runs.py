"""Watching, cancelling and retrying runs."""

from __future__ import annotations

import json
import signal
import sqlite3

import pytest

from bread import Bread, RunStopped
from bread.domain.envelope import SYSTEM, Meta
from bread.domain.run_events import QuestionAsked
from bread.transport.codec import encode_event
from cli_agents import everybody
from cli_kit import Shell, error_line


async def test_a_run_is_watched_over_its_suspension(shell: Shell) -> None:
    """B66, B130: a watcher in a process of its own sees the whole run once, also what another process does after the
    question; a cursor goes on where it stood."""
    run, checkpoint = await shell.ask("asker")
    with shell.start("runs", "watch", run, "--json") as watcher:
        assert watcher.stdout is not None
        first = [watcher.stdout.readline() for _ in range(3)]
        assert '"human:required"' in first[-1]
        async with Bread(agents=everybody, store=shell.store) as bread:
            await bread.resume(checkpoint, {"approved": True}, author="ann")
        out, error = watcher.communicate()
    assert (watcher.returncode, error) == (0, "")
    whole = shell.bread("runs", "watch", run, "--json").lines
    assert len(first) + len(out.splitlines()) == len(whole)
    assert whole[-1]["output"] == "Thank you."
    seqs = [crumb["seq"] for crumb in whole]
    assert seqs == sorted(set(seqs))
    rest = shell.bread("runs", "watch", run, "--after", whole[2]["cursor"], "--json").lines
    assert rest == whole[3:]


async def test_ctrl_c_leaves_a_watch(shell: Shell) -> None:
    """B130, B150: exit code 130, the run is not touched, and the line names the cursor to go on from."""
    run, _ = await shell.ask("asker", "s1")
    with shell.start("runs", "watch", run, "--json") as watcher:
        assert watcher.stdout is not None
        while (crumb := json.loads(watcher.stdout.readline()))["type"] != "human:required":
            pass
        watcher.send_signal(signal.SIGINT)
        _, error = watcher.communicate()
    assert watcher.returncode == 130
    assert error.rstrip().endswith(f"runs watch {run} --after {crumb['cursor']}")
    assert shell.bread("runs", "show", run, "--json").json["status"] == "suspended"


async def test_who_watches_is_told_of_a_deletion(shell: Shell) -> None:
    """B77: the session of a watched run is deleted by another process: its last crumb says so, exit code 4."""
    run, _ = await shell.ask("asker", "s1")
    with shell.start("runs", "watch", run, "--json") as watcher:
        assert watcher.stdout is not None
        while '"human:required"' not in watcher.stdout.readline():
            pass
        assert shell.bread("sessions", "delete", "s1").code == 0
        out, error = watcher.communicate()
    assert (watcher.returncode, error) == (4, "")
    assert json.loads(out.splitlines()[-1])["code"] == "SESSION_DELETED"


async def test_events_of_a_newer_release_do_not_deafen(shell: Shell) -> None:
    """B66, C43: another process writes what this one cannot read, and an event that points to it; it is told so, and
    goes on hearing of its own run."""
    run, checkpoint = await shell.ask("asker")
    with shell.start("runs", "watch", run, "--json") as watcher:
        assert watcher.stdout is not None
        assert watcher.stderr is not None
        while '"human:required"' not in watcher.stdout.readline():
            pass
        newer = [("cp_newer", "checkpoint.opened@9", b"?"), ("run_newer", "run.question_asked@1", asked("cp_newer"))]
        with sqlite3.connect(shell.file) as raw:
            raw.executemany(
                "INSERT INTO stored_events (originator_id, originator_version, topic, state) VALUES (?, 1, ?, ?)", newer
            )
        raw.close()
        told = {watcher.stderr.readline().split(": ")[1] for _ in newer}
        assert told == {"cp_newer", "run_newer"}
        async with Bread(agents=everybody, store=shell.store) as bread:
            await bread.resume(checkpoint, {"approved": True})
        out, _ = watcher.communicate()
    assert (watcher.returncode, json.loads(out.splitlines()[-1])["output"]) == (0, "Thank you.")


def asked(checkpoint: str) -> bytes:
    meta = Meta(at=0.0, by=SYSTEM, commit="c_newer", seq=1, root="run_newer", worker="w_newer")
    return encode_event("run_newer", QuestionAsked(checkpoint=checkpoint, run="run_newer"), meta)


async def test_a_run_is_performed_where_it_is_watched(shell: Shell) -> None:
    """B48: `watch --execute` takes a run that nobody performs, shows it, and ends where it rests: exit code 3."""
    run, checkpoint = await shell.ask("twice")
    rests = shell.bread("runs", "watch", run, "--execute", "--json")
    assert (rests.code, rests.lines[-1]["checkpointId"]) == (3, checkpoint), rests
    shell.bread("checkpoints", "approve", checkpoint, "--detach")
    went_on = shell.bread("runs", "watch", run, "--execute", "--after", rests.lines[-1]["cursor"], "--json")
    assert went_on.code == 3, went_on
    assert [crumb["type"] for crumb in went_on.lines if crumb["type"] != "text:delta"] == [
        "human:resumed",
        "human:required",
    ]
    nothing_new = shell.bread("runs", "watch", run, "--execute", "--after", went_on.lines[-1]["cursor"], "--json")
    assert (nothing_new.code, nothing_new.out) == (3, ""), nothing_new


async def test_a_cancelled_run_stays_cancelled(shell: Shell) -> None:
    """B18: cancel says the status; the question is gone, and who watches is told by exit code 4."""
    run, checkpoint = await shell.ask("asker")
    assert shell.bread("runs", "cancel", run, "--reason", "no longer", "--author", "ann", "--json").json == {
        "runId": run,
        "status": "cancelled",
    }
    watched = shell.bread("runs", "watch", run, "--json")
    assert (watched.code, watched.lines[-1]["code"]) == (4, "RUN_CANCELLED")
    late = shell.bread("checkpoints", "approve", checkpoint)
    assert (late.code, error_line(late)[0]) == (1, "CHECKPOINT_NOT_FOUND")


async def test_a_failed_run_is_retried(shell: Shell) -> None:
    """B59: retry goes on from the failure; exit code 4 while it fails, 0 when it has ended; only once."""
    async with Bread(agents=everybody, store=shell.store) as bread:
        with pytest.raises(RunStopped) as failed:
            await bread.run("broken", "go")
    run = failed.value.details["run_id"]
    still = shell.bread("runs", "retry", run)
    assert still.code == 4, still
    assert "out of order" in still.out
    left = shell.plain("--store", shell.store, "runs", "retry", run, "--detach", "--json")
    assert (left.code, left.json) == (0, {"rootRunId": run})
    assert shell.bread("runs", "watch", run, "--execute").code == 4
    mended = shell.bread("runs", "retry", run, "--json", BREAD_TEST_MENDED="1")
    assert (mended.code, mended.lines[-1]["output"]) == (0, "Mended."), mended
    again = shell.bread("runs", "retry", run)
    assert (again.code, error_line(again)[0]) == (1, "RUN_NOT_RETRYABLE")
