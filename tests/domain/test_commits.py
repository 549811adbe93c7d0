"""The commits: which events become true together, and what a refusal leaves behind (nothing)."""

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from bread.domain import commits
from bread.domain.checkpoint import IdempotencyKey
from bread.domain.commits import Answered, Started
from bread.domain.errors import BreadError
from bread.domain.events import Erased, Event, JsonValue, topic_of
from bread.domain.messages import ToolUse
from bread.domain.plans import Execute, Refuse
from bread.domain.run_events import Parked, QuestionAsked, Resumed, RunCancelled, ToolCalled, ToolFailed, ToolReturned
from bread.domain.run_state import AskDoubt, CallModel, CallTool, StartCalls, due
from bread.domain.streams import Streams

from .support import A, B, World, answer_command, ask

FETCH, SIGN, DELETE = ToolUse("fetch", {"url": "u"}), ToolUse("sign", {"what": "w"}), ToolUse("delete", {"page": 1})
ONE, OTHER = IdempotencyKey(key="order-17", digest="one"), IdempotencyKey(key="order-17", digest="other")


@pytest.fixture
def world() -> World:
    return World(at=100.0)


def refused(world: World, act: Callable[[], object], code: str) -> BreadError:
    """Expect a refusal that leaves no trace."""
    before = world.everything()
    with pytest.raises(BreadError) as caught:
        act()
    assert caught.value.code == code
    assert world.everything() == before
    world.verify()
    return caught.value


def topics(events: Sequence[tuple[str, Event]]) -> list[str]:
    return [f"{stream} {topic_of(event).partition('@')[0]}" for stream, event in events]


def commit_count(world: World) -> int:
    return len({recorded.meta.commit for recorded in world.everything()})


def asking(world: World, *kinds: str) -> World:
    """A run that waits for one question of each kind: c0, c1, ..."""
    world.start()
    asks = [(ToolUse("sign", number), ask(f"c{number}", kind)) for number, kind in enumerate(kinds)]  # type: ignore[arg-type]
    world.respond(*asks)
    return world


# --- start ------------------------------------------------------------------------------------------------------------


def test_b3_a_start_opens_its_session_and_the_run_at_once(world: World) -> None:
    assert world.start(tags={"team": "web"}) == Started("r1")
    assert topics(world.last_commit()) == ["session:s1 session.opened", "r1 run.started"]
    assert [recorded.meta.seq for recorded in world.everything()] == [0, 1]
    assert dict(world.session("s1").tags) == {"team": "web"}


def test_b3_an_open_session_is_reused_and_gets_new_tags(world: World) -> None:
    world.start(tags={"team": "web"})
    world.cancel()
    world.start("r2", tags={"team": "ops"})
    assert topics(world.last_commit()) == ["session:s1 session.tagged", "r2 run.started"]
    world.cancel("r2")
    world.start("r3")
    assert topics(world.last_commit()) == ["r3 run.started"]


@pytest.mark.parametrize("session", ["", " s1", "a\nb", "x" * 201])
def test_an_id_that_cannot_be_a_session_is_refused(world: World, session: str) -> None:
    refused(world, lambda: world.start(session=session), "INPUT_INVALID")


def test_a_run_id_is_used_once(world: World) -> None:
    world.start()
    refused(world, lambda: world.start(session="s2"), "INPUT_INVALID")


@pytest.mark.parametrize("supersede", [False, True])
def test_b60_one_root_run_at_a_time(world: World, supersede: bool) -> None:
    world.start()
    error = refused(world, lambda: world.start("r2", cancel_pending=supersede), "SESSION_BUSY")
    assert error.details == {"session_id": "s1", "run_id": "r1"}
    assert world.start("r2", "s2") == Started("r2")


def test_b60_c16_a_waiting_session_names_its_questions(world: World) -> None:
    asking(world, "input", "approval")
    error = refused(world, lambda: world.start("r2"), "SESSION_SUSPENDED")
    assert error.details == {"session_id": "s1", "run_id": "r1", "checkpoints": ["c0", "c1"]}


