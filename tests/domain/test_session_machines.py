"""Checkpoints and sessions under whatever comes, drawn by chance."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)

from bread.domain.checkpoint import (
    CheckpointDiscarded,
    CheckpointKind,
    IdempotencyKey,
)
from bread.domain.commits import Started
from bread.domain.events import Erased
from bread.domain.messages import ToolUse
from bread.domain.plans import Execute
from bread.domain.run_state import CallModel, RunState, due
from bread.domain.session import SessionDeleted

from .machines import RESPONSES, check_calls, check_questions, check_rest, chosen, code_of, door, pick, play
from .support import A, B, Planned, World, ask

# --- checkpoint -------------------------------------------------------------------------------------------------------

keys = st.sampled_from(
    [
        None,
        IdempotencyKey(key="k1", digest="one"),
        IdempotencyKey(key="k1", digest="two"),
        IdempotencyKey(key="k2", digest="one"),
    ]
)


class CheckpointMachine(RuleBasedStateMachine):
    """One question of one kind; whoever comes first wins, and everybody else hears the same."""

    def __init__(self) -> None:
        super().__init__()
        self.world = World(at=100.0)
        self.over: Literal["no", "claimed", "expired", "discarded", "deleted"] = "no"
        self.key: IdempotencyKey | None = None
        self.kind: CheckpointKind = "input"
        self.deadline: float | None = None

    @initialize(kind=st.sampled_from(sorted(RESPONSES)), deadline=st.sampled_from([None, 110.0]), slow=st.booleans())
    def begin(self, kind: CheckpointKind, deadline: float | None, slow: bool) -> None:
        self.kind = kind
        self.world.start()
        others: list[Planned] = [(ToolUse("slow", {}), Execute(idempotent=True))] if slow else []
        if kind == "in_doubt":
            self.world.respond((ToolUse("tool", {}), Execute()), *others)
            self.world.take(B, A)
            self.world.doubt(B, "1.0", "c1")
        else:
            self.deadline = deadline
            self.world.respond((ToolUse("tool", {}), ask("c1", kind, deadline=deadline)), *others)

    @property
    def is_due(self) -> bool:
        return self.deadline is not None and self.world.at >= self.deadline

    @rule(seconds=st.integers(1, 8))
    def time_passes(self, seconds: int) -> None:
        self.world.at += seconds

    @rule(answer=pick, through=door, key=keys)
    def a_person_answers(self, answer: int, through: str | None, key: IdempotencyKey | None) -> None:
        response, verdict = chosen(RESPONSES[self.kind], answer)
        before = self.world.everything()
        if self.over == "claimed" and key is not None and self.key is not None and key.key == self.key.key:
            code = code_of(lambda: self.world.answer("c1", response, verdict, worker=through, key=key))
            assert code == (None if key == self.key else "IDEMPOTENCY_CONFLICT")
        elif self.over != "no":
            code = code_of(lambda: self.world.answer("c1", response, verdict, worker=through, key=key))
            assert code == "CHECKPOINT_NOT_FOUND"
        else:
            answered = self.world.answer("c1", response, verdict, worker=through, key=key)
            assert answered.expired == self.is_due
            assert not answered.repeated
            self.over = "expired" if self.is_due else "claimed"
            self.key = None if self.is_due else key
            assert len(self.world.everything()) > len(before)
            return
        assert self.world.everything() == before

    @rule(through=door)
    def the_deadline_is_looked_at(self, through: str | None) -> None:
        expires = self.over == "no" and self.is_due
        assert self.world.expire("c1", worker=through) == expires
        if expires:
            self.over = "expired"

    @precondition(lambda self: self.kind == "in_doubt" and self.world.run("r1").status == "active")
    @rule()
    def the_outcome_is_known_after_all(self) -> None:
        self.world.returns("1.0")
        if self.over == "no":
            self.over = "discarded"

    @precondition(lambda self: self.over != "deleted")
    @rule(really=pick)
    def the_run_is_cancelled(self, really: int) -> None:
        if really == 0:
            self.world.cancel()
            if self.over == "no":
                self.over = "discarded"

    @rule(really=pick)
    def the_session_is_deleted(self, really: int) -> None:
        if really == 0:
            deleted = self.world.delete("s1")
            assert deleted == (self.over != "deleted")
            self.over = "deleted"

    @invariant()
    def holds(self) -> None:
        self.world.verify()
        if self.over == "deleted":
            assert all(isinstance(event, Erased | CheckpointDiscarded) for event in self.world.events("c1"))
        elif self.world.run("r1").status != "new":
            check_questions(self.world, "r1")
            check_rest(self.world, "r1")
            assert self.world.checkpoint("c1").status == ("pending" if self.over == "no" else self.over)


def test_checkpoint_machine() -> None:
    """B50, B53, B56, B62, B73; C1, C2, C3, C4, C26, C59, C60."""
    play(CheckpointMachine, steps=15, examples=200)


# --- session ----------------------------------------------------------------------------------------------------------

which = st.integers(0, 2)


class SessionMachine(RuleBasedStateMachine):
    """Sessions whose runs begin, ask, fail, go on, end and vanish; a deleted one makes room for another."""

    def __init__(self) -> None:
        super().__init__()
        self.world = World(at=100.0)
        self.count = 0
        self.sessions = ["one", "two", "three"]
        self.deleted: list[str] = []
        self.runs: dict[str, list[str]] = {}
        self.keys: dict[str, tuple[str, str]] = {}

    def next(self, letter: str) -> str:
        self.count += 1
        return f"{letter}{self.count}"

    def active(self, session: str) -> RunState | None:
        states = [self.world.run(run_id) for run_id in self.runs.get(session, ())]
        return next((run for run in states if run.status == "active"), None)

    def failed(self, session: str) -> list[str]:
        return [run_id for run_id in self.runs.get(session, ()) if self.world.run(run_id).status == "failed"]

    def refused(self, act: Callable[[], object], code: str | None) -> None:
        before = self.world.everything()
        assert code_of(act) == code
        assert self.world.everything() == before

    @rule(number=which, key=keys, supersede=st.booleans(), tags=st.sampled_from([{}, {"a": "1"}, {"a": "2"}]))
    def a_run_starts(self, number: int, key: IdempotencyKey | None, supersede: bool, tags: dict[str, str]) -> None:
        session, run_id = self.sessions[number], self.next("r")
        active, known = self.active(session), self.keys.get(key.key) if key else None

        def start() -> object:
            return self.world.start(run_id, session, key=key, tags=tags, cancel_pending=supersede)

        if key and known:
            self.refused(start, None if known[1] == key.digest else "IDEMPOTENCY_CONFLICT")
            if known[1] == key.digest:
                assert start() == Started(known[0], repeated=True)
        elif active and active.has_work:
            self.refused(start, "SESSION_BUSY")
        elif active and not supersede:
            self.refused(start, "SESSION_SUSPENDED")
        else:
            start()
            self.runs.setdefault(session, []).append(run_id)
            if key:
                self.keys[key.key] = (run_id, key.digest)
            assert dict(self.world.session(session).tags).items() >= tags.items()
            assert active is None or self.world.run(active.id).status == "cancelled"

    @rule(number=which, hows=st.lists(st.sampled_from(["ask", "ask", "run", "end", "fail"]), min_size=1, max_size=3))
    def a_run_goes_on(self, number: int, hows: list[str]) -> None:
        for how in hows:
            self.next_thing(number, how)

    def next_thing(self, number: int, how: str) -> None:
        run = self.active(self.sessions[number])
        if run is None:
            self.a_run_starts(number, None, False, {})
        elif any(isinstance(effect, CallModel) for effect in due(run)):
            match how:
                case "ask":
                    self.world.respond((ToolUse("sign", "SECRET"), ask(self.next("c"))), run_id=run.id)
                case "run":
                    self.world.respond((ToolUse("tool", "SECRET"), Execute()), run_id=run.id)
                case "end":
                    self.world.respond(run_id=run.id, text="SECRET")
                case _:
                    self.world.model_fails(None, run_id=run.id)
        elif run.questions:
            self.world.answer(run.questions[0], "SECRET")
        else:
            self.world.returns(run.calls[0].key, "SECRET", run_id=run.id)

    @precondition(lambda self: any(map(self.active, self.sessions)))
    @rule(number=which)
    def somebody_cancels(self, number: int) -> None:
        active = [run for run in map(self.active, self.sessions) if run]
        assert self.world.cancel(chosen(active, number).id) == "cancelled"

    @precondition(lambda self: any(map(self.failed, self.sessions)))
    @rule(number=which)
    def somebody_retries(self, number: int) -> None:
        session = chosen([session for session in self.sessions if self.failed(session)], number)
        run_id, active = chosen(self.failed(session), number), self.active(session)
        if active:
            self.refused(lambda: self.world.retry(run_id), "SESSION_BUSY" if active.has_work else "SESSION_SUSPENDED")
        else:
            self.world.retry(run_id)

    @precondition(lambda self: self.runs)
    @rule(number=which, sparing=st.booleans())
    def somebody_deletes(self, number: int, sparing: bool) -> None:
        session = chosen([session for session in self.sessions if session in self.runs] or self.sessions, number)
        active = self.active(session)
        expected = session in self.runs and not (sparing and active is not None and active.has_work)
        assert self.world.delete(session, idle_before=1e12 if sparing else None) == expected
        if expected:
            gone = self.runs.pop(session)
            self.keys = {key: owner for key, owner in self.keys.items() if owner[0] not in gone}
            self.deleted.append(session)
            self.sessions[self.sessions.index(session)] = self.next("s")

    @invariant()
    def one_root_run_at_a_time(self) -> None:
        self.world.verify()
        for session, run_ids in self.runs.items():
            active = [run_id for run_id in run_ids if self.world.run(run_id).status == "active"]
            assert self.world.active_roots(session) == active
            assert len(active) <= 1
            for run_id in run_ids:
                check_calls(self.world.events(run_id))
                check_questions(self.world, run_id)
                check_rest(self.world, run_id)

    @invariant()
    def nothing_is_left_of_what_was_deleted(self) -> None:
        left = [recorded for recorded in self.world.everything() if recorded.meta.session in self.deleted]
        assert all(isinstance(one.event, Erased | SessionDeleted | CheckpointDiscarded) for one in left)
        assert "SECRET" not in repr(left)
        for stream in {one.stream for one in left}:
            if stream.startswith("c"):
                self.refused(lambda stream=stream: self.world.answer(stream), "CHECKPOINT_NOT_FOUND")  # type: ignore[misc]
            if stream.startswith("r"):
                self.refused(lambda stream=stream: self.world.returns("1.0", run_id=stream), "RUN_NOT_FOUND")  # type: ignore[misc]
        for session in self.deleted:
            assert self.world.owned(session) == ([], [])
            self.refused(lambda session=session: self.world.start("late", session), "SESSION_DELETED")  # type: ignore[misc]


def test_session_machine() -> None:
    """B3, B60, B73, B74, B75, B76, B77; C16, C63."""
    play(SessionMachine, steps=40, examples=60)
