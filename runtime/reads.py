"""What is read from a store, one function a question. All values are bound; every page is one indexed query."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, get_args

from ..domain.checkpoint import CheckpointKind, CheckpointOpened
from ..domain.envelope import Recorded
from ..domain.errors import InvalidInput, StoreUnreadable, run_not_found, session_not_found
from ..domain.ports import Logged
from ..domain.run_events import Parked, Resumed, RunCompleted, RunStarted
from ..domain.run_state import RunState
from ..domain.session import session_stream
from ..projections.crumbs import ParentView
from ..projections.lists import Checkpoint, Page, Run, RunStatus, Session, checkpoint_view
from ..projections.render import moment, output_of, subject_of
from ..transport.codec import decode_event
from . import tree_reads as trees
from .folds import fold_checkpoint, fold_run, fold_session
from .sql import Cursor, select_events

Filters = Mapping[str, Any]


def stream(cursor: Cursor, stream_id: str, after: int = 0) -> list[Recorded]:
    return select_events(cursor, "originator_id = ? AND originator_version > ?", (stream_id, after))


def log(cursor: Cursor, root: str, after: int, limit: int) -> list[Logged]:
    """A page of a root's log, with the payloads that its events point to."""
    cursor.execute(
        "SELECT e.originator_id, e.originator_version, e.topic, e.state, e.rowid FROM bread_log l"
        " JOIN stored_events e ON e.rowid = l.position WHERE l.root = ? AND l.seq > ? ORDER BY l.seq LIMIT ?",
        (root, after, limit),
    )
    page = [decode_event(*row) for row in cursor.fetchall()]
    return with_subjects(cursor, page)


def with_subjects(cursor: Cursor, page: Sequence[Recorded]) -> list[Logged]:
    known = {(recorded.stream, recorded.version): recorded for recorded in page}
    entries = []
    for recorded in page:
        where = subject_of(recorded)
        if where is not None and where not in known:
            found = select_events(cursor, "originator_id = ? AND originator_version = ?", where)
            known.update({where: found[0]} if found else {})
        entries.append(Logged(recorded, known.get(where) if where else None))
    return entries


def recorded_since(cursor: Cursor, position: int, limit: int) -> tuple[list[Recorded], int, list[str]]:
    """A page of the whole store after a position: what can be read of it, where it ends, and what cannot be read."""
    cursor.execute(
        "SELECT originator_id, originator_version, topic, state, rowid FROM stored_events"
        " WHERE rowid > ? ORDER BY rowid LIMIT ?",
        (position, limit),
    )
    page, unknown, rows = [], [], cursor.fetchall()
    for row in rows:
        try:
            page.append(decode_event(*row))
        except StoreUnreadable as error:
            unknown.append(f"{row[0]}: {error}")
    return page, rows[-1][4] if rows else position, unknown


def since(cursor: Cursor, position: int, limit: int) -> tuple[list[Logged], int, list[str]]:
    """The same with the payloads that the events point to; an event whose payload cannot be read counts as unread."""
    page, last, unknown = recorded_since(cursor, position, limit)
    try:
        return with_subjects(cursor, page), last, unknown
    except StoreUnreadable:
        readable = []
        for recorded in page:
            try:
                readable += with_subjects(cursor, [recorded])
            except StoreUnreadable as error:
                unknown.append(f"{recorded.stream}: {error}")
        return readable, last, unknown


def last_position(cursor: Cursor) -> int:
    """Where the log ends. An erased stream leaves its tombstone behind what was erased, so the end never moves back."""
    cursor.execute("SELECT MAX(rowid) FROM stored_events")
    return cursor.fetchone()[0] or 0


def run_state(cursor: Cursor, run_id: str) -> RunState:
    """The folded state of a run; RUN_NOT_FOUND if it never was or was erased."""
    state = fold_run(run_id, stream(cursor, run_id))
    if state.status in ("new", "erased"):
        raise run_not_found(run_id)
    return state


def first_foreign(cursor: Cursor, root: str, position: int, before: int, worker: str) -> int | None:
    """The seq, below `before`, of a root's first event after a position of the store that another worker wrote."""
    cursor.execute(
        "SELECT e.originator_id, e.originator_version, e.topic, e.state, e.rowid FROM bread_log l"
        " JOIN stored_events e ON e.rowid = l.position"
        " WHERE l.root = ? AND l.seq < ? AND l.position > ? ORDER BY l.seq",
        (root, before, position),
    )
    recorded = (decode_event(*row) for row in cursor.fetchall())
    return next((one.meta.seq for one in recorded if one.meta.worker != worker), None)


