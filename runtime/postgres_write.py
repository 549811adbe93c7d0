"""The write transaction on PostgreSQL: what it writes is held back, and sent in one statement for a whole group."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Sequence
from typing import Any

import psycopg
from psycopg import errors

from ..domain.envelope import Recorded
from ..domain.run_state import RunState
from ..projections.rows import Row
from ..transport.codec import decode_event, stored_form
from .postgres_sql import PostgresCursor, failure, translated
from .postgres_wire import BIGINT, BYTEAS, JSON, TEXT, TEXTS, Statement, together
from .sql import CHANGING, TABLES, VIEWS, Kind, SqlTransaction, on_conflict
from .unit import Collision, Place, Spoiled

FOUND_BY = ("id", "root", "run", "session", "idempotency_key")
LOCK = "LOCK TABLE stored_events IN EXCLUSIVE MODE"


def _put(kind: Kind, place: int) -> str:
    """Rows as JSON, since one text is turned faster than a column of values each."""
    table, columns = TABLES[kind]
    types = dict(part.split()[:2] for part in VIEWS[table].strip("()").replace("\n", " ").split(","))
    typed = ", ".join(f"{column} {translated(types[column]).partition(' COLLATE')[0]}" for column in columns)
    named = ", ".join(columns)
    return (
        f"INSERT INTO {table} ({named}) SELECT {named} FROM json_to_recordset(${place}) AS one({typed})"  # noqa: S608
        f" {on_conflict(CHANGING[kind])}"
    )


BEGIN, LOCKED = Statement(b"begin", "BEGIN"), Statement(b"lock", LOCK)
COMMIT, ROLLBACK = Statement(b"commit", "COMMIT"), Statement(b"rollback", "ROLLBACK")
END = Statement(b"end", "SELECT max(notification_id) FROM stored_events")
SINCE = Statement(
    b"since", "SELECT originator_id, notification_id FROM stored_events WHERE notification_id > $1", (BIGINT,)
)
READ = Statement(
    b"read",
    "SELECT originator_id, originator_version, topic, state, notification_id FROM stored_events"
    " WHERE originator_id = ANY($1) ORDER BY notification_id",
    (TEXTS,),
)
PLACES = Statement(
    b"places",
    """SELECT id, (SELECT max(seq) FROM bread_log WHERE root = run.id), tenant,
    EXISTS (SELECT FROM bread_runs AS other
        WHERE other.session = run.session AND other.id <> run.id AND other.parent IS NULL)
    FROM bread_runs AS run WHERE id = ANY($1)""",
    (TEXTS,),
)
FLUSH = Statement(
    b"flush",
    f"""WITH events AS (
    INSERT INTO stored_events (originator_id, originator_version, topic, notification_id, state)
    SELECT * FROM ROWS FROM (
        json_to_recordset($1) AS (stream text, version bigint, topic text, position bigint), unnest($2)) AS one),
log AS (
    INSERT INTO bread_log (root, seq, position)
    SELECT * FROM json_to_recordset($3) AS one(root text, seq bigint, position bigint)),
