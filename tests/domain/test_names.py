"""Names, session ids and tags."""

from typing import Any

import pytest

from bread.domain.errors import InvalidInput
from bread.domain.names import check_name, check_session_id, check_tags, model_name


@pytest.mark.parametrize("name", ["a", "fetch_draft", "v2", "a" * 64])
def test_b13_snake_case_is_a_name(name: str) -> None:
    assert check_name(name, "tool") == name


@pytest.mark.parametrize(
    "name",
    ["", "Fetch", "2nd", "_private", "fetch-draft", "fetch draft", "über", "a/b", "a.b", "a\n", "a" * 65, 7, None],
)
def test_b13_anything_else_is_not(name: Any) -> None:
    with pytest.raises(InvalidInput, match="INVALID_NAME") as caught:
        check_name(name, "tool")
    assert "tool" in caught.value.message


def test_b13_a_model_sees_the_scope_in_front() -> None:
    assert model_name("human", "approve_publish") == "human_approve_publish"
    assert model_name("skill", "lint", "review") == "skill_review_lint"


@pytest.mark.parametrize("session", ["s1", "order 17", "kunde:é/#", "x" * 200])
def test_b3_a_session_id_is_the_users_own(session: str) -> None:
    assert check_session_id(session) == session


@pytest.mark.parametrize("session", ["", " ", " s1", "s1 ", "a\nb", "a\x00b", "\u200b", "x" * 201, None, 5])
def test_an_id_that_nobody_can_see_or_type_is_refused(session: Any) -> None:
    with pytest.raises(InvalidInput, match="INPUT_INVALID"):
        check_session_id(session)


def test_tags_are_pairs_of_short_texts() -> None:
    tags = {f"key-{number}": "x" * 200 for number in range(32)}
    assert check_tags(tags) == tags
    assert check_tags({}) == {}


@pytest.mark.parametrize(
    "tags",
    [{"": "x"}, {"x": ""}, {"x": "y" * 201}, {"x": 1}, {1: "x"}, {str(number): "x" for number in range(33)}],
    ids=["no key", "no value", "long", "number", "number as key", "many"],
)
def test_other_tags_are_refused(tags: Any) -> None:
    with pytest.raises(InvalidInput, match="INPUT_INVALID"):
        check_tags(tags)
