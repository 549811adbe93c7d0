"""The views, computed again from the log: to check them, and to replace them.

A view row is a function of its stream alone, so streams are read one by one and memory stays small.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any, Protocol

from ..domain.envelope import Recorded
from ..domain.errors import BreadError
from ..projections.rows import (
    checkpoint_row,
    delegation_row,
    run_row,
    session_row,
    tag_rows,
)
from ..transport.codec import decode_event
from .folds import fold_checkpoint, fold_run, fold_session
from .sql import PUT, TABLES, VIEWS, Cursor, Kind, SqlTransaction

MAX_PROBLEMS = 100
PAGE = 1000


@dataclass
class StreamRows:
    """What one stream gives to the views: at most one row of one table, tags, what a supervisor waits for, and its
    places in a root's log."""

    kind: Kind | None = None
    row: dict[str, Any] = field(default_factory=dict)
    tags: list[tuple[str, str, str]] = field(default_factory=list)
    delegation: dict[str, Any] | None = None
    log: list[tuple[str, int, int]] = field(default_factory=list)


def rows_of(stream: str, events: list[Recorded]) -> StreamRows:
    """The view rows of a stream; none for an erased one. Raises what a stream that does not load raises."""
    if stream.startswith("session:"):
        session = fold_session(stream.removeprefix("session:"), events)
        if session.status != "open":
            return StreamRows()
        return StreamRows("session", session_row(session, events[0]), tag_rows(session))
    if stream.startswith("cp_"):
        checkpoint = fold_checkpoint(stream, events)
        if checkpoint.question is None:
            return StreamRows()
        found = StreamRows("checkpoint", checkpoint_row(checkpoint, events[0], events[-1]))
    else:
        run = fold_run(stream, events)
        if run.status == "erased":
            return StreamRows()
        row, delegation = run_row(run, events[0], events[-1]), delegation_row(run, events[0], events[-1])
        found = StreamRows("run", row, delegation=delegation)
    found.log = [(e.meta.root, e.meta.seq, e.position) for e in events if e.meta.root is not None]
    return found


def _streams(cursor: Cursor) -> Iterator[tuple[str, list[Any]]]:
    for stream, group in groupby(_events(cursor), key=lambda row: str(row[0])):
        yield stream, list(group)


def _events(cursor: Cursor) -> Iterator[Any]:
    stream, version = "", 0
    while True:
        cursor.execute(
            "SELECT originator_id, originator_version, topic, state, rowid FROM stored_events"
            " WHERE (originator_id, originator_version) > (?, ?) ORDER BY originator_id, originator_version LIMIT ?",
            (stream, version, PAGE),
        )
        page = cursor.fetchall()
        yield from page
        if len(page) < PAGE:
            return
        stream, version = page[-1][:2]


@dataclass
class Report:
    """What a check found. `ok` if there is no problem."""

    streams: int = 0
    events: int = 0
    problems: list[str] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        return not self.problems

    def add(self, problem: str) -> None:
        if len(self.problems) < MAX_PROBLEMS:
            self.problems.append(problem)


def check(cursor: Cursor, progress: Callable[[int], None] = lambda streams: None) -> Report:
    """Every stream loads, versions and seqs are contiguous, and the views are what a rebuild would give."""
    report, counts = Report(), dict.fromkeys(VIEWS, 0)
    for stream, stored in _streams(cursor):
        report.streams += 1
        report.events += len(stored)
        try:
            found = rows_of(stream, [decode_event(*row) for row in stored])
        except BreadError as error:
            report.add(f"{stream}: {error}")
            continue
        except Exception as error:  # damage may have any shape, and a check must see it through
            report.add(f"{stream}: does not load: {type(error).__name__}: {error}")
            continue
        counts["bread_log"] += len(found.log)
        counts["bread_tags"] += len(found.tags)
        if found.kind is not None:
            counts[TABLES[found.kind][0]] += 1
            _compare_row(cursor, found.kind, found, report)
        if found.delegation is not None:
            counts["bread_checkpoints"] += 1
            _compare_row(cursor, "checkpoint", StreamRows(row=found.delegation), report)
        for root, seq, position in found.log:
            cursor.execute("SELECT position FROM bread_log WHERE root = ? AND seq = ?", (root, seq))
            row = cursor.fetchone()
            if row is None or row[0] != position:
                report.add(f"{stream}: seq {seq} of {root} is not in the log index")
        progress(report.streams)
    _compare_counts(cursor, counts, report)
    return report


def _compare_row(cursor: Cursor, kind: Kind, found: StreamRows, report: Report) -> None:
    table, columns = TABLES[kind]
    cursor.execute(f"SELECT {', '.join(columns)} FROM {table} WHERE id = ?", (found.row["id"],))  # noqa: S608
    row = cursor.fetchone()
    if row is None:
        report.add(f"{found.row['id']}: no row in {table}")
        return
    if kind == "session":
        cursor.execute("SELECT key, value, session FROM bread_tags WHERE session = ? ORDER BY key", (found.row["id"],))
        if [tuple(tag) for tag in cursor.fetchall()] != found.tags:
            report.add(f"{found.row['id']}: its tags are not those of the log")
    for column, value in zip(columns, row, strict=True):
        if value != found.row[column]:
            report.add(f"{found.row['id']}: {column} is {value!r} in {table}, the log says {found.row[column]!r}")


def _compare_counts(cursor: Cursor, counts: dict[str, int], report: Report) -> None:
    for table, expected in counts.items():
        cursor.execute(f"SELECT COUNT(*) FROM {table}")  # noqa: S608
        actual = cursor.fetchone()[0]
        if actual != expected:
            report.add(f"{table} has {actual} rows, the log gives {expected}")
    cursor.execute("SELECT root FROM bread_log GROUP BY root HAVING MIN(seq) <> 1 OR MAX(seq) <> COUNT(*)")
    for row in cursor.fetchall():
        report.add(f"{row[0]}: its seqs are not contiguous from 1")


class Writable(Protocol):
    def write(self) -> AbstractContextManager[SqlTransaction]: ...


def rebuild(store: Writable) -> int:
    """Replace the views by what the log gives, in one transaction. Gives the number of streams."""
    with store.write() as tx:
        for table in VIEWS:
            tx.cursor.execute(f"DELETE FROM {table}")  # noqa: S608
        tx.wrote = True
        return fill(tx.cursor)


def fill(cursor: Cursor) -> int:
    """Fill the empty views. Gives the number of streams."""
    streams = 0
    for stream, stored in _streams(cursor):
        streams += 1
        found = rows_of(stream, [decode_event(*row) for row in stored])
        if found.kind is not None:
            cursor.execute(PUT[found.kind], found.row)
        if found.delegation is not None:
            cursor.execute(PUT["checkpoint"], found.delegation)
        cursor.executemany("INSERT INTO bread_tags (key, value, session) VALUES (?,?,?)", found.tags)
        cursor.executemany("INSERT INTO bread_log (root, seq, position) VALUES (?,?,?)", found.log)
    return streams
