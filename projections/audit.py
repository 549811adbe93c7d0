"""The audit log: events as they were recorded, with who, when and where."""

from __future__ import annotations

from datetime import datetime

from ..domain.envelope import Principal, Recorded
from ..domain.events import JsonValue
from .lists import View
from .render import moment


class AuditEvent(View):
    """One recorded event. `position` orders the whole store, `seq` the tree of a root run, `version` its stream."""

    position: int
    seq: int
    stream: str
    version: int
    name: str
    event_version: int
    at: datetime
    by: Principal
    commit: str
    cause: str | None
    worker: str | None
    root_run_id: str | None
    session_id: str | None
    data: dict[str, JsonValue]


def audit_event(recorded: Recorded) -> AuditEvent:
    """The audit record of an event, its data whole."""
    meta = recorded.meta
    return AuditEvent.model_construct(
        position=recorded.position,
        seq=meta.seq,
        stream=recorded.stream,
        version=recorded.version,
        name=recorded.event.NAME,
        event_version=recorded.event.VERSION,
        at=moment(meta.at),
        by=meta.by,
        commit=meta.commit,
        cause=meta.cause,
        worker=meta.worker,
        root_run_id=meta.root,
        session_id=meta.session,
        data=recorded.event.model_dump(mode="json", exclude_defaults=True),
    )
