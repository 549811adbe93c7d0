"""Session, Checkpoint and Run under whatever anybody may do to them, in any order, also too late and twice."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from typing import Literal, TypeVar

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from bread.domain import commits
from bread.domain.checkpoint import (
    CheckpointClaimed,
    CheckpointDiscarded,
    CheckpointExpired,
    CheckpointKind,
    CheckpointOpened,
    IdempotencyKey,
)
from bread.domain.errors import BreadError
from bread.domain.events import Erased, Event, JsonValue
from bread.domain.messages import ToolUse, read_turn
from bread.domain.run import Execute, Plan, Refuse
from bread.domain.run_events import (
    ModelResponded,
    Parked,
    QuestionAsked,
    Resumed,
    RunCancelled,
    RunCompleted,
    RunFailed,
    ToolCalled,
    ToolFailed,
    ToolReturned,
    Verdict,
)
from bread.domain.run_state import AskDoubt, CallModel, RunState, StartCalls, due, evolve
from bread.domain.session import EndSession, SessionDeleted, session_stream

from .support import A, B, Planned, World, ask, soaking, trials

T = TypeVar("T")
pick = st.integers(0, 5)
worker = st.sampled_from([A, B])
door = st.sampled_from([A, B, None])

RESPONSES: dict[CheckpointKind, list[tuple[JsonValue, Verdict]]] = {
    "input": [("yes", "answered"), ({"no": 1}, "answered")],
    "approval": [
        ({"approved": True}, "approved"),
        ({"approved": True, "args": {"edited": 1}}, "approved"),
        ({"approved": False}, "rejected"),
    ],
    "in_doubt": [
        ({"outcome": "happened", "result": 1}, "happened"),
        ({"outcome": "retry"}, "retry"),
        ({"outcome": "failed", "error": "gone"}, "failed"),
    ],
}


def play(machine: type[RuleBasedStateMachine], *, steps: int, examples: int) -> None:
    run_state_machine_as_test(  # type: ignore[no-untyped-call]
        machine,
        settings=settings(
            max_examples=trials(examples),
            stateful_step_count=steps,
            derandomize=not soaking(),
            database=None,
            deadline=None,
        ),
    )


def chosen(items: list[T], number: int) -> T:
    return items[number % len(items)]


def code_of(act: Callable[[], object]) -> str | None:
    """The code of the error that an act ends in; None if it does not."""
    try:
        act()
    except BreadError as error:
        return error.code
    return None


# --- what always holds ------------------------------------------------------------------------------------------------


def is_final(event: Event) -> bool:
    """Whether the event settles its call."""
    match event:
        case ToolReturned() | ToolFailed():
            return True
        case Resumed():
            return event.verdict not in ("approved", "retry")
    return False


def check_calls(events: list[Event]) -> None:
    """No call dangles or has two outcomes, none is executed that nobody allowed, and ids differ."""
    calls: list[str] = []
    outcomes: Counter[str] = Counter()
    ids: dict[str, str] = {}
    waiting: set[str] = set()
    state = RunState("r")
    for event in events:
        if isinstance(event, ModelResponded | RunCompleted | RunFailed | RunCancelled):
            assert all(outcomes[call] == 1 for call in calls), "a call was left without its outcome"
        state = evolve(state, event)
        match event:
            case ModelResponded():
                calls = [f"{event.base}.{index}" for index, _ in enumerate(read_turn(event.message).calls)]
                waiting = set()
                for call in state.calls:
                    assert ids.setdefault(call.id, call.key) == call.key, "two calls have one id"
            case ToolCalled():
                assert event.call not in waiting, "a call was executed before a person allowed it"
                assert state.owner is not None, "nobody is there who would perform it"
            case Resumed():
                waiting.discard(event.call)
        if is_final(event):
            outcomes[event.call] += 1  # type: ignore[attr-defined]
        waiting |= {call.key for call in state.calls if call.status == "asked"}
    assert all(count == 1 for count in outcomes.values()), "a call has two outcomes"


def check_questions(world: World, root: str) -> None:
    """Each question surfaces at most once and before it is over, is over at most once, and has its answer beside it."""
    surfaced: set[str] = set()
    over: set[str] = set()
    for recorded in world.log(root):
        match recorded.event:
            case QuestionAsked():
                assert recorded.event.checkpoint not in surfaced | over
                surfaced.add(recorded.event.checkpoint)
            case CheckpointClaimed() | CheckpointExpired():
                assert recorded.stream in surfaced - over
                over.add(recorded.stream)
                asked = world.checkpoint(recorded.stream).asked
                answer = world.recorded(asked.run)[recorded.event.resumed - 1]
                assert isinstance(answer.event, Resumed)
                assert answer.event.checkpoint == recorded.stream
                assert answer.meta.commit == recorded.meta.commit
            case CheckpointDiscarded():
                assert recorded.stream in surfaced - over
                over.add(recorded.stream)


def check_rest(world: World, run_id: str) -> None:
    """A run that rests says so with its last event and has no owner; its questions are those that are pending."""
    run = world.run(run_id)
    assert run.has_work or run.owner is None
    if run.status == "active" and not run.has_work:
        assert isinstance(world.events(run_id)[-1], Parked)
        assert run.questions
    _, asked = world.owned(run.session)
    pending = [one for one in asked if world.checkpoint(one).status == "pending"]
    assert sorted(run.questions) == sorted(one for one in pending if world.checkpoint(one).asked.run == run_id)


# --- run --------------------------------------------------------------------------------------------------------------

plans = st.lists(
    st.tuples(
        st.sampled_from(["run", "run again", "input", "approval", "timed", "refuse"]),
        st.sampled_from(["", "x", "x", "y"]),
    ),
    max_size=3,
)


class RunMachine(RuleBasedStateMachine):
    """One run, two workers, and persons who answer at any moment."""

    def __init__(self) -> None:
        super().__init__()
        self.world = World(at=100.0)
        self.asked: list[str] = []
        self.calls: list[str] = []

    @property
    def run(self) -> RunState:
        return self.world.run("r1")

    def unchanged(self, act: Callable[[], object]) -> None:
        before = self.world.everything()
        act()
        assert self.world.everything() == before

    @initialize(owner=door, max_steps=st.sampled_from([1, 2, 20]))
    def begin(self, owner: str | None, max_steps: int) -> None:
        self.world.start(owner=owner, max_steps=max_steps)

    @rule(seconds=st.integers(1, 20))
    def time_passes(self, seconds: int) -> None:
        self.world.at += seconds

    def is_due(self, kind: type) -> bool:
        return self.run.owner is not None and any(isinstance(effect, kind) for effect in due(self.run))

    @precondition(lambda self: self.is_due(CallModel))
    @rule(wanted=plans)
    def the_model_responds(self, wanted: list[tuple[str, str]]) -> None:
        before = self.run
        self.world.respond(*[(ToolUse(kind.split()[0], {}, id), self.plan(kind)) for kind, id in wanted], text="So.")
        self.calls += [call.key for call in self.run.calls]
        assert self.run.turn == before.turn + 1
        assert (self.run.status == "completed") == (not wanted)
        if wanted and before.tool_turns == before.max_steps:
            assert self.run.code == "STEPS_EXCEEDED"

    def plan(self, kind: str) -> Plan:
        if kind in ("run", "run again"):
            return Execute(idempotent=kind == "run again")
        if kind == "refuse":
            return Refuse("FORBIDDEN", "not for you")
        self.asked.append(f"c{len(self.asked)}")
        deadline = self.world.at + 10 if kind == "timed" else None
        return ask(self.asked[-1], "approval" if kind == "approval" else "input", deadline=deadline)

    @rule(who=worker, back=st.integers(1, 3))
    def a_stale_attempt_responds(self, who: str, back: int) -> None:
        base = self.run.base - back
        if base >= 1:
            self.unchanged(lambda: self.world.respond((ToolUse("run", {}), Execute()), owner=who, base=base))

    @rule(who=worker)
    def somebody_else_acts(self, who: str) -> None:
        if self.run.owner != who:
            self.unchanged(lambda: self.world.respond((ToolUse("run", {}), Execute()), owner=who))
            self.unchanged(lambda: self.world.model_fails(None, owner=who))
            self.unchanged(lambda: self.world.start_intents(who))
            self.unchanged(lambda: self.world.release(who))
            for call in self.run.calls:
                self.unchanged(lambda call=call: self.world.doubt(who, call.key, "nobody's"))  # type: ignore[misc]

    @precondition(lambda self: self.is_due(CallModel))
    @rule(again=st.booleans())
    def the_model_fails(self, again: bool) -> None:
        attempt = self.run.attempt
        self.world.model_fails(self.world.at + 1 if again else None)
        assert (self.run.status, self.run.attempt) == ("active" if again else "failed", attempt + 1)

    @precondition(lambda self: self.is_due(StartCalls))
    @rule()
    def the_owner_commits_intents(self) -> None:
        assert self.run.owner is not None
        self.world.start_intents(self.run.owner)
        assert not self.is_due(StartCalls)

    @precondition(lambda self: self.calls)
    @rule(number=st.integers(0, 30), works=st.booleans())
    def an_outcome_arrives(self, number: int, works: bool) -> None:
        key = chosen(self.calls, number)
        call = self.run.call(key)
        late = call is None or call.status == "settled" or self.run.status != "active"
        if call is not None and (call.status == "ready" or (call.status == "asked" and call.kind != "in_doubt")):
            late = True  # nobody has executed it: it cannot have an outcome
        act = self.world.returns if works else self.world.raises
        if late:
            self.unchanged(lambda: act(key))
        else:
            act(key)
            settled = self.run.call(key)
            assert settled is not None
            assert settled.status == "settled"

    @precondition(lambda self: self.is_due(AskDoubt))
    @rule(number=pick)
    def the_owner_asks_what_happened(self, number: int) -> None:
        effect = chosen([effect for effect in due(self.run) if isinstance(effect, AskDoubt)], number)
        assert not effect.call.idempotent
        assert self.run.owner is not None
        self.asked.append(f"c{len(self.asked)}")
        self.world.doubt(self.run.owner, effect.call.key, self.asked[-1])
        assert self.asked[-1] in self.run.questions

    @precondition(lambda self: self.asked)
    @rule(number=st.integers(0, 30), answer=pick, through=door)
    def a_person_answers(self, number: int, answer: int, through: str | None) -> None:
        state = self.world.checkpoint(chosen(self.asked, number))
        if state.question is None:
            return
        response, verdict = chosen(RESPONSES[state.question.kind], answer)
        if state.status != "pending":
            self.unchanged(lambda: self.refused(state.id, response, verdict, through))
            return
        owner = self.run.owner
        was_ready = self.run.has_work
        answered = self.world.answer(state.id, response, verdict, worker=through)
        assert answered.expired == state.is_due(self.world.at)
        if owner is not None:
            assert self.run.owner == owner, "an answer took a run from its owner"
        elif not was_ready:
            assert self.run.owner == (through if self.run.has_work else None)

    def refused(self, checkpoint: str, response: JsonValue, verdict: Verdict, through: str | None) -> None:
        assert (
            code_of(lambda: self.world.answer(checkpoint, response, verdict, worker=through)) == "CHECKPOINT_NOT_FOUND"
        )

    @precondition(lambda self: self.asked)
    @rule(number=st.integers(0, 30), through=door)
    def a_deadline_is_looked_at(self, number: int, through: str | None) -> None:
        state = self.world.checkpoint(chosen(self.asked, number))
        due_now = state.status == "pending" and state.is_due(self.world.at)
        assert self.world.expire(state.id, worker=through) == due_now

    @rule(who=worker, previous=door)
    def somebody_takes(self, who: str, previous: str | None) -> None:
        allowed = self.run.has_work and self.run.owner == previous
        assert self.world.take(who, previous) == allowed
        if allowed:
            assert (self.run.owner, self.run.epoch) == (who, self.run.epoch)
            assert not any(call.status == "ready" for call in self.run.calls)

    @precondition(lambda self: self.run.owner)
    @rule()
    def the_owner_hands_over(self) -> None:
        assert self.run.owner is not None
        assert self.world.release(self.run.owner)
        assert self.run.owner is None
        assert self.run.has_work

    @rule(really=pick)
    def somebody_cancels(self, really: int) -> None:
        if really == 0:
            was = self.run.status
            assert self.world.cancel() == ("cancelled" if was == "active" else was)

    @rule(through=door, max_steps=st.sampled_from([None, 5]))
    def somebody_retries(self, through: str | None, max_steps: int | None) -> None:
        refused = None if self.run.status == "failed" else "RUN_NOT_RETRYABLE"
        assert code_of(lambda: self.world.retry(worker=through, max_steps=max_steps)) == refused
        if refused is None:
            assert (self.run.status, self.run.owner) == ("active", through)
            assert any(isinstance(effect, CallModel) for effect in due(self.run))

    @invariant()
    def holds(self) -> None:
        self.world.verify()
        if self.run.status != "new":
            check_calls(self.world.events("r1"))
            check_questions(self.world, "r1")
            check_rest(self.world, "r1")


def test_run_machine() -> None:
    """B10, B18, B29, B36, B37, B48, B51, B53, B59, B67; C3, C4, C7, C22, C28, C31, C32, C35, C40, C58, C59, C60."""
    play(RunMachine, steps=30, examples=60)


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
    play(CheckpointMachine, steps=15, examples=80)


# --- session ----------------------------------------------------------------------------------------------------------

sessions = st.sampled_from(["s1", "s2"])


class SessionMachine(RuleBasedStateMachine):
    """Two sessions whose runs begin, ask, fail, go on, end and vanish."""

    def __init__(self) -> None:
        super().__init__()
        self.world = World(at=100.0)
        self.count = 0
        self.runs: dict[str, list[str]] = {"s1": [], "s2": []}
        self.keys: dict[str, tuple[str, str]] = {}
        self.deleted: set[str] = set()

    def active(self, session: str) -> RunState | None:
        active = [self.world.run(run_id) for run_id in self.runs[session]]
        return next((run for run in active if run.status == "active"), None)

    def newest(self, session: str, status: str) -> str | None:
        return next((r for r in reversed(self.runs[session]) if self.world.run(r).status == status), None)

    @rule(session=sessions, key=keys, supersede=st.booleans(), tags=st.sampled_from([{}, {"a": "1"}, {"a": "2"}]))
    def a_run_starts(self, session: str, key: IdempotencyKey | None, supersede: bool, tags: dict[str, str]) -> None:
        self.count += 1
        run_id, active = f"r{self.count}", self.active(session)
        known = self.keys.get(key.key) if key else None
        before = self.world.everything()

        def start() -> object:
            return self.world.start(run_id, session, key=key, tags=tags, cancel_pending=supersede)

        if key and known:
            expected = None if known[1] == key.digest else "IDEMPOTENCY_CONFLICT"
            assert code_of(start) == expected
        elif session in self.deleted:
            assert code_of(start) == "SESSION_DELETED"
        elif active and active.has_work:
            assert code_of(start) == "SESSION_BUSY"
        elif active and not supersede:
            assert code_of(start) == "SESSION_SUSPENDED"
        else:
            start()
            self.runs[session].append(run_id)
            if key:
                self.keys[key.key] = (run_id, key.digest)
            assert dict(self.world.session(session).tags).items() >= tags.items()
            assert active is None or self.world.run(active.id).status == "cancelled"
            return
        assert self.world.everything() == before

    @rule(session=sessions, how=st.sampled_from(["ask", "end", "fail", "run"]))
    def the_model_acts(self, session: str, how: str) -> None:
        run = self.active(session)
        if run is None or not any(isinstance(effect, CallModel) for effect in due(run)):
            return
        self.count += 1
        match how:
            case "ask":
                self.world.respond((ToolUse("sign", {}), ask(f"c{self.count}")), run_id=run.id)
            case "run":
                self.world.respond((ToolUse("tool", {}), Execute()), run_id=run.id)
            case "fail":
                self.world.model_fails(None, run_id=run.id)
            case _:
                self.world.respond(run_id=run.id, text="SECRET")

    @rule(session=sessions)
    def a_tool_returns(self, session: str) -> None:
        run = self.active(session)
        for call in run.calls if run else ():
            self.world.returns(call.key, "SECRET", run_id=run.id if run else "")

    @rule(session=sessions)
    def a_person_answers(self, session: str) -> None:
        run = self.active(session)
        for checkpoint in run.questions if run else ():
            self.world.answer(checkpoint, "SECRET")

    @rule(session=sessions)
    def somebody_cancels(self, session: str) -> None:
        run = self.active(session)
        if run is not None:
            assert self.world.cancel(run.id) == "cancelled"

    @rule(session=sessions)
    def somebody_retries(self, session: str) -> None:
        run_id, active = self.newest(session, "failed"), self.active(session)
        if run_id is None:
            return
        expected = None if active is None else "SESSION_BUSY" if active.has_work else "SESSION_SUSPENDED"
        assert code_of(lambda: self.world.retry(run_id)) == expected

    @rule(session=sessions, sparing=st.booleans(), really=pick)
    def somebody_deletes(self, session: str, sparing: bool, really: int) -> None:
        if really > 1:
            return
        active = self.active(session)
        spared = sparing and active is not None and active.has_work
        known = bool(self.runs[session]) and session not in self.deleted
        assert self.world.delete(session, idle_before=50.0 if sparing else None) == (known and not spared)
        if known and not spared:
            self.deleted.add(session)
            self.keys = {key: owner for key, owner in self.keys.items() if owner[0] not in self.runs[session]}

    @invariant()
    def holds(self) -> None:
        self.world.verify()
        for session, run_ids in self.runs.items():
            active = [run_id for run_id in run_ids if self.world.run(run_id).status == "active"]
            assert self.world.active_roots(session) == active
            assert len(active) <= 1
            if session in self.deleted:
                self.nothing_is_left(session)
                continue
            for run_id in run_ids:
                check_calls(self.world.events(run_id))
                check_questions(self.world, run_id)
                check_rest(self.world, run_id)

    def nothing_is_left(self, session: str) -> None:
        left = [recorded for recorded in self.world.everything() if recorded.meta.session == session]
        assert all(isinstance(one.event, Erased | SessionDeleted | CheckpointDiscarded) for one in left)
        assert self.world.owned(session) == ([], [])
        assert "SECRET" not in repr(left)


def test_session_machine() -> None:
    """B3, B60, B73, B74, B75, B76, B77; C16, C63."""
    play(SessionMachine, steps=25, examples=60)
