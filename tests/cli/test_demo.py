"""The demo: by itself, and with a person at a terminal who kills it."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from bread.runtime.cli.demo import AGENT, PUBLISHED, fetched
from bread.runtime.cli.demo_together import PIPELINE
from cli_kit import PATIENCE, Shell, Terminal, environment, error_line


def demo(shell: Shell) -> Terminal:
    return Terminal(shell.argv("demo"), shell.folder)


def database(shell: Shell) -> Path:
    return shell.folder / ".bread" / "bread.db"


def the_run(seen: str) -> str:
    found = re.search(r"run_\w+", seen)
    assert found, seen
    return found[0]


@pytest.fixture(autouse=True)
def no_process_is_left(shell: Shell) -> Iterator[None]:
    """Whatever a test started in its folder has ended with it."""
    yield
    left = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if (process / "cwd").readlink() == shell.folder:
                left.append((process / "cmdline").read_text())
        except OSError:
            continue  # ended, or not ours to look at
    assert left == []


def test_it_plays_by_itself_without_a_terminal(shell: Shell) -> None:
    """B156, B44, B62, B67, C1, C6: three processes are killed, two answer at once, every promise is kept; the first
    screen says where the data is and which model runs; and again."""
    for _ in range(2):
        done = shell.fresh("demo")
        assert (done.code, done.err) == (0, ""), done
        first = done.out.splitlines()[0]
        assert "data: SQLite .bread/bread.db" in first
        assert "model: scripted" in first
        assert done.out.count("was killed with SIGKILL") == 3
        assert "BROKEN" not in done.out
        assert "bread audit show run_" in done.out
        run = the_run(done.out)
        assert fetched(database(shell), run) == 1
    sound = shell.plain("audit", "verify")
    assert sound.code == 0, sound
    runs = shell.plain("runs", "list", "--json").json["items"]
    assert [(one["agentId"], one["status"]) for one in runs] == [(AGENT, "completed")] * 2


def test_a_composition_plays_by_itself(shell: Shell) -> None:
    """B156, B93, B95, B105: a supervisor in a branch; two processes answer at the same instant; the tree is shown
    before and after, the outputs are merged in order, every promise is kept; and again, at a terminal."""
    done = shell.fresh("demo", "--composition")
    assert (done.code, done.err) == (0, ""), done
    with Terminal(shell.argv("demo", "--composition"), shell.folder) as terminal:
        assert terminal.end() == 0, terminal.seen
    for seen in (done.out, terminal.seen):
        assert "BROKEN" not in seen
        assert seen.count("  kept  ") == 8
        assert re.search(r"process (\d+) as ann and process (?!\1 )\d+ as bob answer at the same instant", seen)
        before, _, after = seen.partition("answer at the same instant")
        for tree, status in ((before, "suspended"), (after, "completed")):
            assert re.search(rf"├─ 0/0 demo_desk  {status}.*\n  │  └─ demo_lawyer  {status}", tree)
            assert re.search(rf"─ 0/1 demo_finance  {status}", tree)
        assert "Filed: desk: the terms are signed; finance: the price is signed." in after
        assert f"bread runs show {the_run(seen)}" in after
    runs = shell.plain("runs", "list", "--json").json["items"]
    assert [(one["agentId"], one["status"]) for one in runs] == [(PIPELINE, "completed")] * 2
    assert shell.plain("audit", "verify").code == 0


def test_ctrl_c_leaves_no_composition_behind(shell: Shell) -> None:
    """B48: interrupted between the questions and the answers: exit code 130, no process is left; the next play cancels
    what this one has left, and ends well."""
    with Terminal(shell.argv("demo", "--composition"), shell.folder) as terminal:
        run = the_run(terminal.expect("The tree while it waits"))
        terminal.interrupt()
        assert terminal.end() == 130, terminal.seen
    again = shell.plain("demo", "--composition")
    assert again.code == 0, again
    assert f"run {run} of an earlier demo is cancelled" in again.out


def test_a_person_kills_it_runs_it_again_and_approves(shell: Shell) -> None:
    """B156, B65, B44: a real SIGKILL at the question; the same command goes on at once with the same run, and the tool
    is not run again."""
    with demo(shell) as first:
        screen = first.expect("Type a letter")
        run = the_run(screen)
        assert "data: SQLite .bread/bread.db (new)" in screen.splitlines()[0]
        for event in ("#1   run started", "tool call       fetch_draft", "WAITING         approve_publish"):
            assert event in screen
        first.expect("checkpoints approve cp_")
        first.expect("fetch_draft is not run again")
        first.type("k")
        assert first.end() == -signal.SIGKILL
    with demo(shell) as second:
        screen = second.expect("Type a letter")
        assert the_run(screen) == run
        assert "fetch_draft was executed 1 x so far" in screen
        second.type("a")
        second.expect(PUBLISHED)
        assert second.end() == 0, second.seen
    assert "BROKEN" not in second.seen
    assert "run finished" in second.seen
    assert fetched(database(shell), run) == 1


def test_a_person_leaves_and_another_terminal_answers(shell: Shell) -> None:
    """B66, B156: q leaves the run as it is; `bread checkpoints reject` goes on with it elsewhere, without --app, while
    the demo of a second terminal shows it."""
    with demo(shell) as first:
        run = the_run(first.expect("is not run again"))
        first.type("q")
        assert first.end() == 0
    with demo(shell) as second:
        screen = second.expect("is not run again")
        checkpoint = re.findall(r"cp_\w+", screen)[-1]
        done = shell.plain("checkpoints", "reject", checkpoint, "--reason", "too early", "--author", "bob")
        assert done.code == 0, done
        second.expect("by bob")
        second.expect("Not published: too early.")
        assert second.end() == 0, second.seen
    assert the_run(second.seen) == run


def test_ctrl_c_keeps_the_run(shell: Shell) -> None:
    """B48: exit code 130, and how to go on; nonsense at the prompt only shows it again."""
    with demo(shell) as terminal:
        terminal.expect("is not run again")
        terminal.type("nonsense")
        terminal.expect("is not run again")
        terminal.interrupt()
        assert terminal.end() == 130
    assert "goes on with it" in terminal.seen
    [left] = shell.plain("checkpoints", "list", "--json").json["items"]
    assert left["agentId"] == AGENT


def test_ctrl_c_ends_the_play_and_its_processes(shell: Shell) -> None:
    """B48: interrupted while it plays by itself: exit code 130, no process is left, and the next play ends well."""
    with subprocess.Popen(
        shell.argv("demo"),
        cwd=shell.folder,
        env=environment(),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as play:
        assert play.stdout is not None
        while "run started" not in play.stdout.readline():
            pass
        play.send_signal(signal.SIGINT)
        play.communicate(timeout=PATIENCE)
    assert play.returncode == 130
    again = shell.plain("demo")
    assert again.code == 0, again


def test_a_call_that_was_cut_off_is_asked_about(shell: Shell) -> None:
    """B67: killed inside fetch_draft, whose outcome nobody knows: the person says that it failed, and the run ends."""
    script = (
        "import asyncio, os, signal\n"
        "from pathlib import Path\n"
        "from bread import Bread\n"
        "from bread.runtime.cli.demo import AGENT, INPUT, publisher\n"
        "die = lambda point: os.kill(os.getpid(), signal.SIGKILL) if point == 'tool_start' else None\n"
        "async def main():\n"
        "    async with Bread(agents=[publisher(Path('.bread/bread.db'))], fault=die) as bread:\n"
        "        await bread.run(AGENT, INPUT)\n"
        "asyncio.run(main())\n"
    )
    killed = subprocess.run([sys.executable, "-c", script], cwd=shell.folder, check=False)
    assert killed.returncode == -signal.SIGKILL
    with demo(shell) as terminal:
        terminal.expect("(in_doubt)")
        terminal.expect("is not run again")
        terminal.type("f")
        terminal.expect("nothing to publish")
        assert terminal.end() == 0, terminal.seen


def test_the_demo_needs_a_file_and_its_place(shell: Shell) -> None:
    """B156: a store in memory cannot outlive a process, and two plays do not share a store."""
    memory = shell.plain("--store", "memory://", "demo")
    assert (memory.code, error_line(memory)[0]) == (1, "INPUT_INVALID")
    place = shell.plain("--store", "sqlite:////proc/bread/bread.db", "demo")
    assert (place.code, error_line(place)[0]) == (1, "STORE_UNAVAILABLE")
    with demo(shell) as terminal:
        terminal.expect("is not run again")
        busy = shell.plain("demo")
        assert (busy.code, error_line(busy)[0]) == (1, "DEMO_BUSY")
