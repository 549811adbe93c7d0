"""A client as a careful program would write it: it checks each crumb against what it has, and keeps the last cursor."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from copy import deepcopy
from typing import Any, Self

from bread import AnyCrumb, AuditEvent, Bread
from bread.domain.envelope import Meta, Recorded
from bread.domain.events import restore
from bread.domain.messages import read_turn
from bread.domain.ports import Logged
from bread.domain.run_events import ModelResponded
from bread.projections.render import RunInfo, crumb_of, run_of, subject_of
from bread.transport.local import LocalHub

Wire = dict[str, Any]
HINTS = {"reasoning:delta", "tool:input:start", "tool:input:delta", "tool:input:end", "tool:result:partial"}
LIVE = {"text:delta", "text:reset", *HINTS}
LAST = {"agent:run:end", "agent:error"}


def durable(crumbs: Sequence[Wire]) -> list[Wire]:
    """The crumbs that come from the log alone, without the cursor, which is each observer's own."""
    return [
        {name: value for name, value in crumb.items() if name != "cursor"}
        for crumb in crumbs
        if crumb["type"] not in LIVE
    ]


class Client:
    """What one observer was shown, over all its connections. Anything twice, missing or out of order is an error."""

    def __init__(self) -> None:
        self.crumbs: list[Wire] = []
        self.cursor: str | None = None
        self.texts: dict[int, str] = {}
        self.seq = 0
        self.resets = 0

    def take(self, crumb: Wire) -> None:
        before, self.seq = self.seq, crumb["seq"]
        if crumb["type"] in LIVE:
            assert self.seq >= before, crumb
        else:
            assert self.seq > before, crumb
        if crumb["type"] == "text:delta":
            seen = self.texts.get(crumb["base"], "")
            assert crumb.get("offset", 0) == len(seen), (crumb, seen)
            assert crumb["text"], crumb
            self.texts[crumb["base"]] = seen + crumb["text"]
        elif crumb["type"] == "text:reset":
            assert self.texts.pop(crumb["base"], ""), crumb
            self.resets += 1
        if crumb["type"] not in HINTS:
            self.crumbs.append(crumb)
        self.cursor = crumb["cursor"]

    def fork(self) -> Self:
        """Somebody who has been shown the same so far."""
        return deepcopy(self)

    async def follow(self, bread: Bread, run_id: str) -> None:
        """One connection, from where this client stands to the end of its stream."""
        async for crumb in bread.observe(run_id, after=self.cursor):
            self.take(crumb.wire())

    def check(self, log: Sequence[Logged], info: RunInfo) -> None:
        """No gap, nothing twice, and the text of every turn, against the whole log of the root."""
        assert durable(self.crumbs) == durable(crumbs_of(log, info))
        assert self.texts == texts_of(log)


class Heard(Client):
    """A listener that keeps what it hears of one run, checks it as a client would, and can be waited for."""

    def __init__(self) -> None:
        super().__init__()
        self.run_id: str | None = None
        self.of_others = 0
        self.wrong: list[AssertionError] = []
        self._news = asyncio.Event()

    def __call__(self, crumb: AnyCrumb) -> None:
        self.run_id = self.run_id or crumb.run_id
        self._news.set()
        if crumb.run_id != self.run_id:
            self.of_others += 1
            return
        try:
            self.take(crumb.wire())
        except AssertionError as error:
            self.wrong.append(error)  # what a listener raises is only logged

    async def until(self, enough: Callable[[list[Wire]], bool]) -> None:
        while not enough(self.crumbs):
            assert not self.wrong, self.wrong
            self._news.clear()
            await self._news.wait()
        assert not self.wrong, self.wrong

    async def last(self) -> None:
        await self.until(lambda crumbs: bool(crumbs) and crumbs[-1]["type"] in LAST)

    async def asked(self, count: int = 1) -> None:
        await self.until(lambda crumbs: [c["type"] for c in crumbs].count("human:required") >= count)


def is_read_out(hub: LocalHub, root: str) -> bool:
    """Whether somebody who observes a root has read all there is, and waits for what comes."""
    return any(one._news._waiters for one in hub._subscriptions.get(root, ()))


class Attached:
    """An observer that waits for what comes: iterate it, or leave."""

    def __init__(self, crumbs: AsyncGenerator[AnyCrumb, None]) -> None:
        self._crumbs = crumbs
        self._first = asyncio.ensure_future(anext(crumbs))

    async def __aiter__(self) -> AsyncIterator[AnyCrumb]:
        yield await self._first
        async for crumb in self._crumbs:
            yield crumb

    async def leave(self) -> None:
        self._first.cancel()
        await asyncio.wait([self._first])
        await self._crumbs.aclose()


async def attach(bread: Bread, run_id: str, after: str | None = None) -> Attached:
    """An observer that has read what there is and waits for what comes. Nothing may be left to show after `after`."""
    attached = Attached(aiter(bread.observe(run_id, after=after)))
    while not is_read_out(bread._running().hub, run_id):
        await bread.list_runs()  # as long as a read takes, which is what the observer is at
    return attached


def crumbs_of(log: Sequence[Logged], info: RunInfo) -> list[Wire]:
    """The crumbs of a log, computed here and now, as a reader with no live text has them."""
    found = (crumb_of(entry, info, "") for entry in log if run_of(entry) is not None)
    return [crumb.wire() for crumb in found if crumb is not None]


def texts_of(log: Sequence[Logged]) -> dict[int, str]:
    """The text of every model turn by the base of its attempt, as the log holds it."""
    turns = [entry.recorded.event for entry in log if isinstance(entry.recorded.event, ModelResponded)]
    return {turn.base: read_turn(turn.message).text for turn in turns if read_turn(turn.message).text}


def log_of(events: Sequence[AuditEvent]) -> list[Logged]:
    """The log again from its audit: what somebody can compute who has nothing but the public records."""
    recorded = [
        Recorded(
            event.stream,
            event.version,
            restore(f"{event.name}@{event.event_version}", dict(event.data)),
            Meta(event.at.timestamp(), event.by, event.commit, event.seq, event.root_run_id, event.session_id),
            event.position,
        )
        for event in events
    ]
    known = {(one.stream, one.version): one for one in recorded}
    return [Logged(one, known.get(subject_of(one) or ("", 0))) for one in recorded]
