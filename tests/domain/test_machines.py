"""Session, Checkpoint and Run under whatever anybody may do to them, in any order, also too late and twice."""

from __future__ import annotations

from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    invariant,
    precondition,
    rule,
)

from bread.domain.checkpoint import (
    CheckpointKind,
)
from bread.domain.commits import MOST_DEATHS
from bread.domain.messages import ToolUse
from bread.domain.plans import Execute, Plan, Refuse, Reject
from bread.domain.run_events import (
    ToolCalled,
)
from bread.domain.run_state import AskDoubt, CallModel, RunState, StartCalls, due

from .machines import RESPONSES, calls, check_calls, check_questions, check_rest, chosen, code_of, door, pick, play
from .support import A, B, World, ask

worker = st.sampled_from([A, B])


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
        is_given_up = self.run.owner is not None and self.run.deaths + 1 >= MOST_DEATHS
        assert self.world.take(who, self.run.owner, run_id=self.run_id) is not is_given_up
        if is_given_up:
            assert self.run.status == "failed"
            return
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