def test_b60_c58_a_new_run_may_cancel_the_waiting_one_in_its_own_commit(world: World) -> None:
    asking(world, "input")
    world.start("r2", cancel_pending=True)
    assert topics(world.last_commit()) == [
        "c0 checkpoint.discarded",
        "r1 run.tool_failed",
        "r1 run.cancelled",
        "r2 run.started",
    ]
    refused(world, lambda: world.answer("c0"), "CHECKPOINT_NOT_FOUND")


def test_b60_a_refused_start_cancels_nothing(world: World) -> None:
    asking(world, "input")
    refused(world, lambda: world.start("r1", cancel_pending=True), "INPUT_INVALID")


@pytest.mark.parametrize("end", ["completed", "failed", "cancelled"])
def test_b60_a_run_that_has_ended_is_in_nobodys_way(world: World, end: str) -> None:
    world.start()
    match end:
        case "completed":
            world.respond(text="Done.")
        case "failed":
            world.model_fails(None)
        case _:
            world.cancel()
    assert world.run("r1").status == end
    assert world.active_roots("s1") == []
    world.start("r2")


def test_a_repeated_start_with_its_key_gives_the_same_run(world: World) -> None:
    world.start(key=ONE)
    for _ in range(2):
        before = world.everything()
        assert world.start("r2", key=ONE) == Started("r1", repeated=True)
        assert world.start("r2", "s2", key=ONE) == Started("r1", repeated=True)
        assert world.everything() == before
        world.respond(text="Done.")  # also when the run has ended


def test_a_key_with_another_body_is_refused(world: World) -> None:
    world.start(key=ONE)
    error = refused(world, lambda: world.start("r2", "s2", key=OTHER), "IDEMPOTENCY_CONFLICT")
    assert error.details == {"key": "order-17"}


# --- model, tools, questions ------------------------------------------------------------------------------------------


def test_start_ask_answer_finish_are_four_commits(world: World) -> None:
    asking(world, "input").answer("c0", "yes")
    world.respond(text="Done.")
    assert (world.run("r1").status, commit_count(world)) == ("completed", 4)


def test_an_approval_is_five_commits(world: World) -> None:
    asking(world, "approval").answer("c0", {"approved": True}, "approved")
    world.returns("1.0")
    world.respond(text="Done.")
    assert (world.run("r1").status, commit_count(world)) == ("completed", 5)


def test_b21_b43_c18_c49_the_turn_and_its_question_are_one_commit(world: World) -> None:
    asking(world, "input")
    assert topics(world.last_commit()) == [
        "r1 run.model_responded",
        "r1 run.suspended",
        "c0 checkpoint.opened",
        "r1 run.question_asked",
        "r1 run.parked",
    ]
    assert world.run("r1").parked


def test_b22_b45_a_question_has_the_arguments_and_the_schemas_of_its_call(world: World) -> None:
    world.start()
    world.respond((SIGN, ask("c0", "approval", tool="sign_off", deadline=200.0)))
    question = world.checkpoint("c0").asked
    assert (question.args, question.args_schema, question.tool) == ({"what": "w"}, {"type": "object"}, "sign_off")
    assert (question.run, question.root, question.session, question.call) == ("r1", "r1", "s1", "1.0")
    assert (question.kind, question.prompt, question.deadline) == ("approval", "Well?", 200.0)


def test_c26_an_id_that_is_taken_opens_no_question(world: World) -> None:
    asking(world, "input")
    world.start("r2", "s2")
    refused(world, lambda: world.respond((SIGN, ask("c0")), run_id="r2"), "INPUT_INVALID")


def test_b29_b89_questions_surface_when_the_slow_tool_has_settled(world: World) -> None:
    """B29, C9: each question once, all at once, when everything rests."""
    world.start()
    world.respond((FETCH, Execute()), (SIGN, ask("c1")), (SIGN, ask("c2")))
    assert topics(world.last_commit())[-1] == "c2 checkpoint.opened"
    assert world.run("r1").owner == A
    world.returns("1.0")
    assert world.last_commit()[1:] == [
        ("r1", QuestionAsked(checkpoint="c1")),
        ("r1", QuestionAsked(checkpoint="c2")),
        ("r1", Parked(pending=2)),
    ]


