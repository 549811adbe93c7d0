"""The work queue, as one process sees it: it offers what it leaves ready, and fetches what it has room for.

The queue is quick, and promises nothing: who owns a run is decided in the log, where the version of its stream lets one
taker win. What the queue loses is found by the sweep, what it repeats is not taken twice.
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import ExitStack
from typing import TYPE_CHECKING

from ..domain.errors import BreadError, Refused
from ..domain.run_state import RunState
from ..transport.port import Delivery, Job, NotKept, WorkQueue

if TYPE_CHECKING:
    from .engine import Engine

logger = logging.getLogger("bread")
WORKING_SECONDS = 10.0  # a third of the time after which the queue gives a job to another
AGAIN_SECONDS = 1.0


class Hands:
    """Everything here runs on the event loop."""

    def __init__(self, engine: Engine, queue: WorkQueue) -> None:
        self._engine, self._queue = engine, queue
        self._held: dict[str, Delivery] = {}
        self._serves = False
        self._freed = asyncio.Event()

    @property
    def at_work(self) -> bool:
        """Whether what is ready comes to this process by the queue."""
        return self._serves and self._queue.is_up

    def open(self) -> None:
        """Begin to fetch what is ready for the agents that are here."""
        self._serves = True
        for agent in self._engine.agents:
            self._engine.spawn(self._serve(agent), f"fetch {agent}")
        self._engine.spawn(self._say_working(), "hands at work")

    async def close(self) -> None:
        """What this process gives back is not to come to itself, who would have to hand it on while it ends."""
        self._serves = False
        if self._queue.is_up:
            await self._queue.withdraw()

    def offer(self, state: RunState, tenant: str) -> None:
        """A commit of this process left a run ready: whoever has its agent may have it."""
        if self._queue.is_up:
            job = Job(state.agent, state.root, state.id, tenant, state.version)
            self._engine.spawn(self._offer(job), f"offer {state.id}")

    async def _offer(self, job: Job) -> None:
        try:
            await self._queue.offer(job)
        except NotKept as error:
            logger.debug("run %s is left to the sweeps: %s", job.run_id, error)

    def freed(self, run_id: str) -> None:
        """A run has no actor here any more: it rests, has ended, or another process has it."""
        self._freed.set()
        delivery = self._held.pop(run_id, None)
        if delivery is not None:
            self._engine.spawn(self._settle(delivery), f"done with {run_id}")

    async def _settle(self, delivery: Delivery, again: float | None = None) -> None:
        try:
            await (delivery.done() if again is None else delivery.again(again))
        except NotKept as error:
            logger.debug("a job will come again: %s", error)

    # --- fetching

    async def _serve(self, agent: str) -> None:
        engine, failed = self._engine, False
        while not engine.closing:
            if engine.room < 1:
                self._freed.clear()
                await self._freed.wait()
                continue
            try:
                await self._queue.until_up()
                delivery = await self._queue.fetch(agent)
                if delivery is not None:
                    self._receive(delivery)
                failed = False
            except NotKept as error:
                logger.debug("nothing comes from the work queue: %s", error)
                await asyncio.sleep(AGAIN_SECONDS)
            except Exception:
                # What is ready is found by the sweep meanwhile.
                if not failed:
                    logger.exception("fetching runs of agent %s failed; it is tried again", agent)
                failed = True
                await asyncio.sleep(AGAIN_SECONDS)

    def _receive(self, delivery: Delivery) -> None:
        """Take a run while the next one is fetched: runs that are ready together are taken in one transaction."""
        job, engine = delivery.job, self._engine
        slot = ExitStack()
        try:
            slot.enter_context(engine.reserve(job.root))
        except Refused:
            engine.spawn(self._settle(delivery, again=0), f"hand on {job.run_id}")  # somebody else may have room
        else:
            engine.spawn(self._take(delivery, slot), f"take {job.run_id}")

    async def _take(self, delivery: Delivery, slot: ExitStack) -> None:
        job, engine = delivery.job, self._engine
        try:
            with slot:
                if engine.closing:
                    await self._settle(delivery, again=0)  # what is taken now would have no actor
                    return
                if not engine.liveness.is_alive(engine.worker):
                    await self._settle(delivery, again=AGAIN_SECONDS)  # it would be taken from it at once
                    return
                await engine.sweep.take(job.run_id, job.agent)
        except Exception as error:
            logger.warning("run %s is not taken now: %s", job.run_id, error, exc_info=not isinstance(error, BreadError))
            await self._settle(delivery, again=AGAIN_SECONDS)
            return
        if job.run_id in engine.actors and not engine.closing:
            self._held[job.run_id] = delivery
        else:
            # It had no work, or an owner who lives; what else can be wrong with it, the sweeps see.
            await self._settle(delivery)

    async def _say_working(self) -> None:
        """Until a run rests or ends its job is nobody else's."""
        while not self._engine.closing:
            await asyncio.sleep(WORKING_SECONDS)
            for delivery in tuple(self._held.values()):
                try:
                    await delivery.working()
                except NotKept as error:
                    logger.debug("a job may come again: %s", error)
