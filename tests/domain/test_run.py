"""Run, given / when / then: what is due, who may do it, and what comes too late."""

from itertools import permutations
from typing import Any

import pytest
from hypothesis import given as for_all
from hypothesis import settings
from hypothesis import strategies as st

from bread.domain.checkpoint import ParentLink
from bread.domain.events import Erased, Event, JsonValue
from bread.domain.messages import ToolUse, native_message
from bread.domain.plans import Accept, Execute, Refuse, Reject
from bread.domain.run import (
    Cancel,
    RaiseDoubt,
    RecordError,
    RecordFailure,
    RecordResult,
    Release,
    Retry,
    StartIntents,
    Take,
    question_of,
)
from bread.domain.run_events import (
    ModelFailed,
    OutputRejected,
    Parked,
    QuestionAsked,
    Resumed,
    RunCancelled,
    RunCompleted,
    RunFailed,
    RunRetried,
    RunStarted,
    RunTaken,
    ToolFailed,
    ToolReturned,
    Verdict,
)
from bread.domain.run_state import AskDoubt, CallModel, CallTool, Effect, RunState, StartCalls, due, evolve, status_of
from bread.runtime.kit import Given, given, run_decider

from .support import (
    NOTHING,
    A,
    B,
    Planned,
    answer_command,
    ask,
    called,
    responded,
    soaking,
    start_command,
    started,
    suspended,
    trials,
    turn_command,
)

RUN = run_decider("r1")
FETCH, SIGN, DELETE = ToolUse("fetch", {"url": "u"}), ToolUse("sign", {"what": "w"}), ToolUse("delete", {"page": 1})


def returned(call: str, tool: str, result: JsonValue = "done") -> ToolReturned:
    return ToolReturned(call=call, tool=tool, tool_call_id=f"call_{call}", result=result, duration_ms=1.0)


def failed(call: str, tool: str, code: str, message: str, duration_ms: float | None = None) -> ToolFailed:
    return ToolFailed(
        call=call, tool=tool, tool_call_id=f"call_{call}", code=code, message=message, duration_ms=duration_ms
    )


def resumed(
    call: str, tool: str, checkpoint: str, kind: Any, verdict: Verdict, response: JsonValue, owner: str | None = None
) -> Resumed:
    return Resumed(
        call=call,
        tool=tool,
        tool_call_id=f"call_{call}",
        checkpoint=checkpoint,
        kind=kind,
        verdict=verdict,
        response=response,
        owner=owner,
    )


def kinds(effects: list[Effect]) -> list[type[Effect]]:
    return [type(effect) for effect in effects]


# Histories that several tests go on from.
WORKING = (started(), responded(FETCH), called("1.0", "fetch"))
ASKING = (started(), responded(SIGN), suspended("1.0", "c1"), QuestionAsked(checkpoint="c1"), Parked(pending=1))
GATED = (started(), responded(DELETE), suspended("1.0", "c1", "approval"), Parked(pending=1))
MIXED = (started(), responded(FETCH, SIGN), called("1.0", "fetch"), suspended("1.1", "c1"))
IN_DOUBT = (*WORKING, RunTaken(owner=B, reason="orphaned", previous=A))


# --- start and model --------------------------------------------------------------------------------------------------


def test_b1_a_start_is_kept_whole_and_makes_the_model_due() -> None:
    history = given(RUN).when(start_command()).then(started())
    assert due(history.state) == [CallModel(turn=0, attempt=0, base=1)]
    assert (history.state.owner, history.state.epoch, status_of(history.state)) == (A, 1, "running")


def test_an_id_is_used_once() -> None:
    given(RUN, started()).when(start_command()).raises("INPUT_INVALID")


def test_b1_a_turn_without_calls_ends_the_run_with_its_text() -> None:
    ended = given(RUN, started()).when(turn_command(text="Done.", at=101.5))
    state = ended.then(responded(text="Done."), RunCompleted(of=2, duration_ms=1500.0)).state
    assert (state.status, state.output_of, state.owner) == ("completed", 2, None)
    assert due(state) == []


def test_a_clock_that_went_back_gives_no_negative_duration() -> None:
    given(RUN, started()).when(turn_command(at=99.0)).then(responded(), RunCompleted(of=2, duration_ms=0.0))


