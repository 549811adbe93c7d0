"""The way of one tree to the bus: what is left to publish of it, and how far it is published."""

from __future__ import annotations

import asyncio
from collections import deque
from dataclasses import dataclass, field

from ..domain.events import Erased
from ..domain.ports import Logged

WAITING = 64  # events of a tree in memory; the others are in the log


@dataclass(slots=True, eq=False)
class Lane:
    """The way of one tree to the bus, for the events of one worker.

    `done` is the seq up to which there is nothing left to publish (None: not known yet), `target` the last one to
    publish, `marked` how far others say that they got. `low` is a position up to which everything of the worker is
    kept; `kept` are the numbers of the last messages in the stream.
    """

    root: str
    worker: str
    tenant: str = ""
    session: str = ""
    done: int | None = None
    target: int = 0
    marked: int = 0
    low: int = 0
    waiting: deque[Logged] = field(default_factory=deque)
    page: deque[Logged] = field(default_factory=deque)
    kept: deque[int] = field(default_factory=lambda: deque(maxlen=WAITING))
    dropped: bool = False
    erased: bool = False
    purged: bool = False
    gone: bool = False
    task: asyncio.Task[None] | None = None

    def add(self, entry: Logged, *, room: bool) -> None:
        """An event to publish. Without room in memory it is left to the log."""
        meta = entry.recorded.meta
        self.tenant, self.session = meta.tenant, meta.session or self.session
        self.target = max(self.target, meta.seq)
        if meta.seq == 1:
            self.done = 0
        if is_end(entry):
            # Its events are no more. What is left to tell is how it ended, and that came with this commit.
            self.waiting = deque(one for one in self.waiting if one.recorded.meta.commit == meta.commit)
            self.page.clear()
            self.erased = True
        if self.erased or (room and len(self.waiting) < WAITING):
            self.waiting.append(entry)
        else:
            self.dropped = True

    def is_over(self) -> bool:
        """Whether the tree was erased, by whomever."""
        return self.erased or self.gone

    def give_up(self) -> None:
        """Somebody else has erased it."""
        self.gone = True
        self.waiting.clear()
        self.page.clear()


def seq_of(entry: Logged) -> int:
    return entry.recorded.meta.seq


def is_end(entry: Logged) -> bool:
    """Whether a tree is gone with its session."""
    return isinstance(entry.recorded.event, Erased) and entry.recorded.stream == entry.recorded.meta.root
