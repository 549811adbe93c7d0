"""Bytes: what is stored comes back as it was, and what is not ours is refused by name."""

from __future__ import annotations

import os
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bread.domain.checkpoint import CheckpointDiscarded, CheckpointOpened
from bread.domain.envelope import APP, Meta, Principal, Recorded
from bread.domain.errors import InvalidInput, StoreUnreadable
from bread.domain.events import Event, JsonValue, finite, topic_of
from bread.domain.messages import ToolUse, native_message, read_turn
from bread.domain.run_events import ModelResponded, Resumed, RunStarted, ToolFailed, ToolReturned, Usage
from bread.transport.codec import decode_event, encode_event, pack, stored_form, unpack
from bread.transport.cursor import MAX_LIVE, Cursor, parse_cursor
from support import trials

often = settings(
    max_examples=trials(60, 2000),
    derandomize=os.environ.get("BREAD_TRIALS", "1") == "1",
    database=None,
    deadline=None,
)

# JSON as models and people write it: integers without a bound, halves of surrogate pairs, every float.
texts = st.text(st.characters(codec=None, exclude_categories=()))
scalars = st.none() | st.booleans() | st.integers() | st.integers(-(10**400), 10**400) | st.floats() | texts
values: st.SearchStrategy[Any] = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(texts, inner, max_size=4), max_leaves=20
)
principals = st.builds(Principal, kind=st.sampled_from(["user", "app", "system"]), id=texts)
metas = st.builds(
    Meta,
    at=st.floats(0, 4e9),
    by=principals,
    commit=texts,
    seq=st.integers(1, 10**9),
    root=st.sampled_from(["run_1", "run_root"]),
    session=st.none() | texts,
    cause=st.none() | texts,
    worker=st.none() | texts,
    tenant=st.sampled_from(["default", "acme"]),
    traceparent=st.none() | texts,
)


def exact(value: Any) -> Any:
    """A value with its types, so that 1, 1.0 and True, 0.0 and -0.0 differ and NaN equals itself."""
    if isinstance(value, dict):
        return [(key, exact(inner)) for key, inner in value.items()]
    if isinstance(value, list):
        return [exact(inner) for inner in value]
    return type(value), value.hex() if isinstance(value, float) else value


def back(event: Event, meta: Meta, stream: str = "run_1") -> Recorded:
    """An event as it comes back from the store; its bytes are the same when it is stored once more."""
    topic, state = stored_form(Recorded(stream, 3, event, meta, 7))
    found = decode_event(stream, 3, topic, state, 7)
    assert (found.stream, found.version, found.position) == (stream, 3, 7)
    assert stored_form(found) == (topic, state)
    return found


META = Meta(at=12.5, by=APP, commit="c_1", seq=4, root="run_1", session="s1", worker="w_a")


@often
@given(values)
def test_every_json_value_comes_back_as_it_was(value: JsonValue) -> None:
    """C43: with its types, however big, broken or deep."""
    assert exact(unpack(pack(value))) == exact(value)


@often
@given(values, values, metas)
def test_every_payload_of_an_event_comes_back_as_it_was(value: JsonValue, other: JsonValue, meta: Meta) -> None:
    """C23, C43, B28: inputs, arguments, results, answers and schemas, with the facts of their commit."""
    found = back(RunStarted(agent="a", input=value, session="s", root="r", started=1.5), meta)
    assert isinstance(found.event, RunStarted)
    assert exact(found.event.input) == exact(value)
    assert found.meta == meta
    message = native_message("said", (ToolUse("tool_x", value, "id_1"), ToolUse("tool_y", other)))
    turn = back(ModelResponded(turn=0, base=1, message=message, model="m", finish="stop"), meta).event
    assert isinstance(turn, ModelResponded)
    # A model's arguments are JSON, which has no NaN: what a provider says instead is kept as text.
    assert [exact(call.args) for call in read_turn(turn.message).calls] == [exact(finite(value)), exact(finite(other))]
    result = back(ToolReturned(call="1.0", tool="t", tool_call_id="x", result=value), meta).event
    assert exact(getattr(result, "result", None)) == exact(value)
    resumed = back(
        Resumed(
            call="1.0",
            tool="t",
            tool_call_id="x",
            checkpoint="cp_1",
            kind="approval",
            verdict="approved",
            response={"approved": True, "args": value},
        ),
        meta,
    ).event
    assert exact(getattr(resumed, "response", None)) == exact({"approved": True, "args": value})
    opened = back(question(args=value, args_schema=other, on_timeout=value), meta, "cp_1").event
    assert isinstance(opened, CheckpointOpened)
    assert [exact(part) for part in (opened.args, opened.args_schema, opened.on_timeout)] == [
        exact(value),
        exact(other),
        exact(value),
    ]