def test_b89_an_early_answer_surfaces_its_question_just_ahead_of_it(world: World) -> None:
    """B29, C39: answerable from the moment it is opened; who watches sees the question before the answer."""
    world.start()
    world.respond((FETCH, Execute()), (SIGN, ask("c1")), (SIGN, ask("c2")))
    world.answer("c2", "early", worker=B)
    assert topics(world.last_commit()) == ["r1 run.question_asked", "c2 checkpoint.claimed", "r1 run.resumed"]
    world.returns("1.0")
    assert world.last_commit()[1:] == [("r1", QuestionAsked(checkpoint="c1")), ("r1", Parked(pending=1))]
    world.answer("c1", "late", worker=B)
    assert topics(world.last_commit()) == ["c1 checkpoint.claimed", "r1 run.resumed"]
    assert (due(world.run("r1"))[0].key, world.run("r1").owner) == (("model", world.run("r1").version), B)


def test_c7_c8_c48_five_same_gates_in_one_turn_are_five_questions(world: World) -> None:
    asking(world, *["input"] * 5)
    for number in (3, 0, 4, 1):
        world.answer(f"c{number}", f"answer {number}")
        assert world.last_commit()[-1][1] == Parked(pending=len(world.run("r1").questions))
        assert due(world.run("r1")) == []
    world.answer("c2", "answer 2")
    assert [type(effect) for effect in due(world.run("r1"))] == [CallModel]
    answers = [event for event in world.events("r1") if isinstance(event, Resumed)]
    assert {event.call: event.response for event in answers} == {f"1.{n}": f"answer {n}" for n in range(5)}


def test_c28_gates_in_sequence_leave_one_result_a_call(world: World) -> None:
    world.start()
    for number in range(3):
        world.respond((ToolUse("sign", number, "same"), ask(f"c{number}")))
        world.answer(f"c{number}", number)
    world.respond(text="Done.")
    answers = [(event.tool_call_id, event.response) for event in world.events("r1") if isinstance(event, Resumed)]
    assert answers == [("same", 0), ("same~8.0", 1), ("same~15.0", 2)]


def test_b52_a_run_may_ask_again_and_again_under_its_one_id(world: World) -> None:
    asking(world, "input").answer("c0")
    world.respond((SIGN, ask("c1")))
    assert (world.run("r1").questions, world.checkpoint("c1").asked.run) == (("c1",), "r1")


def test_a_stale_turn_opens_no_question(world: World) -> None:
    world.start()
    world.take(B, A)
    world.respond((SIGN, ask("c0")), owner=A)
    world.respond((SIGN, ask("c0")), owner=B, base=1)
    assert world.recorded("c0") == ()
    assert world.run("r1").turn == 0


def test_b33_a_turn_of_refused_calls_goes_straight_back_to_the_model(world: World) -> None:
    world.start()
    world.respond((DELETE, Refuse("FORBIDDEN", "denied")))
    assert topics(world.last_commit()) == ["r1 run.model_responded", "r1 run.tool_failed"]
    assert [type(effect) for effect in due(world.run("r1"))] == [CallModel]


def test_c32_who_takes_a_run_approves_nothing(world: World) -> None:
    """C32: a crash while an approval is open, and whoever goes on executes what was running, not what was asked."""
    world.start()
    world.respond((FETCH, Execute(idempotent=True)), (DELETE, ask("c1", "approval")))
    world.take(B, A)
    world.start_intents(B)
    assert [effect.key for effect in due(world.run("r1"))] == [("tool", "1.0", 3)]
    assert not any(isinstance(event, ToolCalled) and event.tool == "delete" for event in world.events("r1"))


# --- answers ----------------------------------------------------------------------------------------------------------


def test_b50_the_claim_and_the_answer_are_one_commit(world: World) -> None:
    assert asking(world, "input").answer("c0", "yes", worker=B) == Answered("r1", "r1")
    assert topics(world.last_commit()) == ["c0 checkpoint.claimed", "r1 run.resumed"]
    answer = world.events("r1")[world.checkpoint("c0").resumed - 1]
    assert isinstance(answer, Resumed)
    assert (answer.response, answer.owner) == ("yes", B)


