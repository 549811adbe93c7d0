"""Events: found by name and version through a list, lifted when they are old, kept when they are newer."""

import json
from typing import Any

import pytest
from hypothesis import given as for_all
from hypothesis import settings
from hypothesis import strategies as st
from pydantic import ValidationError

from bread.domain import events
from bread.domain.errors import StoreUnreadable
from bread.domain.events import Erased, Event, event, known_events, restore, topic_of, upcaster
from bread.domain.messages import Message, ToolUse, Turn, native_message, read_turn
from bread.domain.run_events import ModelResponded, Parked, RunStarted, Usage
from bread.domain.run_state import RunState, evolve, unique_call_id
from bread.runtime.kit import stored

from .support import responded, soaking, started, trials

LISTED = """
bread.erased@1 checkpoint.claimed@1 checkpoint.discarded@1 checkpoint.expired@1 checkpoint.opened@1 run.cancelled@1
run.child_resumed@1 run.child_returned@1 run.child_started@1 run.child_suspended@1 run.completed@1 run.failed@1
run.iteration_finished@1 run.iteration_started@1 run.loop_finished@1 run.loop_started@1 run.model_failed@1
run.model_responded@1 run.output_rejected@1 run.parked@1 run.question_asked@1 run.resumed@1 run.retried@1
run.started@1 run.step_finished@2 run.step_started@1 run.suspended@1 run.taken@1 run.tool_called@1 run.tool_failed@1
run.tool_returned@1 session.deleted@1 session.opened@1 session.tagged@1
"""


@pytest.fixture
def registry(monkeypatch: pytest.MonkeyPatch) -> None:
    """Events and upcasters that a test registers are forgotten after it."""
    for name in ("_CLASSES", "_CURRENT", "_UPCASTERS"):
        monkeypatch.setattr(events, name, dict(getattr(events, name)))


def test_names_and_versions_are_these() -> None:
    assert sorted(f"{name}@{kind.VERSION}" for name, kind in known_events().items()) == LISTED.split()


def test_an_event_is_found_by_its_topic() -> None:
    assert topic_of(Parked(pending=2)) == "run.parked@1"
    assert restore("run.parked@1", {"pending": 2}) == Parked(pending=2)


def test_what_happened_does_not_change() -> None:
    with pytest.raises(ValidationError, match="frozen"):
        Parked(pending=2).pending = 3


UNKNOWN = """
run.exploded@1 run.parked@2 run.parked@0 run.parked@ run.parked@-1 run.parked@1.0 run.parked@one run.parked@1@1
run.parked Run.Parked@1 @1 @ bread.domain.run_events:Parked
"""


@pytest.mark.parametrize("topic", ["", *UNKNOWN.split()])
def test_c43_an_unknown_name_or_version_stops_loudly(topic: str) -> None:
    """EVENT_UNKNOWN, never a guess: an older release must not fold what it does not know."""
    with pytest.raises(StoreUnreadable, match="EVENT_UNKNOWN") as caught:
        restore(topic, {"pending": 2})
    assert caught.value.details == {"topic": topic}


@pytest.mark.parametrize("data", [{}, {"pending": "many"}, {"pending": None}])
def test_c43_data_that_does_not_fit_stops_loudly_and_is_not_shown(data: dict[str, Any]) -> None:
    with pytest.raises(StoreUnreadable, match="STORE_INVALID") as caught:
        restore("run.parked@1", data)
    assert "many" not in str(caught.value)


def test_unknown_optional_fields_are_kept() -> None:
    data = {"pending": 2, "color": "red", "more": {"deep": [1, None]}}
    newer = restore("run.parked@1", data)
    assert isinstance(newer, Parked)
    assert newer.model_dump(mode="json") == data
    assert stored(newer) == newer
    usage = Usage.model_validate({"input_tokens": 1, "cached_tokens": 9})
    assert usage.model_dump() == {"input_tokens": 1, "output_tokens": 0, "cached_tokens": 9}


