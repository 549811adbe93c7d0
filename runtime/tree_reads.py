"""What is read of trees of runs from a store: the way to a run, what is below it, and what it waits for."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..domain.checkpoint import ParentLink
from ..domain.errors import checkpoint_not_found, run_not_found
from ..domain.events import JsonValue
from ..domain.pipelines import remaining
from ..domain.run_events import ChildStarted, RunStarted, Visibility
from ..domain.run_state import RunState
from ..projections.crumbs import ParentView
from ..projections.lists import Checkpoint, Delegation
from ..projections.render import Link, RunInfo, moment, parent_view
from .folds import fold_run
from .sql import Cursor, select_events

_LINK = "SELECT id, root, session, agent, parent, slot, link FROM bread_runs WHERE id = ?"


def run_info(cursor: Cursor, run_id: str) -> RunInfo:
    """A run and the links to it from the root of its tree; RUN_NOT_FOUND if it is not there."""
    links: list[Link] = []
    row = first = _row(cursor, run_id)
    while row[4] is not None:
        child, _, _, _, parent, slot, kind = row
        seen_by = _visibilities(cursor, parent) if kind == "supervisor" else {}
        links.append(Link(child, slot, seen_by.get(child, "passthrough")))
        row = _row(cursor, parent)
    found, root, session, agent = first[:4]
    return RunInfo(found, root, session, agent, tuple(reversed(links)))


def siblings(cursor: Cursor, run_id: str) -> dict[str, RunInfo]:
    """A run as `run_info` gives it, with those that its parent has begun beside it."""
    found, root, session, _, parent, _, kind = _row(cursor, run_id)
    if parent is None:
        return {found: run_info(cursor, found)}
    above = run_info(cursor, parent).links
    seen_by = {} if kind == "pipeline" else _visibilities(cursor, parent)
    cursor.execute("SELECT id, agent, slot FROM bread_runs WHERE root = ? AND parent = ?", (root, parent))
    return {
        one: RunInfo(one, root, session, agent, (*above, Link(one, slot, seen_by.get(one, "passthrough"))))
        for one, agent, slot in cursor.fetchall()
    }


def _row(cursor: Cursor, run_id: str) -> Any:
    cursor.execute(_LINK, (run_id,))
    row = cursor.fetchone()
    if row is None:
        raise run_not_found(run_id)
    return row


def _visibilities(cursor: Cursor, parent: str) -> dict[str, Visibility]:
    begun = select_events(cursor, "originator_id = ? AND topic LIKE 'run.child_started@%'", (parent,))
    return {one.event.child: one.event.visibility for one in begun if isinstance(one.event, ChildStarted)}


def pending_below(cursor: Cursor, run_id: str) -> list[str]:
    """The open questions of a run, then those of all that is below it, oldest first."""
    root = _row(cursor, run_id)[1]
    own = list(fold_run(run_id, select_events(cursor, "originator_id = ?", (run_id,))).questions)
    cursor.execute(
        "SELECT id, run FROM bread_checkpoints"
        " WHERE root = ? AND run <> root AND status = 'pending' AND kind <> 'delegation' ORDER BY position",
        (root,),
    )
    found = [(row[0], row[1]) for row in cursor.fetchall() if row[1] != run_id]
    if not found or root == run_id:
        return own + [checkpoint_id for checkpoint_id, _ in found]
    cursor.execute("SELECT id, parent FROM bread_runs WHERE root = ? AND parent IS NOT NULL", (root,))
    parents = {row[0]: row[1] for row in cursor.fetchall()}
    return own + [checkpoint_id for checkpoint_id, asking in found if run_id in _way_up(parents, asking)]


def _way_up(parents: dict[str, str], run_id: str) -> Sequence[str]:
    way = [run_id]
    while (above := parents.get(way[-1])) is not None:
        way.append(above)
    return way


def parent_of(cursor: Cursor, link: ParentLink | None, root: str) -> ParentView | None:
    """Where a run hangs, and the steps of its pipeline that come after it."""
    return parent_view(link, root, remaining_of(cursor, link))


def remaining_of(cursor: Cursor, link: ParentLink | None) -> JsonValue:
    if link is None or link.kind != "pipeline":
        return None
    for recorded in select_events(cursor, "originator_id = ? AND originator_version = 1", (link.run,)):
        if isinstance(recorded.event, RunStarted):
            return remaining(recorded.event.steps, link.slot)
    return None


def delegation_view(cursor: Cursor, checkpoint_id: str, run_id: str, created: float) -> Checkpoint:
    """What a supervisor waits for: a row of the views, which nobody can claim."""
    state = fold_run(run_id, select_events(cursor, "originator_id = ?", (run_id,)))
    pending = tuple(_delegations(cursor, state))
    return Checkpoint(
        id=checkpoint_id,
        kind="delegation",
        status="pending",
        agent_id=state.agent,
        run_id=run_id,
        root_run_id=state.root,
        session_id=state.session,
        tool_name="delegate",
        tool_call_id=pending[0].tool_call_id if pending else "",
        args={},
        schema={},
        prompt=f"{state.agent} waits for {', '.join(one.sub_agent_id for one in pending)}",
        skill=state.asks_with,
        parent=parent_of(cursor, state.parent, state.root),
        pending=pending,
        created_at=moment(created),
        version=1,
    )


def _delegations(cursor: Cursor, state: RunState) -> list[Delegation]:
    found = []
    for child in state.children:
        call = state.call(child.slot)
        if child.status == "suspended" and call is not None:
            asked = tuple(pending_below(cursor, child.run))
            found.append(
                Delegation(
                    tool_call_id=call.id,
                    child_run_id=child.run,
                    sub_agent_id=child.agent,
                    child_checkpoint_ids=asked,
                )
            )
    return found


def get_delegation(cursor: Cursor, checkpoint_id: str) -> Checkpoint:
    """The delegation checkpoint of that id; CHECKPOINT_NOT_FOUND if there is none (any more)."""
    cursor.execute("SELECT run, created FROM bread_checkpoints WHERE id = ? AND kind = 'delegation'", (checkpoint_id,))
    row = cursor.fetchone()
    if row is None:
        raise checkpoint_not_found(checkpoint_id)
    return delegation_view(cursor, checkpoint_id, row[0], row[1])


def open_counts(cursor: Cursor) -> tuple[dict[str, int], int]:
    """How many root runs have not ended, by their status, and how many questions wait for people."""
    cursor.execute(
        "SELECT CASE status WHEN 'suspended' THEN status ELSE 'running' END, COUNT(*) FROM bread_runs"
        " WHERE parent IS NULL AND status IN ('running', 'waiting', 'suspended') GROUP BY 1"
    )
    runs = {row[0]: row[1] for row in cursor.fetchall()}
    cursor.execute("SELECT COUNT(*) FROM bread_checkpoints WHERE status = 'pending' AND kind <> 'delegation'")
    return runs, cursor.fetchone()[0]
