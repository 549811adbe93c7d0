"""A stage on which time stands still: real decisions, hubs and observers, and every step of the world taken by hand.

Two processes share one log. A step is one of these: a commit; a frame that reaches a hub, soon or late, those of other
processes before own ones or after them; a piece of text; an observer's way from one await to the next; a client that
leaves or comes back; a crash. Which step is next is drawn from a seed: what breaks a promise once does so again.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from random import Random
from typing import Any

from bread.domain import commits
from bread.domain.events import JsonValue
from bread.domain.messages import ToolUse, native_message
from bread.domain.plans import Ask, Execute, Plan
from bread.domain.ports import Logged
from bread.domain.run import (
    Answer,
    RaiseDoubt,
    RecordFailure,
    RecordResult,
    RecordTurn,
    Release,
    Retry,
    Start,
    StartIntents,
    Take,
)
from bread.domain.run_events import Parked
from bread.domain.run_state import AskDoubt, CallModel, CallTool, RunState, StartCalls, due, evolve
from bread.domain.session import EndSession
from bread.domain.streams import Streams
from bread.projections.render import subject_of
from bread.runtime.kit import MemoryStreams
from bread.transport.local import HintFrame

from .agents import WORDS
from .clients import Wire, crumbs_of, durable
from .viewers import AGENT, INFO, NOTHING, ROOT, SESSION, Attempt, Process, T, Viewer


class Stage:
    """The world of one trial."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.streams = MemoryStreams(at=1000.0)
        self.log: list[Logged] = []
        self.processes = [Process("w0"), Process("w1")]
        self.viewers: list[Viewer] = []
        self.turns = self.questions = self.retries = 0
        self.counts: dict[str, int] = {}

    # --- what is so

    @property
    def run(self) -> RunState:
        return self.streams.run(ROOT)

    def present(self) -> list[Logged]:
        """What the store would give now: nothing of an erased run."""
        return [] if self.run.status == "erased" else self.log

    def rests(self) -> list[int]:
        """Where the tree rested, or the root ended, by seq."""
        found = (entry.recorded for entry in self.log if entry.recorded.stream == ROOT)
        return [one.meta.seq for one in found if isinstance(one.event, Parked) or one.event.NAME in ENDS]

    def last_rest(self) -> int:
        return max(self.rests(), default=0)

    def seq_of(self, version: int) -> int:
        return next(e.recorded.meta.seq for e in self.log if (e.recorded.stream, e.recorded.version) == (ROOT, version))

    # --- commits

    def commit(self, process: Process, decide: Callable[[Streams], T]) -> T:
        last = self.log[-1].recorded.meta.seq if self.log else 0
        self.streams.at += 1.0
        result = self.streams.commit(decide)
        fresh = [one for one in self.streams.log(ROOT) if one.meta.seq > last]
        entries = []
        for recorded in fresh:
            where = subject_of(recorded)
            held = self.streams.recorded(where[0]) if where else ()
            subject = next((one for one in held if where and one.version == where[1]), None)
            entries.append(Logged(recorded, subject))
        if entries:
            self.log += entries
            for other in self.processes:
                (other.own if other is process else other.foreign).append(entries)
        return result

    def start(self, process: Process) -> None:
        command = Start(AGENT, "go", SESSION, ROOT, self.streams.at, process.worker, 50)
        self.commit(process, lambda streams: commits.start(streams, ROOT, command, {}))

    # --- steps

    def steps(self) -> list[Callable[[], None]]:
        """Everything that could happen next, the likelier the more often."""
        found: list[Callable[[], None]] = []
        for process in self.processes:
            found += self._steps_of(process)
        for viewer in self.viewers:
            if viewer.done:
                continue
            if viewer.process is None:
                found.append(lambda viewer=viewer: self._connect(viewer))  # type: ignore[misc]
            elif viewer.can_step():
                found += [viewer.step] * 3
            if viewer.process is not None and viewer.rest_from is None and self.random.random() < 0.15:
                found.append(viewer.leave)
        if self.random.random() < 0.03 and self.run.status != "erased":
            found.append(self._look_until_rest)
        return found

    def _look_until_rest(self) -> None:
        viewer = Viewer(self, rest_from=0, past_rests=True)
        viewer.connect(self.random.choice(self.processes))
        self.viewers.append(viewer)

    def _connect(self, viewer: Viewer) -> None:
        viewer.connect(self.random.choice(self.processes))

    def _steps_of(self, process: Process) -> list[Callable[[], None]]:
        found: list[Callable[[], None]] = []
        if process.own:
            found += [lambda: self._deliver(process, process.own.popleft())] * 4
        if process.foreign:
            found.append(lambda: self._deliver(process, process.foreign.popleft()))
        if process.over:
            found += [lambda: process.hub.end_text(ROOT, process.over.pop(0))] * 2
        if process.attempt is not None:
            attempt = process.attempt
            if attempt.left:
                found += [lambda: self._say(process, attempt)] * 6
                found.append(lambda: self._hint(process))
            found.append(lambda: self._end_attempt(process, attempt))
        run = self.run
        if run.status == "active":
            found += self._work_of(process, run)
            rarely = self.random.random()
            if rarely < 0.02:
                found.append(lambda: self._crash(process))
            elif rarely < 0.03:
                found.append(lambda: self._cancel(process))
            elif rarely < 0.035:
                found.append(lambda: self._delete(process))
        elif run.status == "failed" and self.retries < 2:
            found.append(lambda: self._retry(process))
        return found

    def _work_of(self, process: Process, run: RunState) -> list[Callable[[], None]]:
        found: list[Callable[[], None]] = []
        if run.has_work and run.owner != process.worker:
            alive = run.owner in {other.worker for other in self.processes}
            if not alive or self.random.random() < 0.05:
                found.append(lambda: self._take(process, run.owner))
        if run.owner == process.worker:
            if self.random.random() < 0.05:
                found.append(lambda: self._release(process))
            for effect in due(run):
                match effect:
                    case StartCalls():
                        found.append(lambda: self._intents(process))
                    case CallTool(call=call):
                        found.append(lambda call=call: self._result(process, call.key))  # type: ignore[misc]
                    case AskDoubt(call=call):
                        found.append(lambda call=call: self._doubt(process, call.key))  # type: ignore[misc]
                    case CallModel():
                        pass  # begins where its base is delivered
        for question in run.questions:
            found.append(lambda question=question: self._answer(process, question))  # type: ignore[misc]
        return found

    def _count(self, what: str) -> None:
        self.counts[what] = self.counts.get(what, 0) + 1

    def _deliver(self, process: Process, entries: list[Logged]) -> None:
        """What Engine does when a commit is heard: an owner is driven, observers are told."""
        versions = [e.recorded.version for e in entries if e.recorded.stream == ROOT]
        process.known = max([process.known, *versions])
        run = self.run
        owner = self._as_known(process)
        if owner is not None and owner.owner == process.worker:
            process.hub.remember(ROOT)
        process.hub.publish_events(entries)
        if owner is None or owner.owner != process.worker:
            process.hub.forget(ROOT)
        if process.attempt is not None and (
            owner is None or owner.owner != process.worker or owner.base != process.attempt.base
        ):
            process.over.append(process.attempt.seq)
            process.attempt = None
        if owner is not None and owner.owner == process.worker and process.attempt is None:
            self._begin_attempt(process, owner)
        assert run.version >= process.known

    def _as_known(self, process: Process) -> RunState | None:
        """The run as far as this process has heard of it; None for one that it knows nothing of, or only its end."""
        state = self.run
        if state.status == "erased":
            return None
        events = [one for one in self.streams.recorded(ROOT) if one.version <= process.known]
        known = RunState(id=ROOT)
        for one in events:
            known = evolve(known, one.event)
        return known if events else None

    def _begin_attempt(self, process: Process, known: RunState) -> None:
        for effect in due(known):
            if isinstance(effect, CallModel) and effect.base not in process.begun:
                process.begun.add(effect.base)
                count = self.random.randint(0, 9)
                words = deque(self.random.choice(WORDS) for _ in range(count))
                process.attempt = Attempt(effect.base, self.seq_of(effect.base), words)

    def _say(self, process: Process, attempt: Attempt) -> None:
        word = attempt.left.popleft()
        attempt.said += word
        process.hub.publish_text(ROOT, ROOT, attempt.seq, word)
        self._count("said")

    def _hint(self, process: Process) -> None:
        process.hub.publish(ROOT, HintFrame(ROOT, "reasoning", {"text": "hm"}))

    def _end_attempt(self, process: Process, attempt: Attempt) -> None:
        """The attempt fails, or says the rest and is a turn. The commit may come too late: then it is nothing."""
        process.attempt = None
        process.over.append(attempt.seq)
        if self.random.random() < 0.25:
            self._count("failed")
            final = self.retries < 2 and self.random.random() < 0.2
            retry_at = None if final else self.streams.at + 5.0
            failure = RecordFailure(process.worker, attempt.base, attempt.seq, "MODEL_ERROR", "overloaded", retry_at)
            if self.run.status == "active":
                self.commit(process, lambda streams: commits.record_failure(streams, ROOT, failure))
            return
        while attempt.left:
            self._say(process, attempt)
        uses, plans = self._calls()
        turn = RecordTurn(
            owner=process.worker,
            base=attempt.base,
            base_seq=attempt.seq,
            at=self.streams.at,
            message=native_message(attempt.said, tuple(uses)),
            plans=plans,
            model="scripted",
            finish="stop",
        )
        if self.run.status == "active":
            self.commit(process, lambda streams: commits.record_turn(streams, ROOT, turn))

    def _calls(self) -> tuple[list[ToolUse], list[Plan]]:
        self.turns += 1
        uses: list[ToolUse] = []
        plans: list[Plan] = []
        for _ in range(0 if self.turns > 5 else self.random.choice((0, 1, 1, 2, 3))):
            if self.random.random() < 0.6:
                uses.append(ToolUse("human_sign", {"url": "x"}))
                plans.append(self._ask("input"))
            else:
                uses.append(ToolUse("tool_fetch", {"url": "x"}))
                plans.append(Execute())
        return uses, plans

    def _ask(self, kind: Any) -> Ask:
        self.questions += 1
        return Ask(f"cp_{self.questions}", kind, "sign", {"type": "object"}, None, "Well?")

    def _take(self, process: Process, previous: str | None) -> None:
        self._count("taken")
        self.commit(process, lambda streams: commits.take(streams, ROOT, Take(process.worker, previous, NOTHING)))

    def _release(self, process: Process) -> None:
        self.commit(process, lambda streams: commits.release(streams, ROOT, Release(process.worker)))

    def _intents(self, process: Process) -> None:
        self.commit(
            process, lambda streams: commits.start_intents(streams, ROOT, StartIntents(process.worker, NOTHING))
        )

    def _result(self, process: Process, call: str) -> None:
        self.commit(process, lambda streams: commits.record_outcome(streams, ROOT, RecordResult(call, "ok", 1.0)))

    def _doubt(self, process: Process, call: str) -> None:
        doubt = RaiseDoubt(process.worker, call, self._ask("in_doubt"))
        self.commit(process, lambda streams: commits.raise_doubt(streams, ROOT, doubt))

    def _answer(self, process: Process, question: str) -> None:
        call = next(c for c in self.run.calls if c.checkpoint == question)
        before = len(self.log)
        worker = self.random.choice((process.worker, None))
        given: JsonValue = {"outcome": "failed", "error": "no"} if call.kind == "in_doubt" else "yes"
        verdict: Any = "failed" if call.kind == "in_doubt" else "answered"
        answer = Answer(question, verdict, given, worker, NOTHING)
        self.commit(process, lambda streams: commits.answer(streams, question, answer, claim=f"c{before}"))
        self._count("answered")
        self._follow_to_rest(process, self.log[before].recorded.meta.seq - 1)

    def _follow_to_rest(self, process: Process, after: int) -> None:
        viewer = Viewer(self, rest_from=after)
        viewer.connect(process)
        self.viewers.append(viewer)

    def _retry(self, process: Process) -> None:
        self.retries += 1
        self._count("retried")
        self.commit(process, lambda streams: commits.retry(streams, ROOT, Retry(process.worker, None)))
        for viewer in self.viewers:
            viewer.done = viewer.done and viewer.rest_from is not None  # whose stream had ended comes back

    def _cancel(self, process: Process) -> None:
        self._count("cancelled")
        self.commit(process, lambda streams: commits.cancel(streams, ROOT, "enough"))

    def _delete(self, process: Process) -> None:
        self._count("deleted")
        self.commit(process, lambda streams: commits.delete_session(streams, SESSION, EndSession(), None))

    def _crash(self, process: Process) -> None:
        """The process dies with its hub and all connections to it, and is there again under another name."""
        self._count("crashed")
        for viewer in self.viewers:
            if viewer.process is process:
                viewer.leave()
                if viewer.rest_from is not None:
                    viewer.done = viewer.gone = True  # a stream of run or resume is not taken up again
        index = self.processes.index(process)
        self.processes[index] = Process(f"{process.worker}'", known=self.run.version)

    # --- a trial

    def play(self, viewers: int, length: int) -> None:
        """Random steps, then the run to its end and every client with it."""
        first = self.processes[0]
        self.start(first)
        self._follow_to_rest(first, 0)
        self.viewers += [Viewer(self) for _ in range(viewers)]
        for _ in range(length):
            if steps := self.steps():
                self.random.choice(steps)()
        self._finish()

    def _finish(self) -> None:
        for _ in range(10_000):
            moves = [move for process in self.processes for move in self._steps_of(process)]
            if not moves:
                break
            self.random.choice(moves)()
        else:
            raise AssertionError("the run does not end")
        while waiting := [v for v in self.viewers if not v.done]:
            for viewer in waiting:
                if viewer.process is None:
                    self._connect(viewer)
                elif viewer.can_step():
                    viewer.step()
                else:
                    raise AssertionError(f"a stream that never ends, after seq {viewer.client.seq}")

    def close(self) -> None:
        """Take every connection down."""
        for viewer in self.viewers:
            viewer.leave()

    def crumbs(self) -> list[Wire]:
        """The durable crumbs of the whole log, of what was deleted too."""
        return durable(crumbs_of(self.log, INFO))


ENDS = ("run.completed", "run.failed", "run.cancelled", "bread.erased")