@pytest.mark.usefixtures("registry")
def test_old_versions_are_lifted_step_by_step() -> None:
    @event("test.moved", 3)
    class Moved(Event):
        place: str
        floor: int

    @upcaster("test.moved", 1)
    def name_the_place(data: dict[str, Any]) -> dict[str, Any]:
        return {"place": data["where"], **{key: value for key, value in data.items() if key != "where"}}

    @upcaster("test.moved", 2)
    def assume_the_ground_floor(data: dict[str, Any]) -> dict[str, Any]:
        return {"floor": 0, **data}

    assert topic_of(Moved(place="attic", floor=4)) == "test.moved@3"
    assert restore("test.moved@1", {"where": "cellar", "extra": 1}) == Moved.model_validate(
        {"place": "cellar", "floor": 0, "extra": 1}
    )
    assert restore("test.moved@2", {"place": "hall"}) == Moved(place="hall", floor=0)
    assert restore("test.moved@3", {"place": "attic", "floor": 4}) == Moved(place="attic", floor=4)


@pytest.mark.usefixtures("registry")
def test_a_version_without_an_upcaster_is_unknown() -> None:
    @event("test.moved", 2)
    class Moved(Event):
        place: str

    with pytest.raises(StoreUnreadable, match="EVENT_UNKNOWN"):
        restore("test.moved@1", {"place": "hall"})


@pytest.mark.usefixtures("registry")
def test_a_name_is_taken_once() -> None:
    with pytest.raises(ValueError, match="Parked"):
        event("run.parked")(Erased)


def test_the_list_is_a_copy() -> None:
    known_events().clear()
    assert known_events()


def test_an_erased_stream_says_only_that() -> None:
    assert Erased().model_dump() == {"reason": "session_deleted"}


# --- messages ---------------------------------------------------------------------------------------------------------


def test_a_turn_is_read_back_as_it_was() -> None:
    message = native_message("Hm.", (ToolUse("fetch", {"url": 1}, "x"), ToolUse("sign", None)), "I think")
    assert read_turn(message) == Turn("Hm.", (ToolUse("fetch", {"url": 1}, "x"), ToolUse("sign", None)), "I think")
    assert read_turn(native_message("")) == Turn("")
    assert native_message("").data == {}


def test_a_message_of_an_unknown_codec_stops_loudly() -> None:
    message = Message(codec="other/9", data={})
    with pytest.raises(StoreUnreadable, match="EVENT_UNKNOWN"):
        read_turn(message)
    with pytest.raises(StoreUnreadable, match="EVENT_UNKNOWN"):
        evolve(evolve(RunState("r1"), started()), responded().model_copy(update={"message": message}))


json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**53), 2**53)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@for_all(value=json_values)
@settings(max_examples=trials(100), derandomize=not soaking(), database=None, deadline=None)
def test_whatever_json_can_say_survives(value: Any) -> None:
    """C43: inputs, arguments and answers are JSON, and come back as they went in."""
    event = RunStarted(agent="a", input=value, session="s", root="r", started=1.5)
    assert json.loads(json.dumps(event.model_dump(mode="json")))["input"] == value
    assert stored(event) == event


@for_all(turns=st.lists(st.lists(st.sampled_from(["", "x", "y", "call"]), max_size=4), max_size=4))
@settings(max_examples=trials(100), derandomize=not soaking(), database=None, deadline=None)
def test_b29_calls_are_told_apart_whatever_ids_a_provider_gives(turns: list[list[str]]) -> None:
    """B29, C8: each call of a run has an id of its own; the first to bring an id keeps it."""
    state, ids = evolve(RunState("r1"), started()), []
    for turn, given in enumerate(turns):
        event = ModelResponded(
            turn=turn,
            base=state.version * 10,
            message=native_message("", tuple(ToolUse("fetch", None, id) for id in given)),
            model="m",
            finish="stop",
        )
        state = evolve(state, event)
        assert [call.key for call in state.calls] == [f"{event.base}.{index}" for index in range(len(given))]
        ids += [call.id for call in state.calls]
    assert len(ids) == len(set(ids))
    assert {id for given in turns for id in given if id} <= set(ids)


def test_b29_an_id_that_is_missing_or_was_seen_names_the_place_in_the_log() -> None:
    assert unique_call_id("x", "7.0", set()) == "x"
    assert unique_call_id("x", "7.0", {"x"}) == "x~7.0"
    assert unique_call_id("", "7.0", set()) == "call_7.0"
