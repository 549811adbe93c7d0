"""A store that golden logs are recorded on: two workers, a clock that is set, and names instead of chance."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from itertools import count
from pathlib import Path
from typing import Any, TypeVar
from unittest.mock import patch

from bread.domain import commits, run
from bread.domain.checkpoint import CheckpointKind, IdempotencyKey
from bread.domain.envelope import APP, SYSTEM, Principal
from bread.domain.events import Event, JsonValue
from bread.domain.messages import Message, ToolUse, native_message
from bread.domain.plans import Ask, Plan, Verification
from bread.domain.ports import Decision
from bread.domain.run_events import Usage, Verdict
from bread.domain.session import EndSession
from bread.domain.streams import Streams
from bread.runtime import journal as journals
from bread.runtime.folds import fold_run
from bread.runtime.sqlite_journal import SQLiteJournal

from .reading import Line

T = TypeVar("T")
A, B = "w_a1a1a1a1a1a1", "w_b2b2b2b2b2b2"
ANN, BOB = Principal(kind="user", id="ann"), Principal(kind="user", id="bob@example.org")
IDEMPOTENT = frozenset({"tool_fetch"})
Call = tuple[str, JsonValue, str, Plan]

URL_SCHEMA: JsonValue = {
    "type": "object",
    "title": "ApprovePublish",
    "properties": {"url": {"type": "string", "title": "Url"}},
    "required": ["url"],
}
DECISION_SCHEMA: JsonValue = {
    "type": "object",
    "title": "Decision",
    "properties": {"publish": {"type": "boolean"}, "note": {"anyOf": [{"type": "string"}, {"type": "null"}]}},
    "required": ["publish"],
}


def ask(
    checkpoint: str,
    kind: CheckpointKind = "input",
    tool: str = "approve_publish",
    *,
    schema: JsonValue = URL_SCHEMA,
    response: JsonValue = None,
    prompt: str = "Publish https://x.test?",
    deadline: float | None = None,
    on_timeout: JsonValue = None,
) -> Ask:
    return Ask(checkpoint, kind, tool, schema, response, prompt, deadline, on_timeout)


class Tape:
    """Commits of two workers on one file. Time passes by a quarter of a second a commit, or as it is told."""

    def __init__(self, place: Path) -> None:
        self.at = 1_760_000_000.0
        self.workers = {worker: SQLiteJournal(str(place), worker, clock=self._tick) for worker in (A, B)}
        for journal in self.workers.values():
            journal.writer.performs = lambda agent: True

    def _tick(self) -> float:
        self.at += 0.25
        return self.at

    async def commit(self, decide: Decision[T], *, worker: str = A, by: Principal = SYSTEM, **context: Any) -> T:
        return (await self.workers[worker].commit(decide, by=by, **context)).result

    async def start(
        self,
        run_id: str,
        session: str,
        input: JsonValue,
        *,
        worker: str = A,
        owned: bool = True,
        max_steps: int = 20,
        key: IdempotencyKey | None = None,
        tags: dict[str, str] | None = None,
        cancel_pending: bool = False,
        skill: str | None = None,
        steps: JsonValue = None,
        by: Principal = APP,
        **context: Any,
    ) -> None:
        owner = worker if owned else None
        command = run.Start("publisher", input, session, run_id, self.at, owner, max_steps, skill, key, steps)
        await self.commit(
            lambda streams: commits.start(streams, run_id, command, tags or {}, cancel_pending=cancel_pending),
            worker=worker,
            by=by,
            **context,
        )

    async def turn(
        self,
        run_id: str,
        text: str,
        *calls: Call,
        worker: str = A,
        reasoning: str = "",
        usage: Usage | None = None,
        finish: str = "stop",
        message: Message | None = None,
        verified: Verification | None = None,
    ) -> None:
        """A whole model turn; a call is its tool, its arguments, the provider's id, and what is to become of it."""
        base, seq = await self._base(run_id)
        uses = tuple(ToolUse(tool, args, id) for tool, args, id, _ in calls)
        command = run.RecordTurn(
            owner=worker,
            base=base,
            base_seq=seq,
            at=self.at,
            message=message or native_message(text, uses, reasoning),
            plans=[plan for *_, plan in calls],
            model="scripted",
            finish=finish,
            usage=usage,
            duration_ms=812.5,
            verified=verified,
        )
        await self.commit(lambda streams: commits.record_turn(streams, run_id, command), worker=worker)

    async def model_fails(
        self, run_id: str, message: str, *, worker: str = A, retry_after: float | None = None
    ) -> None:
        base, seq = await self._base(run_id)
        retry_at = None if retry_after is None else self.at + retry_after
        command = run.RecordFailure(worker, base, seq, "MODEL_ERROR", message, retry_at)
        await self.commit(lambda streams: commits.record_failure(streams, run_id, command), worker=worker)

    async def _base(self, run_id: str) -> tuple[int, int]:
        events = await self.workers[A].events(run_id)
        base = fold_run(run_id, events).base
        return base, events[base - 1].meta.seq

    async def children(self, run_id: str) -> list[str]:
        """The child runs of a run, in the order in which they began."""
        return [child.run for child in fold_run(run_id, await self.workers[A].events(run_id)).children]

    async def call(self, run_id: str, index: int) -> str:
        """The key of a call of the present turn."""
        return fold_run(run_id, await self.workers[A].events(run_id)).calls[index].key

    async def seq(self, stream: str, version: int) -> int:
        """The number of an event in its tree."""
        return (await self.workers[A].events(stream))[version - 1].meta.seq

    async def returns(self, run_id: str, index: int, result: JsonValue, *, worker: str = A) -> None:
        outcome = run.RecordResult(await self.call(run_id, index), result, 41.75)
        await self.commit(lambda streams: commits.record_outcome(streams, run_id, outcome), worker=worker)

    async def raises(self, run_id: str, index: int, message: str, *, worker: str = A) -> None:
        outcome = run.RecordError(await self.call(run_id, index), "TOOL_ERROR", message, 7.5)
        await self.commit(lambda streams: commits.record_outcome(streams, run_id, outcome), worker=worker)

    async def doubt(self, run_id: str, index: int, checkpoint: str, *, worker: str = B) -> None:
        question = ask(checkpoint, "in_doubt", "charge", schema={"type": "object"}, prompt="Did charge happen?")
        command = run.RaiseDoubt(worker, await self.call(run_id, index), question)
        await self.commit(lambda streams: commits.raise_doubt(streams, run_id, command), worker=worker)

    async def answer(
        self,
        checkpoint: str,
        verdict: Verdict,
        response: JsonValue,
        *,
        worker: str = A,
        performs: bool = True,
        by: Principal = ANN,
        comment: str | None = None,
        key: IdempotencyKey | None = None,
        **context: Any,
    ) -> None:
        command = run.Answer(checkpoint, verdict, response, worker if performs else None, IDEMPOTENT)
        claim = f"claim_{checkpoint.removeprefix('cp_')}"
        await self.commit(
            lambda streams: commits.answer(streams, checkpoint, command, claim=claim, comment=comment, key=key),
            worker=worker,
            by=by,
            **context,
        )

    async def expire(self, checkpoint: str, *, worker: str = A) -> None:
        await self.commit(lambda streams: commits.expire(streams, checkpoint, worker, IDEMPOTENT), worker=worker)

    async def take(self, run_id: str, previous: str | None, *, worker: str = B) -> None:
        command = run.Take(worker, previous, IDEMPOTENT)
        await self.commit(lambda streams: commits.take(streams, run_id, command), worker=worker)

    async def release(self, run_id: str, *, worker: str = A) -> None:
        await self.commit(lambda streams: commits.release(streams, run_id, run.Release(worker)), worker=worker)

    async def cancel(self, run_id: str, reason: str, *, by: Principal = ANN, **context: Any) -> None:
        await self.commit(lambda streams: commits.cancel(streams, run_id, reason), by=by, **context)

    async def retry(self, run_id: str, *, max_steps: int | None = None, by: Principal = APP) -> None:
        await self.commit(lambda streams: commits.retry(streams, run_id, run.Retry(A, max_steps)), by=by)

    async def delete(self, session: str, *, by: Principal = ANN) -> None:
        ended = EndSession("deleted" if by is ANN else "cleanup")
        await self.commit(lambda streams: commits.delete_session(streams, session, ended, None), by=by)

    async def write(
        self, root: str, session: str, *appended: tuple[str, Event], worker: str = A, by: Principal = SYSTEM
    ) -> None:
        """One commit of events as they are, for what no decision of this release makes yet."""

        def decide(streams: Streams) -> None:
            for stream, event in appended:
                if stream.startswith("run_"):
                    streams.run(stream)
                in_tree = None if stream.startswith("session:") else root
                streams.append(stream, event, root=in_tree, session=session)

        await self.commit(decide, worker=worker, by=by)

    async def lines(self) -> list[Line]:
        """The whole log as it is stored."""
        return [Line(*row) for row in await self.workers[A].ask(_rows)]


def _rows(cursor: Any) -> list[tuple[Any, ...]]:
    cursor.execute("SELECT rowid, originator_id, originator_version, topic, state FROM stored_events ORDER BY rowid")
    return [tuple(row) for row in cursor.fetchall()]


def _numbered() -> Iterator[str]:
    return (f"c_{number:012x}" for number in count(1))


@asynccontextmanager
async def recording(place: Path) -> AsyncIterator[Tape]:
    """A tape on a new file, on which commits are numbered instead of named by chance."""
    names = _numbered()
    with patch.object(journals, "short_id", lambda prefix: next(names)):
        tape = Tape(place)
        for worker in tape.workers.values():
            await worker.open()
        try:
            yield tape
        finally:
            for worker in tape.workers.values():
                await worker.close()
