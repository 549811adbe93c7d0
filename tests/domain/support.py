"""What the tests of the domain share: two workers, short spellings of commands and events, and the number of trials."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Literal

from bread.domain import commits
from bread.domain import run as runs
from bread.domain.checkpoint import CheckpointKind, IdempotencyKey
from bread.domain.commits import Answered, Started
from bread.domain.events import Event, JsonValue
from bread.domain.messages import ToolUse, native_message
from bread.domain.plans import Ask, Plan, Verification
from bread.domain.run import Answer, RecordError, RecordFailure, RecordResult, RecordTurn, Start, Take
from bread.domain.run_events import ModelResponded, RunStarted, Suspended, ToolCalled, Verdict
from bread.domain.session import EndSession
from bread.runtime.kit import MemoryStreams

A, B = "worker-a", "worker-b"
NOTHING: frozenset[str] = frozenset()
Planned = tuple[ToolUse, Plan]
FETCH, SIGN, DELETE = ToolUse("fetch", {"url": "u"}), ToolUse("sign", {"what": "w"}), ToolUse("delete", {"page": 1})


def trials(count: int) -> int:
    """`count` scaled by BREAD_TRIALS: a whole number, or `soak` for 20."""
    wanted = os.environ.get("BREAD_TRIALS", "1")
    return count * (20 if wanted == "soak" else max(1, int(wanted)))


def soaking() -> bool:
    """Whether chance may vary from run to run; a normal run draws the same trials each time."""
    return os.environ.get("BREAD_TRIALS", "1") != "1"


# --- commands ---------------------------------------------------------------------------------------------------------


def ask(
    checkpoint: str,
    kind: CheckpointKind = "input",
    *,
    tool: str = "sign",
    deadline: float | None = None,
    on_timeout: JsonValue = None,
) -> Ask:
    return Ask(checkpoint, kind, tool, {"type": "object"}, None, "Well?", deadline, on_timeout)


def start_command(
    run_id: str = "r1",
    session: str = "s1",
    *,
    at: float = 100.0,
    owner: str | None = A,
    max_steps: int = 20,
    key: IdempotencyKey | None = None,
) -> Start:
    return Start("publisher", "go", session, run_id, at, owner, max_steps, key=key)


def turn_command(
    planned: Iterable[Planned] = (),
    *,
    owner: str = A,
    base: int = 1,
    base_seq: int = 1,
    text: str = "",
    at: float = 100.0,
    verified: Verification | None = None,
) -> RecordTurn:
    planned = tuple(planned)
    message = native_message(text, tuple(use for use, _ in planned))
    plans = [plan for _, plan in planned]
    return RecordTurn(owner, base, base_seq, at, message, plans, "scripted", "stop", verified=verified)


def answer_command(
    checkpoint: str,
    response: JsonValue = "yes",
    verdict: Verdict = "answered",
    *,
    worker: str | None = A,
    idempotent: frozenset[str] = NOTHING,
) -> Answer:
    return Answer(checkpoint, verdict, response, worker, idempotent)


# --- events -----------------------------------------------------------------------------------------------------------


def started(owner: str | None = A, *, max_steps: int = 20, skill: str | None = None) -> RunStarted:
    return RunStarted(
        agent="publisher",
        input="go",
        session="s1",
        root="r1",
        started=100.0,
        owner=owner,
        max_steps=max_steps,
        skill=skill,
    )


def responded(*uses: ToolUse, turn: int = 0, base: int = 1, text: str = "") -> ModelResponded:
    return ModelResponded(turn=turn, base=base, message=native_message(text, uses), model="scripted", finish="stop")


def called(call: str, tool: str, *, id: str = "", args_at: int = 2, idempotent: bool = False) -> ToolCalled:
    return ToolCalled(call=call, tool=tool, tool_call_id=id or f"call_{call}", args_at=args_at, idempotent=idempotent)


def suspended(call: str, checkpoint: str, kind: CheckpointKind = "input") -> Suspended:
    return Suspended(call=call, checkpoint=checkpoint, kind=kind)


# --- commits ----------------------------------------------------------------------------------------------------------


class World(MemoryStreams):
    """Streams with the commits of section 2 of the design as methods, each atomic."""

    def start(
        self,
        run_id: str = "r1",
        session: str = "s1",
        *,
        owner: str | None = A,
        max_steps: int = 20,
        key: IdempotencyKey | None = None,
        tags: dict[str, str] | None = None,
        cancel_pending: bool = False,
    ) -> Started:
        command = start_command(run_id, session, at=self.at, owner=owner, max_steps=max_steps, key=key)
        return self.commit(lambda s: commits.start(s, run_id, command, tags or {}, cancel_pending=cancel_pending))

    def respond(
        self,
        *planned: Planned,
        run_id: str = "r1",
        owner: str | None = None,
        base: int | None = None,
        text: str = "",
        verified: Verification | None = None,
    ) -> None:
        """The model gave a turn: to the attempt that is due unless `base` names another one."""
        run = self.run(run_id)
        version = run.base if base is None else base
        command = turn_command(
            planned,
            owner=owner or run.owner or A,
            base=version,
            base_seq=self.seq_of(run_id, version),
            text=text,
            at=self.at,
            verified=verified,
        )
        self.commit(lambda s: commits.record_turn(s, run_id, command))

    def model_fails(self, retry_at: float | None, *, run_id: str = "r1", owner: str | None = None) -> None:
        run = self.run(run_id)
        command = RecordFailure(
            owner or run.owner or A, run.base, self.seq_of(run_id, run.base), "MODEL_ERROR", "overloaded", retry_at
        )
        self.commit(lambda s: commits.record_failure(s, run_id, command))

    def returns(self, call: str, result: JsonValue = "done", *, run_id: str = "r1") -> None:
        self.commit(lambda s: commits.record_outcome(s, run_id, RecordResult(call, result, 1.0)))

    def raises(self, call: str, message: str = "broken", *, run_id: str = "r1") -> None:
        self.commit(lambda s: commits.record_outcome(s, run_id, RecordError(call, "TOOL_ERROR", message, 1.0)))

    def start_intents(self, owner: str, *, run_id: str = "r1", idempotent: frozenset[str] = NOTHING) -> None:
        self.commit(lambda s: commits.start_intents(s, run_id, runs.StartIntents(owner, idempotent)))

    def doubt(self, owner: str, call: str, checkpoint: str, *, run_id: str = "r1") -> None:
        command = runs.RaiseDoubt(owner, call, ask(checkpoint, "in_doubt"))
        self.commit(lambda s: commits.raise_doubt(s, run_id, command))

    def answer(
        self,
        checkpoint: str,
        response: JsonValue = "yes",
        verdict: Verdict = "answered",
        *,
        worker: str | None = A,
        claim: str | None = None,
        key: IdempotencyKey | None = None,
        idempotent: frozenset[str] = NOTHING,
    ) -> Answered:
        command = answer_command(checkpoint, response, verdict, worker=worker, idempotent=idempotent)
        name = claim or f"claim-{self._position}"
        return self.commit(lambda s: commits.answer(s, checkpoint, command, claim=name, key=key))

    def expire(self, checkpoint: str, *, worker: str | None = A) -> bool:
        return self.commit(lambda s: commits.expire(s, checkpoint, worker, NOTHING))

    def take(self, worker: str, previous: str | None, *, run_id: str = "r1") -> bool:
        return self.commit(lambda s: commits.take(s, run_id, Take(worker, previous, NOTHING)))

    def release(self, worker: str, *, run_id: str = "r1") -> bool:
        return self.commit(lambda s: commits.release(s, run_id, runs.Release(worker)))

    def cancel(self, run_id: str = "r1", reason: str = "enough") -> str:
        return self.commit(lambda s: commits.cancel(s, run_id, reason))

    def retry(self, run_id: str = "r1", *, worker: str | None = A, max_steps: int | None = None) -> None:
        self.commit(lambda s: commits.retry(s, run_id, runs.Retry(worker, max_steps)))

    def delete(self, session: str = "s1", *, idle_before: float | None = None, keep_pending: bool = False) -> bool:
        """Delete a session; with `idle_before` as a cleanup does it."""
        reason: Literal["deleted", "cleanup"] = "deleted" if idle_before is None else "cleanup"
        spare = None if idle_before is None else commits.Spare(idle_before, keep_pending)
        return self.commit(lambda s: commits.delete_session(s, session, EndSession(reason), spare))

    def seq_of(self, run_id: str, version: int) -> int:
        """The number in its tree of an event of a run."""
        recorded = self.recorded(run_id)
        return recorded[version - recorded[0].version].meta.seq

    def last_commit(self) -> list[tuple[str, Event]]:
        """What the newest commit wrote, in order, as (stream, event)."""
        newest = self.everything()[-1].meta.commit
        return [(one.stream, one.event) for one in self.everything() if one.meta.commit == newest]
