"""The engine of one process: takes runs, drives them with actors, and tells what was committed.

Facts come from anyone, effects from the owner. A commit that names this process as owner starts an actor; a sweep takes
what is ready or whose owner is dead, and lets questions expire.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from math import inf
from typing import TYPE_CHECKING, Any, TypeVar
from weakref import WeakValueDictionary

from ..domain import commits
from ..domain.envelope import SYSTEM, Principal, Recorded
from ..domain.errors import BreadError, Refused, StoreUnavailable
from ..domain.ports import Commit, Decision, Logged, ManagedModel
from ..domain.run import Release
from ..domain.run_state import RunState
from ..transport.local import LocalHub
from ..transport.port import Bus, InProcess, Transport
from . import reads, tracing
from .actor import Actor
from .agents import Agent
from .composing import Pipeline
from .effects import BACKOFF_SECONDS
from .hands import Hands
from .liveness import Liveness
from .relay import Relay
from .store_journal import StoreJournal
from .sweep import Sweep

if TYPE_CHECKING:
    from .observer import Family

T = TypeVar("T")
logger = logging.getLogger("bread")

PERSIST_BACKOFF = (0.05, 0.2, 1.0, 5.0)


class Engine:
    """Everything that happens in a process between the journal and the outside."""

    def __init__(
        self,
        journal: StoreJournal,
        liveness: Liveness,
        agents: Mapping[str, Agent],
        pipelines: Mapping[str, Pipeline] | None = None,
        *,
        executes: bool,
        takes: bool = True,
        max_running: int | None,
        backoff: tuple[float, ...] = BACKOFF_SECONDS,
        transport: Transport | None = None,
        fault: Callable[[str], None] | None = None,
        always_replay: bool = False,
    ) -> None:
        self.journal, self.liveness, self.agents = journal, liveness, agents
        self.pipelines = pipelines or {}
        self.transport = transport or InProcess()
        self.worker, self.clock = journal.worker, journal.writer.clock
        self.executes, self.takes, self.max_running = executes, takes, max_running
        self.backoff, self.always_replay = backoff, always_replay
        self.fault: Callable[[str], None] = fault or (lambda point: None)
        self.hub = LocalHub()
        self.families: WeakValueDictionary[str, Family] = WeakValueDictionary()
        self.relay = Relay(self, self.transport) if isinstance(self.transport, Bus) else None
        self.hub.tell = self.relay.tell if self.relay is not None else self.transport.tell
        self.actors: dict[str, Actor] = {}
        self.threads = ThreadPoolExecutor(max_workers=32, thread_name_prefix="bread-tool")
        self.closing = False
        self.on_events: Callable[[list[Logged]], None] = lambda entries: None
        self.on_given_back: Callable[[float], Awaitable[None]] | None = None
        self.hands = Hands(self, self.transport.work) if isinstance(self.transport, Bus) else None
        self.sweep = Sweep(self)
        self._reserved = 0
        self._tasks: set[asyncio.Task[Any]] = set()

    # --- life

    async def open(self) -> None:
        try:
            await self.transport.open(self.hub.heard if self.relay is None else self.relay.hear)
        except BreadError:
            await self.journal.close()
            raise
        self.liveness.publishes = self.relay
        if self.executes:
            loop = asyncio.get_running_loop()
            self.liveness.on_revived(lambda: loop.call_soon_threadsafe(self._revived))
            self.liveness.join()
            for model in self._models():
                model.open()
        else:
            await asyncio.to_thread(self.liveness.look)
        self.journal.writer.on_commit = self._committed
        self.journal.writer.performs = self._performs
        self.journal.on_foreign = self._foreign
        await self.journal.open()
        if self.relay is not None:
            self.relay.open(self.journal.heard)
        if self.executes:
            await self.sweep.once()
            self.spawn(self.sweep.forever(), "sweep")
            if self.hands is not None and self.takes:
                self.hands.open()

    async def close(self, grace: float) -> None:
        """Begin nothing more, commit the outcomes that come within `grace` seconds, and give the runs back."""
        self.closing = True
        self.sweep.soon()
        deadline = time.monotonic() + grace
        if self.hands is not None:
            await self.hands.close()
        outcomes = [task for actor in self.actors.values() for task in actor.outcomes()]
        if outcomes:
            await asyncio.wait(outcomes, timeout=grace)
        await self._give_back()
        if self.on_given_back is not None:
            await self.on_given_back(max(0.0, deadline - time.monotonic()))
        if self.relay is not None:
            await self.relay.close(max(0.0, deadline - time.monotonic()))
        for task in tuple(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self.journal.close()
        await self.transport.close()
        self.hub.close()
        self.threads.shutdown(wait=False, cancel_futures=True)
        if self.executes:
            for model in self._models():
                await model.close()
        self.liveness.leave()

    def _models(self) -> list[ManagedModel]:
        models = {id(agent.managed): agent.managed for agent in self.agents.values()}
        return [model for model in models.values() if model is not None]

    async def prepare(self, agent: Agent) -> None:
        """MODEL_NOT_READY where the agent's model lacks a package or a key here."""
        if self.executes and agent.managed is not None:
            await agent.managed.prepare(agent.settings)

    async def _give_back(self) -> None:
        # Not only what has an actor: a run whose last outcome came while closing has begun nothing more, and has none.
        owned = list(self.actors)
        with suppress(StoreUnavailable):
            owned = [idle.run_id for idle in await self.journal.ask(reads.idle_work) if idle.owner == self.worker]
        for run_id in owned:
            try:
                await self.commit(partial(commits.release, run_id=run_id, command=Release(self.worker)), by=SYSTEM)
            except BreadError as error:
                logger.warning("run %s was not given back: %s", run_id, error)  # its lock says that it is an orphan

    def spawn(self, work: Coroutine[Any, Any, T], name: str) -> asyncio.Task[T]:
        """A task that the engine keeps and ends."""
        task = asyncio.create_task(work, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    # --- commits

    async def commit(self, decide: Decision[T], *, by: Principal, **context: Any) -> Commit[T]:
        return await self.journal.commit(decide, by=by, **context)

    async def persist(self, decide: Decision[T], *, reads: Sequence[str] = ()) -> Commit[T]:
        """Commit an outcome that must not be lost: for as long as the store does not answer, it is tried again."""
        attempt = 0
        while True:
            try:
                return await self.journal.commit(decide, by=SYSTEM, traceparent=tracing.traceparent(), reads=reads)
            except StoreUnavailable as error:
                if self.closing:
                    raise
                wait = PERSIST_BACKOFF[min(attempt, len(PERSIST_BACKOFF) - 1)]
                logger.warning("an outcome waits %.2f s for the store: %s", wait, error)
                await asyncio.sleep(wait)
                attempt += 1

    def _performs(self, agent: str) -> bool:
        return self.executes and not self.closing and agent in self.agents

    def _committed(self, commit: Commit[Any]) -> None:
        """A commit of this process, in commit order, before its submitter is told."""
        by_stream: dict[str, list[Recorded]] = {}
        for entry in commit.events:
            by_stream.setdefault(entry.recorded.stream, []).append(entry.recorded)
        for run_id, state in commit.runs.items():
            events = by_stream[run_id]
            actor, whole = self.actors.get(run_id), [*commit.history.get(run_id, ()), *events]
            if actor is not None:
                actor.update(state, whole)
            elif state.owner == self.worker and state.epoch >= events[0].version:
                self._drive(state, whole, fresh=run_id in commit.alone)
            if state.has_work and state.owner is None and self.hands is not None:
                self.hands.offer(state, events[-1].meta.tenant)
        self._tell(list(commit.events), own=True)

    def _foreign(self, entries: list[Logged]) -> None:
        """Commits of other processes on the same store."""
        for run_id in {entry.recorded.stream for entry in entries}:
            actor = self.actors.get(run_id)
            if actor is not None:
                self.spawn(actor.catch_up(), f"catch up {run_id}")
        if self.hands is None or not self.hands.at_work:
            self.sweep.soon()
        if self.relay is not None:
            self.relay.heard(entries)
        self._tell(entries, own=False)

    def _tell(self, entries: list[Logged], *, own: bool) -> None:
        self.hub.publish_events(entries, own=own)
        self.on_events(entries)

    # --- actors

    def _drive(self, state: RunState, events: list[Recorded], *, fresh: bool) -> None:
        agent = self.agents.get(state.agent)
        if agent is None or not self.executes or self.closing:
            return
        self.hub.remember(state.root)
        self.actors[state.id] = actor = Actor(self, agent, state, events, fresh=fresh)
        self.spawn(self._run(actor, events), state.id)

    async def _run(self, actor: Actor, events: list[Recorded]) -> None:
        try:
            async with tracing.segment(actor, events):
                await actor.run()
        finally:
            self.actors.pop(actor.run_id, None)
            self.hub.forget(actor.root)
            self.sweep.freed()
            if self.hands is not None:
                self.hands.freed(actor.run_id)

    def _revived(self) -> None:
        if not self.closing:
            logger.warning("this process may have counted as dead for a while: it looks at its runs again")
            self.spawn(self._look_again(), "look again")

    async def _look_again(self) -> None:
        # Who took a run from here has done so under the lock of the log, or finds the beat that brought this about.
        await self.commit(lambda streams: None, by=SYSTEM)
        for actor in tuple(self.actors.values()):
            await actor.catch_up()
        self.liveness.revived()
        for actor in tuple(self.actors.values()):
            actor.go_on()
        self.sweep.soon()

    def _running(self) -> set[str]:
        return {actor.root for actor in self.actors.values()}

    @property
    def room(self) -> float:
        """For how many more root trees there is a slot."""
        return inf if self.max_running is None else self.max_running - len(self._running()) - self._reserved

    def reserve(self, root: str | None = None) -> Reservation:
        """A slot for a root tree that is about to run; CONCURRENCY_LIMIT if there is none. Nothing is written.

        The tree of `root` needs no other where it is running already.
        """
        if self.max_running is None or root in self._running():
            return Reservation(self, 0)
        if self.room < 1:
            raise Refused(
                "CONCURRENCY_LIMIT", f"{self.max_running} runs are running here already", limit=self.max_running
            )
        return Reservation(self, 1)


class Reservation:
    """A slot of the concurrency cap, held while a start or a resume is being committed."""

    def __init__(self, engine: Engine, slots: int) -> None:
        self._engine, self._slots = engine, slots

    def __enter__(self) -> None:
        self._engine._reserved += self._slots

    def __exit__(self, *exc: object) -> None:
        self._engine._reserved -= self._slots
