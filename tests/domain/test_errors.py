"""The error tree: one code an error, the same in every process."""

import pickle
import re

import pytest

from bread.domain import errors
from bread.domain.errors import (
    BreadError,
    InvalidInput,
    NotFound,
    Refused,
    RunSuspended,
    StoreUnavailable,
    StoreUnreadable,
    checkpoint_not_found,
    response_invalid,
    run_not_found,
    session_not_found,
)

EVERY: list[BreadError] = [
    InvalidInput("INPUT_INVALID", "no", problems=["a"]),
    checkpoint_not_found("c1"),
    run_not_found("r1"),
    session_not_found("s1"),
    response_invalid("no", ["args.url"]),
    Refused("SESSION_BUSY", "no", session_id="s1"),
    RunSuspended("r1", ["c1", "c2"]),
    StoreUnavailable("not now", key="k"),
    StoreUnreadable("EVENT_UNKNOWN", "no", topic="x@1"),
]
each = pytest.mark.parametrize("error", EVERY, ids=lambda error: str(error.code))


@each
def test_an_error_is_a_code_and_a_sentence(error: BreadError) -> None:
    assert re.fullmatch(r"[A-Z]+(_[A-Z]+)+", error.code)
    assert str(error) == f"{error.code}: {error.message}"
    assert error.args == (error.message,)


@each
def test_an_error_comes_whole_out_of_another_process(error: BreadError) -> None:
    copy = pickle.loads(pickle.dumps(error))  # noqa: S301
    assert type(copy) is type(error)
    assert (copy.code, copy.message, dict(copy.details)) == (error.code, error.message, dict(error.details))
    assert str(copy) == str(error)


@each
def test_b129_details_are_plain_and_hold_no_cause(error: BreadError) -> None:
    assert all(isinstance(value, str | list) for value in error.details.values())


def test_a_suspended_run_names_its_checkpoints() -> None:
    """B2: who awaits a run that comes to rest hears which questions can be answered."""
    error = RunSuspended("r1", ("c1", "c2"))
    assert (error.code, error.run_id, error.checkpoints) == ("RUN_SUSPENDED", "r1", ["c1", "c2"])
    assert "c1, c2" in error.message


def test_an_unanswering_store_has_one_code() -> None:
    assert StoreUnavailable("not now").code == "STORE_UNAVAILABLE"


def test_b53_there_is_one_answer_for_whatever_cannot_be_answered() -> None:
    error = checkpoint_not_found("c1")
    assert isinstance(error, NotFound)
    assert (error.code, error.details) == ("CHECKPOINT_NOT_FOUND", {"checkpoint_id": "c1"})


def test_every_class_stands_in_the_drawing() -> None:
    drawn = set(re.findall(r"── (\w+)", errors.__doc__ or ""))
    assert {kind.__name__ for kind in BreadError.__subclasses__() if kind.__module__ == errors.__name__} == drawn
