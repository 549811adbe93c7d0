"""One PostgreSQL server a test process, started when it is first needed; a store is a schema of its own in it."""

from __future__ import annotations

import atexit
from functools import cache
from hashlib import sha256
from pathlib import Path
from urllib.parse import quote

import psycopg

from bread.runtime.servers import PostgresServer


@cache
def server() -> PostgresServer:
    # Nothing here outlives the server's machine, so nothing has to reach the disk: processes are killed, not machines.
    server = PostgresServer(fsync="off", full_page_writes="off")
    atexit.register(server.stop)
    server.start()
    return server


@cache
def store_at(place: Path) -> str:
    """The URL of an empty store, the same one for the same place."""
    schema = f"t_{sha256(str(place).encode()).hexdigest()[:20]}"
    with psycopg.connect(server().url(), autocommit=True) as connection:
        connection.execute(f"CREATE SCHEMA {schema}".encode())
    return in_schema(server().url(), schema)


def in_schema(url: str, schema: str) -> str:
    return f"{url}?options={quote(f'-csearch_path={schema}')}"


def with_password(url: str, password: str) -> str:
    """The same store, of a URL that holds a password. The server asks nobody for one."""
    return url.replace("bread@", f"bread:{quote(password, safe='')}@")


def ask_for_password(role: str, password: str) -> None:
    """Make a role that the server asks for its password, unlike everybody else."""
    rules = server().folder / "data" / "pg_hba.conf"
    rules.write_text(f"host all {role} 127.0.0.1/32 scram-sha-256\n{rules.read_text()}")
    with psycopg.connect(server().url(), autocommit=True) as connection:
        connection.execute(f"CREATE ROLE {role} LOGIN SUPERUSER PASSWORD '{password}'".encode())
        connection.execute("SELECT pg_reload_conf()")
