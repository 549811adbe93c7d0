"""The sweep: takes what is ready or whose owner is dead, and lets questions expire. Nobody has to tell it anything."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from ..domain import commits
from ..domain.envelope import SYSTEM
from ..domain.errors import BreadError, Refused, StoreUnavailable
from ..domain.ports import Decision
from ..domain.run import Take
from ..domain.streams import Streams
from . import reads
from .agents import Agent

if TYPE_CHECKING:
    from .engine import Engine

T = TypeVar("T")
logger = logging.getLogger("bread")
SWEEP_SECONDS = 0.5
HANDED_OUT_SECONDS = 2.0  # what is ready for longer than this has not come by the work queue
TOGETHER = 100  # as many are taken at once
SUSPECT_DEATHS = 2  # of owners in a row before the last one; from then on the run may be what kills them


class Sweep:
    """What recovers runs, of one process. Everything here runs on the event loop, decisions where commits are made."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._now = asyncio.Event()
        self._unreadable: set[str] = set()
        self._not_ready: set[str] = set()
        self._counts_as_dead = False
        self._asked_for: set[str] = set()
        self._ready_since: dict[str, float] = {}
        self._dead: set[str] = set()
        self._has_waiting = False
        self._suspect = ""

    def soon(self) -> None:
        self._now.set()

    def freed(self) -> None:
        """A run is performed no more: there may be a slot for one that waits for it."""
        if self._has_waiting:
            self._has_waiting = False
            self.soon()

    async def forever(self) -> None:
        while not self._engine.closing:
            with suppress(TimeoutError):
                await asyncio.wait_for(self._now.wait(), SWEEP_SECONDS)
            self._now.clear()
            try:
                await self.once()
            except StoreUnavailable as error:
                logger.warning("the sweep found no store: %s", error)
            except Exception:
                # The sweep is what recovers runs: one bad look at the store must not end it.
                logger.exception("the sweep failed")

    async def once(self) -> None:
        engine = self._engine
        if not engine.liveness.is_alive(engine.worker):
            # What it took would be taken from it at once, and its tools would be in doubt.
            if not self._counts_as_dead:
                logger.error("this process may count as dead: it takes no run")
            self._counts_as_dead = True
            return
        self._counts_as_dead = False
        await self._idle()
        overdue = await engine.journal.ask(reads.overdue, engine.clock())
        await self._all(
            self._expired, [checkpoint_id for checkpoint_id in overdue if checkpoint_id not in self._unreadable]
        )
        if engine.relay is not None:
            for worker, after in engine.liveness.left_behind().items():
                engine.relay.take_over(worker, after)

    async def _idle(self) -> None:
        engine, now = self._engine, time.monotonic()
        work = await engine.journal.ask(reads.idle_work)
        ready = [idle.run_id for idle in work if idle.owner is None]
        self._ready_since = {run_id: self._ready_since.get(run_id, now) for run_id in ready}
        others = {idle.owner for idle in work if idle.owner is not None} - {engine.worker}
        self._dead = await asyncio.to_thread(engine.liveness.dead_among, others) if others else set()
        await self._all(self._look_at, work)

    async def _all(self, work: Callable[[T], Awaitable[None]], items: Sequence[T]) -> None:
        """What is found together goes into one transaction, or a few."""
        for start in range(0, len(items), TOGETHER):
            if not self._engine.closing:
                await asyncio.gather(*map(work, items[start : start + TOGETHER]))

    async def _look_at(self, idle: reads.Idle) -> None:
        engine = self._engine
        if idle.run_id in engine.actors or not self._is_ours(idle.root, idle.owner):
            return
        if idle.owner is None:
            if not self._is_handed_out(time.monotonic() - self._ready_since[idle.run_id]):
                await self._take_with_room(idle)
        elif idle.owner == engine.worker:
            # The commit that named this process may still be on its way to an actor; one after it comes after it.
            named = await self._unless_unreadable(idle.run_id, lambda streams: streams.run(idle.run_id).epoch)
            await self.take(idle.run_id, idle.agent, named=named)
        elif idle.owner in self._dead:
            await self.take(idle.run_id, idle.agent)

    def _is_handed_out(self, ready_for: float) -> bool:
        """Whether a run that has been ready for some seconds is on its way by the work queue."""
        hands = self._engine.hands
        return hands is not None and hands.at_work and ready_for < HANDED_OUT_SECONDS

    async def _take_with_room(self, idle: reads.Idle) -> None:
        try:
            with self._engine.reserve(idle.root):
                await self.take(idle.run_id, idle.agent)
        except Refused:
            self._has_waiting = True  # the next one may belong to a tree that has its slot

    # --- taking

    async def take(self, run_id: str, agent: str, *, named: int | None = None) -> None:
        """Take a run that has work and no owner who lives: then it has an actor here. Otherwise nothing happens.

        `named` is the version that named this process as the owner, if one did that all here have heard of: what still
        has no actor gets one. A version after that is on its way to its actor.
        """
        engine = self._engine
        if run_id in engine.actors or run_id in self._unreadable or agent not in engine.agents:
            return
        if await self._can_perform(engine.agents[agent]):
            idempotent = engine.agents[agent].idempotent()
            await self._unless_unreadable(
                run_id, lambda streams: self._take_if_idle(streams, run_id, idempotent, named)
            )

    def _take_if_idle(self, streams: Streams, run_id: str, idempotent: frozenset[str], named: int | None) -> bool:
        engine, run = self._engine, streams.run(run_id)
        owner = run.owner
        if run_id in engine.actors or (run.epoch if owner == engine.worker else None) != named:
            return False
        # Its owner may have come back since somebody looked. Whoever comes back waits for this lock before it acts.
        if owner not in (None, engine.worker) and not engine.liveness.is_dead_now(owner):
            return False
        if run.deaths >= SUSPECT_DEATHS:
            # What dies beside a run that kills its process is as suspect as that. One at a time shows which it is.
            if self._has_suspect(streams):
                return False
            self._suspect = run_id
        return commits.take(streams, run_id, Take(engine.worker, owner, idempotent))

    def _has_suspect(self, streams: Streams) -> bool:
        suspect = streams.run(self._suspect)
        return suspect.owner == self._engine.worker and suspect.deaths >= SUSPECT_DEATHS

    async def _can_perform(self, agent: Agent) -> bool:
        """Not without what its model needs: the run would fail here, and may well go on elsewhere."""
        try:
            await self._engine.prepare(agent)
        except BreadError as error:
            if agent.id not in self._not_ready:
                self._not_ready.add(agent.id)
                logger.warning("runs of agent %s are not taken here: %s", agent.id, error)
            return False
        self._not_ready.discard(agent.id)
        return True

    def asked_for(self, root: str, *, again: bool) -> None:
        """Somebody here began this tree or asked for it again: it is performed here, also if `takes` is off."""
        if not self._engine.takes:
            self._asked_for.add(root)
            if again:  # what was begun just now has its actor
                self.soon()

    def _is_ours(self, root: str, owner: str | None = None) -> bool:
        return self._engine.takes or owner == self._engine.worker or root in self._asked_for

    # --- what else

    async def _expired(self, checkpoint_id: str) -> None:
        await self._unless_unreadable(checkpoint_id, partial(self._expire, checkpoint_id=checkpoint_id))

    def _expire(self, streams: Streams, checkpoint_id: str) -> bool:
        question = streams.checkpoint(checkpoint_id).asked
        agent = self._engine.agents.get(question.agent)
        worker = self._engine.worker if agent is not None and self._is_ours(question.root) else None
        return commits.expire(streams, checkpoint_id, worker, agent.idempotent() if agent else frozenset())

    async def _unless_unreadable(self, stream: str, decide: Decision[T]) -> T | None:
        try:
            return (await self._engine.commit(decide, by=SYSTEM)).result
        except StoreUnavailable:
            raise
        except BreadError as error:
            self.leave_alone(stream, error)
            return None

    def leave_alone(self, stream: str, error: BreadError) -> None:
        """What this release cannot read is left to one that can; loudly, once."""
        if stream not in self._unreadable:
            self._unreadable.add(stream)
            logger.error("%s is left alone: %s", stream, error)