def test_b6_an_ordinary_call_is_intended_before_it_runs() -> None:
    history = (
        given(RUN, started()).when(turn_command([(FETCH, Execute())])).then(responded(FETCH), called("1.0", "fetch"))
    )
    [effect] = due(history.state)
    assert isinstance(effect, CallTool)
    assert (effect.call.args, effect.key) == ({"url": "u"}, ("tool", "1.0", 3))


def test_b6_its_result_makes_the_model_due_again() -> None:
    history = given(RUN, *WORKING).when(RecordResult("1.0", "done", 1.0)).then(returned("1.0", "fetch"))
    assert due(history.state) == [CallModel(turn=1, attempt=0, base=4)]


def test_b7_so_does_its_error() -> None:
    history = given(RUN, *WORKING).when(RecordError("1.0", "TOOL_ERROR", "broken", 1.0))
    assert due(history.then(failed("1.0", "fetch", "TOOL_ERROR", "broken", 1.0)).state) == [CallModel(1, 0, 4)]


def test_b33_a_refused_call_never_runs_and_the_model_is_told_why() -> None:
    turn = given(RUN, started()).when(turn_command([(DELETE, Refuse("FORBIDDEN", "denied"))]))
    history = turn.then(responded(DELETE), failed("1.0", "delete", "FORBIDDEN", "denied"))
    assert due(history.state) == [CallModel(turn=1, attempt=0, base=3)]


@pytest.mark.parametrize("history", [WORKING[:1], ASKING, GATED, MIXED], ids=["started", "asking", "gated", "mixed"])
def test_b33_c22_c32_nothing_else_executes_a_call(history: tuple[Event, ...]) -> None:
    """A call without its intent has no outcome: neither a result nor an error can be slipped in."""
    for call in ("1.1", "9.9", "") if history is MIXED else ("1.0", "9.9", ""):
        given(RUN, *history).when(RecordResult(call, "done", 1.0)).then()
        given(RUN, *history).when(RecordError(call, "TOOL_ERROR", "broken", 1.0)).then()


def test_b10_more_turns_with_calls_than_allowed_fail_the_run_and_lose_nothing() -> None:
    history = given(RUN, started(max_steps=1), *WORKING[1:]).when(RecordResult("1.0", "done", 1.0)).after
    second = turn_command([(FETCH, Execute()), (SIGN, ask("c1"))], base=4, base_seq=4)
    why = "more than 1 model turns with tool calls"
    over = history.when(second).then(
        responded(FETCH, SIGN, turn=1, base=4),
        failed("4.0", "fetch", "STEPS_EXCEEDED", why),
        failed("4.1", "sign", "STEPS_EXCEEDED", why),
        RunFailed(code="STEPS_EXCEEDED", message=why),
    )
    assert (over.state.status, over.state.code, over.state.questions) == ("failed", "STEPS_EXCEEDED", ())
    again = over.when(Retry(B, 3)).then(RunRetried(owner=B, max_steps=3))
    assert due(again.state) == [CallModel(turn=2, attempt=0, base=9)]
    more = again.when(turn_command([(FETCH, Execute())], owner=B, base=9, base_seq=9))
    assert kinds(due(more.after.state)) == [CallTool]


def test_b10_a_last_turn_without_calls_is_not_one_too_many() -> None:
    history = given(RUN, started(max_steps=1), *WORKING[1:]).when(RecordResult("1.0", "done", 1.0)).after
    assert history.when(turn_command(text="Done.", base=4, base_seq=4)).after.state.status == "completed"


def test_b59_a_failed_attempt_is_kept_and_the_next_one_waits() -> None:
    attempt = RecordFailure(A, 1, 1, "MODEL_ERROR", "overloaded", 130.0)
    history = (
        given(RUN, started())
        .when(attempt)
        .then(ModelFailed(turn=0, base=1, attempt=1, code="MODEL_ERROR", message="overloaded", retry_at=130.0))
    )
    assert due(history.state) == [CallModel(turn=0, attempt=1, base=2, not_before=130.0)]
    succeeded = history.when(turn_command([(FETCH, Execute())], base=2, base_seq=2)).after
    assert (succeeded.state.attempt, succeeded.state.retry_at) == (0, None)


