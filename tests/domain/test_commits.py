"""The commits: which events become true together, and what a refusal leaves behind (nothing)."""

import pytest

from bread.domain.checkpoint import IdempotencyKey
from bread.domain.commits import Answered, Started
from bread.domain.messages import ToolUse
from bread.domain.plans import Execute, Refuse
from bread.domain.run_events import Parked, QuestionAsked, Resumed, ToolCalled
from bread.domain.run_state import CallModel, CallTool, StartCalls, due

from .committing import ONE, OTHER, asking, refused, topics
from .support import DELETE, FETCH, SIGN, A, B, World, ask


def commit_count(world: World) -> int:
    return len({recorded.meta.commit for recorded in world.everything()})


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
