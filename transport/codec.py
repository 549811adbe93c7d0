"""msgpack, contained: two typed functions for values, two for events in their envelope.

An event is stored and sent as `[1, meta, data]`; data is bytes of its own, so that it can be encrypted or erased while
meta stays readable. Fields that hold their default are left out; a `seq` without a `root` means that the stream is the
root itself.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import msgpack

from ..domain.envelope import Meta, Principal, PrincipalKind, Recorded
from ..domain.errors import StoreUnreadable
from ..domain.events import Event, restore, topic_of

FORMAT = 1
_BIG_INT = 1


def extend(value: Any) -> msgpack.ExtType:
    # Model arguments are JSON, whose integers have no bound; msgpack's end at 64 bits.
    if isinstance(value, int):
        return msgpack.ExtType(_BIG_INT, str(value).encode())
    raise TypeError(f"cannot store a value of type {type(value).__name__}")


def _restore_ext(code: int, data: bytes) -> Any:
    if code == _BIG_INT:
        return int(data)
    raise ValueError(f"unknown extension {code}")


def pack(value: Any) -> bytes:
    """Plain data (JSON types, bytes, integers of any size, lone surrogates) to msgpack bytes."""
    packed: bytes = msgpack.packb(value, default=extend, unicode_errors="surrogatepass")
    return packed


def unpack(data: bytes) -> Any:
    """The value of msgpack bytes; StoreUnreadable (PROTOCOL_DECODE_ERROR) if they are none."""
    try:
        return msgpack.unpackb(data, ext_hook=_restore_ext, unicode_errors="surrogatepass", strict_map_key=False)
    except (ValueError, TypeError, msgpack.exceptions.UnpackException) as error:
        raise StoreUnreadable("PROTOCOL_DECODE_ERROR", "malformed msgpack") from error


def encode_event(stream: str, event: Event, meta: Meta) -> bytes:
    """An event of a stream in its envelope."""
    data = event.model_dump(exclude_defaults=True)
    head: dict[str, Any] = {"at": meta.at, "by": [meta.by.kind, meta.by.id], "commit": meta.commit}
    if meta.seq:
        head["seq"] = meta.seq
    if meta.root is not None and (meta.root != stream or not meta.seq):
        head["root"] = meta.root
    for name in ("session", "cause", "worker", "traceparent"):
        value = getattr(meta, name)
        if value is not None:
            head[name] = value
    if meta.tenant != "default":
        head["tenant"] = meta.tenant
    return pack([FORMAT, head, pack(data)])


@lru_cache(maxsize=1024)
def _principal(kind: PrincipalKind, name: str) -> Principal:
    return Principal.model_construct(kind=kind, id=name)


def decode_event(stream: str, version: int, topic: str, state: bytes, position: int = 0) -> Recorded:
    """A recorded event from its stored form; StoreUnreadable for unknown names, versions and formats."""
    envelope = unpack(state)
    if not isinstance(envelope, list) or len(envelope) != 3 or envelope[0] != FORMAT:
        raise StoreUnreadable("PROTOCOL_DECODE_ERROR", f"event {version} of {stream}: unknown envelope", stream=stream)
    _, head, data = envelope
    try:
        meta = Meta(
            at=head["at"],
            by=_principal(*head["by"]),
            commit=head["commit"],
            seq=head.get("seq", 0),
            root=head.get("root", stream if "seq" in head else None),
            session=head.get("session"),
            cause=head.get("cause"),
            worker=head.get("worker"),
            tenant=head.get("tenant", "default"),
            traceparent=head.get("traceparent"),
        )
    except (KeyError, TypeError, AttributeError) as error:
        message = f"event {version} of {stream}: malformed envelope"
        raise StoreUnreadable("PROTOCOL_DECODE_ERROR", message, stream=stream) from error
    return Recorded(stream, version, restore(topic, unpack(data)), meta, position)


def stored_form(recorded: Recorded) -> tuple[str, bytes]:
    """The topic and the bytes under which an event is stored."""
    return topic_of(recorded.event), encode_event(recorded.stream, recorded.event, recorded.meta)
