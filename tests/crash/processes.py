"""Child processes of a test, and the store that they share as it stands, read without bread's own doors."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import bread.domain.run_events  # noqa: F401  # the names of what is in the log
from bread.domain.checkpoint import CheckpointClaimed, CheckpointOpened
from bread.domain.envelope import Recorded
from bread.domain.events import Event
from bread.domain.messages import read_turn
from bread.domain.run_events import ModelResponded, Resumed, RunTaken, Suspended, ToolCalled
from bread.domain.run_state import RunState
from bread.runtime import rebuild
from bread.runtime.folds import fold_run
from bread.runtime.ids import short_id
from bread.transport.codec import decode_event
from crash.stores import Shared, SqliteFile
from forked import Forked

CHILD = Path(__file__).with_name("child.py")


class Died(Exception):
    """The process is gone; what it had not answered by then is undecided."""


class Refusal(Exception):
    """A command was answered with an error of bread."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(f"{code}: {message}")
        self.code = code


class Child:
    """A process of bread. It opens the store when it is told to."""

    def __init__(self, shared: Shared, folder: Path, number: int, **spec: Any) -> None:
        self.worker = short_id("w")
        spec = {"store": shared.url, "worker": self.worker, "effects": f"{folder}/effects.jsonl"} | shared.spec | spec
        self.errors = folder / f"child-{number}.err"
        self._told: list[dict[str, Any]] = []
        self._sent = 0
        with self.errors.open("wb") as errors:
            self._process = Forked([str(CHILD), json.dumps(spec)], stderr=errors)
        # It may die at any moment, also while the test waits for another one.
        self._mourner = threading.Thread(target=self._mourn, args=(shared,), daemon=True)
        self._mourner.start()

    def _mourn(self, shared: Shared) -> None:
        self._process.wait()
        shared.is_gone(self.worker)

    @property
    def pid(self) -> int:
        return self._process.pid

    def open(self) -> None:
        """Open the store: what is ready or orphaned has been taken when this returns."""
        self.call("open")

    def send(self, do: str, **arguments: Any) -> int:
        """Send a command and do not wait; `reply` waits."""
        self._sent += 1
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps({"id": self._sent, "do": do, **arguments}) + "\n")
            self._process.stdin.flush()
        except BrokenPipeError as error:
            raise Died from error
        return self._sent

    def reply(self, number: int) -> Any:
        line = self._await(id=number)
        if "code" in line:
            raise Refusal(line["code"], line["message"])
        return line["gives"]

    def call(self, do: str, **arguments: Any) -> Any:
        return self.reply(self.send(do, **arguments))

    def wait_for(self, event: str, **what: Any) -> dict[str, Any]:
        """Wait until the child tells of it."""
        return self._await(event=event, **what)

    def _await(self, **what: Any) -> dict[str, Any]:
        for line in self._told:
            if what.items() <= line.items():
                self._told.remove(line)
                return line
        while True:
            line = self._read()
            if what.items() <= line.items():
                return line
            self._told.append(line)

    def _read(self) -> dict[str, Any]:
        text = self._process.stdout.readline()
        if not text.endswith("\n"):
            raise Died
        line: dict[str, Any] = json.loads(text)
        return line

    def signal(self, number: signal.Signals) -> None:
        self._process.send_signal(number)

    def stop(self) -> None:
        """SIGSTOP, and it stands still."""
        self.signal(signal.SIGSTOP)
        while Path(f"/proc/{self.pid}/stat").read_text().rpartition(") ")[2][0] != "T":
            pass

    def kill(self) -> None:
        self.signal(signal.SIGKILL)
        self.gone()

    def gone(self) -> int:
        """The exit status of a process that has died or was killed, once it has and all can see that."""
        code = self._process.wait()
        self._mourner.join()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                with suppress(BrokenPipeError):
                    pipe.close()
        return code

    def close(self) -> None:
        """A clean shutdown."""
        self.call("close")
        assert self.gone() == 0

    def discard(self) -> None:
        if self._process.poll() is None:
            self._process.kill()
        self.gone()

    def complaints(self) -> str:
        return self.errors.read_text()


