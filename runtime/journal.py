"""The journal: decisions in, commits out. One writer thread a process, which commits in groups.

What is submitted is a decision, not events. The writer runs it under the store's lock, on cached states from which it
has dropped what others have written to since its own last commit: so every decision is made on what the log holds, and
no verdict comes from a collision. The store accepts one event per (stream, version) all the same. One bad decision in a
group does not hurt the others.
"""

from __future__ import annotations

import asyncio
import logging
import queue
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, field
from typing import Any, Generic, Protocol, TypeVar

from ..domain.envelope import Principal, Recorded, Stamp
from ..domain.errors import BreadError, StoreUnavailable
from ..domain.ports import Commit, Decision
from ..domain.run_state import RunState
from ..domain.session import SessionOpened
from .folds import fold_run
from .ids import short_id
from .unit import Collision, Place, Spoiled, Undone, Unit, WriteTransaction

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
    reads: Sequence[str]
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
        self._places: dict[str, Place] = {}
        self._known: int | None = None  # up to where of the log the caches are right
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
        reads: Sequence[str] = (),
    ) -> Commit[T]:
        if self._closed or self._loop is None:
            raise StoreUnavailable("the store is closed")
        job = _Job(decide, by, cause, tenant, traceparent, reads, self._loop.create_future())
        self._queue.put(job)
        # A caller that is cancelled here does not take its decision back: it may be on the disk already.
        return await job.future

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
            self._forget()
            for job in jobs:
                try:
                    self._write_surely([job])
                except Spoiled as spoiled:
                    job.outcome = self._explain(spoiled)
        # Where the loop is gone, so is everybody who could be told.
        with suppress(RuntimeError):
            jobs[0].future.get_loop().call_soon_threadsafe(self._deliver, jobs)

    def _write_surely(self, jobs: list[_Job[Any]]) -> None:
        for _ in range(UNDONE):
            try:
                return self._write_together(jobs)
            except Undone as error:
                self._forget()
                for job in jobs:
                    job.outcome = error

    def _forget(self) -> None:
        self._cache, self._places = {}, {}

    def _explain(self, spoiled: Spoiled) -> BaseException:
        if isinstance(spoiled, Collision):
            return StoreUnavailable("the log changed under its own lock")
        return self.store.explain(spoiled.__cause__ or spoiled)

    def _write_together(self, jobs: list[_Job[Any]]) -> None:
        begun = time.perf_counter()
        try:
            with self.store.write() as tx:
                expected = {stream for job in jobs for stream in job.reads if stream not in self._cache}
                changed, known = tx.since(self._known, expected)
                cache = {run_id: state for run_id, state in self._cache.items() if run_id not in changed}
                places = {} if changed else dict(self._places)
                for job in jobs:
                    job.outcome = self._write_one(tx, cache, places, job)
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
            written = [job.outcome for job in jobs if isinstance(job.outcome, Commit) and job.outcome.events]
            ends = (commit.events[-1].recorded.position for commit in written)
            self._cache, self._places, self._known = cache, places, max((known, *ends))
            self.on_write(time.perf_counter() - begun)
            self.commits += len(written)

    def _write_one(
        self, tx: WriteTransaction, cache: dict[str, RunState], places: dict[str, Place], job: _Job[T]
    ) -> Commit[T] | BaseException:
        """Decide and write. A refusal is an outcome; it has written nothing."""
        self.attempts += 1
        stamp = Stamp(self.clock(), job.by, job.commit_id, job.cause, self.worker, job.tenant, job.traceparent)
        unit = Unit(tx, cache, places, stamp, performs=self.performs)
        try:
            result = job.decide(unit)
        except (StoreUnavailable, Spoiled):
            raise
        except Exception as error:
            return self.store.explain(error)
        try:
            return self._remember(tx, cache, places, unit, result, unit.write())
        except (StoreUnavailable, Spoiled):
            raise
        except Exception as error:
            raise Spoiled from error

    def _remember(
        self,
        tx: WriteTransaction,
        cache: dict[str, RunState],
        places: dict[str, Place],
        unit: Unit,
        result: T,
        events: list[Recorded],
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
        for root in {recorded.meta.root for recorded in events if recorded.meta.root is not None}:
            if root in cache:
                places[root] = unit.places[root]
            else:
                places.pop(root, None)
        alone = frozenset(run_id for run_id, run in after.items() if self._begins_alone(tx, run, events))
        return Commit(result, unit.logged(events), after, unit.history, alone)

    def _begins_alone(self, tx: WriteTransaction, run: RunState, events: list[Recorded]) -> bool:
        if run.owner != self.worker or not run.is_root:
            return False
        named_here = any(recorded.stream == run.id and recorded.version == run.epoch for recorded in events)
        if not named_here:
            return False
        opened_here = any(isinstance(recorded.event, SessionOpened) for recorded in events)
        return opened_here or not tx.has_other_roots(run.session, run.id)

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
