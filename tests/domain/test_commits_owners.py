"""Commits about deadlines, owners and doubt, cancels and retries."""

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest

from bread.domain import commits
from bread.domain.commits import MOST_DEATHS, Answered
from bread.domain.events import JsonValue
from bread.domain.plans import Execute
from bread.domain.run_events import Resumed, RunCancelled, RunFailed, ToolCalled, ToolFailed
from bread.domain.run_state import AskDoubt, CallModel, CallTool, due

from .committing import ONE, asking, refused, topics
from .support import DELETE, FETCH, SIGN, A, B, World, ask

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


def dying(world: World, times: int) -> World:
    """Owners of r1, of whom so many have died one after the other."""
    owners = [A, *(f"worker-{n}" for n in range(times))]
    for before, after in pairwise(owners):
        assert world.take(after, before) is True
    return world


def test_a_run_that_kills_ten_owners_fails_and_a_retry_begins_anew(world: World) -> None:
    world.start()
    world.respond((FETCH, Execute()), (SIGN, ask("c1")))
    dying(world, MOST_DEATHS - 1)
    last = world.run("r1").owner
    assert last is not None
    before = world.everything()
    assert world.take(B, "not the one that died") is False
    assert world.everything() == before
    assert world.take(B, last) is False
    assert topics(world.last_commit())[-2:] == ["r1 run.tool_failed", "r1 run.failed"]
    assert world.checkpoint("c1").status == "discarded"
    [failed] = [event for event in world.events("r1") if isinstance(event, RunFailed)]
    assert (failed.code, failed.message) == (
        "AGENT_ERROR",
        "10 processes died one after the other while they performed it",
    )
    world.retry(worker=A)
    assert (world.run("r1").owner, world.run("r1").deaths) == (A, 0)
    assert world.take(B, A) is True


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
