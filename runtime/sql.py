"""What the SQL stores share: the views' tables, and the one write transaction over them.

The statements are SQLite's; PostgreSQL takes them with other words for places, types and the column that numbers the
log (see postgres_sql.py).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Any, Literal, Protocol

from ..domain.checkpoint import CheckpointState
from ..domain.envelope import Recorded
from ..domain.run_state import RunState
from ..domain.session import SessionState
from ..projections.rows import (
    CHECKPOINT_COLUMNS,
    RUN_COLUMNS,
    SESSION_COLUMNS,
    Row,
    checkpoint_row,
    delegation_row,
    run_row,
    session_row,
    tag_rows,
)
from ..transport.codec import decode_event
from .unit import Place

NO_LIMIT = 2**62  # as the argument of LIMIT


class Cursor(Protocol):
    """What the statements need of a driver: values are bound by `?`, or by `:name` from a mapping."""

    def execute(self, sql: str, values: Any = ..., /) -> Any: ...

    def executemany(self, sql: str, rows: Any, /) -> Any: ...

    def fetchone(self) -> Any: ...

    def fetchall(self) -> list[Any]: ...


VIEWS = {
    "bread_log": "(root TEXT, seq INTEGER, position INTEGER NOT NULL, PRIMARY KEY (root, seq))",
    "bread_runs": """(id TEXT PRIMARY KEY, root TEXT NOT NULL, parent TEXT, slot TEXT, link TEXT,
        kind TEXT NOT NULL, session TEXT NOT NULL, tenant TEXT NOT NULL, agent TEXT NOT NULL, status TEXT NOT NULL,
        owner TEXT, idempotency_key TEXT, code TEXT, created REAL NOT NULL, updated REAL NOT NULL)""",
    "bread_checkpoints": """(id TEXT PRIMARY KEY, run TEXT NOT NULL, root TEXT NOT NULL, session TEXT NOT NULL,
        tenant TEXT NOT NULL, agent TEXT NOT NULL, tool TEXT NOT NULL, kind TEXT NOT NULL, status TEXT NOT NULL,
        deadline REAL, position INTEGER NOT NULL, created REAL NOT NULL, settled REAL)""",
    "bread_sessions": "(id TEXT PRIMARY KEY, tenant TEXT NOT NULL, created REAL NOT NULL)",
    "bread_tags": "(key TEXT, value TEXT, session TEXT, PRIMARY KEY (key, value, session))",
}
INDEXES = (
    "bread_runs_session ON bread_runs (session, id)",
    "bread_runs_children ON bread_runs (root, id) WHERE parent IS NOT NULL",
    "bread_runs_status ON bread_runs (status, id)",
    "bread_loops ON stored_events (rowid) WHERE topic = 'run.loop_started@1'",
    "bread_checkpoints_session ON bread_checkpoints (session)",
    "bread_delegations ON bread_checkpoints (run) WHERE kind = 'delegation'",
    "bread_pending ON bread_checkpoints (tenant, position) WHERE status = 'pending'",
    "bread_pending_agent ON bread_checkpoints (tenant, agent, position) WHERE status = 'pending'",
    "bread_pending_children ON bread_checkpoints (root, position) WHERE status = 'pending' AND run <> root",
    "bread_pending_tool ON bread_checkpoints (tenant, tool, position) WHERE status = 'pending'",
    "bread_pending_deadline ON bread_checkpoints (deadline) WHERE status = 'pending' AND deadline IS NOT NULL",
    "bread_tags_session ON bread_tags (session)",
)
UNIQUE_KEY = "bread_runs_key ON bread_runs (tenant, idempotency_key) WHERE idempotency_key IS NOT NULL"


def _upsert(table: str, columns: Sequence[str], changing: Sequence[str]) -> str:
    places = ", ".join(f":{column}" for column in columns)
    return f"INSERT INTO {table} ({', '.join(columns)}) VALUES ({places}) {on_conflict(changing)}"  # noqa: S608


def on_conflict(changing: Sequence[str]) -> str:
    return f"ON CONFLICT (id) DO UPDATE SET {', '.join(f'{column} = excluded.{column}' for column in changing)}"


Kind = Literal["run", "checkpoint", "session"]
TABLES: dict[Kind, tuple[str, Sequence[str]]] = {
    "run": ("bread_runs", RUN_COLUMNS),
    "checkpoint": ("bread_checkpoints", CHECKPOINT_COLUMNS),
    "session": ("bread_sessions", SESSION_COLUMNS),
}
CHANGING: dict[Kind, Sequence[str]] = {
    "run": ("status", "owner", "code", "updated"),
    "checkpoint": ("status", "settled"),
    "session": ("created",),
}
PUT: dict[Kind, str] = {kind: _upsert(*TABLES[kind], CHANGING[kind]) for kind in TABLES}


def select_events(cursor: Cursor, where: str, values: Sequence[Any], limit: int = NO_LIMIT) -> list[Recorded]:
    """Recorded events in log order; `where` is ours, the values are bound."""
    cursor.execute(
        "SELECT originator_id, originator_version, topic, state, rowid FROM stored_events"  # noqa: S608
        f" WHERE {where} ORDER BY rowid LIMIT ?",
        (*values, limit),
    )
    return [decode_event(*row) for row in cursor.fetchall()]


class SqlTransaction:
    """Implements journal.WriteTransaction on a connection that holds the write lock; stores say how events go in."""

    def __init__(self, cursor: Cursor) -> None:
        self.cursor = cursor
        self._execute = cursor.execute
        self.wrote = False

    def read(self, stream: str, after: int) -> list[Recorded]:
        return select_events(self.cursor, "originator_id = ? AND originator_version > ?", (stream, after))

    def read_one(self, stream: str, version: int) -> Recorded | None:
        found = select_events(self.cursor, "originator_id = ? AND originator_version = ?", (stream, version))
        return found[0] if found else None

    def since(self, position: int | None, expected: Collection[str] = ()) -> tuple[set[str], int]:
        if position is None:
            self._execute("SELECT MAX(rowid) FROM stored_events")
            return set(), self.cursor.fetchone()[0] or 0
        self._execute("SELECT originator_id, rowid FROM stored_events WHERE rowid > ?", (position,))
        rows = self.cursor.fetchall()
        return {row[0] for row in rows}, max((position, *(row[1] for row in rows)))

    def flush(self) -> None:
        """Send what was held back until it is needed."""

    def place(self, root: str) -> Place:
        self._execute(
            "SELECT (SELECT MAX(seq) FROM bread_log WHERE root = ?), (SELECT tenant FROM bread_runs WHERE id = ?)",
            (root, root),
        )
        seq, tenant = self.cursor.fetchone()
        return (seq or 0) + 1, tenant

    def insert(self, events: Sequence[Recorded]) -> list[Recorded]:
        raise NotImplementedError

    def erase(self, stream: str, below: int) -> None:
        self._execute("DELETE FROM stored_events WHERE originator_id = ? AND originator_version < ?", (stream, below))

    def forget(self, kind: str, ids: Iterable[str]) -> None:
        for one in ids:
            if kind == "run":
                self._execute("DELETE FROM bread_runs WHERE id = ?", (one,))
                self._execute("DELETE FROM bread_checkpoints WHERE run = ? AND kind = 'delegation'", (one,))
                self._execute("DELETE FROM bread_log WHERE root = ?", (one,))
            elif kind == "checkpoint":
                self._execute("DELETE FROM bread_checkpoints WHERE id = ?", (one,))
            else:
                self._execute("DELETE FROM bread_sessions WHERE id = ?", (one,))
                self._execute("DELETE FROM bread_tags WHERE session = ?", (one,))

    def put_row(self, kind: Kind, row: Row) -> None:
        """Insert a row, or change what changes of one that is there."""
        self._execute(PUT[kind], row)

    def put_run(self, state: RunState, events: Sequence[Recorded]) -> None:
        self.put_row("run", run_row(state, events[0], events[-1]))
        if state.children and state.kind == "agent":
            self._execute("DELETE FROM bread_checkpoints WHERE run = ? AND kind = 'delegation'", (state.id,))
            if (waits := delegation_row(state, events[0], events[-1])) is not None:
                self.put_row("checkpoint", waits)

    def put_checkpoint(self, state: CheckpointState, events: Sequence[Recorded]) -> None:
        self.put_row("checkpoint", checkpoint_row(state, events[0], events[-1]))

    def put_session(self, state: SessionState, events: Sequence[Recorded]) -> None:
        if events[0].version == 1:
            self.put_row("session", session_row(state, events[0]))
            if not state.tags:
                return
        self._execute("DELETE FROM bread_tags WHERE session = ?", (state.id,))
        self.cursor.executemany("INSERT INTO bread_tags (key, value, session) VALUES (?,?,?)", tag_rows(state))

    def run_of_key(self, tenant: str, key: str) -> str | None:
        self._execute("SELECT id FROM bread_runs WHERE tenant = ? AND idempotency_key = ?", (tenant, key))
        row = self.cursor.fetchone()
        return row[0] if row else None

    def active_roots(self, session: str) -> list[str]:
        self._execute(
            "SELECT id FROM bread_runs WHERE session = ? AND parent IS NULL"
            " AND status IN ('running', 'waiting', 'suspended')",
            (session,),
        )
        return [row[0] for row in self.cursor.fetchall()]

    def pending(self, root: str) -> list[tuple[str, str]]:
        self._execute(
            "SELECT id, run FROM bread_checkpoints"
            " WHERE root = ? AND run <> root AND status = 'pending' AND kind <> 'delegation' ORDER BY position",
            (root,),
        )
        return [(row[0], row[1]) for row in self.cursor.fetchall()]

    def has_other_roots(self, session: str, run_id: str) -> bool:
        self._execute(
            "SELECT 1 FROM bread_runs WHERE session = ? AND id <> ? AND parent IS NULL LIMIT 1", (session, run_id)
        )
        return self.cursor.fetchone() is not None

    def last_activity(self, session: str) -> float:
        self._execute(
            "SELECT MAX(at) FROM (SELECT updated AS at FROM bread_runs WHERE session = ?"
            " UNION ALL SELECT created FROM bread_sessions WHERE id = ?) AS times",
            (session, session),
        )
        return float(self.cursor.fetchone()[0] or 0.0)

    def owned(self, session: str) -> tuple[list[str], list[str]]:
        self._execute("SELECT id FROM bread_runs WHERE session = ? ORDER BY id", (session,))
        run_ids = [row[0] for row in self.cursor.fetchall()]
        self._execute(
            "SELECT id FROM bread_checkpoints WHERE session = ? AND kind <> 'delegation' ORDER BY id", (session,)
        )
        return run_ids, [row[0] for row in self.cursor.fetchall()]
