"""Session, Checkpoint and Run under whatever anybody may do to them, in any order, also too late and twice."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Literal, TypeVar

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

from bread.domain.checkpoint import (
    CheckpointClaimed,
    CheckpointDiscarded,
    CheckpointExpired,
    CheckpointKind,
    IdempotencyKey,
)
from bread.domain.commits import Started
from bread.domain.errors import BreadError
from bread.domain.events import Erased, Event, JsonValue
from bread.domain.messages import ToolUse, read_turn
from bread.domain.plans import Execute, Plan, Refuse, Reject
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
from bread.domain.session import SessionDeleted

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
    run_state_machine_as_test(
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
    """Whether the event is the outcome of its call, as the model will be told."""
    match event:
        case ToolReturned() | ToolFailed():
            return True
        case Resumed(verdict="expired"):
            return event.kind == "input" and event.response is not None
        case Resumed():
            return event.verdict in ("answered", "happened")
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

plan_kinds = st.sampled_from(["run", "run again", "input", "input", "approval", "approval", "timed", "refuse"])
calls = st.lists(st.tuples(plan_kinds, st.sampled_from(["", "x", "x", "y"])), min_size=1, max_size=4)


class RunMachine(RuleBasedStateMachine):
    """Runs of a session, one after the other; two workers, and persons who answer at any moment."""

    def __init__(self) -> None:
        super().__init__()
        self.world = World(at=100.0)
        self.run_ids: list[str] = []
        self.asked: list[str] = []
        self.calls: list[str] = []

    @property
    def run_id(self) -> str:
        return self.run_ids[-1] if self.run_ids else ""

    @property
    def run(self) -> RunState:
        return self.world.run(self.run_id)

    def is_due(self, kind: type) -> bool:
        return self.run.owner is not None and any(isinstance(effect, kind) for effect in due(self.run))

    def pending(self) -> list[str]:
        return [one for one in self.asked if self.world.checkpoint(one).status == "pending"]

    def open_calls(self) -> list[str]:
        """The calls that were begun and have no outcome yet: somebody may still hold it."""
        return [call.key for call in self.run.calls if call.called_at and call.status != "settled"]

    # Each rule that can be played changes something; what must not change anything is in the invariants.

    @precondition(lambda self: not self.run_ids or self.run.has_ended)
    @rule(owner=door, max_steps=st.sampled_from([1, 2, 20, 20]))
    def a_run_begins(self, owner: str | None, max_steps: int) -> None:
        self.run_ids.append(f"r{len(self.run_ids)}")
        self.calls = []
        self.world.start(self.run_id, owner=owner, max_steps=max_steps)

    @rule(seconds=st.integers(1, 8))
    def time_passes(self, seconds: int) -> None:
        self.world.at += seconds

    @precondition(lambda self: self.is_due(CallModel))
    @rule(wanted=calls)
    def the_model_calls_tools(self, wanted: list[tuple[str, str]]) -> None:
        before = self.run
        planned = [(ToolUse(kind.split()[0], {}, id), self.plan(kind)) for kind, id in wanted]
        self.world.respond(*planned, run_id=self.run_id)
        self.calls += [call.key for call in self.run.calls]
        assert self.run.turn == before.turn + 1
        assert (self.run.code == "STEPS_EXCEEDED") == (before.tool_turns >= before.max_steps)
        self.asked = [one for one in self.asked if self.world.checkpoint(one).status != "new"]

    def plan(self, kind: str) -> Plan:
        if kind in ("run", "run again"):
            return Execute(idempotent=kind == "run again")
        if kind == "refuse":
            return Refuse("FORBIDDEN", "not for you")
        self.asked.append(f"c{len(self.asked)}")
        deadline, on_timeout = (self.world.at + 10, len(self.asked) % 2 or None) if kind == "timed" else (None, None)
        kind_asked: CheckpointKind = "approval" if kind == "approval" else "input"
        return ask(self.asked[-1], kind_asked, deadline=deadline, on_timeout=on_timeout)

    @precondition(lambda self: self.is_due(CallModel) and self.run.turn > 1)
    @rule()
    def the_model_ends(self) -> None:
        self.world.respond(run_id=self.run_id, text="That was it.")
        assert self.run.status == "completed"

    @precondition(lambda self: self.is_due(CallModel))
    @rule(retries=st.integers(0, 2))
    def the_answer_does_not_fit(self, retries: int) -> None:
        before = self.run
        self.world.respond(run_id=self.run_id, text="No.", verified=Reject("not JSON", retries))
        assert (self.run.status == "failed") == (before.misfits >= retries)
        assert (self.run.turn, self.run.misfits) == (before.turn + 1, before.misfits + 1)

    @precondition(lambda self: self.is_due(CallModel))
    @rule(again=st.booleans())
    def the_model_fails(self, again: bool) -> None:
        attempt = self.run.attempt
        self.world.model_fails(self.world.at + 1 if again else None, run_id=self.run_id)
        assert (self.run.status, self.run.attempt) == ("active" if again else "failed", attempt + 1)

    @precondition(lambda self: self.is_due(StartCalls))
    @rule()
    def the_owner_commits_intents(self) -> None:
        self.world.start_intents(self.run.owner or "", run_id=self.run_id)
        assert not self.is_due(StartCalls)

    @precondition(lambda self: self.open_calls())
    @rule(number=pick, works=st.booleans())
    def an_outcome_arrives(self, number: int, works: bool) -> None:
        key = chosen(self.open_calls(), number)
        (self.world.returns if works else self.world.raises)(key, run_id=self.run_id)
        assert key not in self.open_calls()

    @precondition(lambda self: self.is_due(AskDoubt))
    @rule(number=pick)
    def the_owner_asks_what_happened(self, number: int) -> None:
        effect = chosen([effect for effect in due(self.run) if isinstance(effect, AskDoubt)], number)
        assert not effect.call.idempotent
        self.asked.append(f"c{len(self.asked)}")
        self.world.doubt(self.run.owner or "", effect.call.key, self.asked[-1], run_id=self.run_id)
        assert self.asked[-1] in self.run.questions

    @precondition(lambda self: self.pending())
    @rule(number=pick, answer=pick, through=door)
    def a_person_answers(self, number: int, answer: int, through: str | None) -> None:
        state = self.world.checkpoint(chosen(self.pending(), number))
        response, verdict = chosen(RESPONSES[state.asked.kind], answer)
        before = self.run
        answered = self.world.answer(state.id, response, verdict, worker=through)
        assert answered.expired == state.is_due(self.world.at)
        if before.owner is None:
            assert self.run.owner == (through if self.run.has_work else None)
        else:
            assert self.run.owner == before.owner, "an answer took a run from its owner"
        if self.run.owner != through:
            intents = [event for _, event in self.world.last_commit() if isinstance(event, ToolCalled)]
            assert intents == [], "the intent of an effect came from somebody who does not own the run"

    @precondition(lambda self: any(self.world.checkpoint(one).is_due(self.world.at) for one in self.pending()))
    @rule(through=door)
    def deadlines_are_looked_at(self, through: str | None) -> None:
        for one in self.pending():
            assert self.world.expire(one, worker=through) == self.world.checkpoint(one).is_due(self.world.at)

    @precondition(lambda self: self.run.has_work)
    @rule(who=worker)
    def somebody_takes(self, who: str) -> None:
        assert self.world.take(who, self.run.owner, run_id=self.run_id)
        assert self.run.owner == who
        assert not any(call.status == "ready" for call in self.run.calls)

    @precondition(lambda self: self.run.owner)
    @rule()
    def the_owner_hands_over(self) -> None:
        assert self.world.release(self.run.owner or "", run_id=self.run_id)
        assert self.run.owner is None
        assert self.run.has_work

    @precondition(lambda self: self.run.status == "active" and self.run.turn > 1)
    @rule()
    def somebody_cancels(self) -> None:
        assert self.world.cancel(self.run_id) == "cancelled"

    @precondition(lambda self: self.run.status == "failed")
    @rule(through=door, max_steps=st.sampled_from([None, 5]))
    def somebody_retries(self, through: str | None, max_steps: int | None) -> None:
        self.world.retry(self.run_id, worker=through, max_steps=max_steps)
        assert (self.run.status, self.run.owner) == ("active", through)
        assert [type(effect) for effect in due(self.run)] == [CallModel]

    @rule(steps=st.lists(st.tuples(calls, pick, pick), min_size=1, max_size=4), who=worker)
    def the_run_goes_on(self, steps: list[tuple[list[tuple[str, str]], int, int]], who: str) -> None:
        """The next things that are to be done, so that most plays get somewhere."""
        for wanted, number, answer in steps:
            self.next_thing(who, wanted, number, answer)

    def next_thing(self, who: str, wanted: list[tuple[str, str]], number: int, answer: int) -> None:
        if not self.run_ids or self.run.has_ended:
            self.a_run_begins(who, 20)
        elif self.run.has_work and self.run.owner is None:
            self.somebody_takes(who)
        elif self.is_due(StartCalls):
            self.the_owner_commits_intents()
        elif self.is_due(CallModel):
            self.the_model_calls_tools(wanted)
        elif self.pending() and (number % 2 or not self.open_calls()):
            self.a_person_answers(number, answer, who)
        else:
            self.an_outcome_arrives(number, works=bool(answer))

    @invariant()
    def streams_are_sound(self) -> None:
        self.world.verify()
        for run_id in self.run_ids[-1:]:
            check_calls(self.world.events(run_id))
            check_questions(self.world, run_id)
            check_rest(self.world, run_id)

    @invariant()
    def nothing_comes_of_what_is_too_late(self) -> None:
        before = self.world.everything()
        for one in set(self.asked) - set(self.pending()):
            assert code_of(lambda one=one: self.world.answer(one)) == "CHECKPOINT_NOT_FOUND"  # type: ignore[misc]
            assert not self.world.expire(one)
        for key in set(self.calls) - set(self.open_calls()):
            self.world.returns(key, run_id=self.run_id)
        for who in (A, B):
            if self.run_ids:
                self.world.respond(
                    (ToolUse("run", {}), Execute()), run_id=self.run_id, owner=who, base=1 - self.run.base
                )
                self.world.take(who, "nobody", run_id=self.run_id)
            if self.run_ids and not self.run.has_work:
                assert not self.world.take(who, None, run_id=self.run_id)
            if self.run_ids and self.run.owner != who:
                self.world.respond((ToolUse("run", {}), Execute()), run_id=self.run_id, owner=who)
                self.world.model_fails(None, owner=who, run_id=self.run_id)
                self.world.start_intents(who, run_id=self.run_id)
                self.world.release(who, run_id=self.run_id)
                for call in self.run.calls:
                    self.world.doubt(who, call.key, "nobody's", run_id=self.run_id)
        if self.run_ids and self.run.status != "failed":
            assert code_of(lambda: self.world.retry(self.run_id)) == "RUN_NOT_RETRYABLE"
        if self.run_ids and self.run.has_ended:
            assert self.world.cancel(self.run_id) == self.run.status
        assert self.world.everything() == before


def test_run_machine() -> None:
    """B10, B18, B29, B36, B37, B48, B51, B53, B59, B67; C3, C4, C7, C22, C28, C31, C32, C35, C40, C58, C59, C60."""
    play(RunMachine, steps=40, examples=150)


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
