"""The journal: decisions in, commits out. One writer thread a process, which commits in groups.

What is submitted is a decision, not events. The writer runs it on cached states; the store accepts one event per
(stream, version), and a collision drops what was cached and decides again on what the log holds, under the lock. So a
collision is never a verdict, every commit ends, and one bad decision in a group does not hurt the others.
"""

from __future__ import annotations

import asyncio
import queue
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, field
from typing import Any, Generic, Protocol, TypeVar

from ..domain import checkpoint as questions
from ..domain import run_state as runs
from ..domain import session as sessions
from ..domain.checkpoint import CheckpointState
from ..domain.envelope import Meta, Principal, Recorded
from ..domain.errors import BreadError, StoreUnavailable, StoreUnreadable
from ..domain.events import Event
from ..domain.ports import Commit, Decision, Logged
from ..domain.records import changed
from ..domain.run_state import RunState
from ..domain.session import SessionState, session_stream
from ..projections.render import subject_of
from .ids import short_id

T = TypeVar("T")
Fault = Callable[[str], None]
GROUP = 128


class Collision(Exception):
    """The store already holds an event at that (stream, version)."""


class WriteTransaction(Protocol):
    """What a store does inside its one write transaction. All of it under the lock, all of it synchronous."""

    def savepoint(self) -> None: ...

    def release(self) -> None: ...

    def rollback_to_savepoint(self) -> None: ...

    def read(self, stream: str, after: int) -> list[Recorded]: ...

    def read_one(self, stream: str, version: int) -> Recorded | None: ...

    def version(self, stream: str) -> int: ...

    def next_seq(self, root: str) -> int: ...

    def insert(self, events: Sequence[Recorded]) -> list[Recorded]:
        """Append, giving positions; raises Collision."""

    def erase(self, stream: str, below: int) -> None: ...

    def forget(self, kind: str, ids: Iterable[str]) -> None:
        """Remove view rows of erased streams; kind is run, checkpoint or session."""

    def put_run(self, state: RunState, events: Sequence[Recorded]) -> None: ...

    def put_checkpoint(self, state: CheckpointState, events: Sequence[Recorded]) -> None: ...

    def put_session(self, state: SessionState, events: Sequence[Recorded]) -> None: ...

    def run_of_key(self, tenant: str, key: str) -> str | None: ...

    def active_roots(self, session: str) -> list[str]: ...

    def owned(self, session: str) -> tuple[list[str], list[str]]: ...


class Store(Protocol):
    """A store that the writer can use: it gives one write transaction at a time."""

    def write(self) -> AbstractContextManager[WriteTransaction]:
        """Takes the lock first. Commits on a clean exit; rolls back, and raises StoreUnavailable, on a failure."""


@dataclass
class _Job(Generic[T]):
    decide: Decision[T]
    by: Principal
    cause: str | None
    tenant: str
    traceparent: str | None
    future: asyncio.Future[Commit[T]]
    commit_id: str = field(default_factory=lambda: short_id("c"))
    outcome: Commit[T] | BaseException | None = None


