"""View rows, derived from the folded state of one stream: what lists read.

A row is a function of its stream alone, so the views can be rebuilt stream by stream in any order.
"""

from __future__ import annotations

from typing import Any

from ..domain.checkpoint import CheckpointState
from ..domain.envelope import Recorded
from ..domain.run_state import RunState, status_of
from ..domain.session import SessionState

Row = dict[str, Any]

RUN_COLUMNS = (
    "id",
    "root",
    "parent",
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
    """The row of a run as of its last event; `created` is when it started, in unix seconds like `updated`."""
    return {
        "id": state.id,
        "root": state.root,
        "parent": state.parent.run if state.parent else None,
        "session": state.session,
        "tenant": first.meta.tenant,
        "agent": state.agent,
        "status": status_of(state),
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


def session_row(state: SessionState, first: Recorded) -> Row:
    return {"id": state.id, "tenant": first.meta.tenant, "created": first.meta.at}


def tag_rows(state: SessionState) -> list[tuple[str, str, str]]:
    """(key, value, session) for each tag."""
    return [(key, value, state.id) for key, value in state.tags]
