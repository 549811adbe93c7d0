"""What goes over NATS, in bytes."""

from __future__ import annotations

from typing import Any

import msgpack
import pytest

from bread import StoreUnreadable
from bread.domain.envelope import APP, Meta, Recorded
from bread.domain.ports import Logged
from bread.domain.run_events import RunCancelled
from bread.transport.frames import (
    LIMIT,
    Batches,
    Heard,
    Mark,
    Told,
    crumb_frame,
    crumb_message,
    human_message,
    pack_batch,
    read_frame,
    unpack_batch,
)
from bread.transport.local import HintFrame, TextFrame
from bread.transport.subjects import Place

PLACE = Place("acme", "clerk", "s 1", "run_1", "run_2")
COMMON = {
    "seq": 7,
    "cursor": "7",
    "runId": "run_2",
    "rootRunId": "run_1",
    "agentId": "clerk",
    "sessionId": "s 1",
    "path": ["0"],
    "timestamp": "2026-01-02T03:04:05.678901Z",
}
EVENT = Logged(Recorded("run_1", 3, RunCancelled(reason="no"), Meta(1.5, APP, "c_1", 3, "run_1", "s1"), 12))


def told(**crumb: Any) -> Told:
    return Told(PLACE, crumb_frame(COMMON | {"type": "tool:result", "result": None} | crumb, 1.5, True))


def test_a_crumb_is_a_cloud_event_with_plain_msgpack() -> None:
    """Any library reads it; its id is the same each time."""
    message = crumb_message(told(result={"a": [1, "two"]}), "crumbs")
    assert message.subject == "bread.v1.acme.crumbs.clerk.s=201.run_1.run_2"
    frame = msgpack.unpackb(message.data)
    assert frame == read_frame(message.data)
    assert {name: frame[name] for name in ("v", "type", "root", "run", "seq", "visible", "at")} == {
        "v": 1,
        "type": "tool:result",
        "root": "run_1",
        "run": "run_2",
        "seq": 7,
        "visible": True,
        "at": 1.5,
    }
    assert frame["crumb"] == COMMON | {"type": "tool:result", "result": {"a": [1, "two"]}}
    assert message.id == message.headers["Nats-Msg-Id"] == message.headers["ce-id"] == "run_1:7"
    assert message.headers["ce-type"] == "bread.tool.result"
    assert message.headers["ce-source"] == "/bread/acme"
    assert message.headers["ce-time"] == "2026-01-02T03:04:05.678901Z"
    assert message.headers["ce-datacontenttype"] == "application/msgpack"


def test_names_that_headers_do_not_take_are_escaped() -> None:
    """CloudEvents say how."""
    place = PLACE._replace(tenant="Zoë\r\nX-Y: z")
    assert crumb_message(Told(place, told().frame), "crumbs").headers["ce-source"] == "/bread/Zo%C3%AB%0D%0AX-Y:%20z"


def test_a_large_crumb_is_cut_and_says_where_it_is() -> None:
    message = crumb_message(told(result="x" * LIMIT), "crumbs")
    assert len(message.data) < 1000
    frame = read_frame(message.data)
    assert frame["truncated"] is True
    assert frame["fetch"] == {"run": "run_1", "after": "6"}
    assert frame["crumb"] == COMMON | {"type": "tool:result"}
    assert "truncated" not in read_frame(crumb_message(told(result="x" * (LIMIT - 1000)), "crumbs").data)


def test_what_is_live_has_no_id() -> None:
    message = crumb_message(told(), "live")
    assert (message.id, message.headers) == ("", {})
    assert message.subject.startswith("bread.v1.acme.live.")


def test_values_that_msgpack_does_not_know() -> None:
    """Whole numbers of any size, and texts with half a surrogate pair."""
    data = crumb_message(told(result=[2**70, -(2**80), "a\ud800b"]), "crumbs").data
    assert read_frame(data)["crumb"]["result"] == [2**70, -(2**80), "a?b"]
    plain = msgpack.unpackb(data)["crumb"]["result"]
    assert plain[0] == msgpack.ExtType(1, str(2**70).encode())


def test_the_message_about_a_question_is_small() -> None:
    question = told(
        type="human:required",
        checkpointId="cp_1",
        kind="approval",
        toolName="wire",
        toolCallId="c1",
        prompt="P" * 5000,
        args={"secret": "x" * 1000},
        schema={"type": "object"},
    )
    message = human_message(question)
    frame = read_frame(message.data)
    assert message.subject == "bread.v1.acme.human.clerk.s=201.run_1.run_2"
    assert message.id == "run_1:7:h"
    assert (frame["agent"], frame["session"], "crumb" in frame) == ("clerk", "s 1", False)
    assert frame["human"].pop("prompt") == "P" * 2000 + "..."
    assert frame["human"] == {"checkpointId": "cp_1", "kind": "approval", "toolName": "wire", "toolCallId": "c1"}


@pytest.mark.parametrize("data", [b"", b"\xc1", b"\x01", msgpack.packb({"v": 2}), msgpack.packb([1])])
def test_q_bytes_that_are_no_frame_are_refused(data: bytes) -> None:
    """PROTOCOL_DECODE_ERROR."""
    with pytest.raises(StoreUnreadable, match="PROTOCOL_DECODE_ERROR"):
        read_frame(data)


def test_frames_between_processes_come_back_as_they_were() -> None:
    hint = HintFrame("run_1", "partial", {"tool_call_id": "c", "tool_name": "t", "result": [1]})
    frames: list[Heard] = [
        EVENT,
        Logged(EVENT.recorded, EVENT.recorded),
        TextFrame("run_1", 2, 0, "\U0001f35e"),
        hint,
        Mark(3),
    ]
    assert list(unpack_batch(pack_batch(frames))) == frames


@pytest.mark.parametrize(
    "data",
    [
        b"",
        msgpack.packb([2, []]),
        msgpack.packb([1, [["t", 1]]]),
        msgpack.packb([1, [["e", [1], None]]]),
        msgpack.packb([1, 7]),
        msgpack.packb([1, [["e", ["run_1", 1, "run.unknown@1", b"", 3], None]]]),
    ],
    ids=["empty", "version", "text", "event", "number", "unreadable"],
)
def test_q_frames_between_processes_that_are_none_are_refused(data: bytes) -> None:
    """PROTOCOL_DECODE_ERROR."""
    with pytest.raises(StoreUnreadable):
        list(unpack_batch(data))


def test_a_kind_of_frame_to_come_is_passed_over() -> None:
    assert list(unpack_batch(msgpack.packb([1, [["z", 1, 2], ["p", 4]]]))) == [Mark(4)]


def test_pieces_of_a_text_become_one() -> None:
    """In their order; another text, a hole and an event stand between."""
    batches = Batches()
    for frame in (
        TextFrame("run_1", 2, 0, "One "),
        TextFrame("run_1", 2, 4, "two"),
        TextFrame("run_1", 9, 0, "else"),
        TextFrame("run_1", 2, 7, "!"),
        TextFrame("run_1", 2, 20, "hole"),
        Mark(1),
        Mark(2),
        EVENT,
    ):
        batches.add("t", "run_1", frame)
    batches.add("t", "run_8", Mark(5))
    first, second = batches.take()
    assert first == (
        "t",
        "run_1",
        [
            TextFrame("run_1", 2, 0, "One two"),
            TextFrame("run_1", 9, 0, "else"),
            TextFrame("run_1", 2, 7, "!"),
            TextFrame("run_1", 2, 20, "hole"),
            Mark(2),
            EVENT,
        ],
    )
    assert second == ("t", "run_8", [Mark(5)])
    assert batches.take() == []