class Unit:
    """One decision's view of the streams: what it read, what it appends. Implements domain.commits.Streams."""

    def __init__(
        self, tx: WriteTransaction, cache: dict[str, RunState], job: _Job[Any], worker: str, at: float, *, fresh: bool
    ) -> None:
        self.at = at
        self._tx, self._cache, self._job, self._worker, self._fresh = tx, cache, job, worker, fresh
        self.runs: dict[str, RunState] = {}
        self.history: dict[str, list[Recorded]] = {}
        self.checkpoints: dict[str, CheckpointState] = {}
        self.sessions: dict[str, SessionState] = {}
        self.appended: list[Recorded] = []
        self.erasures: list[tuple[str, int]] = []
        self.assumed: dict[str, int] = {}
        self._seqs: dict[str, int] = {}

    # --- Streams

    def run(self, run_id: str) -> RunState:
        state = self.runs.get(run_id)
        if state is None:
            cached = None if self._fresh else self._cache.get(run_id)
            if cached is not None:
                state = cached
                self.assumed[run_id] = cached.version
            else:
                self.history[run_id] = self._tx.read(run_id, 0)
                state = fold_run(run_id, self.history[run_id])
            self.runs[run_id] = state
        return state

    def checkpoint(self, checkpoint_id: str) -> CheckpointState:
        state = self.checkpoints.get(checkpoint_id)
        if state is None:
            state = fold_checkpoint(checkpoint_id, self._tx.read(checkpoint_id, 0))
            self.checkpoints[checkpoint_id] = state
        return state

    def session(self, session_id: str) -> SessionState:
        state = self.sessions.get(session_id)
        if state is None:
            state = fold_session(session_id, self._tx.read(session_stream(session_id), 0))
            self.sessions[session_id] = state
        return state

    def append(self, stream: str, *events: Event, root: str | None, session: str) -> None:
        is_run, is_session = stream in self.runs, stream == session_stream(session)
        for event in events:
            if is_session:
                version = self.session(session).version + 1
                self.sessions[session] = sessions.evolve(self.sessions[session], event)
            elif is_run:
                version = self.runs[stream].version + 1
                self.runs[stream] = runs.evolve(self.runs[stream], event)
            else:
                version = self.checkpoint(stream).version + 1
                self.checkpoints[stream] = questions.evolve(self.checkpoints[stream], event)
            self.appended.append(Recorded(stream, version, event, self._meta(root, session)))

    def _meta(self, root: str | None, session: str) -> Meta:
        seq = 0
        if root is not None:
            seq = self._seqs.get(root) or self._tx.next_seq(root)
            self._seqs[root] = seq + 1
        job = self._job
        return Meta(
            self.at, job.by, job.commit_id, seq, root, session, job.cause, self._worker, job.tenant, job.traceparent
        )

    def erase(self, stream: str, keep: int) -> None:
        self.erasures.append((stream, keep))

    def run_of_key(self, key: str) -> str | None:
        return self._tx.run_of_key(self._job.tenant, key)

    def active_roots(self, session_id: str) -> Sequence[str]:
        return self._tx.active_roots(session_id)

    def owned(self, session_id: str) -> tuple[Sequence[str], Sequence[str]]:
        return self._tx.owned(session_id)

    # --- writing

    def is_stale(self) -> bool:
        """Whether a cached state that nothing was appended to, and so no version guards, is behind the log."""
        appended = {recorded.stream for recorded in self.appended}
        return any(
            self._tx.version(stream) != version for stream, version in self.assumed.items() if stream not in appended
        )

    def write(self) -> list[Recorded]:
        """Append, then erase, then the view rows. Gives the events with their positions."""
        if not self.appended:
            return []
        events = self._tx.insert(self.appended)
        erased = {stream for stream, _ in self.erasures}
        by_stream: dict[str, list[Recorded]] = {}
        for recorded in events:
            by_stream.setdefault(recorded.stream, []).append(recorded)
        for stream, keep in self.erasures:
            self._tx.erase(stream, by_stream[stream][-keep].version)
        for run_id, run in self.runs.items():
            if run_id in by_stream and run_id not in erased:
                self._tx.put_run(run, by_stream[run_id])
        for checkpoint_id, checkpoint in self.checkpoints.items():
            if checkpoint_id in by_stream and checkpoint_id not in erased:
                self._tx.put_checkpoint(checkpoint, by_stream[checkpoint_id])
        for session_id, session in self.sessions.items():
            stream = session_stream(session_id)
            if stream in by_stream and stream not in erased:
                self._tx.put_session(session, by_stream[stream])
        if erased:
            self._tx.forget("run", erased & self.runs.keys())
            self._tx.forget("checkpoint", erased & self.checkpoints.keys())
            self._tx.forget("session", [s for s in self.sessions if session_stream(s) in erased])
        return events

    def logged(self, events: Sequence[Recorded]) -> list[Logged]:
        """The events with the payloads that they point to, so that observers here need not read the store."""
        here = {(recorded.stream, recorded.version): recorded for recorded in events}
        entries = []
        for recorded in events:
            where = subject_of(recorded)
            subject = (here.get(where) or self._tx.read_one(*where)) if where else None
            entries.append(Logged(recorded, subject))
        return entries


def fold_run(run_id: str, events: Iterable[Recorded]) -> RunState:
    """A run's state from its stream. It is the same function for live states, reloads and audits."""
    state = RunState(id=run_id)
    for recorded in events:
        state = runs.evolve(_at(state, recorded), recorded.event)
    return state


def fold_checkpoint(checkpoint_id: str, events: Iterable[Recorded]) -> CheckpointState:
    state = CheckpointState(id=checkpoint_id)
    for recorded in events:
        state = questions.evolve(_at(state, recorded), recorded.event)
    return state


def fold_session(session_id: str, events: Iterable[Recorded]) -> SessionState:
    state = SessionState(id=session_id)
    for recorded in events:
        state = sessions.evolve(_at(state, recorded), recorded.event)
    return state


S = TypeVar("S", RunState, CheckpointState, SessionState)


def _at(state: S, recorded: Recorded) -> S:
    # A stream whose beginning was erased starts at its tombstone; any other gap is damage.
    if recorded.version == state.version + 1:
        return state
    if state.version == 0 and recorded.event.NAME in ("bread.erased", "checkpoint.discarded", "session.deleted"):
        return changed(state, version=recorded.version - 1)
    raise StoreUnreadable(
        "STORE_INVALID",
        f"stream {recorded.stream} lacks version {state.version + 1}: found {recorded.version}",
        stream=recorded.stream,
    )


