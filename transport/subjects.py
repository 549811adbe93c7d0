"""The names of what bread tells over NATS. They are an interface: versioned, the tenant first.

    bread.v1.<tenant>.crumbs.<agent>.<session>.<root>.<run>    every crumb of the log, kept in the stream BREAD_CRUMBS
    bread.v1.<tenant>.human.<agent>.<session>.<root>.<run>     questions and what became of them, once more and small
    bread.v1.<tenant>.live.<agent>.<session>.<root>.<run>      text as it is said, and hints: at most once, never kept
    bread.v1.<tenant>.events.<root>                            between processes of bread; no interface
    bread.v1.<tenant>.work.<agent>                             ready runs for workers, kept in BREAD_WORK; no interface

A token holds letters, digits, `_` and `-`; every other byte of a name is `=` and two hex digits, and a name that is
empty is `=` alone.
"""

from __future__ import annotations

import re
from typing import Literal, NamedTuple

from ..domain.errors import InvalidInput

Kind = Literal["crumbs", "human", "live"]
PREFIX = "bread.v1"
STREAM = "BREAD_CRUMBS"
KEPT = (f"{PREFIX}.*.crumbs.>", f"{PREFIX}.*.human.>")
EVENTS = f"{PREFIX}.*.events.*"
WORK_STREAM = "BREAD_WORK"
WORK = f"{PREFIX}.*.work.*"
_ODD = re.compile(rb"[^A-Za-z0-9_-]")
_ESCAPED = re.compile(rb"=([0-9A-F]{2})")
_TOKEN = re.compile(r"(?:[A-Za-z0-9_-]|=[0-9A-F]{2})+|=")


class Place(NamedTuple):
    """What a subject says of a crumb."""

    tenant: str
    agent: str
    session: str
    root: str
    run: str


def token(name: str) -> str:
    """A name as a token of a subject; different names give different tokens."""
    raw = name.encode("utf-8", "surrogatepass")
    return _ODD.sub(lambda odd: b"=%02X" % odd[0][0], raw).decode() or "="


def name_of(part: str) -> str:
    """The name of a token; INPUT_INVALID for what is none."""
    if not _TOKEN.fullmatch(part):
        raise InvalidInput("INPUT_INVALID", f"subject: {part!r} is no token of ours")
    if part == "=":
        return ""
    raw = _ESCAPED.sub(lambda odd: bytes.fromhex(odd[1].decode()), part.encode())
    try:
        return raw.decode("utf-8", "surrogatepass")
    except UnicodeDecodeError as error:
        raise InvalidInput("INPUT_INVALID", f"subject: {part!r} is no token of ours") from error


def subject(kind: Kind, place: Place) -> str:
    """Where something of a run is told."""
    tenant, *rest = map(token, place)
    return ".".join((PREFIX, tenant, kind, *rest))


def place_of(text: str) -> tuple[str, Place]:
    """The kind and the names of a subject; INPUT_INVALID for one of another shape."""
    parts = text.split(".")
    if text.startswith(f"{PREFIX}.") and len(parts) == 8 and parts[3] in ("crumbs", "human", "live"):
        return parts[3], Place(*map(name_of, (parts[2], *parts[4:])))
    raise InvalidInput("INPUT_INVALID", f"subject: {text!r} is none of ours")


def pattern(
    kind: Kind,
    *,
    tenant: str | None = None,
    agent: str | None = None,
    session: str | None = None,
    root: str | None = None,
    run: str | None = None,
) -> str:
    """What to subscribe to for the runs that are meant; None stands for all."""
    first, *rest = ("*" if name is None else token(name) for name in (tenant, agent, session, root, run))
    while rest and rest[-1] == "*":
        rest.pop()
    return ".".join((PREFIX, first, kind, *rest, *([">"] if len(rest) < 4 else [])))


def events_subject(tenant: str, root: str) -> str:
    """Where the processes of bread tell each other of a tree."""
    return f"{PREFIX}.{token(tenant)}.events.{token(root)}"


def work_subject(tenant: str | None, agent: str) -> str:
    """Where what is ready of an agent is offered; of all tenants with None."""
    return f"{PREFIX}.{'*' if tenant is None else token(tenant)}.work.{token(agent)}"


def root_of_events(text: str) -> str:
    return name_of(text.rpartition(".")[2])