def question(**fields: Any) -> CheckpointOpened:
    asked = {
        "kind": "input",
        "run": "r",
        "root": "r",
        "session": "s",
        "agent": "a",
        "call": "1.0",
        "tool": "t",
        "tool_call_id": "x",
        "args": {},
        "args_schema": {},
        "prompt": "Go?",
    }
    return CheckpointOpened(**(asked | fields))


EDGES = ["x", 0, -1, 2**63, 2**64, -(2**63) - 1, 10**4000, float("inf"), -0.0, "\ud83d", "\0"]


@pytest.mark.parametrize("value", EDGES, ids=lambda value: ascii(value)[:20])
def test_values_at_the_edges_come_back(value: JsonValue) -> None:
    """C43: also as a key where it is text, and a hundred levels deep."""
    nested: JsonValue = value
    for _ in range(100):
        nested = {value: nested} if isinstance(value, str) else [nested]
    found = back(ToolReturned(call="1.0", tool="t", tool_call_id="x", result=nested), META).event
    assert exact(getattr(found, "result", None)) == exact(nested)


def test_the_envelope_is_format_facts_and_data_apart() -> None:
    """B45: `[1, meta, data]`, data as bytes of its own; who, when and where are read without it."""
    event = ToolFailed(call="1.0", tool="t", tool_call_id="x", code="TOOL_ERROR", message="broken", duration_ms=2.5)
    meta = Meta(9.5, Principal(kind="user", id="ann"), "c_1", 4, "run_root", "s1", "cmd_1", "w_a", "acme", "00-ab")
    form, facts, data = unpack(encode_event("run_1", event, meta))
    assert form == 1
    assert facts == {
        "at": 9.5,
        "by": ["user", "ann"],
        "commit": "c_1",
        "seq": 4,
        "root": "run_root",
        "session": "s1",
        "cause": "cmd_1",
        "worker": "w_a",
        "traceparent": "00-ab",
        "tenant": "acme",
    }
    assert isinstance(data, bytes)
    assert unpack(data) == event.model_dump()
    sealed = pack([form, facts, b"\xde\xad"])
    assert unpack(sealed)[1] == facts


def test_what_holds_its_default_takes_no_room() -> None:
    """C20: neither in the facts nor in the data; it comes back as the default."""
    event = Resumed(call="1.0", tool="t", tool_call_id="x", checkpoint="cp_1", kind="input", verdict="answered")
    _, facts, data = unpack(encode_event("run_1", event, Meta(1.0, APP, "c_1")))
    assert facts == {"at": 1.0, "by": ["app", "local"], "commit": "c_1"}
    assert set(unpack(data)) == {"call", "tool", "tool_call_id", "checkpoint", "kind", "verdict"}
    assert back(event, Meta(1.0, APP, "c_1")) == Recorded("run_1", 3, event, Meta(1.0, APP, "c_1"), 7)
    usage = Usage(input_tokens=0, output_tokens=3)
    turn = ModelResponded(turn=0, base=1, message=native_message("x"), model="m", finish="stop", usage=usage)
    assert back(turn, META).event == turn