class GroupCommit:
    """The writer: takes waiting decisions together, decides and writes them in one transaction, tells when it is done.

    `on_commit` is called on the event loop with every commit, in commit order, before its submitter is told.
    `fault` is called at named points, for tests that kill the process there.
    """

    def __init__(
        self,
        store: Store,
        worker: str,
        *,
        clock: Callable[[], float] = time.time,
        fault: Fault | None = None,
        always_replay: bool = False,
    ) -> None:
        self.store, self.worker, self.clock = store, worker, clock
        self.on_commit: Callable[[Commit[Any]], None] = lambda commit: None
        self.attempts = 0
        self.commits = 0
        self._fault: Fault = fault or (lambda point: None)
        self._always_replay = always_replay
        self._cache: dict[str, RunState] = {}
        self._queue: queue.SimpleQueue[_Job[Any] | None] = queue.SimpleQueue()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._closed = False

    def open(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._thread = threading.Thread(target=self._write_forever, name="bread-writer", daemon=True)
        self._thread.start()

    async def close(self) -> None:
        """Finish what was submitted, then stop."""
        if self._thread is not None and not self._closed:
            self._closed = True
            self._queue.put(None)
            await asyncio.to_thread(self._thread.join)

    async def commit(
        self,
        decide: Decision[T],
        *,
        by: Principal,
        cause: str | None = None,
        tenant: str = "default",
        traceparent: str | None = None,
    ) -> Commit[T]:
        if self._closed or self._loop is None:
            raise StoreUnavailable("the store is closed")
        job = _Job(decide, by, cause, tenant, traceparent, self._loop.create_future())
        self._queue.put(job)
        # A caller that goes away does not take its decision back: it may be on the disk already.
        return await asyncio.shield(job.future)

    def forget(self, run_id: str) -> None:
        """Drop a cached state, for a run that others have changed."""
        self._cache.pop(run_id, None)

    # --- in the writer thread

    def _write_forever(self) -> None:
        while True:
            jobs = [self._queue.get()]
            while len(jobs) < GROUP:
                try:
                    jobs.append(self._queue.get_nowait())
                except queue.Empty:
                    break
            work = [job for job in jobs if job is not None]
            if work:
                self._write_group(work)
            if len(work) < len(jobs):
                return

    def _write_group(self, jobs: list[_Job[Any]]) -> None:
        cache = dict(self._cache)
        try:
            with self.store.write() as tx:
                for job in jobs:
                    try:
                        job.outcome = self._write_one(tx, cache, job)
                    except StoreUnavailable:
                        raise
                    except Exception as error:
                        job.outcome = error
                self._fault("appended")
            self._fault("committed")
        except BreadError as error:
            # Nothing of the group is on the disk; what was decided from it is void.
            for job in jobs:
                job.outcome = error
        except Exception as error:
            for job in jobs:
                job.outcome = StoreUnavailable(f"the store failed: {type(error).__name__}")
                job.outcome.__cause__ = error
        else:
            self._cache = cache
        # Where the loop is gone, so is everybody who could be told.
        with suppress(RuntimeError):
            jobs[0].future.get_loop().call_soon_threadsafe(self._deliver, jobs)

    def _write_one(self, tx: WriteTransaction, cache: dict[str, RunState], job: _Job[T]) -> Commit[T]:
        at = self.clock()
        for fresh in (False, True):
            self.attempts += 1
            unit = Unit(tx, cache, job, self.worker, at, fresh=fresh)
            tx.savepoint()
            try:
                result = job.decide(unit)
                if unit.is_stale():
                    raise Collision
                events = unit.write()
            except Collision:
                tx.rollback_to_savepoint()
                continue
            except BreadError:
                tx.rollback_to_savepoint()
                if unit.assumed and not fresh:
                    continue  # a refusal on a cached state is no verdict: look at the log
                raise
            except BaseException:
                tx.rollback_to_savepoint()
                raise
            tx.release()
            if events:
                self.commits += 1
            return self._remember(tx, cache, unit, result, events)
        raise StoreUnavailable("the log changed under its own lock")

    def _remember(
        self, tx: WriteTransaction, cache: dict[str, RunState], unit: Unit, result: T, events: list[Recorded]
    ) -> Commit[T]:
        touched = {recorded.stream for recorded in events}
        after = {run_id: state for run_id, state in unit.runs.items() if run_id in touched}
        for run_id, state in after.items():
            if self._always_replay:
                replayed = fold_run(run_id, tx.read(run_id, 0))
                if replayed != state:
                    raise BreadError("INTERNAL_ERROR", f"replay of {run_id} differs from its live state")
                cache.pop(run_id, None)
            elif state.owner == self.worker:
                cache[run_id] = state
            else:
                cache.pop(run_id, None)
        return Commit(result, unit.logged(events), after, unit.history)

    # --- on the event loop

    def _deliver(self, jobs: list[_Job[Any]]) -> None:
        for job in jobs:
            outcome = job.outcome
            if isinstance(outcome, Commit) and outcome.events:
                self.on_commit(outcome)
            if job.future.cancelled():
                continue
            if isinstance(outcome, Commit):
                job.future.set_result(outcome)
            else:
                job.future.set_exception(outcome or StoreUnavailable("the writer gave no outcome"))
                job.future.exception()  # a caller that went away leaves nobody to read it
