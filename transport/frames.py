"""What goes over NATS, in bytes: crumbs for programs outside, and events between processes of bread.

Both are msgpack. What is for outside is plain: maps, texts and numbers that any library reads; a whole number of more
than 64 bits is the extension 1, its decimal digits.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple
from urllib.parse import quote

import msgpack

from ..domain.envelope import Recorded
from ..domain.errors import StoreUnreadable
from ..domain.ports import Logged
from .codec import decode_event, pack, stored_form, unpack
from .codec import extend as big_int
from .local import Frame, HintFrame, TextFrame
from .subjects import Kind, Place, subject

VERSION = 1
LIMIT = 512_000
MEDIA_TYPE = "application/msgpack"
COMMON = ("type", "seq", "cursor", "runId", "rootRunId", "agentId", "sessionId", "path", "timestamp")
# What of a crumb the small message about a question has. `args`, schemas and answers may be large, or secret.
ABOUT = ("checkpointId", "kind", "toolName", "toolCallId", "prompt", "deadline", "verdict", "author", "reason")
PROMPT = 2000  # code points


@dataclass(frozen=True, slots=True)
class Message:
    """A message for outside. `id` is the same each time that the same thing is told; live ones have none."""

    subject: str
    data: bytes
    id: str = ""
    headers: Mapping[str, str] = field(default_factory=dict)


class Told(NamedTuple):
    """A crumb on its way: the place that its subject names, and the frame, of which `crumb` is the wire form."""

    place: Place
    frame: dict[str, Any]


def crumb_frame(crumb: dict[str, Any], at: float, visible: bool) -> dict[str, Any]:
    """The frame of a crumb in its wire form. `visible` says whether who looks at the root is shown it."""
    return {
        "v": VERSION,
        "type": crumb["type"],
        "root": crumb["rootRunId"],
        "run": crumb["runId"],
        "seq": crumb["seq"],
        "visible": visible,
        "at": at,
        "crumb": crumb,
    }


def pack_plain(frame: dict[str, Any]) -> bytes:
    """Half of a surrogate pair, which is no character, is sent as a question mark."""
    packed: bytes = msgpack.packb(frame, default=big_int, unicode_errors="replace")
    return packed


def read_frame(data: bytes) -> dict[str, Any]:
    """A frame of outside again; PROTOCOL_DECODE_ERROR for bytes that are none, or of a version to come."""
    frame = unpack(data)
    if not isinstance(frame, dict) or frame.get("v") != VERSION:
        raise StoreUnreadable("PROTOCOL_DECODE_ERROR", "the frame has another version, or is none")
    return frame


def crumb_message(told: Told, kind: Kind, limit: int = LIMIT) -> Message:
    """A crumb as a message of at most `limit` bytes: of a larger one the common fields are left, and where to look."""
    place, frame = told
    data = pack_plain(frame)
    if len(data) > limit:
        data = pack_plain(cut(frame))
    key = f"{frame['root']}:{frame['seq']}" if kind == "crumbs" else ""
    return Message(subject(kind, place), data, key, headers_of(place, frame, key) if key else {})


def cut(frame: dict[str, Any]) -> dict[str, Any]:
    """A frame without what may be large. The whole crumb is found after the cursor that `fetch` names."""
    crumb = {name: value for name, value in frame["crumb"].items() if name in COMMON}
    fetch = {"run": frame["root"], "after": str(frame["seq"] - 1)}
    return frame | {"crumb": crumb, "truncated": True, "fetch": fetch}


def human_message(told: Told) -> Message:
    """What a question is about, or what became of it, small."""
    place, frame = told
    about = {name: frame["crumb"][name] for name in ABOUT if name in frame["crumb"]}
    if len(about.get("prompt", "")) > PROMPT:
        about["prompt"] = f"{about['prompt'][:PROMPT]}..."
    small = {name: value for name, value in frame.items() if name != "crumb"} | {
        "agent": place.agent,
        "session": place.session,
        "human": about,
    }
    key = f"{frame['root']}:{frame['seq']}:h"
    return Message(subject("human", place), pack_plain(small), key, headers_of(place, frame, key))


def headers_of(place: Place, frame: dict[str, Any], key: str) -> dict[str, str]:
    """A CloudEvent in the binary mode of its NATS binding, and the id by which JetStream knows what it has."""
    values = {
        "ce-specversion": "1.0",
        "ce-id": key,
        "ce-source": f"/bread/{place.tenant}",
        "ce-type": f"bread.{frame['type'].replace(':', '.')}",
        "ce-subject": frame["run"],
        "ce-time": frame["crumb"]["timestamp"],
        "ce-datacontenttype": MEDIA_TYPE,
    }
    return {name: quote(value, safe="/:+.") for name, value in values.items()} | {"Nats-Msg-Id": key}


# --- between processes ------------------------------------------------------------------------------------------------


class Mark(NamedTuple):
    """Everything of a root up to `seq` is in the stream."""

    seq: int


Heard = Frame | Mark


def pack_batch(frames: Sequence[Heard]) -> bytes:
    return pack([VERSION, [_packed(frame) for frame in frames]])


def _packed(frame: Heard) -> list[Any]:
    match frame:
        case Logged(recorded=recorded, subject=about):
            return ["e", _event(recorded), None if about is None else _event(about)]
        case TextFrame():
            return ["t", frame.run_id, frame.base, frame.offset, frame.text]
        case HintFrame():
            return ["h", frame.run_id, frame.kind, frame.payload]
        case Mark(seq=seq):
            return ["p", seq]


def _event(recorded: Recorded) -> list[Any]:
    return [recorded.stream, recorded.version, *stored_form(recorded), recorded.position]


def unpack_batch(data: bytes) -> Iterator[Heard]:
    """The frames of a batch in order; PROTOCOL_DECODE_ERROR where they are none, EVENT_UNKNOWN for a newer event."""
    batch = unpack(data)
    if not isinstance(batch, list) or len(batch) != 2 or batch[0] != VERSION:
        raise StoreUnreadable("PROTOCOL_DECODE_ERROR", "frames of another version of bread")
    try:
        for kind, *what in batch[1]:
            match kind:
                case "e":
                    recorded, about = what
                    yield Logged(decode_event(*recorded), None if about is None else decode_event(*about))
                case "t":
                    yield TextFrame(*what)
                case "h":
                    yield HintFrame(*what)
                case "p":
                    yield Mark(*what)
                case _:
                    continue  # of a release to come: the store brings what matters of it
    except (TypeError, ValueError) as error:
        raise StoreUnreadable("PROTOCOL_DECODE_ERROR", "malformed frames") from error


def size_of(frame: Heard) -> int:
    """About how many bytes a frame takes that may be large."""
    match frame:
        case TextFrame(text=text):
            return len(text)
        case HintFrame(payload=payload):
            return sum(len(str(value)) for value in payload.values())
    return 0


class Batches:
    """Frames of each root until they are sent: pieces of one text that follow each other become one piece."""

    def __init__(self) -> None:
        self._by_root: dict[tuple[str, str], list[Heard]] = {}

    def add(self, tenant: str, root: str, frame: Heard) -> None:
        frames = self._by_root.setdefault((tenant, root), [])
        last = frames[-1] if frames else None
        if isinstance(frame, Mark) and isinstance(last, Mark):
            frames[-1] = frame
        elif isinstance(frame, TextFrame) and isinstance(last, TextFrame) and _follows(last, frame):
            frames[-1] = TextFrame(last.run_id, last.base, last.offset, last.text + frame.text)
        else:
            frames.append(frame)

    def take(self) -> list[tuple[str, str, list[Heard]]]:
        taken, self._by_root = self._by_root, {}
        return [(tenant, root, frames) for (tenant, root), frames in taken.items()]


def _follows(last: TextFrame, frame: TextFrame) -> bool:
    return (frame.run_id, frame.base) == (last.run_id, last.base) and frame.offset == last.offset + len(last.text)
