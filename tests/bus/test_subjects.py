"""The names on NATS: any name of ours is a token, and is read back; patterns mean what they say."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bread import InvalidInput
from bread.runtime.ids import new_id
from bread.transport.subjects import KEPT, Kind, Place, events_subject, name_of, pattern, place_of, subject, token

NAMES = st.text(max_size=40)
PLACES = st.builds(Place, NAMES, NAMES, NAMES, NAMES, NAMES)
KINDS = st.sampled_from(["crumbs", "human", "live"])


def matches(wanted: str, text: str) -> bool:
    """As NATS does: `*` is one token, `>` at the end one or more."""
    parts, tokens = wanted.split("."), text.split(".")
    if parts[-1] == ">":
        parts, tokens = parts[:-1], tokens[: len(parts) - 1] if len(tokens) >= len(parts) else []
    return len(parts) == len(tokens) and all(p in ("*", t) for p, t in zip(parts, tokens, strict=True))


@given(NAMES)
def test_any_name_is_a_token_and_is_read_back(name: str) -> None:
    part = token(name)
    assert re.fullmatch(r"[A-Za-z0-9_=-]+", part)
    assert name_of(part) == name


@given(NAMES, NAMES)
def test_different_names_have_different_tokens(one: str, other: str) -> None:
    assert (token(one) == token(other)) == (one == other)


def test_what_is_usual_stays_as_it_is() -> None:
    for name in ("default", "publisher", new_id("run"), "House-7_b"):
        assert token(name) == name
    assert token("a.b c") == "a=2Eb=20c"
    assert token("") == "="
    assert token("\ud800") == "=ED=A0=80"


@pytest.mark.parametrize("part", ["", "a.b", "*", ">", "a=", "a=2", "=2e", "a b", "=FF", "=2Ea="])
def test_what_is_no_token_is_refused(part: str) -> None:
    with pytest.raises(InvalidInput, match="INPUT_INVALID"):
        name_of(part)


@given(KINDS, PLACES)
def test_a_subject_is_read_back(kind: Kind, place: Place) -> None:
    text = subject(kind, place)
    assert place_of(text) == (kind, place)
    assert len(text.split(".")) == 8
    assert any(matches(one, text) for one in KEPT) == (kind != "live")
    assert not any(matches(one, events_subject(place.tenant, place.root)) for one in KEPT)


@pytest.mark.parametrize(
    "text", ["bread.v1.t.crumbs.a.s.r", "bread.v2.t.crumbs.a.s.r.r", "bread.v1.t.events.a.s.r.r", "x.v1.t.live.a.s.r.r"]
)
def test_what_is_no_subject_of_ours_is_refused(text: str) -> None:
    with pytest.raises(InvalidInput, match="INPUT_INVALID"):
        place_of(text)


@given(KINDS, PLACES, PLACES, st.sets(st.sampled_from(Place._fields)))
def test_a_pattern_is_for_what_it_names(kind: Kind, place: Place, other: Place, named: set[str]) -> None:
    wanted = pattern(kind, **{name: getattr(place, name) for name in named})
    assert matches(wanted, subject(kind, place))
    assert matches(wanted, subject(kind, other)) == all(getattr(place, n) == getattr(other, n) for n in named)


def test_patterns_are_short() -> None:
    """As people write them."""
    assert pattern("human") == "bread.v1.*.human.>"
    assert pattern("crumbs", tenant="default", agent="clerk") == "bread.v1.default.crumbs.clerk.>"
    assert pattern("crumbs", root="run_1") == "bread.v1.*.crumbs.*.*.run_1.>"
    assert pattern("crumbs", run="run_1") == "bread.v1.*.crumbs.*.*.*.run_1"
