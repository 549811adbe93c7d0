"""The log on the command line: who did what and when, all of it, and whether it is whole."""

from __future__ import annotations

import sqlite3

import pytest

from bread import Bread
from cli_agents import everybody
from cli_kit import Shell, error_line


async def story(shell: Shell) -> tuple[str, str]:
    """A run that was answered by ann."""
    run, checkpoint = await shell.ask("asker", "s1")
    async with Bread(agents=everybody, store=shell.store) as bread:
        await bread.resume(checkpoint, {"approved": True}, author="ann")
    return run, checkpoint


async def test_the_timeline_says_who_and_when(shell: Shell) -> None:
    """B156: audit show gives every event of the tree in order, with principal and time."""
    run, checkpoint = await story(shell)
    items = shell.bread("audit", "show", run, "--json").json["items"]
    assert [item["seq"] for item in items] == list(range(1, len(items) + 1))
    assert items == sorted(items, key=lambda item: item["at"])
    [claim] = [item for item in items if item["name"] == "checkpoint.claimed"]
    assert (claim["stream"], claim["by"]) == (checkpoint, {"kind": "user", "id": "ann"})
    human = shell.bread("audit", "show", run).out
    [line] = [line for line in human.splitlines() if "checkpoint.claimed" in line]
    assert "user ann" in line
    assert claim["at"][:10] in line


async def test_everything_is_exported(shell: Shell) -> None:
    """B156: audit export gives each recorded event of the store, sessions included, one a line, in order."""
    run, _ = await story(shell)
    await shell.ask("buyer", "s2")
    exported = shell.bread("audit", "export").lines
    positions = [line["position"] for line in exported]
    assert positions == sorted(set(positions))
    with sqlite3.connect(shell.file) as raw:
        assert len(exported) == raw.execute("SELECT COUNT(*) FROM stored_events").fetchone()[0]
    raw.close()
    assert {"session.opened", "run.started", "checkpoint.opened"} <= {line["name"] for line in exported}
    own = shell.bread("audit", "export", run).lines
    assert own == [line for line in exported if line["rootRunId"] == run]


async def test_an_export_names_what_it_cannot_read(shell: Shell) -> None:
    """C43: events of a name or a shape that this release does not know are left out, and that is an error."""
    await story(shell)
    whole = shell.bread("audit", "export").lines
    with sqlite3.connect(shell.file) as raw:
        raw.execute("UPDATE stored_events SET topic = 'checkpoint.opened@9' WHERE topic = 'checkpoint.opened@1'")
    raw.close()
    done = shell.bread("audit", "export")
    assert (done.code, error_line(done)[0]) == (1, "EVENT_UNKNOWN")
    assert done.lines == [line for line in whole if line["name"] != "checkpoint.opened"]


async def test_a_sound_store_verifies(shell: Shell) -> None:
    """B156: exit code 0, and how much was looked at."""
    await story(shell)
    done = shell.bread("audit", "verify", "--json")
    assert done.code == 0
    assert done.json["ok"] is True
    assert done.json["events"] == len(shell.bread("audit", "export").lines)
    assert shell.bread("audit", "verify").out.splitlines()[-1].endswith("sound")


TAMPERED = {
    "a view row that says something else": "UPDATE bread_runs SET status = 'failed'",
    "a view row that is gone": "DELETE FROM bread_checkpoints",
    "an index row that points elsewhere": "UPDATE bread_log SET position = position + 1 WHERE seq = 2",
    "an event in the middle": "DELETE FROM stored_events WHERE topic = 'run.suspended@1'",
    "the last event of a run": "DELETE FROM stored_events WHERE topic = 'run.completed@1'",
    "the payload of an event": "UPDATE stored_events SET state = x'00' WHERE topic = 'checkpoint.opened@1'",
    "the name of an event": "UPDATE stored_events SET topic = 'run.forged@1' WHERE topic = 'run.completed@1'",
}


@pytest.mark.parametrize("what", TAMPERED)
async def test_tampering_is_found(shell: Shell, what: str) -> None:
    """B156: whatever was changed behind bread's back is named: exit code 5, and a line on stderr."""
    await story(shell)
    with sqlite3.connect(shell.file) as raw:
        assert raw.execute(TAMPERED[what]).rowcount > 0
    raw.close()
    done = shell.bread("audit", "verify")
    assert done.code == 5, done
    assert error_line(done)[0] == "LOG_DAMAGED"
    assert done.out.splitlines()[-1].endswith("DAMAGED")


async def test_views_are_rebuilt_from_the_log(shell: Shell) -> None:
    """B123, B156: --rebuild replaces views that were tampered with; what the log lacks it cannot make up."""
    run, _ = await story(shell)
    before = shell.bread("runs", "show", run, "--json").json
    with sqlite3.connect(shell.file) as raw:
        raw.execute("UPDATE bread_runs SET status = 'failed'")
        raw.execute("DELETE FROM bread_log")
    raw.close()
    done = shell.bread("audit", "verify", "--rebuild", "--json")
    assert (done.code, done.json["ok"]) == (0, True), done
    assert shell.bread("runs", "show", run, "--json").json == before
    with sqlite3.connect(shell.file) as raw:
        raw.execute("DELETE FROM stored_events WHERE topic = 'run.suspended@1'")
    raw.close()
    hopeless = shell.bread("audit", "verify", "--rebuild")
    assert (hopeless.code, error_line(hopeless)[0]) == (1, "STORE_INVALID")
