"""A journal as tests use it: commits by name, a writer that can be held, ears for what other processes wrote."""

from __future__ import annotations

import asyncio
import errno
import threading
from collections import Counter
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from bread.domain import commits, run
from bread.domain.checkpoint import CheckpointKind, IdempotencyKey
from bread.domain.commits import Answered, Started
from bread.domain.envelope import APP, Principal, Recorded
from bread.domain.errors import BreadError
from bread.domain.events import JsonValue
from bread.domain.messages import ToolUse, native_message
from bread.domain.plans import Ask, Execute, Plan
from bread.domain.ports import Commit, Decision, Logged
from bread.domain.run_events import Verdict
from bread.domain.run_state import RunState
from bread.domain.session import EndSession, session_stream
from bread.runtime.folds import fold_run
from bread.runtime.store_journal import StoreJournal

T = TypeVar("T")
PATIENCE = 30  # seconds until a test that waits for what never comes fails and cleans up
NOTHING: frozenset[str] = frozenset()
# What each commit is said to read: what most tests are about, and what is not there or cannot be. Other streams are
# read when they are asked for.
EXPECTED = ("run_1", "cp_1", session_stream("s1"), "run_nobody", "\0", "caf\u00e9", "\ud800")


def asks(checkpoint: str, kind: CheckpointKind = "input", *, deadline: float | None = None, prompt: str = "Go?") -> Ask:
    return Ask(checkpoint, kind, "sign", {"type": "object"}, None, prompt, deadline)


def start(
    run_id: str = "run_1",
    session: str = "s1",
    *,
    input: JsonValue = "go",
    owner: str | None = "w_a",
    tags: dict[str, str] | None = None,
    key: IdempotencyKey | None = None,
) -> Decision[Started]:
    command = run.Start("clerk", input, session, run_id, 100.0, owner, 20, key=key)
    return lambda streams: commits.start(streams, run_id, command, tags or {})


class Desk:
    """A journal and its worker, with the moments of the design as methods: each is one commit."""

    def __init__(self, journal: StoreJournal) -> None:
        self.journal, self.worker = journal, journal.worker

    async def commit(self, decide: Decision[T], *, by: Principal = APP, tenant: str = "default") -> Commit[T]:
        return await self.journal.commit(decide, by=by, tenant=tenant, reads=EXPECTED)

    async def start(
        self, run_id: str = "run_1", session: str = "s1", *, tenant: str = "default", **options: Any
    ) -> Started:
        return (await self.commit(start(run_id, session, owner=self.worker, **options), tenant=tenant)).result

    async def turn(self, run_id: str, *planned: tuple[ToolUse, Plan], text: str = "") -> None:
        """The model gave a turn; without calls it is the last one."""
        events = await self.journal.events(run_id)
        base = fold_run(run_id, events).base
        command = run.RecordTurn(
            owner=self.worker,
            base=base,
            base_seq=events[base - 1].meta.seq,
            at=101.0,
            message=native_message(text, tuple(use for use, _ in planned)),
            plans=[plan for _, plan in planned],
            model="scripted",
            finish="stop",
        )
        await self.commit(lambda streams: commits.record_turn(streams, run_id, command))

    async def ask(self, run_id: str, *questions: Ask | str, args: JsonValue = None) -> None:
        """The model asks people; a question is an Ask or the id of one."""
        plans = [question if isinstance(question, Ask) else asks(question) for question in questions]
        await self.turn(run_id, *((ToolUse("human_sign", args or {}), plan) for plan in plans))

    async def suspended(self, run_id: str = "run_1", *questions: str, session: str = "s1") -> None:
        """A run that waits for answers, to `cp_1` unless questions are named."""
        await self.start(run_id, session)
        await self.ask(run_id, *(questions or ("cp_1",)))

    async def calling(self, run_id: str = "run_1", *, session: str = "s1") -> str:
        """A run with a tool call whose outcome is open; gives the call."""
        await self.start(run_id, session)
        await self.turn(run_id, (ToolUse("tool_work", {}), Execute()))
        return (await self.state(run_id)).calls[0].key

    async def failed(self, run_id: str = "run_1", *, session: str = "s1") -> None:
        """A run whose model gave up."""
        await self.start(run_id, session)
        command = run.RecordFailure(self.worker, 1, 1, "MODEL_ERROR", "overloaded", None)
        await self.commit(lambda streams: commits.record_failure(streams, run_id, command))

    async def answer(
        self,
        checkpoint: str = "cp_1",
        response: JsonValue = "yes",
        *,
        verdict: Verdict = "answered",
        claim: str = "claim_1",
        comment: str | None = None,
    ) -> Answered:
        command = run.Answer(checkpoint, verdict, response, self.worker, NOTHING)
        done = await self.commit(
            lambda streams: commits.answer(streams, checkpoint, command, claim=claim, comment=comment)
        )
        return done.result

    async def retry(self, run_id: str = "run_1") -> None:
        await self.commit(lambda streams: commits.retry(streams, run_id, run.Retry(self.worker, None)))

    async def cancel(self, run_id: str = "run_1") -> str:
        return (await self.commit(lambda streams: commits.cancel(streams, run_id, "enough"))).result

    async def delete(self, session: str = "s1") -> bool:
        ended = EndSession("deleted")
        return (await self.commit(lambda streams: commits.delete_session(streams, session, ended, None))).result

    async def state(self, run_id: str, version: int | None = None) -> RunState:
        """The state of a run, as of now or of a version."""
        events = await self.journal.events(run_id)
        return fold_run(run_id, events if version is None else events[:version])

    async def believes(self, run_id: str, version: int) -> None:
        """Make the writer hold a state that others have left behind, as of when it was the newest."""
        writer, events = self.journal.writer, await self.journal.events(run_id)
        writer._cache[run_id] = fold_run(run_id, events[:version])
        writer._known = events[version - 1].position

    async def names(self, stream: str) -> list[str]:
        """The names of a stream's events."""
        return [recorded.event.NAME for recorded in await self.journal.events(stream)]

    async def everything(self) -> list[Recorded]:
        """The whole log in order."""
        return await self.journal.ask(_everything)