def test_b59_c40_the_last_attempt_fails_the_run_with_everything_kept() -> None:
    answered = given(RUN, *ASKING).when(answer_command("c1", "yes")).after
    history = answered.when(RecordFailure(A, 6, 6, "MODEL_ERROR", "down", None)).then(
        ModelFailed(turn=1, base=6, attempt=1, code="MODEL_ERROR", message="down"),
        RunFailed(code="MODEL_ERROR", message="down"),
    )
    assert due(history.state) == []
    again = history.when(Retry(B, None)).then(RunRetried(owner=B))
    assert due(again.state) == [CallModel(turn=1, attempt=0, base=9)]
    assert (again.state.owner, again.state.code, again.state.max_steps) == (B, None, 20)


# --- answers with a schema --------------------------------------------------------------------------------------------


MISFIT = Reject("(answer): not JSON", retries=1)


def test_b11_an_answer_that_fits_is_the_output() -> None:
    ended = given(RUN, started()).when(turn_command(text='{"n": 1}', verified=Accept({"n": 1})))
    state = ended.then(responded(text='{"n": 1}'), RunCompleted(output={"n": 1}, duration_ms=0.0)).state
    assert (state.status, state.output_of, state.output) == ("completed", None, {"n": 1})


def test_b11_a_misfit_makes_the_model_due_again_as_often_as_allowed() -> None:
    first = given(RUN, started()).when(turn_command(text="No.", verified=MISFIT))
    history = first.then(responded(text="No."), OutputRejected(turn=0, attempt=1, message="(answer): not JSON"))
    assert due(history.state) == [CallModel(turn=1, attempt=0, base=3)]
    assert history.state.owner == A
    last = history.when(turn_command(text="No.", base=3, base_seq=3, verified=MISFIT)).then(
        responded(text="No.", turn=1, base=3),
        OutputRejected(turn=1, attempt=2, message="(answer): not JSON", last=True),
        RunFailed(code="OUTPUT_INVALID", message="(answer): not JSON"),
    )
    assert (last.state.status, last.state.owner, due(last.state)) == ("failed", None, [])
    again = last.when(Retry(B, None)).then(RunRetried(owner=B))
    assert due(again.state) == [CallModel(turn=2, attempt=0, base=7)]
    assert again.state.misfits == 0


def test_b11_a_turn_with_calls_is_no_answer() -> None:
    history = given(RUN, *WORKING).when(RecordResult("1.0", "done", 1.0)).after
    turn = turn_command([(FETCH, Execute())], base=4, base_seq=4, text="No.")
    assert history.when(turn).after.state.misfits == 0


# --- skills -----------------------------------------------------------------------------------------------------------


def test_b70_b72_the_skills_of_a_run_are_folded_from_its_stream() -> None:
    load = ToolUse("core_load_skill", {"skill": "dates"})
    history = (started(skill="law"), responded(load, load), called("1.0", load.tool), called("1.1", load.tool))
    loaded = [returned(f"1.{index}", load.tool, {"skill": "dates"}) for index in range(2)]
    assert given(RUN, *history).state.loaded == ("law",)
    state = given(RUN, *history, *loaded).state
    assert state.loaded == ("law", "dates")
    assert kinds(due(state)) == [CallModel]
    strange_ones: list[JsonValue] = ["dates", None, {}, {"skill": 7}]
    for strange in strange_ones:
        assert given(RUN, *history, returned("1.0", load.tool, strange)).state.loaded == ("law",)
    assert given(RUN, *WORKING, returned("1.0", "fetch", {"skill": "dates"})).state.loaded == ()


# --- questions and answers --------------------------------------------------------------------------------------------


def test_b19_a_human_tool_suspends_and_executes_nothing() -> None:
    history = (
        given(RUN, started()).when(turn_command([(SIGN, ask("c1"))])).then(responded(SIGN), suspended("1.0", "c1"))
    )
    assert (due(history.state), history.state.questions, history.state.owner) == ([], ("c1",), None)
    assert status_of(history.state) == "suspended"