def test_a_number_without_a_root_is_in_the_streams_own_tree() -> None:
    """B123: the root of a root's own events is not written down again."""
    _, facts, _ = unpack(encode_event("run_1", CheckpointDiscarded(reason="failed"), META))
    assert "root" not in facts
    assert back(CheckpointDiscarded(reason="failed"), META).meta.root == "run_1"
    child = Meta(12.5, APP, "c_1", 4, "run_1", "s1")
    assert back(CheckpointDiscarded(reason="failed"), child, "cp_1").meta.root == "run_1"
    unnumbered = Meta(12.5, APP, "c_1", 0, None, "s1")
    assert back(CheckpointDiscarded(reason="failed"), unnumbered, "session:s1").meta.root is None


def test_fields_of_a_newer_release_are_kept() -> None:
    """C37: an event with more than this release knows is read, and what is more stays with it."""
    _, facts, data = unpack(encode_event("run_1", CheckpointDiscarded(reason="failed"), META))
    newer = pack([1, facts, pack(unpack(data) | {"by_whom": {"name": "ann"}})])
    found = decode_event("run_1", 3, "checkpoint.discarded@1", newer)
    assert found.event.model_extra == {"by_whom": {"name": "ann"}}
    assert stored_form(found) == ("checkpoint.discarded@1", newer)


def refused(topic: str, state: bytes) -> str:
    with pytest.raises(StoreUnreadable) as error:
        decode_event("run_1", 3, topic, state)
    return error.value.code


GOOD = encode_event("run_1", CheckpointDiscarded(reason="failed"), META)
FACTS = {"at": 1.0, "by": ["app", "x"], "commit": "c"}


TOPICS = ["", "@", "@1", "checkpoint.discarded", "os.system@1", "bread.domain.checkpoint:CheckpointDiscarded"]
TOPICS += [f"checkpoint.discarded@{version}" for version in ("", "2", "0", "-1", "x", "1.0", "\u00b9", " 1", "9" * 12)]


@pytest.mark.parametrize("topic", TOPICS, ids=ascii)
def test_an_unknown_name_or_version_is_said_to_be_one(topic: str) -> None:
    """C37, C43: EVENT_UNKNOWN, and nothing is imported because a row names it."""
    assert refused(topic, GOOD) == "EVENT_UNKNOWN"


MALFORMED = {
    "nothing": b"",
    "no msgpack": b"\xc1",
    "cut short": GOOD[:-1],
    "too long": GOOD + b"\0",
    "an unhashable key": b"\x81\x90\x01",
    "too deep": b"\x91" * 5000,
    "an unknown extension": b"\xd4\x05\x00",
    "no number": b"\xd4\x01x",
    "no text": b"\xa1\xff",
    "a bare value": pack("text"),
    "a map": pack({}),
    "too few parts": pack([1, FACTS]),
    "too many parts": pack([1, FACTS, b"", 0]),
    "format 0": pack([0, FACTS, pack({})]),
    "format 2": pack([2, FACTS, pack({})]),
    "format '1'": pack(["1", FACTS, pack({})]),
    "no facts": pack([1, {}, pack({})]),
    "facts that are no map": pack([1, [], pack({})]),
    "facts that are nothing": pack([1, None, pack({})]),
    "a principal that is none": pack([1, FACTS | {"by": 5}, pack({})]),
    "half a principal": pack([1, FACTS | {"by": ["app"]}, pack({})]),
    "a principal of another shape": pack([1, FACTS | {"by": ["app", []]}, pack({})]),
    "data that is text": pack([1, FACTS, "text"]),
    "data that is a map": pack([1, FACTS, {"reason": "failed"}]),
    "data that is no msgpack": pack([1, FACTS, b"\xc1"]),
}


@pytest.mark.parametrize("what", MALFORMED)
def test_malformed_bytes_are_said_to_be_malformed(what: str) -> None:
    """C43: PROTOCOL_DECODE_ERROR for what is no envelope of a format that this release knows."""
    assert refused("checkpoint.discarded@1", MALFORMED[what]) == "PROTOCOL_DECODE_ERROR"


UNFIT = [[], None, "x", 5, {}, {"reason": "boredom"}, {"reason": None}, {1: 2}, [["reason", "failed"]]]


@pytest.mark.parametrize("data", UNFIT, ids=ascii)
def test_data_that_does_not_fit_its_event_is_said_not_to(data: Any) -> None:
    """C43: STORE_INVALID names the event, not the data."""
    assert refused("checkpoint.discarded@1", pack([1, FACTS, pack(data)])) == "STORE_INVALID"


