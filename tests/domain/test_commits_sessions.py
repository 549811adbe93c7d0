"""Commits of sessions that go, and the log that all commits write."""

import pytest

from bread.domain import commits
from bread.domain.commits import Answered, Started
from bread.domain.events import Erased
from bread.domain.messages import ToolUse
from bread.domain.plans import Execute
from bread.domain.run_events import ToolCalled, ToolReturned
from bread.domain.streams import Streams

from .committing import ONE, asking, refused, topics
from .support import FETCH, SIGN, A, B, World, answer_command, ask

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