def _everything(cursor: Any) -> list[Recorded]:
    from bread.runtime.sql import select_events

    return select_events(cursor, "1 = ?", (1,))


async def code_of(work: Coroutine[Any, Any, Any]) -> str | None:
    """The code of the error that something ends in, None if in none. Errors that are not bread's are not caught."""
    try:
        await work
    except BreadError as error:
        return error.code
    return None


async def submitted(*works: Coroutine[Any, Any, T]) -> list[asyncio.Task[T]]:
    """Tasks that have handed their decisions to the writer, in this order."""
    tasks = [asyncio.create_task(work) for work in works]
    await asyncio.sleep(0)  # one step each: as far as the writer's queue
    return tasks


class Gate:
    """A fault hook: counts the points that the writer passes, holds it at one of them, or lets the store fail there."""

    def __init__(self) -> None:
        self.passed: Counter[str] = Counter()
        self._held_at: str | None = None
        self._broken_at: str | None = None
        self._reached, self._go = threading.Event(), threading.Event()

    def __call__(self, point: str) -> None:
        self.passed[point] += 1
        if point == self._broken_at:
            self._broken_at = None
            raise OSError(errno.ENOSPC, "No space left on device")
        if point == self._held_at:
            self._held_at = None
            self._reached.set()
            self._go.wait(PATIENCE)

    def hold(self, point: str) -> None:
        """Stop the writer the next time it comes to a point."""
        self._reached.clear()
        self._go.clear()
        self._held_at = point

    def break_at(self, point: str) -> None:
        """Let the store fail the next time the writer comes to a point."""
        self._broken_at = point

    async def reached(self) -> None:
        assert await asyncio.to_thread(self._reached.wait, PATIENCE)

    def let_go(self) -> None:
        self._go.set()


async def together(
    desk: Desk, gate: Gate, *works: Coroutine[Any, Any, Any], broken_at: str | None = None
) -> list[asyncio.Task[Any]]:
    """Tasks whose decisions the writer finds waiting all at once, after a transaction of no one's."""
    gate.hold("committed")
    ahead = asyncio.create_task(desk.commit(lambda streams: None))
    await gate.reached()
    tasks = await submitted(*works)
    if broken_at is not None:
        gate.break_at(broken_at)
    gate.passed.clear()
    gate.let_go()
    await ahead
    return tasks


class Ears:
    """What a journal hears of other processes."""

    def __init__(self, journal: StoreJournal) -> None:
        self.heard: list[Recorded] = []
        self._news = asyncio.Event()
        journal.on_foreign = self._hear

    def _hear(self, entries: list[Logged]) -> None:
        self.heard += [entry.recorded for entry in entries]
        self._news.set()

    async def until(self, enough: Callable[[list[Recorded]], bool]) -> list[Recorded]:
        """Wait for what is to come."""
        while not enough(self.heard):
            self._news.clear()
            await asyncio.wait_for(self._news.wait(), PATIENCE)
        return self.heard

    async def until_stream(self, stream: str) -> list[Recorded]:
        return await self.until(lambda heard: any(recorded.stream == stream for recorded in heard))