runs AS ({_put("run", 4)}), checkpoints AS ({_put("checkpoint", 5)}), sessions AS ({_put("session", 6)})
SELECT setval('stored_events_notification_id_seq', $7), pg_notify($8, $9)::text""",  # noqa: S608
    (JSON, BYTEAS, JSON, JSON, JSON, JSON, BIGINT, TEXT, TEXT),
)


class PostgresTransaction(SqlTransaction):
    """Holds the lock under which positions are given in commit order, so it gives them itself.

    It begins with one message and ends with one. What is asked of the views or the log is asked after what was held
    back of it has been sent; what was expected has been read with the first message, and counts until it is written to.
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
        self._held: set[str | None] = set()  # the streams of events, and what rows are found by, that are held back
        self._streams: dict[str, list[Any]] = {}
        self._places: dict[str, Place] = {}
        self._alone: dict[str, bool] = {}
        self.written = ("", 0, b"")

    # --- the lock, and what is held back

    def _begin(self) -> None:
        if not self._begun:
            self.since(None)

    def _together(self, *asked: tuple[Statement, Sequence[Any]]) -> list[list[Any]]:
        connection = self.cursor.connection
        try:
            return together(connection, *asked)
        except psycopg.Error as error:
            ours = failure(error, connection)
            taken = isinstance(ours, Spoiled) and isinstance(error, errors.UniqueViolation)
            raise (Collision() if taken else ours) from error

    def since(self, position: int | None, expected: Collection[str] = ()) -> tuple[set[str], int]:
        # Ids that the server would refuse are left to the decision that asks for them.
        ids = [one.encode() for one in expected if one.isascii() and one.isprintable()]
        look = (END, ()) if position is None else (SINCE, (position,))
        more = ((READ, (ids,)), (PLACES, (ids,))) if ids else ()
        _, _, news, *found = self._together((BEGIN, ()), (LOCKED, ()), look, *more)
        self._begun = True
        if found:
            self._streams = {one.decode(): [] for one in ids}
            for row in found[0]:
                self._streams[row[0]].append(row)
            self._places = {root: ((seq or 0) + 1, tenant) for root, seq, tenant, _ in found[1]}
            self._alone = {run_id: not others for run_id, _, _, others in found[1]}
        if position is None:
            self._end = news[0][0] or 0
            return set(), self._end
        self._end = max((position, *(row[1] for row in news)))
        return {row[0] for row in news}, self._end

    def flush(self) -> None:
        if self._held:
            self._together(self._flush())

    def _flush(self) -> tuple[Statement, Sequence[Any]]:
        rows = [json.dumps([*self._rows[kind].values()]) for kind in TABLES]
        told = f"{self._worker} {self._end}"
        values = (json.dumps(self._events), self._states, json.dumps(self._log), *rows, self._end, self._channel, told)
        self._events, self._states, self._log = [], [], []
        self._rows = {kind: {} for kind in TABLES}
        self._held, self._alone = set(), {}
        return FLUSH, values

    def end(self) -> None:
        """Commit what was written."""
        last = (COMMIT if self.wrote else ROLLBACK, ())
        self._together(*([self._flush()] if self._held else []), last)

    def _sent(self, *values: str) -> None:
        """Send what is held back if something of it is found by one of these."""
        if not self._held.isdisjoint(values):
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
            self._held.add(one.stream)
            self._streams.pop(one.stream, None)
            if one.meta.root is not None:
                self._places.pop(one.meta.root, None)
                self._log.append({"root": one.meta.root, "seq": one.meta.seq, "position": self._end})
            placed.append(Recorded(one.stream, one.version, one.event, one.meta, self._end))
        self.written = (placed[-1].stream, placed[-1].version, self._states[-1])
        self.wrote = True
        return placed

    def put_row(self, kind: Kind, row: Row) -> None:
        there = self._rows[kind].get(row["id"])
        if there is None:
            self._rows[kind][row["id"]] = dict(row)
            self._held.update(row.get(name) for name in FOUND_BY)
        else:
            there |= {column: row[column] for column in CHANGING[kind]}

    def put_run(self, state: RunState, events: Sequence[Recorded]) -> None:
        if state.children:
            self._sent(state.id)  # what it waits for is replaced
        super().put_run(state, events)

    def erase(self, stream: str, below: int) -> None:
        self.flush()
        self._streams.pop(stream, None)
        super().erase(stream, below)

    def forget(self, kind: str, ids: Iterable[str]) -> None:
        self.flush()
        self._places, self._alone = {}, {}
        super().forget(kind, ids)

    # --- reading

    def read(self, stream: str, after: int) -> list[Recorded]:
        rows = self._streams.get(stream)
        if rows is not None:
            return [decode_event(*row) for row in rows if row[1] > after]
        self._sent(stream)
        return super().read(stream, after)

    def read_one(self, stream: str, version: int) -> Recorded | None:
        self._sent(stream)
        return super().read_one(stream, version)

    def place(self, root: str) -> Place:
        place = self._places.get(root)
        if place is not None:
            return place
        self._sent(root)
        return super().place(root)

    def run_of_key(self, tenant: str, key: str) -> str | None:
        self._sent(key)
        return super().run_of_key(tenant, key)

    def active_roots(self, session: str) -> list[str]:
        self._sent(session)
        return super().active_roots(session)

    def pending(self, root: str) -> list[tuple[str, str]]:
        self._sent(root)
        return super().pending(root)

    def has_other_roots(self, session: str, run_id: str) -> bool:
        held = self._rows["run"].values()
        if any(run["session"] == session and run["parent"] is None and run["id"] != run_id for run in held):
            return True
        alone = self._alone.get(run_id)
        return not alone if alone is not None else super().has_other_roots(session, run_id)

    def last_activity(self, session: str) -> float:
        self._sent(session)
        return super().last_activity(session)

    def owned(self, session: str) -> tuple[list[str], list[str]]:
        self._sent(session)
        return super().owned(session)
