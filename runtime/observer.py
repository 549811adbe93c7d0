"""An observer: everything that a run shows from a cursor on, once and in order.

Replay from the store, then frames from the hub; what is not newer is dropped, and on a gap the store is read again.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Iterator
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from ..domain.errors import InvalidInput, NotFound
from ..domain.events import Erased, Event
from ..domain.messages import read_turn
from ..domain.ports import Logged
from ..domain.run_events import (
    ChildReturned,
    ChildStarted,
    ModelResponded,
    Parked,
    RunCancelled,
    RunCompleted,
    RunFailed,
    Visibility,
)
from ..projections.crumbs import (
    AgentError,
    Crumb,
    ReasoningDelta,
    TextDelta,
    TextReset,
    ToolInputDelta,
    ToolInputEnd,
    ToolInputStart,
    ToolResultPartial,
)
from ..projections.render import RunInfo, crumb_of, moment, run_of, visible
from ..transport.cursor import MAX_LIVE, Cursor
from ..transport.local import ENDS_ATTEMPT, HintFrame, Lagging, TextFrame
from . import reads, tree_reads

if TYPE_CHECKING:
    from .engine import Engine
    from .store_journal import StoreJournal

PAGE = 200
_ENDS_RUN = (RunCompleted, RunFailed, RunCancelled, Erased)
HINTS: dict[str, type[Crumb]] = {
    "reasoning": ReasoningDelta,
    "input_start": ToolInputStart,
    "input_delta": ToolInputDelta,
    "input_end": ToolInputEnd,
    "partial": ToolResultPartial,
}


class Family:
    """The runs of a tree, read once for all who observe it here: each of them sees every one of these runs."""

    def __init__(self, root: RunInfo) -> None:
        self.infos = {root.run_id: root}
        self._reading = asyncio.Lock()

    async def read(self, journal: StoreJournal, run_id: str) -> RunInfo:
        async with self._reading:
            if run_id not in self.infos:
                self.infos |= await journal.ask(tree_reads.siblings, run_id)
            return self.infos[run_id]


class Observer:
    """One reader of a root's log. `at_rest` ends it where the tree rests, too; otherwise only its end does.

    `view` is the run that is looked at, by default the root: what is shown is the log filtered to its subtree.

    With `past_rests` it reads on over rests that were left again, to the one in which the tree is now.
    """

    def __init__(
        self,
        engine: Engine,
        root: RunInfo,
        cursor: Cursor,
        *,
        at_rest: bool,
        past_rests: bool = False,
        view: str | None = None,
    ) -> None:
        self._view = view or root.run_id
        self._engine, self._root, self._at_rest = engine, root, at_rest
        self._first_rest = at_rest and not past_rests
        self.seq = self._floors_from = cursor.seq
        self._texts: dict[int, int] = dict(cursor.texts)
        self._bases: dict[int, str] = {}
        self._floor: dict[str, int] = {}
        self._family = engine.families.setdefault(root.run_id, Family(root))
        self.moved = asyncio.Event()
        self.parked = False
        self._ended = False

    async def crumbs(self) -> AsyncGenerator[Crumb, None]:
        """The crumbs, to the end. Closing the iterator early is fine; the last crumb's cursor continues it."""
        subscription = self._engine.hub.subscribe(self._root.run_id)
        try:
            await self._place_bases()
            async for crumb in self._catch_up():
                yield crumb
            while not self._is_over():
                try:
                    frame = await subscription.get()
                except Lagging:
                    async for crumb in self._catch_up():
                        yield crumb
                    continue
                if isinstance(frame, TextFrame):
                    if (piece := await self._live_text(frame)) is not None:
                        yield piece
                elif isinstance(frame, HintFrame):
                    if (hint := await self._hint(frame)) is not None:
                        yield hint
                elif frame.recorded.meta.seq == self.seq + 1:
                    for crumb in await self._show(frame):
                        yield crumb
                    if self._is_over() and not self._first_rest:
                        async for crumb in self._replay():  # a failed run may have been retried meanwhile
                            yield crumb
                elif frame.recorded.meta.seq > self.seq:
                    async for crumb in self._replay():
                        yield crumb
        finally:
            subscription.close()

    def _is_over(self) -> bool:
        return self._ended

    async def _place_bases(self) -> None:
        # A cursor names the texts by their bases; whose attempts they are stands in the log.
        for base in self._texts:
            for entry in await self._engine.journal.log(self._root.run_id, base - 1, 1):
                self._bases[base] = entry.recorded.stream
                self._floor[entry.recorded.stream] = base

    async def _catch_up(self) -> AsyncIterator[Crumb]:
        """What the store has, then what is being said at this moment."""
        async for crumb in self._replay():
            yield crumb
        for frame in () if self._ended else self._engine.hub.live_texts(self._root.run_id):
            if (piece := await self._live_text(frame)) is not None:
                yield piece

    async def _replay(self) -> AsyncIterator[Crumb]:
        """What was committed after the last event seen. Whether the root has ended is judged at the end of it.

        Who follows a run that it has just started or answered finds its first events in the hub; all else is read.
        """
        root = self._root.run_id
        while True:
            recent = self._engine.hub.recent(root, self.seq)
            page = recent or await self._engine.journal.log(root, self.seq, PAGE)
            for entry in page:
                if self._ended and self._first_rest:
                    return
                for crumb in await self._show(entry):
                    yield crumb
            if len(page) == PAGE or (recent and self._ended and not self._first_rest):
                continue
            if page or self._ended:
                return
            # Nothing new: the run may have ended before the cursor, or be gone with its session.
            now = await self._engine.journal.ask(reads.standing, root, self._view)
            if now.status is None:
                for crumb in self._erased():
                    yield crumb
                return
            if now.seq < self.seq:
                raise InvalidInput("INPUT_INVALID", f"cursor: {root} has no event {self.seq} yet", run_id=root)
            if now.seq == self.seq:
                at_rest = self._at_rest and not self._first_rest and now.parked
                self._ended = at_rest or now.status not in ("running", "waiting", "suspended")
                return

    def _erased(self) -> Iterator[Crumb]:
        """The last crumbs of a run whose session was deleted while nobody was looking."""
        yield from self._void(self._root)
        self._ended = True
        self.seq += 1
        yield self._deleted(self._root)

    def _deleted(self, info: RunInfo) -> Crumb:
        return AgentError(**self._common(info), code="SESSION_DELETED", message="the session was deleted")

    # --- one entry

    async def _show(self, entry: Logged) -> list[Crumb]:
        """The crumbs of an entry. What it voids comes first, under the cursor from before it: a reader that leaves in
        between finds the entry itself again."""
        recorded, event = entry.recorded, entry.recorded.event
        run_id, seq = run_of(entry), recorded.meta.seq
        info = None if run_id is None else await self._visible(event, run_id)
        shown: list[Crumb] = []
        if info is not None and recorded.stream == run_id and isinstance(event, ENDS_ATTEMPT):
            own = event.base if isinstance(event, ModelResponded) else None
            shown += self._void(info, but=own)
            self._floor[info.run_id] = seq
        self.seq = seq
        self.moved.set()
        if info is not None and isinstance(event, ModelResponded):
            shown += self._rest_of_text(info, event, recorded.meta.at)
        elif info is not None and (crumb := crumb_of(entry, info, str(self.cursor))) is not None:
            shown.append(crumb)
        if recorded.stream == self._view:
            self._ended = isinstance(event, _ENDS_RUN)
            if isinstance(event, Erased) and not shown:
                shown.append(self._deleted(self._family.infos.get(self._view, self._root)))
        if recorded.stream == self._root.run_id:
            self.parked = isinstance(event, Parked)
            self._ended |= self._at_rest and self.parked
        return shown

    async def _visible(self, event: Event, run_id: str) -> RunInfo | None:
        """The run of an event that is shown here; None for one that is hidden, or gone with its session meanwhile."""
        child: Visibility = "passthrough"
        try:
            info = await self._info(run_id)
            if isinstance(event, ChildStarted | ChildReturned):
                child = (await self._info(event.child)).links[-1].visibility
        except NotFound:
            return None
        return info if visible(event, info, self._view, child) else None

    def _rest_of_text(self, info: RunInfo, event: ModelResponded, at: float) -> Iterator[Crumb]:
        """The text of a turn from where this observer stands: all of it, some, or nothing that is new."""
        seen = self._texts.pop(event.base, 0)
        self._bases.pop(event.base, None)
        if rest := read_turn(event.message).text[seen:]:
            yield TextDelta(**self._common(info, at), text=rest, base=event.base, offset=seen)

    def _void(self, info: RunInfo, but: int | None = None) -> Iterator[Crumb]:
        for base in [base for base, owner in self._bases.items() if owner == info.run_id and base != but]:
            self._bases.pop(base)
            if self._texts.pop(base, 0):
                yield TextReset(**self._common(info), base=base)

    # --- live frames

    async def _live_text(self, frame: TextFrame) -> Crumb | None:
        """A piece of text, if it goes on exactly where this observer stands; else the durable turn brings it."""
        if frame.base > self.seq:
            return None
        info = await self._seen(frame.run_id)
        if info is None or frame.base < await self._floor_of(frame):
            return None
        seen = self._texts.get(frame.base, 0)
        text = frame.text[max(0, seen - frame.offset) :]
        if frame.offset > seen or not text:
            return None
        if frame.base not in self._texts and len(self._texts) >= MAX_LIVE:
            return None
        self._bases[frame.base] = frame.run_id
        self._texts[frame.base] = seen + len(text)
        return TextDelta(**self._common(info), text=text, base=frame.base, offset=seen)

    async def _floor_of(self, frame: TextFrame) -> int:
        """Where the run's present attempt can have started at the earliest; what is still said of others is void."""
        after, known = frame.base, self._floors_from
        if frame.run_id not in self._floor and after < known:
            # A cursor that is past the end of an attempt may meet its last words. What came after it was shown here.
            while after < known and (page := await self._engine.journal.log(self._root.run_id, after, PAGE)):
                for recorded in (entry.recorded for entry in page):
                    after = recorded.meta.seq
                    if after <= known and isinstance(recorded.event, ENDS_ATTEMPT):
                        self._floor[recorded.stream] = max(after, self._floor.get(recorded.stream, 0))
            self._floors_from = frame.base
        return self._floor.get(frame.run_id, frame.base)

    async def _hint(self, frame: HintFrame) -> Crumb | None:
        info = await self._seen(frame.run_id)
        return None if info is None else HINTS[frame.kind](**self._common(info), **frame.payload)

    async def _seen(self, run_id: str) -> RunInfo | None:
        """A run whose words are shown here; None for one that is hidden, or gone."""
        try:
            info = await self._info(run_id)
        except NotFound:
            return None
        links = info.below(self._view)
        return None if links is None or any(link.visibility != "passthrough" for link in links) else info

    # --- what crumbs carry

    @property
    def cursor(self) -> Cursor:
        """What has been shown so far."""
        return Cursor(self.seq, dict(self._texts))

    def _common(self, info: RunInfo, at: float | None = None) -> dict[str, Any]:
        return info.common(self.seq, str(self.cursor), datetime.now(UTC) if at is None else moment(at))

    async def _info(self, run_id: str) -> RunInfo:
        return self._family.infos.get(run_id) or await self._family.read(self._engine.journal, run_id)