@pytest.mark.parametrize("again", ["yes", "no"])
def test_b62_c1_c4_a_second_answer_loses_and_leaves_no_trace(world: World, again: str) -> None:
    asking(world, "input", "input").answer("c0", "yes")
    refused(world, lambda: world.answer("c0", again, worker=B), "CHECKPOINT_NOT_FOUND")


def test_c3_a_rejection_is_final(world: World) -> None:
    asking(world, "approval").answer("c0", {"approved": False}, "rejected")
    refused(world, lambda: world.answer("c0", {"approved": True}, "approved"), "CHECKPOINT_NOT_FOUND")
    world.respond(text="Done.")
    refused(world, lambda: world.answer("c0", {"approved": True}, "approved"), "CHECKPOINT_NOT_FOUND")
    assert not any(isinstance(event, ToolCalled) for event in world.events("r1"))


@pytest.mark.parametrize("checkpoint", ["unknown", "", "r1", "session:s1"])
def test_b53_what_is_no_checkpoint_is_not_found(world: World, checkpoint: str) -> None:
    asking(world, "input")
    refused(world, lambda: world.answer(checkpoint), "CHECKPOINT_NOT_FOUND")
    assert world.expire(checkpoint) is False


def test_a_commit_whose_acknowledgement_was_lost_counts(world: World) -> None:
    asking(world, "input").answer("c0", "yes", claim="mine")
    before = world.everything()
    assert world.answer("c0", "yes", claim="mine") == Answered("r1", "r1")
    assert world.everything() == before


def test_b56_a_repeated_answer_with_its_key_gives_the_same_continuation(world: World) -> None:
    asking(world, "input").answer("c0", "yes", key=ONE)
    world.respond(text="Done.")
    before = world.everything()
    assert world.answer("c0", "yes", key=ONE) == Answered("r1", "r1", repeated=True)
    assert world.everything() == before
    refused(world, lambda: world.answer("c0", "no", key=OTHER), "IDEMPOTENCY_CONFLICT")
    other_key = IdempotencyKey(key="order-18", digest="one")
    refused(world, lambda: world.answer("c0", "yes", key=other_key), "CHECKPOINT_NOT_FOUND")


def test_b62_answers_to_two_questions_while_a_tool_runs_all_win(world: World) -> None:
    world.start()
    world.respond((FETCH, Execute()), (SIGN, ask("c1")), (DELETE, ask("c2", "approval")))
    world.answer("c2", {"approved": True}, "approved", worker=B)
    world.answer("c1", "yes", worker=None)
    assert world.run("r1").owner == A
    assert [type(effect) for effect in due(world.run("r1"))] == [StartCalls, CallTool]
    world.start_intents(A)
    world.returns("1.2")
    world.returns("1.0")
    assert [type(effect) for effect in due(world.run("r1"))] == [CallModel]


def test_b59_c40_a_provider_that_fails_after_an_approval_costs_neither_answer_nor_tool(world: World) -> None:
    asking(world, "approval").answer("c0", {"approved": True}, "approved")
    world.returns("1.0", "deleted")
    world.model_fails(None)
    refused(world, lambda: world.answer("c0", {"approved": True}, "approved"), "CHECKPOINT_NOT_FOUND")
    world.retry(worker=B)
    world.respond(text="Done.")
    assert sum(isinstance(event, ToolCalled) for event in world.events("r1")) == 1
    assert world.run("r1").status == "completed"


# --- deadlines --------------------------------------------------------------------------------------------------------


def timed(world: World, kind: Any = "input", on_timeout: JsonValue = None) -> World:
    world.start()
    world.respond((SIGN, ask("c0", kind, deadline=110.0, on_timeout=on_timeout)))
    return world


def test_c59_before_its_deadline_a_question_does_not_expire(world: World) -> None:
    timed(world).at = 109.9
    before = world.everything()
    assert world.expire("c0") is False
    assert world.everything() == before
    assert world.answer("c0") == Answered("r1", "r1")