def test_b26_c44_an_ordinary_call_of_the_same_turn_runs_once_and_is_kept() -> None:
    history = given(RUN, started()).when(turn_command([(FETCH, Execute()), (SIGN, ask("c1"))])).then(*MIXED[1:])
    assert kinds(due(history.state)) == [CallTool]
    done = history.when(RecordResult("1.0", "done", 1.0)).then(returned("1.0", "fetch"))
    assert (due(done.state), done.state.owner) == ([], None)
    going_on = done.when(answer_command("c1", "yes", worker=B)).after
    assert due(going_on.state) == [CallModel(turn=1, attempt=0, base=6)]


def test_b45_a_question_says_all_that_a_person_needs() -> None:
    parent = ParentLink(run="p1", slot="1.0", kind="supervisor")
    state = given(RUN, started().model_copy(update={"parent": parent, "skill": "review"}), *ASKING[1:]).state
    plan = ask("c1", "approval", tool="delete_page", deadline=200.0, on_timeout={"no": 1})
    question = question_of(state, state.calls[0], plan)
    assert (question.kind, question.tool, question.prompt) == ("approval", "delete_page", "Well?")
    assert (question.run, question.root, question.session, question.agent) == ("r1", "r1", "s1", "publisher")
    assert (question.call, question.tool_call_id, question.args) == ("1.0", "call_1.0", {"what": "w"})
    assert (question.skill, question.parent, question.deadline) == ("review", parent, 200.0)
    assert (question.args_schema, question.response_schema, question.on_timeout) == (
        {"type": "object"},
        None,
        {"no": 1},
    )


@pytest.mark.parametrize("order", list(permutations(["c0", "c1", "c2"])), ids="".join)
def test_b29_c7_c8_several_questions_are_answered_in_any_order(order: tuple[str, ...]) -> None:
    """B29, C7, C8: the same tool asked three times in one turn; the model is due with the last answer, not before."""
    planned = [(ToolUse("sign", number, "same"), ask(f"c{number}")) for number in range(3)]
    history = given(RUN, started()).when(turn_command(planned)).after
    assert [call.id for call in history.state.calls] == ["same", "same~1.1", "same~1.2"]
    for place, checkpoint in enumerate(order):
        assert due(history.state) == []
        answered = history.when(answer_command(checkpoint, f"to {checkpoint}", worker=B))
        [event] = answered.events
        assert isinstance(event, Resumed)
        assert event.call == f"1.{checkpoint[1]}"
        assert event.owner == (B if place == 2 else None)
        history = answered.after
    assert due(history.state) == [CallModel(turn=1, attempt=0, base=8)]
    assert history.state.owner == B


def test_b28_c22_one_answer_belongs_to_one_call() -> None:
    """C22: one of three gated calls is rejected; the others run, it does not."""
    planned = [(ToolUse("delete", number), ask(f"c{number}", "approval")) for number in range(3)]
    history = given(RUN, started()).when(turn_command(planned)).after
    history = history.when(answer_command("c1", {"approved": False}, "rejected")).then(
        resumed("1.1", "delete", "c1", "approval", "rejected", {"approved": False}),
        failed("1.1", "delete", "REJECTED", "denied by a person"),
    )
    for checkpoint in ("c0", "c2"):
        history = history.when(answer_command(checkpoint, {"approved": True}, "approved")).after
    assert [call.status for call in history.state.calls] == ["called", "settled", "called"]
    history.when(RecordResult("1.1", "deleted", 1.0)).then()


def test_b36_an_approval_is_the_intent_of_the_stored_call_in_the_same_commit() -> None:
    history = (
        given(RUN, *GATED)
        .when(answer_command("c1", {"approved": True}, "approved", worker=B))
        .then(
            resumed("1.0", "delete", "c1", "approval", "approved", {"approved": True}, owner=B), called("1.0", "delete")
        )
    )
    [effect] = due(history.state)
    assert isinstance(effect, CallTool)
    assert (effect.call.args, history.state.owner, history.state.epoch) == ({"page": 1}, B, 5)


