"""The checks of `bread doctor` on a PostgreSQL store. None of them makes a table."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

import psycopg

from ...domain.errors import BreadError, StoreUnavailable, StoreUnreadable
from ..postgres_open import find
from ..postgres_sql import in_our_terms
from ..postgres_url import Address
from ..postgres_watch import watched
from ..sql import VIEWS
from ..stores import HEARTBEAT
from .checks import Finding, contents, failed, ok, size, warn

if TYPE_CHECKING:
    from .place import Place

ANSWER_SECONDS = 10.0
STALE_SECONDS = HEARTBEAT[1]
SKEW_SECONDS = 5.0
# What one process holds at most: readers, the writer, who listens, the heart. Below twice that there is little left.
CONNECTIONS = 8
TABLES = ("bread_schema", "stored_events", "bread_workers", *VIEWS)
RIGHTS = ("SELECT", "INSERT", "UPDATE", "DELETE")
NO_ANSWER = "start the server, or name the right one: --store or BREAD_STORE"
# What the driver says of a connection that did not come about has no code, only words.
TO_DO = {
    "password authentication failed": "put the right password into the file that BREAD_STORE_PASSWORD_FILE names",
    "no password supplied": "name a file with the password: BREAD_STORE_PASSWORD_FILE",
    "does not exist": "make it (createdb, createuser), or name the right one in --store",
    "permission denied": "grant CONNECT on the database to this user",
    "no pg_hba.conf entry": "let this user and machine in: pg_hba.conf of the server",
    "could not translate host name": "name the right host in --store",
    "failed to resolve host": "name the right host in --store",
    "too many": "raise max_connections of the server, or run fewer processes",
}


class Server(NamedTuple):
    """What a server says of itself. `ahead`: seconds that its clock is before ours; `left`: connections."""

    version: str
    ahead: float
    left: int
    fsync: str
    full_page_writes: str
    synchronous_commit: str
    may_create: bool


class Contents(NamedTuple):
    """What the tables say: rights that this user lacks, workers, and runs that are to be performed."""

    bytes: int
    missing: list[str]
    living: int
    silent: int
    running: int


async def database(place: Place, *, deep: bool) -> AsyncIterator[Finding]:
    """Whether it answers, what it is, whether bread may use it, and who else does."""
    address = Address(place.store, "doctor")
    try:
        found = await asyncio.to_thread(find, address)
        server = await asyncio.to_thread(ask, address, _server)
        inside = None if found is None else await asyncio.to_thread(ask, address, _contents)
    except BreadError as error:
        yield failed("store", error, _to_do(error))
        return
    where = f"PostgreSQL {server.version} {address.shown.removeprefix('postgresql://')}"
    if inside is None:
        yield _without_tables(where, server)
    elif inside.missing:
        lacks = StoreUnavailable(f"this user lacks rights: {', '.join(inside.missing)}")
        yield failed("rights", lacks, "grant them, or be the user that made the tables")
    else:
        async for finding in contents(place, f"{where}, {size(inside.bytes)}", deep=deep):
            yield finding
        yield ok("rights", "all that bread needs")
        yield _workers(inside)
    for finding in _settings(server):
        yield finding


def ask(address: Address, question: Any) -> Any:
    """Ask the server, which has to answer in time."""
    with address.connect() as connection:
        try:
            with watched(connection, ANSWER_SECONDS):
                return question(connection)
        except psycopg.Error as error:
            raise in_our_terms(error) or StoreUnavailable(f"{address.shown} does not answer") from error


def _server(connection: psycopg.Connection[Any]) -> Server:
    before = time.time()
    [at] = _row(connection, "SELECT extract(epoch FROM clock_timestamp())::float8")
    after = time.time()
    # What the message took is no difference of clocks.
    ahead = at - after if at > after else min(0.0, at - before)
    version, *rest = _row(
        connection,
        """SELECT current_setting('server_version'),
            (current_setting('max_connections')::int - current_setting('superuser_reserved_connections')::int
                - (SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend'))::int,
            current_setting('fsync'), current_setting('full_page_writes'), current_setting('synchronous_commit'),
            has_schema_privilege(current_schema(), 'CREATE')""",
    )
    return Server(str(version).split()[0], ahead, *rest)


def _contents(connection: psycopg.Connection[Any]) -> Contents:
    missing = [
        f"{right} on {table}"
        for table in TABLES
        for right in (RIGHTS if table != "bread_schema" else RIGHTS[:1])
        if not _row(connection, "SELECT has_table_privilege(%s, %s)", table, right)[0]
    ]
    # The lock of the writer needs it, and so does who numbers the events.
    if not _row(connection, "SELECT has_sequence_privilege('stored_events_notification_id_seq', 'UPDATE')")[0]:
        missing.append("UPDATE on stored_events_notification_id_seq")
    if missing:
        return Contents(0, missing, 0, 0, 0)
    row = _row(
        connection,
        """SELECT (SELECT sum(pg_total_relation_size(one::regclass)) FROM unnest(%s::text[]) AS one)::bigint,
            count(*) FILTER (WHERE age < %s)::int, count(*) FILTER (WHERE age >= %s)::int,
            (SELECT count(*) FROM bread_runs WHERE status = 'running')::int
        FROM (SELECT extract(epoch FROM clock_timestamp() - beat) AS age FROM bread_workers
            WHERE beat > 'epoch') AS ages""",
        list(TABLES),
        STALE_SECONDS,
        STALE_SECONDS,
    )
    return Contents(row[0], [], *row[1:])


def _row(connection: psycopg.Connection[Any], statement: str, *values: Any) -> tuple[Any, ...]:
    row: tuple[Any, ...] | None = connection.execute(statement.encode(), values).fetchone()
    if row is None:
        raise StoreUnavailable("the database gave no answer")
    return row


def _without_tables(where: str, server: Server) -> Finding:
    if server.may_create:
        return ok("store", f"{where}, whose tables `bread migrate` or the first run makes")
    error = StoreUnavailable(f"{where} has no tables of bread, and this user may make none")
    return failed("store", error, "run bread migrate as a user who may, or grant CREATE on the schema")


def _workers(inside: Contents) -> Finding:
    detail = f"{inside.living} living"
    if inside.silent:
        detail += f", {inside.silent} silent for more than {STALE_SECONDS:.0f} s"
    if inside.running and not inside.living:
        return warn("workers", f"{detail}; runs that nobody performs: {inside.running}", "bread start")
    return ok("workers", detail)


def _settings(server: Server) -> Iterator[Finding]:
    if abs(server.ahead) > SKEW_SECONDS:
        order = "ahead of" if server.ahead > 0 else "behind"
        detail = f"the database's is {abs(server.ahead):.0f} s {order} this machine's"
        yield warn("clocks", detail, "set the clocks of the machines: deadlines and the log are by them")
    else:
        yield ok("clocks", "this machine and the database agree")
    if server.left < 2 * CONNECTIONS:
        detail = f"{server.left} are left; a process of bread takes up to {CONNECTIONS}"
        yield warn("connections", detail, "raise max_connections of the server")
    else:
        yield ok("connections", f"{server.left} are left")
    unsafe = [name for name in ("fsync", "full_page_writes", "synchronous_commit") if getattr(server, name) == "off"]
    if unsafe:
        detail = f"{' and '.join(unsafe)} off: what was committed can be lost with the power"
        yield warn("durability", detail, "switch it on in postgresql.conf")
    else:
        yield ok("durability", "what is committed is on the disk")


def _to_do(error: BreadError) -> str:
    if isinstance(error, StoreUnreadable):
        return "choose another --store; nothing was changed"
    if error.code == "INPUT_INVALID":
        return ""
    return next((help for words, help in TO_DO.items() if words in error.message), NO_ANSWER)