def test_c59_c58_an_expiry_is_an_answer_of_its_own_and_leaves_a_result(world: World) -> None:
    timed(world).at = 110.0
    assert world.expire("c0", worker=B) is True
    assert topics(world.last_commit()) == ["c0 checkpoint.expired", "r1 run.resumed", "r1 run.tool_failed"]
    assert (world.run("r1").owner, world.checkpoint("c0").status) == (B, "expired")
    assert world.expire("c0") is False
    refused(world, lambda: world.answer("c0"), "CHECKPOINT_NOT_FOUND")


def test_c59_the_answer_for_a_timeout_is_used(world: World) -> None:
    timed(world, on_timeout={"choice": "later"}).at = 110.0
    world.expire("c0")
    [resumed] = [event for event in world.events("r1") if isinstance(event, Resumed)]
    assert (resumed.verdict, resumed.response) == ("expired", {"choice": "later"})


def test_c59_an_answer_after_the_deadline_commits_the_expiry(world: World) -> None:
    timed(world, "approval").at = 110.0
    answered = world.answer("c0", {"approved": True}, "approved", worker=B, key=ONE)
    assert answered == Answered("r1", "r1", expired=True)
    assert topics(world.last_commit()) == ["c0 checkpoint.expired", "r1 run.resumed", "r1 run.tool_failed"]
    assert not any(isinstance(event, ToolCalled) for event in world.events("r1"))
    refused(world, lambda: world.answer("c0", {"approved": True}, "approved", key=ONE), "CHECKPOINT_NOT_FOUND")


def test_c59_an_answer_just_before_the_deadline_wins_over_the_expiry(world: World) -> None:
    timed(world).at = 109.0
    world.answer("c0")
    world.at = 110.0
    before = world.everything()
    assert world.expire("c0") is False
    assert world.everything() == before


def test_c59_an_expiry_before_the_tree_rests_surfaces_the_question(world: World) -> None:
    world.start()
    world.respond((FETCH, Execute()), (SIGN, ask("c0", deadline=110.0)))
    world.at = 110.0
    world.expire("c0", worker=B)
    assert topics(world.last_commit())[:2] == ["r1 run.question_asked", "c0 checkpoint.expired"]
    assert world.run("r1").owner == A


# --- owners and doubt -------------------------------------------------------------------------------------------------


def doubted(world: World) -> World:
    """B has taken a run whose tool A had begun, and asks what happened."""
    world.start()
    world.respond((FETCH, Execute()), (SIGN, ask("c1")))
    world.take(B, A)
    world.doubt(B, "1.0", "d1")
    return world


def test_b48_one_taker_wins(world: World) -> None:
    world.start()
    assert world.take(B, A) is True
    assert world.take("worker-c", A) is False
    assert world.release(A) is False
    assert world.release(B) is True
    assert world.take(A, None) is True


def test_c35_an_unknown_run_is_not_taken(world: World) -> None:
    assert world.take(A, None, run_id="unknown") is False
    assert world.release(A, run_id="unknown") is False


def test_b67_a_doubt_is_a_question_and_the_run_rests(world: World) -> None:
    doubted(world)
    assert topics(world.last_commit()) == [
        "r1 run.suspended",
        "d1 checkpoint.opened",
        "r1 run.question_asked",
        "r1 run.question_asked",
        "r1 run.parked",
    ]
    assert (world.checkpoint("d1").asked.kind, world.checkpoint("d1").asked.args) == ("in_doubt", {"url": "u"})
    before = world.everything()
    world.doubt(B, "1.0", "d2")
    world.doubt(A, "1.0", "d2")
    assert world.everything() == before


def test_b67_a_retry_is_called_once_more(world: World) -> None:
    doubted(world).answer("d1", {"outcome": "retry"}, "retry", worker=B)
    assert topics(world.last_commit()) == ["d1 checkpoint.claimed", "r1 run.resumed", "r1 run.tool_called"]
    [effect] = due(world.run("r1"))
    assert isinstance(effect, CallTool)
    assert (world.run("r1").owner, effect.call.called_at) == (B, world.run("r1").version)


