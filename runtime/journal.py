"""The journal: decisions in, commits out. One writer thread a process, which commits in groups.

What is submitted is a decision, not events. The writer runs it on cached states; the store accepts one event per
(stream, version), and a collision drops what was cached and decides again on what the log holds, under the lock. So a
collision is never a verdict, every commit ends, and one bad decision in a group does not hurt the others.
"""

from __future__ import annotations

import asyncio
import logging
import queue
import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, field
from typing import Any, Generic, Protocol, TypeVar

from ..domain.envelope import Principal, Recorded, Stamp
from ..domain.errors import BreadError, StoreUnavailable
from ..domain.ports import Commit, Decision
from ..domain.run_state import RunState
from .folds import fold_run
from .ids import short_id
from .unit import Collision, Spoiled, Undone, Unit, WriteTransaction

T = TypeVar("T")
logger = logging.getLogger("bread")
Fault = Callable[[str], None]
GROUP = 128
UNDONE = 3
SCRUB_SECONDS = 0.02
SCRUB_AT_LEAST_SECONDS = 2.0


class Store(Protocol):
    """A store that the writer can use: it gives one write transaction at a time."""

    residue: bool
    """Whether something that was erased may still be found in the file, and `scrub` is due."""

    def scrub(self) -> None: ...

    def explain(self, error: BaseException) -> BaseException:
        """A driver's error in our terms; any other one as it is."""

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


class GroupCommit:
    """The writer: takes waiting decisions together, decides and writes them in one transaction, tells when it is done.

    `performs` says of an agent whether this process performs the runs of it that a commit makes due.
    `on_commit` is called on the event loop with every commit, in commit order, before its submitter is told; `on_write`
    in the writer thread with the seconds of each transaction.
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
        self.performs: Callable[[str], bool] = lambda agent: False
        self.on_write: Callable[[float], object] = lambda seconds: None
        self.attempts = 0
        self.commits = 0
        self._fault: Fault = fault or (lambda point: None)
        self._always_replay = always_replay
        self._scrubbed = time.monotonic()
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
        # A caller that is cancelled here does not take its decision back: it may be on the disk already.
        return await job.future

    def forget(self, run_id: str) -> None:
        """Drop a cached state, for a run that others have changed."""
        self._cache.pop(run_id, None)

    # --- in the writer thread

    def _write_forever(self) -> None:
        while True:
            try:
                jobs = [self._queue.get(timeout=SCRUB_SECONDS if self.store.residue else None)]
            except queue.Empty:
                self._scrub()
                continue
            if self.store.residue and time.monotonic() > self._scrubbed + SCRUB_AT_LEAST_SECONDS:
                self._scrub()
            while len(jobs) < GROUP:
                try:
                    jobs.append(self._queue.get_nowait())
                except queue.Empty:
                    break
            work = [job for job in jobs if job is not None]
            if work:
                self._write_group(work)
            if len(work) < len(jobs):
                if self.store.residue:
                    self._scrub()
                return

    def _scrub(self) -> None:
        try:
            self.store.scrub()
        except StoreUnavailable as error:
            logger.warning("what was erased is not yet removed from the file: %s", error)
        self._scrubbed = time.monotonic()

    def _write_group(self, jobs: list[_Job[Any]]) -> None:
        try:
            self._write_surely(jobs)
        except Spoiled:
            # One of them failed when it had begun to write: each again, in a transaction of its own.
            self._cache = {}
            for job in jobs:
                try:
                    self._write_surely([job])
                except Spoiled as spoiled:
                    job.outcome = self.store.explain(spoiled.__cause__ or spoiled)
        # Where the loop is gone, so is everybody who could be told.
        with suppress(RuntimeError):
            jobs[0].future.get_loop().call_soon_threadsafe(self._deliver, jobs)

    def _write_surely(self, jobs: list[_Job[Any]]) -> None:
        for _ in range(UNDONE):
            try:
                return self._write_together(jobs)
            except Undone as error:
                self._cache = {}
                for job in jobs:
                    job.outcome = error

    def _write_together(self, jobs: list[_Job[Any]]) -> None:
        cache, begun = dict(self._cache), time.perf_counter()
        try:
            with self.store.write() as tx:
                for job in jobs:
                    job.outcome = self._write_one(tx, cache, job)
                self._fault("appended")
            self._fault("committed")
        except (Spoiled, Undone):
            raise
        except BreadError as error:
            # Nothing of the group is on the disk; what was decided from it is void.
            for job in jobs:
                job.outcome = error
        except Exception as error:
            failure = StoreUnavailable(f"the store failed: {type(error).__name__}")
            failure.__cause__ = error
            for job in jobs:
                job.outcome = failure
        else:
            self._cache = cache
            self.on_write(time.perf_counter() - begun)
            self.commits += sum(isinstance(job.outcome, Commit) and bool(job.outcome.events) for job in jobs)

    def _write_one(self, tx: WriteTransaction, cache: dict[str, RunState], job: _Job[T]) -> Commit[T] | BaseException:
        """Decide and write. A refusal is an outcome; it has written nothing."""
        stamp = Stamp(self.clock(), job.by, job.commit_id, job.cause, self.worker, job.tenant, job.traceparent)
        for fresh in (False, True):
            self.attempts += 1
            unit = Unit(tx, cache, stamp, fresh=fresh, performs=self.performs)
            try:
                result = job.decide(unit)
            except (StoreUnavailable, Spoiled):
                raise
            except Exception as error:
                if isinstance(error, BreadError) and unit.assumed and not fresh:
                    continue  # a refusal on a cached state is no verdict: look at the log
                return self.store.explain(error)
            if unit.is_stale():
                continue
            try:
                return self._remember(tx, cache, unit, result, unit.write())
            except Collision:
                continue  # the first statement: nothing is written
            except (StoreUnavailable, Spoiled):
                raise
            except Exception as error:
                raise Spoiled from error
        return StoreUnavailable("the log changed under its own lock")

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
            elif state.owner == self.worker or (state.children and state.activity == "running"):
                cache[run_id] = state  # who owns it, or a child of it, comes again soon
            else:
                cache.pop(run_id, None)
        alone = frozenset(run_id for run_id, run in after.items() if self._begins_alone(tx, run, events))
        return Commit(result, unit.logged(events), after, unit.history, alone)

    def _begins_alone(self, tx: WriteTransaction, run: RunState, events: list[Recorded]) -> bool:
        if run.owner != self.worker or not run.is_root:
            return False
        named_here = any(recorded.stream == run.id and recorded.version == run.epoch for recorded in events)
        return named_here and not tx.has_other_roots(run.session, run.id)

    # --- on the event loop

    def _deliver(self, jobs: list[_Job[Any]]) -> None:
        for job in jobs:
            outcome = job.outcome
            if isinstance(outcome, Commit) and outcome.events:
                try:
                    self.on_commit(outcome)
                except Exception:  # it is committed all the same, and others wait to hear of theirs
                    logger.exception("commit %s was not published", outcome.events[0].recorded.meta.commit)
            if job.future.done():
                continue  # its caller went away
            if isinstance(outcome, Commit):
                job.future.set_result(outcome)
            else:
                job.future.set_exception(outcome or StoreUnavailable("the writer gave no outcome"))
                job.future.exception()  # a caller that went away leaves nobody to read it
