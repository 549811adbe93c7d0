"""Checkpoint, given / when / then: one question, at most one claim."""

import pytest

from bread.domain.checkpoint import (
    CheckpointClaimed,
    CheckpointDiscarded,
    CheckpointEvent,
    CheckpointExpired,
    CheckpointOpened,
    Claim,
    Discard,
    Expire,
    IdempotencyKey,
    Open,
)
from bread.domain.events import Erased
from bread.runtime.kit import checkpoint_decider, given

CHECKPOINT = checkpoint_decider("c1")
OPENED = CheckpointOpened(
    kind="approval",
    run="r1",
    root="r1",
    session="s1",
    agent="publisher",
    call="1.0",
    tool="delete_page",
    tool_call_id="x",
    args={"url": "https://x.test"},
    args_schema={"type": "object"},
    prompt="Delete it?",
    deadline=200.0,
)
CLAIMED = CheckpointClaimed(claim="one", resumed=5)
OVER: list[CheckpointEvent] = [
    CLAIMED,
    CheckpointExpired(resumed=5),
    CheckpointDiscarded(reason="cancelled"),
]
over = pytest.mark.parametrize("over", OVER, ids=lambda event: event.NAME)


def test_b45_a_question_is_kept_as_it_was_asked() -> None:
    state = given(CHECKPOINT).when(Open(OPENED)).then(OPENED).state
    assert (state.status, state.question, state.asked) == ("pending", OPENED, OPENED)


def test_b38_the_kind_is_stored_and_not_guessed() -> None:
    assert given(CHECKPOINT, OPENED).state.asked.kind == "approval"


def test_an_id_is_used_once() -> None:
    given(CHECKPOINT, OPENED).when(Open(OPENED)).raises("INPUT_INVALID")


def test_b50_c4_a_claim_is_the_append_of_the_answer_and_the_second_one_loses() -> None:
    claimed = given(CHECKPOINT, OPENED).when(Claim("one", 5, "fine", None))
    history = claimed.then(CheckpointClaimed(claim="one", resumed=5, comment="fine"))
    assert history.when(Claim("two", 5, None, None)).raises("CHECKPOINT_NOT_FOUND").details == {"checkpoint_id": "c1"}
    assert (history.state.status, history.state.claim, history.state.resumed) == ("claimed", "one", 5)


def test_a_claim_that_is_already_true_gives_nothing() -> None:
    given(CHECKPOINT, OPENED, CLAIMED).when(Claim("one", 9, None, None)).then()


def test_b56_the_key_of_a_claim_is_kept() -> None:
    key = IdempotencyKey(key="k", digest="d")
    assert given(CHECKPOINT, OPENED).when(Claim("one", 5, None, key)).after.state.key == key


@over
def test_c3_c26_what_is_over_cannot_be_claimed(over: CheckpointEvent) -> None:
    given(CHECKPOINT, OPENED, over).when(Claim("two", 9, None, None)).raises("CHECKPOINT_NOT_FOUND")


def test_b53_an_unknown_checkpoint_cannot_be_claimed() -> None:
    given(CHECKPOINT).when(Claim("one", 5, None, None)).raises("CHECKPOINT_NOT_FOUND")
    with pytest.raises(Exception, match="CHECKPOINT_NOT_FOUND"):
        _ = given(CHECKPOINT).state.asked


@over
def test_c59_what_is_over_neither_expires_nor_is_discarded(over: CheckpointEvent) -> None:
    history = given(CHECKPOINT, OPENED, over)
    history.when(Expire(300.0, 9)).then()
    history.when(Discard("deleted")).then()


@pytest.mark.parametrize(("at", "due"), [(199.9, False), (200.0, True), (300.0, True)])
def test_c59_a_question_expires_at_its_deadline(at: float, due: bool) -> None:
    history = given(CHECKPOINT, OPENED)
    assert history.state.is_due(at) is due
    history.when(Expire(at, 7)).then(*[CheckpointExpired(resumed=7)] * due)


def test_without_a_deadline_a_question_waits_for_ever() -> None:
    history = given(CHECKPOINT, OPENED.model_copy(update={"deadline": None}))
    assert not history.state.is_due(1e12)
    history.when(Expire(1e12, 7)).then()


def test_c60_a_discarded_question_says_why() -> None:
    history = given(CHECKPOINT, OPENED).when(Discard("cancelled")).then(CheckpointDiscarded(reason="cancelled"))
    history.when(Discard("deleted")).then()


@pytest.mark.parametrize("left", [[Erased()], [CheckpointDiscarded(reason="deleted"), Erased()]], ids=len)
def test_b73_a_tombstone_alone_is_not_found_and_takes_no_question(left: list[CheckpointEvent | Erased]) -> None:
    history = given(CHECKPOINT, *left)
    history.when(Claim("one", 5, None, None)).raises("CHECKPOINT_NOT_FOUND")
    history.when(Open(OPENED)).raises("INPUT_INVALID")
    history.when(Expire(1e12, 5)).then()
    history.when(Discard("deleted")).then()