class Processes:
    """The children of one test, on one store."""

    def __init__(self, shared: Shared, folder: Path) -> None:
        self.shared, self.folder = shared, folder
        self.children: list[Child] = []
        self.shells: list[Forked] = []

    def child(self, *, open: bool = True, **spec: Any) -> Child:
        """A process; `open=False` leaves it to the test to say when it opens the store."""
        child = Child(self.shared, self.folder, len(self.children), **spec)
        self.children.append(child)
        if open:
            child.open()
        return child

    def several(self, count: int, **spec: Any) -> list[Child]:
        """Processes that start at the same time."""
        children = [self.child(open=False, **spec) for _ in range(count)]
        for child in children:
            child.wait_for("loaded")
        numbers = [child.send("open") for child in children]
        for child, number in zip(children, numbers, strict=True):
            child.reply(number)
        return children

    def shell(self, *words: str) -> Forked:
        """The command line on this store. What it prints, and how it ends, is for the test to read."""
        command = ["-m", "bread.runtime.cli", "--store", self.shared.url, *words]
        nats = self.shared.spec.get("nats")
        env = os.environ | ({"BREAD_NATS": nats} if nats else {})
        shell = Forked(command, env=env, stdin=subprocess.DEVNULL)
        self.shells.append(shell)
        return shell

    @property
    def log(self) -> Log:
        return Log.of(self.shared)

    def effects(self, **what: Any) -> list[dict[str, Any]]:
        """What tools did, or models were asked (`model=turn`), in order."""
        file = self.folder / "effects.jsonl"
        lines = [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []
        return [line for line in lines if what.items() <= line.items()]

    def declare_dead(self, child: Child) -> None:
        """Make everybody believe that a living process is dead: its lock is gone, and it does not know; or its heart is
        not heard any more, which it does know."""
        if self.shared.kind == "postgres":
            child.call("faint")
        self.shared.give_up(child.worker)

    def assert_quiet(self, *but: Child) -> None:
        """No process logged a warning or an error: no lock error, no task that failed unseen."""
        quiet = [child for child in self.children if child not in but]
        assert {child.errors.name: child.complaints() for child in quiet if child.complaints()} == {}


@contextmanager
def processes_on(shared: Shared, folder: Path) -> Iterator[Processes]:
    processes = Processes(shared, folder)
    try:
        yield processes
    finally:
        for child in processes.children:
            child.discard()
        for shell in processes.shells:
            shell.kill()
            shell.communicate()


@dataclass(frozen=True)
class Log:
    """The streams of a store, and what the check of the log and its views has found wrong."""

    streams: dict[str, list[Recorded]]
    problems: list[str]

    @classmethod
    def read(cls, database: Path) -> Log:
        return cls.of(SqliteFile(database))

    @classmethod
    def of(cls, shared: Shared) -> Log:
        with shared.read() as cursor:
            problems = rebuild.check(cursor).problems
            cursor.execute(
                "SELECT originator_id, originator_version, topic, state, rowid FROM stored_events ORDER BY rowid"
            )
            streams: dict[str, list[Recorded]] = {}
            for row in cursor.fetchall():
                streams.setdefault(row[0], []).append(decode_event(*row))
        return cls(streams, problems)

    def events(self, stream: str, kind: type[Event] = Event) -> list[Any]:
        return [recorded.event for recorded in self.streams.get(stream, ()) if isinstance(recorded.event, kind)]

    def recorded(self, stream: str, kind: type[Event]) -> list[Recorded]:
        return [recorded for recorded in self.streams.get(stream, ()) if isinstance(recorded.event, kind)]

    def names(self, stream: str) -> list[str]:
        return [recorded.event.NAME.partition(".")[2] for recorded in self.streams.get(stream, ())]

    @property
    def runs(self) -> list[str]:
        return [stream for stream in self.streams if stream.startswith("run_")]

    @property
    def checkpoints(self) -> list[str]:
        return [stream for stream in self.streams if stream.startswith("cp_")]

    def state(self, run: str) -> RunState:
        return fold_run(run, self.streams.get(run, ()))

    def takers(self, run: str) -> list[str | None]:
        return [event.owner for event in self.events(run, RunTaken)]

    def answered(self, run: str) -> dict[str, Any]:
        """The answer of each question of a run that has one."""
        return {event.checkpoint: event.response for event in self.events(run, Resumed)}

    def doubts(self, run: str) -> list[tuple[str, int]]:
        """The executions that a person was asked about: (call, version of its ToolCalled)."""
        called: dict[str, int] = {}
        found = []
        for recorded in self.streams.get(run, ()):
            match recorded.event:
                case ToolCalled(call=call):
                    called[call] = recorded.version
                case Suspended(call=call, kind="in_doubt"):
                    found.append((call, called[call]))
        return found

    def unsettled(self, run: str) -> list[tuple[str, int]]:
        """The executions of tools that are not idempotent and have an intent, but no outcome."""
        calls = self.state(run).calls
        return [(call.key, call.called_at) for call in calls if call.status == "called" and not call.idempotent]

    def assert_sound(self) -> None:
        """At any moment, also right after a kill: all streams load, and what must be one commit is whole (B43-B47)."""
        assert self.problems == []
        opened = {c: e for c in self.checkpoints for e in self.events(c, CheckpointOpened)}
        suspended = {e.checkpoint: (run, e) for run in self.runs for e in self.events(run, Suspended)}
        assert opened.keys() == suspended.keys() == set(self.checkpoints)
        for checkpoint, question in opened.items():
            run, event = suspended[checkpoint]
            assert (question.run, question.call, question.kind) == (run, event.call, event.kind)
            assert question.call in self._calls(run)
        claimed = {c: e.resumed for c in self.checkpoints for e in self.events(c, CheckpointClaimed)}
        resumed = {
            r.event.checkpoint: r.version
            for run in self.runs
            for r in self.recorded(run, Resumed)
            if isinstance(r.event, Resumed) and r.event.verdict != "expired"
        }
        assert claimed == resumed

    def _calls(self, run: str) -> set[str]:
        turns = self.events(run, ModelResponded)
        return {f"{turn.base}.{index}" for turn in turns for index, _ in enumerate(read_turn(turn.message).calls)}