def last_seq(cursor: Cursor, root: str) -> int:
    cursor.execute("SELECT MAX(seq) FROM bread_log WHERE root = ?", (root,))
    return cursor.fetchone()[0] or 0


def earlier_runs(cursor: Cursor, session: str, run_id: str) -> list[list[Recorded]]:
    """The events of the root runs of a session that started before `run_id`, run by run."""
    roots = _roots_of(cursor, session)
    before = next((position for position, root in roots if root == run_id), 0)
    return [stream(cursor, root) for position, root in roots if position < before]


def _roots_of(cursor: Cursor, session: str) -> list[tuple[int, str]]:
    cursor.execute(
        "SELECT e.rowid, r.id FROM bread_runs r JOIN stored_events e"
        " ON e.originator_id = r.id AND e.originator_version = 1"
        " WHERE r.session = ? AND r.parent IS NULL ORDER BY e.rowid",
        (session,),
    )
    return [(row[0], row[1]) for row in cursor.fetchall()]


@dataclass(frozen=True, slots=True)
class Idle:
    """A run with work. `owner` is None where it is ready for anybody."""

    run_id: str
    agent: str
    owner: str | None
    root: str


def idle_work(cursor: Cursor) -> list[Idle]:
    """Every run with work and its owner: a short list, since parked and ended runs have none."""
    cursor.execute("SELECT id, agent, owner, root FROM bread_runs WHERE status = 'running' ORDER BY id")
    return [Idle(*row) for row in cursor.fetchall()]


def overdue(cursor: Cursor, at: float) -> list[str]:
    """The pending checkpoints whose deadline has passed at `at`, in the order of their deadlines."""
    cursor.execute(
        "SELECT id FROM bread_checkpoints WHERE status = 'pending' AND deadline <= ? ORDER BY deadline", (at,)
    )
    return [row[0] for row in cursor.fetchall()]


# --- lists ------------------------------------------------------------------------------------------------------------


def page_start(cursor_text: str | None) -> int:
    if cursor_text is None:
        return 0
    if not isinstance(cursor_text, str) or not re.fullmatch("[0-9]{1,18}", cursor_text):
        raise InvalidInput("INPUT_INVALID", f"cursor {cursor_text!r}: expected the `next` of an earlier page")
    return int(cursor_text)


def check_limit(limit: int) -> int:
    if not isinstance(limit, int) or not 1 <= limit <= 1000:
        raise InvalidInput("INPUT_INVALID", f"limit {limit!r}: expected a whole number from 1 to 1000")
    return limit


def check_choice(name: str, value: str | None, choices: Sequence[str]) -> None:
    """INPUT_INVALID for a filter that can let nothing through."""
    if value is not None and value not in choices:
        raise InvalidInput("INPUT_INVALID", f"{name} {value!r}: expected one of {', '.join(choices)}")


def list_checkpoints(
    cursor: Cursor,
    *,
    tenant: str,
    filters: Filters,
    tags: Mapping[str, str],
    answerable: bool | None,
    limit: int,
    after: str | None,
) -> Page[Checkpoint]:
    """Pending questions, oldest first. `filters` maps columns of ours (agent, tool, session, kind) to values."""
    check_choice("kind", filters.get("kind"), get_args(CheckpointKind))
    where, values = ["c.status = 'pending'", "c.tenant = ?", "c.position > ?"], [tenant, page_start(after)]
    for column, value in filters.items():
        where.append(f"c.{column} = ?")
        values.append(value)
    if answerable is not None:
        where.append("c.kind <> 'delegation'" if answerable else "c.kind = 'delegation'")
    _where_tags(where, values, tags, "c.session")
    cursor.execute(
        "SELECT e.originator_id, e.originator_version, e.topic, e.state, e.rowid, c.id, c.kind, c.run, c.created"  # noqa: S608
        " FROM bread_checkpoints c JOIN stored_events e ON e.rowid = c.position"
        f" WHERE {' AND '.join(where)} ORDER BY c.position LIMIT ?",
        (*values, limit + 1),
    )
    rows = cursor.fetchall()
    items = [_listed(cursor, row) for row in rows[:limit]]
    return Page(items, str(rows[limit - 1][4]) if len(rows) > limit else None)


