"""Session: a conversation that owns runs. Cold: nothing is written to it when its runs suspend or resume."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, assert_never

from .errors import BreadError, Refused, session_not_found
from .events import Event, event
from .records import changed

Tags = dict[str, str]


@event("session.opened")
class SessionOpened(Event):
    session: str
    tags: Tags = {}


@event("session.tagged")
class SessionTagged(Event):
    """Tags that were set or changed; the others stay."""

    tags: Tags


@event("session.deleted")
class SessionDeleted(Event):
    """The session, its runs and its questions are gone; the id is not used again."""

    reason: Literal["deleted", "cleanup"] = "deleted"


SessionEvent = SessionOpened | SessionTagged | SessionDeleted


@dataclass(frozen=True, slots=True)
class OpenSession:
    session: str
    tags: Tags


@dataclass(frozen=True, slots=True)
class EndSession:
    reason: Literal["deleted", "cleanup"] = "deleted"


SessionCommand = OpenSession | EndSession


@dataclass(frozen=True)
class SessionState:
    id: str = ""
    version: int = 0
    status: Literal["new", "open", "deleted"] = "new"
    tags: tuple[tuple[str, str], ...] = ()


def session_stream(session_id: str) -> str:
    """The stream id of a session; sessions are named by users, so they get a prefix that no other id has."""
    return f"session:{session_id}"


def session_deleted(session_id: str) -> BreadError:
    return Refused("SESSION_DELETED", f"session {session_id!r} was deleted; use another id", session_id=session_id)


def evolve(state: SessionState, event: Event) -> SessionState:
    state = changed(state, version=state.version + 1)
    match event:
        case SessionOpened():
            return changed(state, id=event.session, status="open", tags=tuple(sorted(event.tags.items())))
        case SessionTagged():
            return changed(state, tags=tuple(sorted({**dict(state.tags), **event.tags}.items())))
        case SessionDeleted():
            return changed(state, status="deleted", tags=())
    return state


def decide(state: SessionState, command: SessionCommand) -> list[SessionEvent]:
    match command:
        case OpenSession():
            if state.status == "deleted":
                raise session_deleted(command.session)
            if state.status == "new":
                return [SessionOpened(session=command.session, tags=command.tags)]
            changed = {key: value for key, value in command.tags.items() if dict(state.tags).get(key) != value}
            return [SessionTagged(tags=changed)] if changed else []
        case EndSession():
            if state.status == "new":
                raise session_not_found(state.id)
            return [SessionDeleted(reason=command.reason)] if state.status == "open" else []
        case _:
            assert_never(command)
