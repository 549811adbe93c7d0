"""What an answer means. Nothing but the boolean true approves."""

from typing import Any

import jsonschema
import pytest

from bread.domain import answers
from bread.domain.answers import IN_DOUBT_SCHEMA, approval_schema, verdict_of
from bread.domain.checkpoint import CheckpointKind
from bread.domain.errors import InvalidInput
from bread.domain.events import JsonValue


def check(response: Any, schema: JsonValue) -> None:
    jsonschema.Draft202012Validator(schema).validate(response)  # type: ignore[arg-type]


KINDS: list[CheckpointKind] = ["input", "approval", "in_doubt"]


@pytest.mark.parametrize("kind", KINDS)
def test_b27_b58_c31_null_is_no_answer(kind: CheckpointKind) -> None:
    with pytest.raises(InvalidInput, match="RESPONSE_INVALID"):
        verdict_of(kind, None)


@pytest.mark.parametrize("response", ["", 0, False, [], {}, "yes", {"approved": False}])
def test_b27_any_other_value_answers_a_human_tool(response: Any) -> None:
    assert verdict_of("input", response) == "answered"


@pytest.mark.parametrize(
    "response",
    [
        {"approved": True},
        {"approved": True, "args": {"url": "https://y.test"}},
        {"approved": True, "reason": "fine", "comment": "go on"},
        {"approved": True, "reason": None},
    ],
)
def test_b36_c30_true_approves_with_or_without_edited_arguments(response: Any) -> None:
    assert verdict_of("approval", response) == "approved"
    check({k: v for k, v in response.items() if v is not None}, approval_schema({"type": "object"}))


@pytest.mark.parametrize(
    "response",
    [{"approved": true} for true in (False, 1, 1.0, "true", "yes", None, [True], {"approved": True})]
    + [{"reason": "no"}, {"approve": True}, {"Approved": True}, {"approved": False, "args": {}, "more": 1}],
    ids=str,
)
def test_b37_c31_any_other_object_rejects(response: Any) -> None:
    assert verdict_of("approval", response) == "rejected"


@pytest.mark.parametrize("response", ["", "yes", True, 1, [], [{"approved": True}], {}], ids=repr)
def test_b37_b58_c31_what_is_no_object_or_empty_is_no_answer(response: Any) -> None:
    with pytest.raises(InvalidInput, match="RESPONSE_INVALID"):
        verdict_of("approval", response)


def test_b36_any_other_key_beside_an_approval_is_refused_by_name() -> None:
    with pytest.raises(InvalidInput, match="RESPONSE_INVALID") as caught:
        verdict_of("approval", {"approved": True, "arguments": {}, "until": 1})
    assert caught.value.details["problems"] == ["arguments", "until"]


@pytest.mark.parametrize("key", ["reason", "comment"])
@pytest.mark.parametrize("approved", [True, False])
def test_b36_b37_reasons_and_comments_are_text(key: str, approved: bool) -> None:
    with pytest.raises(InvalidInput, match="RESPONSE_INVALID"):
        verdict_of("approval", {"approved": approved, key: {"no": "text"}})


@pytest.mark.parametrize(
    ("response", "verdict"),
    [
        ({"outcome": "happened", "result": None}, "happened"),
        ({"outcome": "happened", "result": {"id": 7}}, "happened"),
        ({"outcome": "retry"}, "retry"),
        ({"outcome": "failed", "error": "it was down"}, "failed"),
    ],
)
def test_b67_a_person_says_what_happened(response: Any, verdict: str) -> None:
    assert verdict_of("in_doubt", response) == verdict
    check(response, IN_DOUBT_SCHEMA)


@pytest.mark.parametrize(
    "response",
    [
        "retry",
        True,
        [],
        {},
        {"approved": True},
        {"outcome": "maybe"},
        {"outcome": None},
        {"outcome": "happened"},
        {"outcome": "retry", "result": 1},
        {"outcome": "failed"},
        {"outcome": "failed", "error": 7},
        {"outcome": "happened", "result": 1, "error": "both"},
    ],
    ids=repr,
)
def test_b67_nothing_else_is_understood(response: Any) -> None:
    with pytest.raises(InvalidInput, match="RESPONSE_INVALID"):
        verdict_of("in_doubt", response)
    with pytest.raises(jsonschema.ValidationError):
        check(response, IN_DOUBT_SCHEMA)


def test_schemas_are_schemas() -> None:
    for schema in (IN_DOUBT_SCHEMA, approval_schema({"type": "object"})):
        jsonschema.Draft202012Validator.check_schema(schema)  # type: ignore[arg-type]


def test_the_names_beside_an_approval_are_those_of_the_schema() -> None:
    properties: Any = approval_schema({})
    assert set(properties["properties"]) == answers.APPROVAL_KEYS