def _listed(cursor: Cursor, row: Sequence[Any]) -> Checkpoint:
    *stored, checkpoint_id, kind, run_id, created = row
    if kind == "delegation":
        return trees.delegation_view(cursor, checkpoint_id, run_id, created)
    recorded = decode_event(*stored)
    if not isinstance(recorded.event, CheckpointOpened):
        raise StoreUnreadable("STORE_INVALID", f"the list does not fit the log at {checkpoint_id}: rebuild the views")
    return checkpoint_view(
        checkpoint_id, recorded.event, recorded.meta.at, trees.remaining_of(cursor, recorded.event.parent)
    )


def _where_tags(where: list[str], values: list[Any], tags: Mapping[str, str], session: str) -> None:
    for key, value in tags.items():
        where.append(f"EXISTS (SELECT 1 FROM bread_tags t WHERE t.session = {session} AND t.key = ? AND t.value = ?)")  # noqa: S608
        values += [key, value]


def get_checkpoint(cursor: Cursor, checkpoint_id: str) -> Checkpoint:
    """A question, pending or settled, with who answered what and when."""
    events = stream(cursor, checkpoint_id)
    if not events:
        return trees.get_delegation(cursor, checkpoint_id)
    state = fold_checkpoint(checkpoint_id, events)
    remaining = trees.remaining_of(cursor, state.asked.parent)
    view = checkpoint_view(checkpoint_id, state.asked, events[0].meta.at, remaining)
    if state.status == "pending":
        return view
    last = events[-1]
    settled: dict[str, Any] = {"settled_by": last.meta.by, "settled_at": moment(last.meta.at)}
    if state.resumed:
        where = (state.asked.run, state.resumed)
        for recorded in select_events(cursor, "originator_id = ? AND originator_version = ?", where):
            if isinstance(recorded.event, Resumed):
                settled |= {"verdict": recorded.event.verdict, "response": recorded.event.response}
    comment = getattr(last.event, "comment", None)
    return view.model_copy(update={"status": state.status, "version": state.version, "comment": comment, **settled})


_RUN = (
    "SELECT id, root, session, agent, status, owner, created, updated, code, kind, parent, slot, link FROM bread_runs"
)


def _run_of_row(row: Sequence[Any], **more: Any) -> Run:
    run_id, root, session, agent, status, owner, created, updated, code, kind, parent, slot, link = row
    hangs = None if parent is None else ParentView(run_id=parent, root_run_id=root, kind=link, slot=slot)
    return Run(
        id=run_id,
        kind=kind,
        parent=hangs,
        root_run_id=root,
        session_id=session,
        agent_id=agent,
        status="running" if status == "waiting" else status,
        owner=owner,
        created_at=moment(created),
        updated_at=moment(updated),
        code=code,
        **more,
    )


def get_run(cursor: Cursor, run_id: str) -> Run:
    """A run with its input, its output or error, and its pending questions."""
    events = stream(cursor, run_id)
    state = fold_run(run_id, events)
    cursor.execute(f"{_RUN} WHERE id = ?", (run_id,))
    row = cursor.fetchone()
    if row is None or not isinstance(events[0].event, RunStarted):
        raise run_not_found(run_id)
    ended = next((e for e in with_subjects(cursor, events[-1:])), None)
    return _run_of_row(
        row,
        checkpoints=tuple(trees.pending_below(cursor, run_id)) if state.children else state.questions,
        input=events[0].event.input,
        output=_output(ended) if state.status == "completed" else None,
        message=state.message,
    )


def _output(entry: Logged | None) -> Any:
    if entry is not None and isinstance(entry.recorded.event, RunCompleted):
        return output_of(entry.recorded.event, entry.subject)
    return None


