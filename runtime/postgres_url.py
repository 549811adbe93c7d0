"""Where a PostgreSQL store is, and how it is spoken to: connections that do not wait for ever."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import psycopg
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from ..domain.errors import InvalidInput, StoreUnavailable, StoreUnreadable
from .postgres_sql import in_our_terms

OLDEST = 140000  # as the server counts: 14.0
CONNECT_SECONDS = 5
LOCK_SECONDS = 10
STATEMENT_SECONDS = 30

# Sockets: a peer that is gone without a word is noticed after 15 seconds. Sessions: whoever stops in the middle of a
# transaction loses it, since everybody else waits for its lock.
_SOCKET = {"keepalives_idle": 5, "keepalives_interval": 5, "keepalives_count": 2, "tcp_user_timeout": 15_000}
_SESSION = {
    "lock_timeout": f"{LOCK_SECONDS}s",
    "statement_timeout": f"{STATEMENT_SECONDS}s",
    "idle_in_transaction_session_timeout": f"{LOCK_SECONDS}s",
    "synchronous_commit": "on",
    "client_min_messages": "warning",
}


@dataclass(frozen=True)
class Address:
    """A store's URL, as libpq reads it; `worker` names this process to the server."""

    url: str
    worker: str

    @cached_property
    def conninfo(self) -> str:
        """INPUT_INVALID for a URL that libpq does not take."""
        try:
            given = conninfo_to_dict(self.url)
        except psycopg.ProgrammingError as error:
            raise InvalidInput("INPUT_INVALID", f"store: {' '.join(str(error).split())}") from None
        session = " ".join(f"-c {name}={value}" for name, value in _SESSION.items())
        options = f"{given.pop('options', None) or ''} {session}".strip()
        defaults: dict[str, Any] = {
            "connect_timeout": CONNECT_SECONDS,
            "application_name": f"bread {self.worker}",
            **_SOCKET,
        }
        return make_conninfo(**{**defaults, **given, "options": options})

    @cached_property
    def shown(self) -> str:
        """The URL without what only its owner shall see."""
        given = conninfo_to_dict(self.url)
        host, port = given.get("host") or given.get("hostaddr") or "localhost", given.get("port") or 5432
        user = f"{given['user']}@" if given.get("user") else ""
        return f"postgresql://{user}{host}:{port}/{given.get('dbname') or given.get('user') or ''}"

    def connect(self) -> psycopg.Connection[Any]:
        """A connection in autocommit mode, for one thread at a time; StoreUnavailable, StoreUnreadable."""
        try:
            return psycopg.connect(self.conninfo, autocommit=True)
        except psycopg.Error as error:
            raise StoreUnavailable(f"cannot reach {self.shown}: {_reason(error)}") from error

    def look(self, connection: psycopg.Connection[Any]) -> None:
        """Refuse a server that bread cannot work on."""
        version = connection.info.server_version
        if version < OLDEST:
            raise StoreUnreadable(
                "STORE_INVALID",
                f"{self.shown} is PostgreSQL {version // 10000}, bread needs {OLDEST // 10000} or newer",
            )
        row = connection.execute(
            "SELECT current_setting('server_encoding'), pg_is_in_recovery(), current_schema()"
        ).fetchone()
        encoding, replica, schema = row or ("", False, None)
        if encoding != "UTF8":
            raise StoreUnreadable("STORE_INVALID", f"{self.shown} is encoded in {encoding}, bread needs UTF8")
        if replica:
            raise StoreUnavailable(f"{self.shown} is a replica, which takes no writes")
        if schema is None:
            raise StoreUnreadable("STORE_INVALID", f"{self.shown} has no schema that its search_path names")


def _reason(error: psycopg.Error) -> str:
    """One line of what the driver says, which may be one for each address that it tried."""
    ours = in_our_terms(error)
    lines = [line.strip() for line in str(error).splitlines() if line.strip() and "Multiple connection" not in line]
    return (lines[0] if lines else str(ours)).removeprefix("connection failed: ")[:300]
