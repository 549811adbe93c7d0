"""View rows, derived from the folded state of one stream: what lists read.

A row is a function of its stream alone, so the views can be rebuilt stream by stream in any order.
"""

from __future__ import annotations

from typing import Any

from ..domain.checkpoint import CheckpointState
from ..domain.derived import derived_id
from ..domain.envelope import Recorded
from ..domain.run_state import RunState, status_of
from ..domain.session import SessionState

Row = dict[str, Any]

RUN_COLUMNS = (
    "id",
    "root",
    "parent",
    "slot",
    "link",
    "kind",
    "session",
    "tenant",
    "agent",
    "status",
    "owner",
    "idempotency_key",
    "code",
    "created",
    "updated",
)
CHECKPOINT_COLUMNS = (
    "id",
    "run",
    "root",
    "session",
    "tenant",
    "agent",
    "tool",
    "kind",
    "status",
    "deadline",
    "position",
    "created",
    "settled",
)
SESSION_COLUMNS = ("id", "tenant", "created")


def run_row(state: RunState, first: Recorded, last: Recorded) -> Row:
    """The row of a run as of its last event; `created` is when it started, in unix seconds like `updated`.

    A run that is `waiting` is running by its children only: it has nothing that anybody could perform.
    """
    return {
        "id": state.id,
        "root": state.root,
        "parent": state.parent.run if state.parent else None,
        "slot": state.parent.slot if state.parent else None,
        "link": state.parent.kind if state.parent else None,
        "kind": state.kind,
        "session": state.session,
        "tenant": first.meta.tenant,
        "agent": state.agent,
        "status": "waiting" if state.activity == "running" and not state.has_work else status_of(state),
        "owner": state.owner,
        "idempotency_key": state.key.key if state.key else None,
        "code": state.code,
        "created": state.started,
        "updated": last.meta.at,
    }


def checkpoint_row(state: CheckpointState, first: Recorded, last: Recorded) -> Row:
    """The row of a question; `position` is where CheckpointOpened stands in the log, which orders the lists."""
    question = state.asked
    return {
        "id": state.id,
        "run": question.run,
        "root": question.root,
        "session": question.session,
        "tenant": first.meta.tenant,
        "agent": question.agent,
        "tool": question.tool,
        "kind": question.kind,
        "status": state.status,
        "deadline": question.deadline,
        "position": first.position,
        "created": first.meta.at,
        "settled": None if state.status == "pending" else last.meta.at,
    }


def delegation_id(state: RunState) -> str:
    """The id of what a supervisor waits for in its present turn. Nobody can claim it, so it is no stream."""
    return derived_id("cp", state.started, "delegation", state.id, state.turn)


def delegation_row(state: RunState, first: Recorded, last: Recorded) -> Row | None:
    """The row of a supervisor that rests on questions of the agents it has delegated to; None for any other run."""
    waits = state.kind == "agent" and any(child.status == "suspended" for child in state.children)
    if not waits or state.activity != "suspended":
        return None
    return {
        "id": delegation_id(state),
        "run": state.id,
        "root": state.root,
        "session": state.session,
        "tenant": first.meta.tenant,
        "agent": state.agent,
        "tool": "delegate",
        "kind": "delegation",
        "status": "pending",
        "deadline": None,
        "position": last.position,
        "created": last.meta.at,
        "settled": None,
    }


def session_row(state: SessionState, first: Recorded) -> Row:
    return {"id": state.id, "tenant": first.meta.tenant, "created": first.meta.at}


def tag_rows(state: SessionState) -> list[tuple[str, str, str]]:
    """(key, value, session) for each tag."""
    return [(key, value, state.id) for key, value in state.tags]