def test_b36_c23_edited_arguments_are_executed_and_found_where_they_stand() -> None:
    response: JsonValue = {"approved": True, "args": {"page": 2}}
    history = (
        given(RUN, *GATED)
        .when(answer_command("c1", response, "approved"))
        .then(
            resumed("1.0", "delete", "c1", "approval", "approved", response, owner=A),
            called("1.0", "delete", args_at=5),
        )
    )
    assert history.state.calls[0].args == {"page": 2}


def test_b37_a_rejection_is_told_with_its_reason() -> None:
    response: JsonValue = {"approved": False, "reason": "too early"}
    history = (
        given(RUN, *GATED)
        .when(answer_command("c1", response, "rejected"))
        .then(
            resumed("1.0", "delete", "c1", "approval", "rejected", response, owner=A),
            failed("1.0", "delete", "REJECTED", "denied by a person: too early"),
        )
    )
    assert due(history.state) == [CallModel(turn=1, attempt=0, base=6)]


def test_c59_an_expired_approval_is_a_denial_that_says_so() -> None:
    history = (
        given(RUN, *GATED)
        .when(answer_command("c1", {"approved": True}, "expired"))
        .then(
            resumed("1.0", "delete", "c1", "approval", "expired", {"approved": True}, owner=A),
            failed("1.0", "delete", "EXPIRED", "nobody answered before the deadline"),
        )
    )
    assert kinds(due(history.state)) == [CallModel]


def test_c59_an_expired_question_has_the_answer_that_was_set_for_it_or_none() -> None:
    given(RUN, *ASKING).when(answer_command("c1", "the default", "expired")).then(
        resumed("1.0", "sign", "c1", "input", "expired", "the default", owner=A)
    )
    given(RUN, *ASKING).when(answer_command("c1", None, "expired")).then(
        resumed("1.0", "sign", "c1", "input", "expired", None, owner=A),
        failed("1.0", "sign", "EXPIRED", "nobody answered before the deadline"),
    )


def test_c4_c28_a_question_has_one_answer() -> None:
    answered = given(RUN, *ASKING).when(answer_command("c1", "yes")).after
    answered.when(answer_command("c1", "no")).raises("CHECKPOINT_NOT_FOUND")
    answered.when(answer_command("c9", "no")).raises("CHECKPOINT_NOT_FOUND")


# --- owners -----------------------------------------------------------------------------------------------------------


def test_an_answer_names_an_owner_only_if_it_makes_something_due() -> None:
    two = given(RUN, started()).when(turn_command([(SIGN, ask("c0")), (SIGN, ask("c1"))])).after
    waiting = two.when(answer_command("c0", "yes", worker=B)).then(
        resumed("1.0", "sign", "c0", "input", "answered", "yes")
    )
    assert waiting.state.owner is None


def test_an_answer_on_an_owned_run_changes_no_owner_and_performs_nothing() -> None:
    """Facts by anyone, effects by the owner: B's answer leaves the approved call to A."""
    history = given(RUN, started()).when(turn_command([(FETCH, Execute()), (DELETE, ask("c1", "approval"))])).after
    history = history.when(answer_command("c1", {"approved": True}, "approved", worker=B)).then(
        resumed("1.1", "delete", "c1", "approval", "approved", {"approved": True})
    )
    assert (history.state.owner, history.state.epoch) == (A, 1)
    assert due(history.state)[0] == StartCalls(("1.1",))
    history.when(StartIntents(B, NOTHING)).then()
    owned = history.when(StartIntents(A, NOTHING)).then(called("1.1", "delete"))
    owned.when(StartIntents(A, NOTHING)).then()


def test_the_owners_own_answer_carries_the_intent() -> None:
    history = given(RUN, started()).when(turn_command([(FETCH, Execute()), (DELETE, ask("c1", "approval"))])).after
    history.when(answer_command("c1", {"approved": True}, "approved", worker=A)).then(
        resumed("1.1", "delete", "c1", "approval", "approved", {"approved": True}), called("1.1", "delete")
    )