def test_a_late_outcome_settles_the_doubt_and_discards_its_question(world: World) -> None:
    """A was not dead but slow: what it did counts, and nobody need guess any more."""
    doubted(world).returns("1.0", "late")
    assert topics(world.last_commit()) == ["d1 checkpoint.discarded", "r1 run.tool_returned", "r1 run.parked"]
    assert world.run("r1").questions == ("c1",)
    refused(world, lambda: world.answer("d1", {"outcome": "retry"}, "retry"), "CHECKPOINT_NOT_FOUND")


def test_a_late_outcome_that_is_the_last_leaves_the_run_ready(world: World) -> None:
    doubted(world).answer("c1", "yes", worker=B)
    world.raises("1.0", "late")
    run = world.run("r1")
    assert (run.owner, [type(effect) for effect in due(run)]) == (None, [CallModel])
    assert world.take(B, None) is True


def test_a_late_outcome_surfaces_a_doubt_that_nobody_had_seen(world: World) -> None:
    world.start()
    world.respond((FETCH, Execute()), (DELETE, Execute(idempotent=True)))
    world.take(B, A)
    world.doubt(B, "1.0", "d1")
    assert not world.run("r1").surfaced
    world.returns("1.0", "late")
    assert topics(world.last_commit()) == [
        "r1 run.question_asked",
        "d1 checkpoint.discarded",
        "r1 run.tool_returned",
    ]


def test_b67_an_idempotent_call_is_called_again_with_the_same_key(world: World) -> None:
    world.start()
    world.respond((FETCH, Execute(idempotent=True)), (DELETE, Execute()))
    before = [effect.key for effect in due(world.run("r1"))]
    world.take(B, A)
    again, doubt = due(world.run("r1"))
    assert again.key == before[0]
    assert isinstance(doubt, AskDoubt)


def test_a_process_that_woke_up_after_it_was_replaced_does_no_harm(world: World) -> None:
    world.start()
    world.respond((FETCH, Execute()))
    world.take(B, A)
    before = world.everything()
    world.start_intents(A)
    world.respond(text="from the past", owner=A, base=1)
    world.model_fails(None, owner=A)
    world.doubt(A, "1.0", "d1")
    assert world.take(A, None) is False
    assert world.everything() == before


# --- cancel and retry -------------------------------------------------------------------------------------------------


def test_b18_c58_c60_a_cancel_leaves_nothing_pending(world: World) -> None:
    world.start()
    world.respond((FETCH, Execute()), (SIGN, ask("c1")), (DELETE, ask("c2", "approval")))
    assert world.cancel(reason="changed my mind") == "cancelled"
    assert topics(world.last_commit()) == [
        "r1 run.question_asked",
        "c1 checkpoint.discarded",
        "r1 run.question_asked",
        "c2 checkpoint.discarded",
        *["r1 run.tool_failed"] * 3,
        "r1 run.cancelled",
    ]
    assert [event.message for event in world.events("r1") if isinstance(event, ToolFailed)] == ["changed my mind"] * 3
    for checkpoint in ("c1", "c2"):
        refused(world, lambda checkpoint=checkpoint: world.answer(checkpoint), "CHECKPOINT_NOT_FOUND")  # type: ignore[misc]
    before = world.everything()
    world.returns("1.0", "late")
    assert world.cancel() == "cancelled"
    assert world.everything() == before


def test_c60_a_waiting_run_is_cancelled_too(world: World) -> None:
    asking(world, "input")
    assert world.cancel() == "cancelled"
    assert topics(world.last_commit()) == ["c0 checkpoint.discarded", "r1 run.tool_failed", "r1 run.cancelled"]


def test_a_cancel_of_a_run_that_has_ended_changes_nothing(world: World) -> None:
    world.start()
    world.respond(text="Done.")
    assert world.cancel() == "completed"
    assert not any(isinstance(event, RunCancelled) for event in world.events("r1"))


