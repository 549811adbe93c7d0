"""The relay: what was committed here goes to the bus, in order for each tree, until the bus has it.

Nobody waits for it. The log is the queue: what does not fit in memory, or was left by a process that died, is read from
there. Of a tree in which several processes write each publishes its own events, and before them those of others that
nobody is known to have published: their ids are the same, so what is kept twice is kept once, and in order.
"""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import TYPE_CHECKING, TypeVar

from ..domain.errors import StoreUnavailable, StoreUnreadable
from ..domain.ports import Logged
from ..transport.frames import Heard, Message, Told, crumb_message, human_message
from ..transport.local import Frame, HintFrame, TextFrame
from ..transport.port import Bus, NeverKept, NotKept
from . import reads
from .lanes import Lane, is_end, seq_of
from .rendering import Renderer

if TYPE_CHECKING:
    from .engine import Engine

T = TypeVar("T")
logger = logging.getLogger("bread")
LANES = 10_000  # trees with something to publish, before one position in the log stands for all of them
AT_ONCE = 64
PAGE = 200
KNOWN = 4096
LOOK_BACK = 64
LOOK_BACK_SECONDS = 100.0  # within the time in which the stream knows what it has
RETRY_SECONDS = (0.05, 0.2, 1.0)
QUESTIONS = {"human:required", "human:resumed", "human:discarded"}


