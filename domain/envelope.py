"""The envelope: what is known about every event besides what it says."""

from __future__ import annotations

from typing import Literal, NamedTuple

from pydantic import BaseModel, ConfigDict

from .events import Event

PrincipalKind = Literal["user", "app", "system"]


class Principal(BaseModel):
    """Who wants it: a person (`user`), the program that embeds bread (`app`), or bread itself (`system`)."""

    model_config = ConfigDict(frozen=True, defer_build=True)

    kind: PrincipalKind = "app"
    id: str = "local"


APP = Principal()
SYSTEM = Principal(kind="system", id="bread")


class Meta(NamedTuple):
    """Facts of one commit, on each of its events. `at` is unix seconds; `seq` the place in the root's log (0: none)."""

    at: float
    by: Principal
    commit: str
    seq: int = 0
    root: str | None = None
    session: str | None = None
    cause: str | None = None
    worker: str | None = None
    tenant: str = "default"
    traceparent: str | None = None


class Recorded(NamedTuple):
    """An event as the log holds it: `version` counts from 1 in its stream, `position` is global and only increases."""

    stream: str
    version: int
    event: Event
    meta: Meta
    position: int = 0

    # The eventsourcing library's names for the same two facts, so that its repository can fold what we store.
    @property
    def originator_id(self) -> str:
        return self.stream

    @property
    def originator_version(self) -> int:
        return self.version


class Stamp(NamedTuple):
    """What a commit knows about itself before it is written; every event of the commit gets it as `Meta`."""

    at: float
    by: Principal
    commit: str
    cause: str | None = None
    worker: str | None = None
    tenant: str = "default"
    traceparent: str | None = None
