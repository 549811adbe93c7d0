"""The recorded events of a run's tree, or of the whole store, page by page."""

from __future__ import annotations

from collections.abc import AsyncIterator

from ..domain.envelope import Recorded
from ..domain.errors import NotFound, StoreUnreadable
from . import reads
from .store_journal import StoreJournal

PAGE = 200


async def events(journal: StoreJournal, run_id: str | None) -> AsyncIterator[Recorded]:
    """In the order of the log. RUN_NOT_FOUND for an unknown run; of a deleted one its tombstone is left."""
    if run_id is None:
        async for recorded in _of_store(journal):
            yield recorded
        return
    own = await journal.events(run_id)
    if not own or own[0].meta.root is None:
        raise NotFound("RUN_NOT_FOUND", f"no run {run_id!r}", run_id=run_id)
    root, seq, found = own[0].meta.root, 0, False
    while page := await journal.log(root, seq, PAGE):
        for entry in page:
            found, seq = True, entry.recorded.meta.seq
            yield entry.recorded
    for recorded in () if found else own:
        yield recorded


async def _of_store(journal: StoreJournal) -> AsyncIterator[Recorded]:
    position, unknown = 0, list[str]()
    while True:
        page, last, unreadable = await journal.ask(reads.recorded_since, position, PAGE)
        for recorded in page:
            yield recorded
        unknown += unreadable
        if last == position:
            break
        position = last
    if unknown:
        raise StoreUnreadable(
            "EVENT_UNKNOWN", f"{len(unknown)} events cannot be read by this release, the first: {unknown[0]}"
        )
