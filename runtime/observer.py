"""An observer: everything that a run shows from a cursor on, once and in order.

Replay from the store, then frames from the hub; what is not newer is dropped, and on a gap the store is read again.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from ..domain.errors import BreadError
from ..domain.events import Erased
from ..domain.messages import read_turn
from ..domain.ports import Logged
from ..domain.run_events import (
    ModelFailed,
    ModelResponded,
    Parked,
    RunCancelled,
    RunCompleted,
    RunFailed,
    RunTaken,
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
from ..projections.render import RunInfo, crumb_of, run_of
from ..transport.cursor import MAX_LIVE, Cursor
from ..transport.local import HintFrame, Lagging, TextFrame
from . import reads

if TYPE_CHECKING:
    from .engine import Engine

PAGE = 200
_VOIDS_TEXT = (ModelFailed, RunTaken, RunCancelled, RunFailed, Erased)
_ENDS_ROOT = (RunCompleted, RunFailed, RunCancelled, Erased)
_HINTS: dict[str, type[Crumb]] = {
    "reasoning": ReasoningDelta,
    "input_start": ToolInputStart,
    "input_delta": ToolInputDelta,
    "input_end": ToolInputEnd,
    "partial": ToolResultPartial,
}


class Observer:
    """One reader of a root's log. `at_rest` ends it where the tree rests, too; otherwise only the root's end does.

    With `past_rests` it reads on over rests that were left again, to the one in which the tree is now.
    """

    def __init__(
        self, engine: Engine, root: RunInfo, cursor: Cursor, *, at_rest: bool, past_rests: bool = False
    ) -> None:
        self._engine, self._root, self._at_rest = engine, root, at_rest
        self._first_rest = at_rest and not past_rests
        self.seq = cursor.seq
        self._texts: dict[int, int] = dict(cursor.texts)
        self._bases: dict[int, str] = {}
        self._floor: dict[str, int] = {}
        self._infos = {root.run_id: root}
        self.parked = False
        self._ended = False

    async def crumbs(self) -> AsyncIterator[Crumb]:
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
                    if (piece := self._live_text(frame)) is not None:
                        yield piece
                elif isinstance(frame, HintFrame):
                    yield self._hint(frame)
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

    async def _catch_up(self) -> AsyncIterator[Crumb]:
        """What the store has, then what is being said at this moment."""
        async for crumb in self._replay():
            yield crumb
        for frame in () if self._ended else self._engine.hub.live_texts(self._root.run_id):
            if (piece := self._live_text(frame)) is not None:
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
                self._ended = False
                for crumb in await self._show(entry):
                    yield crumb
            if len(page) < PAGE and not (recent and self._ended and not self._first_rest):
                break
        if not page and not self._ended:
            erased = await self._erased()
            if erased is not None:
                yield erased

    async def _erased(self) -> Crumb | None:
        """The last crumb of a run whose session was deleted while nobody was looking."""
        try:
            await self._engine.journal.ask(reads.run_info, self._root.run_id)
        except BreadError as error:
            if error.code != "RUN_NOT_FOUND":
                raise
            self._ended = True
            self.seq += 1
            return AgentError(**self._common(self._root), code="SESSION_DELETED", message="the session was deleted")
        # Nothing new, and the run is there: it may have ended before the cursor.
        self._ended = await self._engine.journal.ask(reads.has_ended, self._root.run_id)
        if not self._ended and self._at_rest and not self._first_rest:
            self._ended = (await self._engine.journal.ask(reads.run_state, self._root.run_id)).parked
        return None

    # --- one entry

    async def _show(self, entry: Logged) -> list[Crumb]:
        """The crumbs of an entry. What it voids comes first, under the cursor from before it: a reader that leaves in
        between finds the entry itself again."""
        recorded, event = entry.recorded, entry.recorded.event
        run_id, seq = run_of(entry), recorded.meta.seq
        shown: list[Crumb] = []
        seen = 0
        if run_id is not None and recorded.stream == run_id and isinstance(event, (ModelResponded, *_VOIDS_TEXT)):
            if isinstance(event, ModelResponded):
                seen = self._texts.pop(event.base, 0)
                self._bases.pop(event.base, None)
            shown += self._void(await self._info(run_id))
            self._floor[run_id] = seq
        self.seq = seq
        if run_id is not None:
            info = await self._info(run_id)
            if isinstance(event, ModelResponded):
                shown += self._rest_of_text(info, event, seen, recorded.meta.at)
            elif (crumb := crumb_of(entry, info, self._cursor())) is not None:
                shown.append(crumb)
        if recorded.stream == self._root.run_id:
            self.parked = isinstance(event, Parked)
            self._ended = isinstance(event, _ENDS_ROOT) or (self._at_rest and self.parked)
        return shown

    def _rest_of_text(self, info: RunInfo, event: ModelResponded, seen: int, at: float) -> Iterator[Crumb]:
        """The text of a turn from where this observer stands: all of it, some, or nothing that is new."""
        if rest := read_turn(event.message).text[seen:]:
            yield TextDelta(**self._common(info, at), text=rest, base=event.base, offset=seen)

    def _void(self, info: RunInfo) -> Iterator[Crumb]:
        for base in [base for base, owner in self._bases.items() if owner == info.run_id]:
            self._bases.pop(base)
            if self._texts.pop(base, 0):
                yield TextReset(**self._common(info), base=base)

    # --- live frames

    def _live_text(self, frame: TextFrame) -> Crumb | None:
        """A piece of text, if it goes on exactly where this observer stands; else the durable turn brings it."""
        info = self._infos.get(frame.run_id)
        if info is None or frame.base > self.seq or frame.base < self._floor.get(frame.run_id, 0):
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

    def _hint(self, frame: HintFrame) -> Crumb:
        info = self._infos.get(frame.run_id, self._root)
        return _HINTS[frame.kind](**self._common(info), **frame.payload)

    # --- what crumbs carry

    def _cursor(self) -> str:
        return str(Cursor(self.seq, self._texts))

    def _common(self, info: RunInfo, at: float | None = None) -> dict[str, Any]:
        return {
            "seq": self.seq,
            "cursor": self._cursor(),
            "run_id": info.run_id,
            "root_run_id": info.root,
            "agent_id": info.agent,
            "session_id": info.session,
            "path": info.path,
            "timestamp": datetime.now(UTC) if at is None else datetime.fromtimestamp(at, UTC),
        }

    async def _info(self, run_id: str) -> RunInfo:
        info = self._infos.get(run_id)
        if info is None:
            info = self._infos[run_id] = await self._engine.journal.ask(reads.run_info, run_id)
        return info