def test_an_answer_without_a_worker_leaves_the_run_ready() -> None:
    ready = (
        given(RUN, *GATED)
        .when(answer_command("c1", {"approved": True}, "approved", worker=None))
        .then(resumed("1.0", "delete", "c1", "approval", "approved", {"approved": True}))
    )
    assert (ready.state.owner, ready.state.has_work) == (None, True)
    assert due(ready.state) == [StartCalls(("1.0",))]
    taken = ready.when(Take(B, None, frozenset({"delete"})))
    taken.then(RunTaken(owner=B, reason="queued"), called("1.0", "delete", idempotent=True))


def test_the_owners_last_outcome_is_its_giving_up() -> None:
    assert given(RUN, *MIXED).state.owner == A
    assert given(RUN, *MIXED).when(RecordResult("1.0", "done", 1.0)).after.state.owner is None


@pytest.mark.parametrize("history", [started(), started(None)], ids=["another's", "nobody's"])
def test_only_the_owner_performs(history: RunStarted) -> None:
    run = given(RUN, history)
    run.when(turn_command([(FETCH, Execute())], owner=B)).then()
    run.when(RecordFailure(B, 1, 1, "MODEL_ERROR", "down", None)).then()
    run.when(Release(B)).then()


def test_b48_a_run_is_taken_from_the_owner_that_was_seen_and_from_no_other() -> None:
    given(RUN, *WORKING).when(Take(B, None, NOTHING)).then()
    taken = given(RUN, *WORKING).when(Take(B, A, NOTHING)).then(RunTaken(owner=B, reason="orphaned", previous=A))
    taken.when(Take("worker-c", A, NOTHING)).then()
    assert (taken.state.owner, taken.state.epoch) == (B, 4)


@pytest.mark.parametrize(
    "history",
    [ASKING, (started(), responded(), RunCompleted(of=2)), (started(), RunCancelled(reason="no"))],
    ids=["waiting", "completed", "cancelled"],
)
def test_a_run_without_work_is_not_taken(history: tuple[Event, ...]) -> None:
    given(RUN, *history).when(Take(B, None, NOTHING)).then()


def test_a_clean_shutdown_gives_the_run_back() -> None:
    given(RUN, *ASKING).when(Release(A)).then()
    released = given(RUN, *WORKING).when(Release(A)).then(RunTaken(owner=None, reason="handed_over", previous=A))
    assert (released.state.owner, released.state.has_work) == (None, True)
    released.when(Take(B, None, NOTHING)).then(RunTaken(owner=B, reason="queued"))


# --- crashes and doubt ------------------------------------------------------------------------------------------------


def test_a_model_call_that_was_cut_off_is_made_again_and_its_late_outcome_is_ignored() -> None:
    taken = given(RUN, started()).when(Take(B, A, NOTHING)).after
    assert due(taken.state) == [CallModel(turn=0, attempt=0, base=2)]
    for late in (turn_command(text="late", base=1), turn_command(text="late", owner=B, base=1)):
        taken.when(late).then()
    taken.when(RecordFailure(A, 1, 1, "MODEL_ERROR", "late", None)).then()
    back = taken.when(Take(A, B, NOTHING)).after
    back.when(turn_command(text="late", base=1)).then()
    assert back.when(turn_command(text="Done.", base=3, base_seq=3)).after.state.status == "completed"


def test_a_repeated_model_outcome_is_ignored() -> None:
    once = given(RUN, started()).when(turn_command([(FETCH, Execute())])).after
    for base in (1, 2):
        once.when(turn_command([(FETCH, Execute())], base=base)).then()
        once.when(RecordFailure(A, base, base, "MODEL_ERROR", "late", None)).then()


def test_b67_a_call_of_an_earlier_owner_is_in_doubt_unless_it_may_be_repeated() -> None:
    [doubt] = due(given(RUN, *IN_DOUBT).state)
    assert isinstance(doubt, AskDoubt)
    assert doubt.call.key == "1.0"
    before = (started(), responded(FETCH), called("1.0", "fetch", idempotent=True))
    after = given(RUN, *before, RunTaken(owner=B, reason="orphaned", previous=A)).state
    assert [effect.key for effect in due(after)] == [effect.key for effect in due(given(RUN, *before).state)]


