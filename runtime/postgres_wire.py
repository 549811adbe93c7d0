"""Statements of every commit, several in one message: by way of libpq, since the driver's cursors take longer for a
statement than the server does, and wait for the answer to each."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from typing import Any
from weakref import WeakKeyDictionary

import psycopg
from psycopg import generators
from psycopg.errors import error_from_result
from psycopg.pq import ConnStatus, ExecStatus
from psycopg.pq.abc import PGconn, PGresult

from .postgres_watch import touch

BIGINT, TEXT, JSON, TEXTS, BYTEAS = 20, 25, 114, 1009, 1001
_ELEMENTS = {TEXTS: TEXT, BYTEAS: 17}
_READ: dict[int, Callable[[bytes], Any]] = {
    16: lambda value: value == b"\x01",
    17: bytes,
    BIGINT: lambda value: int.from_bytes(value, "big", signed=True),
    TEXT: bytes.decode,
}
_DONE = (ExecStatus.COMMAND_OK, ExecStatus.TUPLES_OK)


@dataclass(frozen=True, eq=False)
class Statement:
    """What is sent often, with the types of its values: each connection prepares it once."""

    name: bytes
    sql: str
    types: tuple[int, ...] = ()


_prepared: WeakKeyDictionary[psycopg.Connection[Any], set[Statement]] = WeakKeyDictionary()


def together(connection: psycopg.Connection[Any], *asked: tuple[Statement, Sequence[Any]]) -> list[list[Any]]:
    """The rows of each statement. The first that fails is raised, and those after it are not carried out."""
    touch(connection)
    pgconn, prepared = connection.pgconn, _prepared.setdefault(connection, set())
    values = [[_packed(*one) for one in zip(statement.types, given, strict=True)] for statement, given in asked]
    sent: list[Statement | None] = []
    answers: list[list[Any]] = []
    pgconn.enter_pipeline_mode()
    try:
        for (statement, _), packed in zip(asked, values, strict=True):
            if statement not in prepared:
                pgconn.send_prepare(statement.name, statement.sql.encode(), statement.types)
                sent.append(statement)
            pgconn.send_query_prepared(statement.name, packed, [int(oid in _ELEMENTS) for oid in statement.types], 1)
            sent.append(None)
        pgconn.pipeline_sync()
        for one, result in zip(sent, connection.wait(_results(pgconn, len(sent))), strict=True):
            if result.status not in _DONE:
                raise error_from_result(result)
            if one is None:
                answers.append(_rows(result))
            else:
                prepared.add(one)
    finally:
        if pgconn.status == ConnStatus.OK:
            try:
                pgconn.exit_pipeline_mode()
            except psycopg.Error:
                connection.close()  # the server went away before the end of the message
    return answers


def _results(pgconn: PGconn, count: int) -> Generator[Any, Any, list[PGresult]]:
    yield from generators.send(pgconn)
    found: list[PGresult] = []
    for _ in range(count + 1):  # and the end of the message
        found += yield from generators.fetch_many(pgconn)
    return found[:count]


def _packed(oid: int, value: Any) -> bytes:
    if oid not in _ELEMENTS:
        return str(value).encode()
    parts = [number.to_bytes(4, "big") for number in (1, 0, _ELEMENTS[oid], len(value), 1)]
    for one in value:
        parts += (len(one).to_bytes(4, "big"), one)
    return b"".join(parts)


def _rows(result: PGresult) -> list[Any]:
    readers = [_READ[result.ftype(column)] for column in range(result.nfields)]
    rows = []
    for row in range(result.ntuples):
        values = (result.get_value(row, column) for column in range(len(readers)))
        rows.append(tuple(None if v is None else read(v) for read, v in zip(readers, values, strict=True)))
    return rows
