"""Run, given / when / then: what is due, who may do it, and what comes too late."""

from itertools import permutations

import pytest

from bread.domain.checkpoint import ParentLink
from bread.domain.events import Event, JsonValue
from bread.domain.messages import ToolUse
from bread.domain.plans import Accept, Execute, Refuse, Reject
from bread.domain.run import (
    RecordError,
    RecordFailure,
    RecordResult,
    Retry,
    question_of,
)
from bread.domain.run_events import (
    ModelFailed,
    OutputRejected,
    Resumed,
    RunCompleted,
    RunFailed,
    RunRetried,
)
from bread.domain.run_state import CallModel, CallTool, due, status_of
from bread.runtime.kit import given

from .run_streams import ASKING, GATED, MIXED, RUN, WORKING, failed, kinds, resumed, returned
from .support import (
    DELETE,
    FETCH,
    SIGN,
    A,
    B,
    answer_command,
    ask,
    called,
    responded,
    start_command,
    started,
    suspended,
    turn_command,
)

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