def test_a_call_that_was_released_is_in_doubt_for_the_next_owner() -> None:
    released = given(RUN, *WORKING).when(Release(A)).after.when(Take(B, None, NOTHING)).after
    assert kinds(due(released.state)) == [AskDoubt]
    answered = given(RUN, *MIXED).when(Release(A)).after.when(answer_command("c1", "yes", worker=B)).after
    assert (kinds(due(answered.state)), answered.state.owner) == ([AskDoubt], B)


def test_b67_the_new_owner_asks_what_happened_once() -> None:
    command = RaiseDoubt(B, "1.0", ask("d1", "in_doubt"))
    given(RUN, *IN_DOUBT).when(RaiseDoubt(A, "1.0", ask("d1", "in_doubt"))).then()
    asked = given(RUN, *IN_DOUBT).when(command).then(suspended("1.0", "d1", "in_doubt"))
    asked.when(command).then()
    assert (asked.state.questions, asked.state.owner, due(asked.state)) == (("d1",), None, [])


def test_nobody_doubts_a_call_that_the_owner_itself_began() -> None:
    given(RUN, *WORKING).when(RaiseDoubt(A, "1.0", ask("d1", "in_doubt"))).then()
    given(RUN, *WORKING).when(RaiseDoubt(A, "9.9", ask("d1", "in_doubt"))).then()


def test_nobody_doubts_a_call_that_waits_for_a_person_or_has_its_outcome() -> None:
    turn = turn_command([(FETCH, Execute(idempotent=True)), (SIGN, ask("c1")), (DELETE, Refuse("FORBIDDEN", "no"))])
    taken = given(RUN, started()).when(turn).after.when(Take(B, A, NOTHING)).after
    for call in ("1.1", "1.2"):
        taken.when(RaiseDoubt(B, call, ask("d1", "in_doubt"))).then()


def doubted() -> Given[RunState, Any]:
    return given(RUN, *IN_DOUBT, suspended("1.0", "d1", "in_doubt"))


def test_b67_it_happened() -> None:
    history = doubted().when(answer_command("d1", {"outcome": "happened", "result": 7}, "happened"))
    assert kinds(due(history.after.state)) == [CallModel]


def test_b67_it_is_to_be_called_again_with_the_key_of_its_place() -> None:
    response: JsonValue = {"outcome": "retry"}
    history = (
        doubted()
        .when(answer_command("d1", response, "retry"))
        .then(resumed("1.0", "fetch", "d1", "in_doubt", "retry", response, owner=A), called("1.0", "fetch"))
    )
    [effect] = due(history.state)
    assert effect.key == ("tool", "1.0", 7)


def test_b67_it_failed() -> None:
    response: JsonValue = {"outcome": "failed", "error": "it was down"}
    history = (
        doubted()
        .when(answer_command("d1", response, "failed"))
        .then(
            resumed("1.0", "fetch", "d1", "in_doubt", "failed", response, owner=A),
            failed("1.0", "fetch", "TOOL_ERROR", "it was down"),
        )
    )
    assert kinds(due(history.state)) == [CallModel]


def test_a_late_outcome_settles_what_was_in_doubt() -> None:
    """An owner that was replaced still holds the result: it is worth more than anybody's guess."""
    for history in (given(RUN, *IN_DOUBT), doubted()):
        settled = history.when(RecordResult("1.0", "done", 1.0)).then(returned("1.0", "fetch"))
        assert kinds(due(settled.state)) == [CallModel]
        settled.when(answer_command("d1", {"outcome": "retry"}, "retry")).raises("CHECKPOINT_NOT_FOUND")


def test_a_late_outcome_does_not_overrule_an_answer() -> None:
    happened = doubted().when(answer_command("d1", {"outcome": "happened", "result": 7}, "happened")).after
    happened.when(RecordResult("1.0", "done", 1.0)).then()


def test_a_repeated_outcome_is_ignored() -> None:
    once = given(RUN, *WORKING).when(RecordResult("1.0", "done", 1.0)).after
    once.when(RecordResult("1.0", "done", 1.0)).then()
    once.when(RecordError("1.0", "TOOL_ERROR", "broken", 1.0)).then()


# --- cancel and retry -------------------------------------------------------------------------------------------------


