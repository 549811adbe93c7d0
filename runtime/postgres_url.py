"""Where a PostgreSQL store is, and how it is spoken to: connections that do not wait for ever."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
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


PASSWORD_FILE = "BREAD_STORE_PASSWORD_FILE"  # noqa: S105 - the name of a variable
EXPECTED_URL = (
    "expected postgresql://user@host:port/database, as libpq reads it; in a password % @ / : are written "
    "%25 %40 %2F %3A"
)


@dataclass(frozen=True)
class Address:
    """A store's URL, as libpq reads it; `worker` names this process to the server.

    `password_file` holds the password where the URL has none. It is read at each connection, so that the file may be
    renewed.
    """

    url: str = field(repr=False)
    worker: str
    password_file: str | None = field(default_factory=lambda: os.environ.get(PASSWORD_FILE) or None)

    @cached_property
    def _given(self) -> dict[str, Any]:
        """INPUT_INVALID for a URL that libpq does not take, or takes for another one than was meant."""
        try:
            given = conninfo_to_dict(self.url)
        except psycopg.ProgrammingError:
            given = {"port": "?"}
        # A password with an @ or a / in it is read as a host or a port; and what libpq says of it would quote it.
        ports = str(given.get("port") or "").split(",")
        if not all(port.isdecimal() or not port for port in ports) or "@" in str(given.get("host") or ""):
            raise InvalidInput("INPUT_INVALID", f"store: {EXPECTED_URL}")
        return given

    @cached_property
    def conninfo(self) -> str:
        """What the driver is given, less a password of the file."""
        given = dict(self._given)
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
        given = self._given
        host, port = given.get("host") or given.get("hostaddr") or "localhost", given.get("port") or 5432
        user = f"{given['user']}@" if given.get("user") else ""
        return f"postgresql://{user}{host}:{port}/{given.get('dbname') or given.get('user') or ''}"

    def password(self) -> str | None:
        """That of the URL, or of the file; StoreUnavailable where it cannot be read."""
        if self._given.get("password") or self.password_file is None:
            return self._given.get("password")
        try:
            with open(self.password_file, encoding="utf-8") as file:
                return file.read().rstrip("\r\n")
        except (OSError, ValueError) as error:
            why = getattr(error, "strerror", None) or "it is no text"
            raise StoreUnavailable(
                f"cannot reach {self.shown}: {PASSWORD_FILE}: {self.password_file}: {why}"
            ) from error

    def full(self) -> str:
        """All that the driver needs, for one connection."""
        password = self.password()
        return self.conninfo if password is None else make_conninfo(self.conninfo, password=password)

    def connect(self) -> psycopg.Connection[Any]:
        """A connection in autocommit mode, for one thread at a time; StoreUnavailable, StoreUnreadable."""
        try:
            return psycopg.connect(self.full(), autocommit=True)
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
