"""Crumbs for the bus: each event of the log as an observer with an empty cursor is shown it, hidden ones included."""

from __future__ import annotations

from collections import OrderedDict
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from ..domain.checkpoint import CheckpointDiscarded
from ..domain.errors import NotFound
from ..domain.events import Erased
from ..domain.ports import Logged
from ..domain.run_events import ChildReturned, ChildStarted, RunStarted, Visibility
from ..projections.crumbs import TextDelta
from ..projections.render import RunInfo, crumb_of, run_of, visible
from ..transport.frames import Told, crumb_frame
from ..transport.local import HintFrame, TextFrame
from ..transport.subjects import Place
from . import tree_reads
from .observer import HINTS, Family

if TYPE_CHECKING:
    from .engine import Engine

FAMILIES = 4096


class Renderer:
    """Knows the last trees that something was told of."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._families: OrderedDict[str, Family] = OrderedDict()

    async def told(self, entry: Logged) -> Told | None:
        """The crumb of an entry of a log; None for one that shows nothing, or whose run is gone."""
        recorded, event = entry.recorded, entry.recorded.event
        root, run_id = recorded.meta.root, run_of(entry)
        if root is None or run_id is None:
            return None
        child: Visibility = "passthrough"
        try:
            family = await self._family(root, entry)
            info = await self._member(family, run_id)
            if isinstance(event, ChildStarted | ChildReturned):
                child = (await self._member(family, event.child)).links[-1].visibility
        except NotFound:
            if not isinstance(event, Erased | CheckpointDiscarded):
                return None
            info = RunInfo(root, root, recorded.meta.session or "", "")
        crumb = crumb_of(entry, info, str(recorded.meta.seq))
        if crumb is None:
            return None
        frame = crumb_frame(crumb.wire(), recorded.meta.at, visible(event, info, root, child))
        return Told(Place(recorded.meta.tenant, info.agent, info.session, root, info.run_id), frame)

    def live(self, tenant: str, root: str, frame: TextFrame | HintFrame, seq: int) -> Told | None:
        """Something live as a crumb; None where its run is not known here yet. `seq` is the last one of the tree."""
        family = self._families.get(root)
        info = family.infos.get(frame.run_id) if family else None
        if info is None:
            return None
        now = datetime.now(UTC)
        if isinstance(frame, TextFrame):
            cursor = f"{frame.base}~{frame.base}:{frame.offset + len(frame.text)}"
            common = info.common(frame.base, cursor, now)
            wire = TextDelta(**common, text=frame.text, base=frame.base, offset=frame.offset).wire()
        else:
            common = info.common(seq, str(seq), now)
            wire = HINTS[frame.kind](**common, **frame.payload).wire()
        seen = all(link.visibility == "passthrough" for link in info.links)
        place = Place(tenant, info.agent, info.session, root, info.run_id)
        return Told(place, crumb_frame(wire, now.timestamp(), seen))

    async def learn(self, root: str, run_id: str) -> None:
        """Find out where a run hangs, for what it says next."""
        await self._member(await self._family(root), run_id)

    async def _family(self, root: str, entry: Logged | None = None) -> Family:
        family = self._families.get(root) or self._engine.families.get(root)
        if family is None:
            family = self._engine.families[root] = Family(await self._root(root, entry))
        self._families[root] = family
        self._families.move_to_end(root)
        if len(self._families) > FAMILIES:
            self._families.popitem(last=False)
        return family

    async def _root(self, root: str, entry: Logged | None) -> RunInfo:
        if entry is not None and entry.recorded.stream == root and isinstance(entry.recorded.event, RunStarted):
            return RunInfo(root, root, entry.recorded.event.session, entry.recorded.event.agent)
        return await self._engine.journal.ask(tree_reads.run_info, root)

    async def _member(self, family: Family, run_id: str) -> RunInfo:
        return family.infos.get(run_id) or await family.read(self._engine.journal, run_id)