def list_runs(cursor: Cursor, *, tenant: str, filters: Filters, limit: int, before: str | None) -> Page[Run]:
    """Runs, newest first; without inputs and outputs. `filters`: agent, status, session, root.

    Those of a tree are listed with `root`; without it only roots are.
    """
    check_choice("status", filters.get("status"), get_args(RunStatus))
    where, values = ["tenant = ?"], [tenant]
    if "root" not in filters:
        where.append("parent IS NULL")
    for column, value in filters.items():
        if column == "root":
            where.append("(id = ? OR (root = ? AND parent IS NOT NULL))")
            values += [value, value]
            continue
        if (column, value) == ("status", "running"):
            where.append("status IN ('running', 'waiting')")
            continue
        where.append(f"{column} = ?")
        values.append(value)
    if before is not None:
        if not re.match("run_.", before):
            raise InvalidInput("INPUT_INVALID", f"cursor {before!r}: expected the `next` of an earlier page")
        where, values = [*where, "id < ?"], [*values, before]
    cursor.execute(f"{_RUN} WHERE {' AND '.join(where)} ORDER BY id DESC LIMIT ?", (*values, limit + 1))
    rows = cursor.fetchall()
    return Page([_run_of_row(row) for row in rows[:limit]], rows[limit - 1][0] if len(rows) > limit else None)


_SESSION = (
    "SELECT s.id, s.created, COALESCE((SELECT MAX(r.updated) FROM bread_runs r WHERE r.session = s.id), s.created)"
    " FROM bread_sessions s"
)


def _session_of_row(cursor: Cursor, row: Sequence[Any]) -> Session:
    session_id, created, updated = row
    cursor.execute("SELECT key, value FROM bread_tags WHERE session = ?", (session_id,))
    tags = {str(key): str(value) for key, value in cursor.fetchall()}
    return Session(id=session_id, tags=tags, created_at=moment(created), updated_at=moment(updated))


def get_session(cursor: Cursor, session_id: str) -> Session:
    cursor.execute(f"{_SESSION} WHERE s.id = ?", (session_id,))
    row = cursor.fetchone()
    if row is None:
        raise session_not_found(session_id)
    return _session_of_row(cursor, row)


def list_sessions(
    cursor: Cursor, *, tenant: str, tags: Mapping[str, str], limit: int, after: str | None
) -> Page[Session]:
    where, values = ["s.tenant = ?", "s.id > ?"], [tenant, after or ""]
    _where_tags(where, values, tags, "s.id")
    cursor.execute(f"{_SESSION} WHERE {' AND '.join(where)} ORDER BY s.id LIMIT ?", (*values, limit + 1))
    rows = cursor.fetchall()
    items = [_session_of_row(cursor, row) for row in rows[:limit]]
    return Page(items, rows[limit - 1][0] if len(rows) > limit else None)


def idle_sessions(
    cursor: Cursor, *, tenant: str, idle_before: float, tags: Mapping[str, str], keep_pending: bool
) -> list[str]:
    """Sessions that nothing has happened in since `idle_before` (unix seconds); running ones are spared."""
    spared = ("running", "waiting", "suspended" if keep_pending else "running")
    where, values = ["s.tenant = ?"], [tenant]
    _where_tags(where, values, tags, "s.id")
    cursor.execute(
        f"SELECT s.id FROM bread_sessions s WHERE {' AND '.join(where)}"  # noqa: S608
        " AND COALESCE((SELECT MAX(r.updated) FROM bread_runs r WHERE r.session = s.id), s.created) < ?"
        " AND NOT EXISTS (SELECT 1 FROM bread_runs r WHERE r.session = s.id AND r.status IN (?, ?, ?)) ORDER BY s.id",
        (*values, idle_before, *spared),
    )
    return [row[0] for row in cursor.fetchall()]


def session_events(cursor: Cursor, session_id: str) -> list[list[Recorded]]:
    """The events of a session's root runs, run by run; SESSION_NOT_FOUND for an unknown or deleted one."""
    if fold_session(session_id, stream(cursor, session_stream(session_id))).status != "open":
        raise session_not_found(session_id)
    return [stream(cursor, root) for _, root in _roots_of(cursor, session_id)]


@dataclass(frozen=True, slots=True)
class Standing:
    """Where a root's log stands at one moment. `status` is that of the run that is looked at; None: it is not there."""

    status: str | None
    seq: int
    parked: bool


def standing(cursor: Cursor, root: str, view: str) -> Standing:
    cursor.execute("SELECT status FROM bread_runs WHERE id = ?", (view,))
    row = cursor.fetchone()
    cursor.execute(
        "SELECT l.seq, e.topic FROM bread_log l JOIN stored_events e ON e.rowid = l.position WHERE l.root = ?"
        " ORDER BY l.seq DESC LIMIT 1",
        (root,),
    )
    seq, topic = cursor.fetchone() or (0, "")
    return Standing(row[0] if row else None, seq, topic.startswith(f"{Parked.NAME}@"))