@pytest.mark.parametrize("act", ["cancel", "retry", "respond", "model_fails", "returns", "start_intents", "doubt"])
def test_an_unknown_run_is_not_found(world: World, act: str) -> None:
    asking(world, "input")
    acts: dict[str, Callable[[], object]] = {
        "cancel": lambda: world.cancel("unknown"),
        "retry": lambda: world.retry("unknown"),
        "respond": lambda: commits.record_turn(world, "unknown", None),  # type: ignore[arg-type]
        "model_fails": lambda: commits.record_failure(world, "unknown", None),  # type: ignore[arg-type]
        "returns": lambda: world.returns("1.0", run_id="unknown"),
        "start_intents": lambda: world.start_intents(A, run_id="unknown"),
        "doubt": lambda: world.doubt(A, "1.0", "d1", run_id="unknown"),
    }
    refused(world, acts[act], "RUN_NOT_FOUND")


def test_b59_a_retry_needs_its_session_for_itself(world: World) -> None:
    world.start()
    world.model_fails(None)
    world.start("r2")
    refused(world, world.retry, "SESSION_BUSY")
    world.respond((SIGN, ask("c0")), run_id="r2")
    assert refused(world, world.retry, "SESSION_SUSPENDED").details["checkpoints"] == ["c0"]
    world.cancel("r2")
    world.retry(worker=B)
    assert (world.run("r1").status, world.run("r1").owner) == ("active", B)
    refused(world, world.retry, "RUN_NOT_RETRYABLE")
    refused(world, lambda: world.start("r3"), "SESSION_BUSY")


def test_a_retry_without_a_worker_leaves_the_run_ready(world: World) -> None:
    world.start()
    world.model_fails(None)
    world.retry(worker=None)
    assert (world.run("r1").owner, world.take(B, None)) == (None, True)


# --- sessions that go -------------------------------------------------------------------------------------------------


def test_b73_b76_c58_a_deleted_session_leaves_the_fact_and_nothing_else(world: World) -> None:
    world.start()
    world.respond((SIGN, ask("c0")))
    world.answer("c0", "SECRET")
    world.respond((ToolUse("fetch", "SECRET"), Execute()), (SIGN, ask("c1")))
    assert world.delete() is True
    world.verify()
    assert topics([(one.stream, one.event) for one in world.everything()]) == [
        "c0 bread.erased",
        "c1 checkpoint.discarded",
        "c1 bread.erased",
        "r1 bread.erased",
        "session:s1 session.deleted",
    ]
    assert "SECRET" not in repr(world.everything())
    assert {one.meta.session for one in world.everything()} == {"s1"}
    assert world.owned("s1") == ([], [])


def test_b73_b77_whoever_comes_late_to_a_deleted_session_finds_nothing(world: World) -> None:
    world.start(key=ONE)
    world.respond((FETCH, Execute()), (SIGN, ask("c1")))
    world.delete()
    refused(world, lambda: world.answer("c1"), "CHECKPOINT_NOT_FOUND")
    refused(world, lambda: world.answer("c1", key=ONE), "CHECKPOINT_NOT_FOUND")
    refused(world, lambda: world.returns("1.0"), "RUN_NOT_FOUND")
    refused(world, world.cancel, "RUN_NOT_FOUND")
    refused(world, world.retry, "RUN_NOT_FOUND")
    refused(world, lambda: world.start("r2"), "SESSION_DELETED")
    refused(world, lambda: world.start("r1", "s2"), "INPUT_INVALID")
    assert (world.expire("c1"), world.take(B, A), world.release(A)) == (False, False, False)
    assert world.delete() is False
    assert world.start("r2", "s2", key=ONE) == Started("r2")


def test_b73_an_unknown_session_is_already_gone(world: World) -> None:
    assert world.delete("unknown") is False
    assert world.everything() == []


def test_b73_a_deletion_leaves_other_sessions_alone(world: World) -> None:
    asking(world, "input")
    world.start("r2", "s2")
    world.delete("s2")
    assert world.answer("c0", "yes") == Answered("r1", "r1")


def test_b74_a_cleanup_spares_what_runs_and_takes_what_waits(world: World) -> None:
    world.start()
    before = world.everything()
    assert world.delete(idle_before=1e12) is False
    assert world.everything() == before
    world.respond((SIGN, ask("c0")))
    assert world.delete(idle_before=world.at) is False, "it is as young as that"
    assert world.delete(idle_before=1e12) is True
    assert world.recorded("session:s1")[-1].event.model_dump() == {"reason": "cleanup"}


