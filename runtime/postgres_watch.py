"""Nobody waits for ever on a database that has gone silent.

The driver waits as long as the other side's kernel acknowledges what it is sent: a server that is stopped, or a proxy
that forwards nothing, is no error to it. So one thread of the process shuts the socket of a connection down whose
operation gets no further; whoever waits on it then finds the connection lost.
"""

from __future__ import annotations

import logging
import os
import socket
import threading
import time
from types import TracebackType
from typing import Any
from weakref import WeakSet

import psycopg

logger = logging.getLogger("bread")
LIMIT_SECONDS = 35.0  # the server itself ends a statement after 30


class Watched:
    """An operation on a connection, as a context manager; `touch` says that it gets on. Costs no system call."""

    __slots__ = ("_connection", "limit", "since")

    def __init__(self, connection: psycopg.Connection[Any], limit: float) -> None:
        self._connection, self.limit, self.since = connection, limit, 0.0

    def __enter__(self) -> None:
        self.since = time.monotonic()
        _operations[self._connection] = self
        if self.limit < _watch.shortest or not _watch.is_alive():
            _watch_for(self.limit)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        _operations.pop(self._connection, None)


def watched(connection: psycopg.Connection[Any], limit: float | None = None) -> Watched:
    """Bound what happens in this block by `limit` seconds without a `touch`."""
    return Watched(connection, LIMIT_SECONDS if limit is None else limit)


def touch(connection: psycopg.Connection[Any]) -> None:
    """The operation under way gets on: its next step has all the time again."""
    operation = _operations.get(connection)
    if operation is not None:
        operation.since = time.monotonic()


def was_cut(connection: psycopg.Connection[Any]) -> bool:
    """Whether it was lost because nothing came from the other side."""
    return connection in _cut


class Watch(threading.Thread):
    """Looks often enough for the shortest limit that it has been told of."""

    def __init__(self, shortest: float) -> None:
        super().__init__(name="bread-watch", daemon=True)
        self.shortest = shortest
        self.sooner = threading.Event()

    def run(self) -> None:
        while True:
            self.sooner.wait(self.shortest / 4)
            self.sooner.clear()
            for connection, operation in tuple(_operations.items()):
                if time.monotonic() - operation.since > operation.limit:
                    _shut(connection, operation)


_operations: dict[psycopg.Connection[Any], Watched] = {}
_cut: WeakSet[psycopg.Connection[Any]] = WeakSet()
_watch = Watch(LIMIT_SECONDS)
_starting = threading.Lock()


def _watch_for(limit: float) -> None:
    global _watch
    with _starting:
        if not _watch.is_alive():  # not begun yet, or left behind by a fork
            _watch = Watch(min(limit, _watch.shortest))
            _watch.start()
        elif limit < _watch.shortest:
            _watch.shortest = limit
            _watch.sooner.set()


def _shut(connection: psycopg.Connection[Any], operation: Watched) -> None:
    try:
        number = connection.fileno()
        with socket.socket(fileno=os.dup(number)) as theirs:
            # Unless the connection still has it the number may be another file's; and the operation may be over.
            if connection.fileno() == number and _operations.get(connection) is operation:
                _cut.add(connection)
                theirs.shutdown(socket.SHUT_RDWR)
                logger.warning("the database has been silent for %.0f s: a connection is given up", operation.limit)
    except (OSError, psycopg.Error) as error:
        logger.debug("a silent connection was lost before it was given up: %s", error)
    operation.since = time.monotonic()
