"""The write transaction on PostgreSQL: what it writes is held back, and sent in one statement for a whole group."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any

import psycopg
from psycopg import errors

from ..domain.envelope import Recorded
from ..domain.run_state import RunState
from ..projections.rows import Row
from ..transport.codec import stored_form
from .postgres_sql import PostgresCursor, failure, translated
from .sql import CHANGING, TABLES, VIEWS, Kind, SqlTransaction, on_conflict
from .unit import Collision, Place, Spoiled

LOCK = "LOCK TABLE stored_events IN EXCLUSIVE MODE"


def _put(kind: Kind) -> str:
    """Rows as JSON, since the driver turns one text faster than a column of values each."""
    table, columns = TABLES[kind]
    types = dict(part.split()[:2] for part in VIEWS[table].strip("()").replace("\n", " ").split(","))
    typed = ", ".join(f"{column} {translated(types[column]).partition(' COLLATE')[0]}" for column in columns)
    named = ", ".join(columns)
    return (
        f"INSERT INTO {table} ({named}) SELECT {named} FROM json_to_recordset(%s::json) AS one({typed})"  # noqa: S608
        f" {on_conflict(CHANGING[kind])}"
    )


FLUSH = f"""WITH events AS (
    INSERT INTO stored_events (originator_id, originator_version, topic, notification_id, state)
    SELECT * FROM ROWS FROM (
        json_to_recordset(%s::json) AS (stream text, version bigint, topic text, position bigint),
        unnest(%s::bytea[])) AS one),
log AS (
    INSERT INTO bread_log (root, seq, position)
    SELECT * FROM json_to_recordset(%s::json) AS one(root text, seq bigint, position bigint)),
runs AS ({_put("run")}), checkpoints AS ({_put("checkpoint")}), sessions AS ({_put("session")})
SELECT setval('stored_events_notification_id_seq', %s), pg_notify(%s, %s)"""  # noqa: S608


class PostgresTransaction(SqlTransaction):
    """Holds the lock under which positions are given in commit order, so it gives them itself.

    What is asked of the views or the log is asked after what was held back of it has been sent.
    """

    cursor: PostgresCursor

    def __init__(self, connection: psycopg.Connection[Any], channel: str, worker: str) -> None:
        super().__init__(PostgresCursor(connection, self._begin))
        self._channel, self._worker = channel, worker
        self._begun = False
        self._end = 0
        self._events: list[Row] = []
        self._states: list[bytes] = []
        self._log: list[Row] = []
        self._rows: dict[Kind, dict[str, Row]] = {kind: {} for kind in TABLES}
        self.written = ("", 0, b"")

    # --- the lock, and what is held back

    def _begin(self) -> None:
        if not self._begun:
            self.since(None)

    def since(self, position: int | None) -> tuple[set[str], int]:
        # One message: begin, wait for the lock, and look at what it protects.
        look = "SELECT max(notification_id) FROM stored_events"
        if position is not None:
            look = (
                "SELECT originator_id, notification_id FROM stored_events WHERE notification_id > "  # noqa: S608
                f"{int(position)}"
            )
        connection = self.cursor.connection
        try:
            found = connection.execute(f"BEGIN; {LOCK}; {look}".encode())
            while found.nextset():
                pass
            rows = found.fetchall()
        except psycopg.Error as error:
            raise failure(error, connection) from error
        self._begun = True
        if position is None:
            self._end = int(rows[0][0] or 0)
            return set(), self._end
        self._end = max((position, *(row[1] for row in rows)))
        return {row[0] for row in rows}, self._end

    def flush(self) -> None:
        if not self._events and not any(self._rows.values()):
            return
        rows = [json.dumps([*self._rows[kind].values()]) for kind in TABLES]
        told = f"{self._worker} {self._end}"
        values = (json.dumps(self._events), self._states, json.dumps(self._log), *rows, self._end, self._channel, told)
        try:
            self.cursor.native(FLUSH, values)
        except Spoiled as error:
            raise (Collision if isinstance(error.__cause__, errors.UniqueViolation) else Spoiled) from error.__cause__
        self._events, self._states, self._log = [], [], []
        self._rows = {kind: {} for kind in TABLES}

    def _shown(self, **what: str) -> None:
        """Send what is held back if a row of it has one of these values."""
        held = (row for kind in TABLES for row in self._rows[kind].values())
        if any(row.get(name) == value for row in held for name, value in what.items()):
            self.flush()

    def _stored(self, stream: str) -> None:
        if any(event["stream"] == stream for event in self._events):
            self.flush()

    # --- writing

    def insert(self, events: Sequence[Recorded]) -> list[Recorded]:
        self._begin()
        placed = []
        for one in events:
            self._end += 1
            topic, state = stored_form(one)
            self._events.append({"stream": one.stream, "version": one.version, "topic": topic, "position": self._end})
            self._states.append(state)
            if one.meta.root is not None:
                self._log.append({"root": one.meta.root, "seq": one.meta.seq, "position": self._end})
            placed.append(Recorded(one.stream, one.version, one.event, one.meta, self._end))
        self.written = (placed[-1].stream, placed[-1].version, self._states[-1])
        self.wrote = True
        return placed

    def put_row(self, kind: Kind, row: Row) -> None:
        there = self._rows[kind].get(row["id"])
        if there is None:
            self._rows[kind][row["id"]] = dict(row)
        else:
            there |= {column: row[column] for column in CHANGING[kind]}

    def put_run(self, state: RunState, events: Sequence[Recorded]) -> None:
        if state.children:
            self._shown(run=state.id)  # what it waits for is replaced
        super().put_run(state, events)

    def erase(self, stream: str, below: int) -> None:
        self.flush()
        super().erase(stream, below)

    def forget(self, kind: str, ids: Iterable[str]) -> None:
        self.flush()
        super().forget(kind, ids)

    # --- reading

    def read(self, stream: str, after: int) -> list[Recorded]:
        self._stored(stream)
        return super().read(stream, after)

    def read_one(self, stream: str, version: int) -> Recorded | None:
        self._stored(stream)
        return super().read_one(stream, version)

    def place(self, root: str) -> Place:
        self._shown(id=root, root=root)
        return super().place(root)

    def run_of_key(self, tenant: str, key: str) -> str | None:
        self._shown(idempotency_key=key)
        return super().run_of_key(tenant, key)

    def active_roots(self, session: str) -> list[str]:
        self._shown(session=session)
        return super().active_roots(session)

    def pending(self, root: str) -> list[tuple[str, str]]:
        self._shown(root=root)
        return super().pending(root)

    def has_other_roots(self, session: str, run_id: str) -> bool:
        held = self._rows["run"].values()
        if any(run["session"] == session and run["parent"] is None and run["id"] != run_id for run in held):
            return True
        return super().has_other_roots(session, run_id)

    def last_activity(self, session: str) -> float:
        self._shown(session=session, id=session)
        return super().last_activity(session)

    def owned(self, session: str) -> tuple[list[str], list[str]]:
        self._shown(session=session)
        return super().owned(session)