def test_b74_b75_whether_a_session_is_spared_is_judged_in_the_commit_that_deletes_it(world: World) -> None:
    """What was idle or without questions when it was listed may not be so any more."""
    asking(world, "input").start("other", "s2")
    world.respond(run_id="other", text="Done.")
    world.at = 200.0
    world.answer("c0")
    world.respond((SIGN, ask("c1")))
    before = world.everything()
    assert world.delete(idle_before=150.0) is False
    assert world.delete(idle_before=300.0, keep_pending=True) is False
    assert world.everything() == before
    assert world.delete("s2", idle_before=150.0, keep_pending=True) is True
    assert world.delete(idle_before=300.0) is True


def test_b75_a_dropped_question_is_a_discard(world: World) -> None:
    asking(world, "input").delete()
    assert [event.model_dump() for event in world.events("c0")] == [
        {"reason": "deleted"},
        Erased().model_dump(),
    ]


# --- the log ----------------------------------------------------------------------------------------------------------


def test_b123_events_of_a_tree_are_numbered_without_a_gap(world: World) -> None:
    world.start()
    world.start("other", "s2")
    world.respond((FETCH, Execute()), (SIGN, ask("c1")))
    world.returns("1.0")
    world.respond(run_id="other", text="Done.")
    world.answer("c1")
    assert [recorded.meta.seq for recorded in world.log("r1")] == list(range(1, world.last_seq("r1") + 1))
    assert {recorded.stream for recorded in world.log("r1")} == {"r1", "c1"}
    world.verify()


def test_a_decision_that_raises_late_leaves_no_trace(world: World) -> None:
    """What was appended before the refusal is taken back, states and numbers included."""
    asking(world, "input")

    def half(streams: Streams) -> None:
        commits.answer(streams, "c0", answer_command("c0"), claim="one")
        assert streams.run("r1").has_work
        commits.answer(streams, "c0", answer_command("c0"), claim="two")

    refused(world, lambda: world.commit(half), "CHECKPOINT_NOT_FOUND")
    assert not world.run("r1").has_work
    assert world.answer("c0") == Answered("r1", "r1")
    world.verify()


def test_b51_finished_tools_stay_finished(world: World) -> None:
    """B26, B51, C44: over suspension, crash and answer each plain call has one intent and one result."""
    world.start()
    world.respond((FETCH, Execute()), (FETCH, Execute()), (SIGN, ask("c2")))
    world.returns("1.1")
    world.returns("1.0")
    world.answer("c2", worker=None)
    world.take(B, None)
    world.respond(text="Done.")
    events = world.events("r1")
    assert [event.call for event in events if isinstance(event, ToolCalled)] == ["1.0", "1.1"]
    assert [event.call for event in events if isinstance(event, ToolReturned)] == ["1.1", "1.0"]


@pytest.mark.parametrize("ids", [["x~1.2", "x", "x"], ["call_1.1", ""], ["", ""], ["x", "x~1.1", "x"]])
def test_b29_ids_that_look_like_ours_stay_apart(world: World, ids: list[str]) -> None:
    """B29: whatever ids a provider gives, each call has its own."""
    world.start()
    world.respond(*[(ToolUse("tool_work", None, one), Execute()) for one in ids])
    assert len({call.id for call in world.run("r1").calls}) == len(ids)


def test_c56_a_late_outcome_settles_a_call_that_is_to_be_made_again(world: World) -> None:
    """G67: an outcome that is known is not thrown away, and the tool does not run a second time."""
    world.start()
    world.respond((ToolUse("tool_work", None), Execute()))
    world.take(B, A)
    world.doubt(B, "1.0", "d1")
    world.answer("d1", {"outcome": "retry"}, "retry", worker=None)
    world.returns("1.0", "late")
    assert world.run("r1").calls[0].status == "settled"


def test_b59_an_attempt_may_be_due_at_the_epoch() -> None:
    """B59: a moment of 0 is a moment."""
    world = World(at=0.0)
    world.start()
    world.model_fails(0.0)
    assert world.run("r1").status == "active"