def test_b18_c58_a_cancel_answers_whatever_is_open() -> None:
    planned: list[Planned] = [(FETCH, Execute()), (SIGN, ask("c1")), (DELETE, Refuse("FORBIDDEN", "denied"))]
    history = (
        given(RUN, started())
        .when(turn_command(planned))
        .after.when(Cancel("enough"))
        .then(
            failed("1.0", "fetch", "RUN_CANCELLED", "enough"),
            failed("1.1", "sign", "RUN_CANCELLED", "enough"),
            RunCancelled(reason="enough"),
        )
    )
    assert (due(history.state), history.state.owner, history.state.code) == ([], None, "RUN_CANCELLED")


def test_c60_nothing_goes_on_after_a_cancel() -> None:
    for before in (WORKING, ASKING, (started(),)):
        over = given(RUN, *before).when(Cancel("enough")).after
        over.when(Cancel("again")).then()
        over.when(RecordResult("1.0", "late", 1.0)).then()
        over.when(turn_command(text="late")).then()
        over.when(Take(B, None, NOTHING)).then()
        over.when(answer_command("c1", "late")).raises("CHECKPOINT_NOT_FOUND")
        assert over.when(Retry(A, None)).raises("RUN_NOT_RETRYABLE").details == {"status": "cancelled"}


@pytest.mark.parametrize(
    ("history", "status"),
    [(WORKING, "running"), (ASKING, "suspended"), ((started(), responded(), RunCompleted(of=2)), "completed")],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_only_a_failed_run_is_retried(history: tuple[Event, ...], status: str) -> None:
    assert given(RUN, *history).when(Retry(A, None)).raises("RUN_NOT_RETRYABLE").details == {"status": status}


def test_a_child_is_retried_through_its_root() -> None:
    link = ParentLink(run="p1", slot="1.0", kind="supervisor")
    child = started().model_copy(update={"parent": link, "root": "p1"})
    error = given(RUN, child, RunFailed(code="MODEL_ERROR", message="down")).when(Retry(A, None))
    assert error.raises("RUN_NOT_RETRYABLE").details == {"root_run_id": "p1"}


# --- the fold ---------------------------------------------------------------------------------------------------------

POOL: list[Event] = [
    *MIXED,
    *ASKING,
    *GATED,
    started(None),
    responded(),
    returned("1.0", "fetch"),
    failed("1.0", "fetch", "TOOL_ERROR", "broken"),
    resumed("1.1", "sign", "c1", "input", "answered", "yes", owner=B),
    resumed("1.0", "delete", "c1", "approval", "approved", {"approved": True, "args": 1}),
    resumed("1.0", "delete", "c1", "approval", "rejected", None),
    ModelFailed(turn=0, base=1, attempt=1, code="MODEL_ERROR", message="down", retry_at=1.0),
    RunTaken(owner=B, reason="orphaned", previous=A),
    RunTaken(owner=None, reason="handed_over", previous=B),
    RunRetried(owner=A, max_steps=5),
    RunCompleted(of=2),
    RunFailed(code="MODEL_ERROR", message="down"),
    RunCancelled(reason="no"),
    Erased(),
    Event(),
]


@for_all(events=st.lists(st.sampled_from(POOL), max_size=15))
@settings(max_examples=trials(200), derandomize=not soaking(), database=None, deadline=None)
def test_the_fold_refuses_nothing_and_is_never_owned_without_work(events: list[Event]) -> None:
    """C37: an old log folds, whatever rules have come since."""
    state = RunState("r1")
    for number, event in enumerate(events, start=1):
        state = evolve(state, event)
        assert (state.id, state.version) == ("r1", number)
        assert state.owner is None or state.has_work
        assert state.has_work == bool(due(state))
        if state.settled and state.has_work:
            assert kinds(due(state)) == [CallModel]


def test_a_call_keeps_its_place_when_a_turn_comes_from_a_tree() -> None:
    """The place of a call is the number of its attempt in the tree, which is not its version in the run's stream."""
    history = given(RUN, started()).when(turn_command([(FETCH, Execute())], base=1, base_seq=40)).after
    assert history.state.calls[0].key == "40.0"
    assert native_message("", (FETCH,)) == history.events[1].message  # type: ignore[attr-defined]
