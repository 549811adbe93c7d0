"""The decider of runs: owners, crashes and doubt, cancels and retries, and the fold."""

from typing import Any

import pytest
from hypothesis import given as for_all
from hypothesis import settings
from hypothesis import strategies as st

from bread.domain.checkpoint import ParentLink
from bread.domain.events import Erased, Event, JsonValue
from bread.domain.messages import native_message
from bread.domain.plans import Execute, Refuse
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
)
from bread.domain.run_events import (
    ModelFailed,
    RunCancelled,
    RunCompleted,
    RunFailed,
    RunRetried,
    RunStarted,
    RunTaken,
)
from bread.domain.run_state import AskDoubt, CallModel, RunState, StartCalls, due, evolve
from bread.runtime.kit import Given, given

from .run_streams import ASKING, GATED, MIXED, RUN, WORKING, failed, kinds, resumed, returned
from .support import (
    DELETE,
    FETCH,
    NOTHING,
    SIGN,
    A,
    B,
    Planned,
    answer_command,
    ask,
    called,
    responded,
    soaking,
    started,
    suspended,
    trials,
    turn_command,
)

IN_DOUBT = (*WORKING, RunTaken(owner=B, reason="orphaned", previous=A))


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


def test_owners_that_died_without_a_step_between_them_are_counted() -> None:
    run = given(RUN, *WORKING).when(Take(B, A, NOTHING)).after.when(Take(A, B, frozenset({"fetch"}))).after
    assert run.state.deaths == 2
    handed_on = run.when(Release(A)).after.when(Take(B, None, NOTHING)).after
    assert handed_on.state.deaths == 2
    assert handed_on.when(RecordResult("1.0", "done", 1.0)).after.state.deaths == 0


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