class Relay:
    """Implements liveness.Published. Everything here runs on the event loop."""

    def __init__(self, engine: Engine, bus: Bus) -> None:
        self._engine, self.bus = engine, bus
        self._render = Renderer(engine)
        self._lanes: dict[str, Lane] = {}
        self._others: list[Lane] = []
        self._known: OrderedDict[str, Lane] = OrderedDict()
        self._slots = asyncio.Semaphore(AT_ONCE)
        self._last = 0
        self._behind: int | None = None
        self._left_at: int | None = None
        self._taken_over: set[str] = set()
        self._learning: set[str] = set()
        bus.on_gap = engine.hub.poke_all
        bus.on_mark = self._on_mark
        bus.on_live = self._on_live

    def open(self, position: int) -> None:
        """Begin; what was committed up to a position is not ours."""
        self._last = position

    async def close(self, seconds: float) -> None:
        """Publish what is left, but not longer than that."""
        tasks = [lane.task for lane in self._lanes.values() if lane.task is not None]
        if tasks and self.bus.is_up:
            await asyncio.wait(tasks, timeout=seconds)
        if not self.is_done:
            self._left_at = self.published_upto
            logger.warning("not everything was published; the log has what follows position %d", self.published_upto)

    @property
    def published_upto(self) -> int:
        if self._left_at is not None:
            return self._left_at
        if self._behind is not None:
            return self._behind
        return min((lane.low for lane in self._lanes.values()), default=self._last)

    @property
    def is_done(self) -> bool:
        return self._left_at is None and self._behind is None and not self._lanes

    # --- what happens

    def tell(self, root: str, frame: Frame) -> None:
        """An event of this process, after its commit, or something live."""
        self.bus.tell(root, frame)
        if isinstance(frame, Logged):
            if self._behind is None:
                self._add(frame)
            self._last = max(self._last, frame.recorded.position)

    def hear(self, root: str, frame: Frame) -> None:
        """What another process tells by the bus, sooner than the store does."""
        if isinstance(frame, Logged):
            self.heard([frame])
        self._engine.hub.heard(root, frame)

    def heard(self, entries: Iterable[Logged]) -> None:
        """Commits of other processes: what they have erased is published no more, and removed if it just was."""
        for root in [entry.recorded.stream for entry in entries if is_end(entry)]:
            for other in [one for one in self._others if one.root == root]:
                other.give_up()
            lane = self._lanes.get(root) or self._known.pop(root, None)
            if lane is not None:
                lane.give_up()
                self._start(lane)

    def _add(self, entry: Logged) -> None:
        root = str(entry.recorded.meta.root)
        lane = self._lanes.get(root)
        if lane is None:
            lane = self._known.pop(root, None) or Lane(root, self._engine.worker)
            lane.low = entry.recorded.position - 1
        lane.add(entry, room=self.bus.is_up)
        self._start(lane)
        if len(self._lanes) > LANES:
            self._fall_behind()

    def _start(self, lane: Lane) -> None:
        self._lanes[lane.root] = lane
        if lane.task is None:
            lane.task = self._engine.spawn(self._run(lane), f"publish {lane.root}")

    def _on_mark(self, root: str, seq: int) -> None:
        lane = self._lanes.get(root) or self._known.get(root)
        if lane is None:
            lane = Lane(root, self._engine.worker)
            self._remember(lane)
        lane.marked = max(lane.marked, seq)

    def _remember(self, lane: Lane) -> None:
        self._known[lane.root] = lane
        if len(self._known) > KNOWN:
            self._known.popitem(last=False)

    # --- one lane

    async def _run(self, lane: Lane) -> None:
        try:
            async with self._slots:
                await self._empty(lane)
        finally:
            lane.task = None
            if self._lanes.get(lane.root) is lane:
                del self._lanes[lane.root]
                lane.dropped = False
                self._remember(lane)

    async def _empty(self, lane: Lane) -> None:
        while (entry := await self._next(lane)) is not None:
            await self._publish(lane, entry)
        if lane.gone and lane.kept:
            # They may have reached the stream after whoever erased the tree had it purged.
            await self._again(lane, lambda: self.bus.remove(tuple(lane.kept)))
            lane.kept.clear()

    async def _next(self, lane: Lane) -> Logged | None:
        """What is to be published next: from memory if it is there, else from the log."""
        while not lane.gone:
            if lane.erased:
                return await self._last_words(lane)
            if lane.done is None:
                lane.done = await self._beginning(lane)
                continue
            for queue in (lane.waiting, lane.page):
                while queue and seq_of(queue[0]) <= lane.done:
                    queue.popleft()
            passed = lane.done if lane.dropped else max(lane.done, lane.marked)
            if lane.waiting and seq_of(lane.waiting[0]) <= passed + 1:
                return lane.waiting.popleft()
            if lane.page:
                return lane.page.popleft()
            if lane.done >= lane.target:
                return None
            page = await self._read(lane, lane.done)
            if lane.is_over():
                continue
            if not page:
                lane.done = seq_of(lane.waiting[0]) - 1 if lane.waiting else lane.target
            lane.page.extend(page)
        return None

    async def _last_words(self, lane: Lane) -> Logged | None:
        if not lane.purged:
            await self._again(lane, lambda: self.bus.purge(lane.tenant, lane.session, lane.root))
            lane.purged = True
            lane.kept.clear()
        if lane.waiting:
            return lane.waiting.popleft()
        lane.kept.clear()
        return None

    async def _beginning(self, lane: Lane) -> int:
        """Where to begin in a tree that others have written: with what they may not have published by now."""
        first = seq_of(lane.waiting[0]) if lane.waiting else lane.target
        since, done = self._engine.clock() - LOOK_BACK_SECONDS, first - 1
        for entry in reversed(await self._read(lane, max(0, first - 1 - LOOK_BACK), LOOK_BACK)):
            if seq_of(entry) >= first:
                continue
            if entry.recorded.meta.at < since or seq_of(entry) <= lane.marked:
                break
            done = seq_of(entry) - 1
        return done

    async def _read(self, lane: Lane, after: int, limit: int = PAGE) -> Sequence[Logged]:
        try:
            page = await self._patiently(lambda: self._engine.journal.log(lane.root, after, limit))
        except StoreUnreadable as error:
            logger.error("what others wrote to %s is left to them to publish: %s", lane.root, error)
            return ()
        return [entry for entry in page if seq_of(entry) <= lane.target]

    async def _patiently(self, read: Callable[[], Awaitable[T]]) -> T:
        """An answer of the store, however long it does not answer."""
        while True:
            try:
                return await read()
            except StoreUnavailable as error:
                if self._engine.closing:
                    raise asyncio.CancelledError from error  # the log has what is left
                logger.warning("publishing waits for the store: %s", error)
                await asyncio.sleep(RETRY_SECONDS[-1])

    async def _publish(self, lane: Lane, entry: Logged) -> None:
        meta = entry.recorded.meta
        is_ours = meta.worker == lane.worker
        if is_ours or meta.seq > lane.marked:
            try:
                told = await self._patiently(lambda: self._render.told(entry))
            except Exception:
                # The others of its tree shall not wait for ever for one that cannot be shown.
                logger.exception("event %d of %s is not published", meta.seq, lane.root)
                told = None
            if told is not None:
                await self._keep(lane, told)
        if lane.is_over():
            return
        lane.done = max(lane.done or 0, meta.seq)
        if is_ours:
            lane.low = max(lane.low, entry.recorded.position)
        self.bus.mark(lane.tenant, lane.root, lane.done)

    async def _keep(self, lane: Lane, told: Told) -> None:
        await self._keep_one(lane, lambda limit: crumb_message(told, "crumbs", limit))
        if told.frame["type"] in QUESTIONS:
            await self._keep_one(lane, lambda limit: human_message(told))

    async def _keep_one(self, lane: Lane, message: Callable[[int], Message]) -> None:
        async def keep() -> None:
            try:
                number = await self.bus.keep(message(self.bus.limit))
            except NeverKept as error:
                try:
                    number = await self.bus.keep(message(0))
                except NeverKept:
                    logger.error("a crumb of %s is not kept: %s", lane.root, error)
                    return
            lane.kept.append(number)

        await self._again(lane, keep)

    async def _again(self, lane: Lane, work: Callable[[], Awaitable[None]]) -> None:
        """Do something with the bus until it has been done."""
        attempt = 0
        while True:
            await self.bus.until_up()
            try:
                await work()
            except NotKept as error:
                logger.debug("%s is tried again: %s", lane.root, error)
                await asyncio.sleep(RETRY_SECONDS[min(attempt, len(RETRY_SECONDS) - 1)])
                attempt += 1
            else:
                return

    # --- from the log

    def _fall_behind(self) -> None:
        """Too many trees wait for the bus: from here on the log remembers them, and is read when it is back."""
        self._behind = self.published_upto
        for lane in self._lanes.values():
            if lane.task is not None:
                lane.task.cancel()
        self._lanes.clear()
        self._engine.spawn(self._catch_up(), "publish from the log")

    async def _catch_up(self) -> None:
        while self._behind is not None:
            self._behind = await self._publish_page(self._engine.worker, self._behind, self._last)
            if self._behind >= self._last:
                self._behind = None

    async def publish_rest(self, worker: str, after: int) -> int:
        last = await self._engine.journal.ask(reads.last_position)
        while after < last:
            after = await self._publish_page(worker, after, last)
        return after

    def take_over(self, worker: str, after: int) -> None:
        """Publish what a worker that is gone has left after a position, and bury it then; nothing for one that is under
        way."""
        if worker not in self._taken_over:
            self._taken_over.add(worker)
            self._engine.spawn(self._take_over(worker, after), f"publish what {worker} has left")

    async def _take_over(self, worker: str, after: int) -> None:
        try:
            await self.publish_rest(worker, after)
            self._engine.liveness.bury(worker)
        except StoreUnavailable as error:
            logger.warning("what worker %s has left is not published yet: %s", worker, error)
        except Exception:
            logger.exception("what worker %s has left cannot be published", worker)
        finally:
            self._taken_over.discard(worker)

    async def _publish_page(self, worker: str, after: int, last: int) -> int:
        """Publish what a worker has in a page of the log; gives the position where the page ends.

        `last` is the last position that there was before the page is read: without any page, that is where it ends.
        """
        await self.bus.until_up()
        page, end, _ = await self._patiently(lambda: self._engine.journal.ask(reads.since, after, PAGE))
        lanes: dict[str, Lane] = {}
        for entry in page:
            root = entry.recorded.meta.root
            if root is not None and entry.recorded.meta.worker == worker:
                lanes.setdefault(root, Lane(root, worker)).add(entry, room=True)
        self._others += lanes.values()
        try:
            for lane in lanes.values():
                known = self._lanes.get(lane.root) or self._known.get(lane.root)
                lane.marked = known.marked if known else 0
                await self._empty(lane)
        finally:
            self._others = [lane for lane in self._others if lane not in lanes.values()]
        return end if end > after else last

    # --- live

    def _on_live(self, tenant: str, root: str, frames: Sequence[Heard]) -> None:
        for frame in frames:
            if not isinstance(frame, TextFrame | HintFrame):
                continue
            lane = self._lanes.get(root) or self._known.get(root)
            told = self._render.live(tenant, root, frame, lane.target if lane else 0)
            if told is not None:
                self.bus.show(crumb_message(told, "live", self.bus.limit))
            elif frame.run_id not in self._learning:
                self._learning.add(frame.run_id)
                self._engine.spawn(self._learn(root, frame.run_id), f"learn {frame.run_id}")

    async def _learn(self, root: str, run_id: str) -> None:
        try:
            await self._render.learn(root, run_id)
        except Exception as error:
            logger.debug("what %s says is not told outside: %s", run_id, error)
        finally:
            self._learning.discard(run_id)