@often
@given(st.binary(max_size=60) | st.builds(lambda v: pack(v), values))
def test_any_bytes_are_an_event_or_unreadable(state: bytes) -> None:
    """C43: no other error gets out."""
    for form in (state, pack([1, FACTS, state])):
        with pytest.raises(StoreUnreadable):
            decode_event("run_1", 3, "checkpoint.opened@1", form)


@often
@given(st.integers(0, 10**6), st.binary(min_size=1, max_size=4))
def test_damage_anywhere_is_an_event_or_unreadable(place: int, wrong: bytes) -> None:
    """C43: a few bytes that went wrong in a stored event raise nothing but StoreUnreadable."""
    event = question(args={"n": [1, 2.5, None, "x", 10**30]}, deadline=5.0)
    state = bytearray(encode_event("cp_1", event, META))
    place %= len(state)
    state[place : place + len(wrong)] = wrong
    try:
        found = decode_event("cp_1", 1, topic_of(event), bytes(state))
    except StoreUnreadable:
        return
    assert isinstance(found.event, CheckpointOpened)


@pytest.mark.parametrize("value", [object(), {1, 2}, {"x": [object()]}, 1j])
def test_what_is_no_json_cannot_be_packed(value: Any) -> None:
    """C43: it raises instead of storing something else."""
    with pytest.raises(TypeError):
        pack(value)


# --- cursors ----------------------------------------------------------------------------------------------------------


@st.composite
def cursors(draw: st.DrawFn) -> Cursor:
    seq = draw(st.integers(0, 10**15 - 1))
    lengths = st.integers(1, 10**15 - 1)
    return Cursor(seq, draw(st.dictionaries(st.integers(1, seq), lengths, max_size=MAX_LIVE)) if seq else {})


@often
@given(cursors())
def test_a_cursor_comes_back_from_its_text(cursor: Cursor) -> None:
    """B124, B130: what was seen, with up to 8 texts under way."""
    assert parse_cursor(str(cursor)) == cursor


def test_cursors_are_spelled_as_documented() -> None:
    """B124: `<seq>` or `<seq>~<base>:<n>,...`; nothing seen of a text is not mentioned."""
    assert str(Cursor()) == "0"
    assert str(Cursor(17)) == "17"
    assert str(Cursor(17, {3: 5, 12: 1})) == "17~3:5,12:1"
    assert str(Cursor(17, {3: 0, 12: 1})) == "17~12:1"
    assert parse_cursor(None) == Cursor()


NO_CURSORS: list[Any] = ["", " ", "x", "-1", "+1", "1.0", "1e3", "0x1", " 1", "1 ", "1\n", "null", "\uff11", "\u0661"]
NO_CURSORS += ["1~", "~1:2", "1~1", "1~1:", "1~:1", "1~1:2,", "5~1:2;2:3", "5~1:-2", "5~,1:2", "5~~1:2", "1~1:2~3:4"]
NO_CURSORS += ["1" * 16, "5~1:" + "1" * 16, "9~" + ",".join(f"{base}:1" for base in range(1, 10))]
NO_CURSORS += ["5~6:1", "5~0:1", "0~1:1", 5, b"5", ["5"], 5.0, True]


@pytest.mark.parametrize("text", NO_CURSORS, ids=ascii)
def test_a_malformed_cursor_is_refused(text: Any) -> None:
    """B136: INPUT_INVALID, whatever it is."""
    with pytest.raises(InvalidInput) as error:
        parse_cursor(text)
    assert error.value.code == "INPUT_INVALID"


@often
@given(st.text(st.sampled_from("0123456789~:,x -"), max_size=12))
def test_any_text_is_a_cursor_or_refused(text: str) -> None:
    """B136: and what is taken means what it says."""
    try:
        cursor = parse_cursor(text)
    except InvalidInput:
        return
    assert parse_cursor(str(cursor)) == Cursor(cursor.seq, {base: n for base, n in cursor.texts.items() if n})
