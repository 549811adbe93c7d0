"""The event log on PostgreSQL, as an application of the `eventsourcing` library."""

from __future__ import annotations

from typing import Any

from eventsourcing.persistence import ApplicationRecorder
from eventsourcing.postgres import PostgresApplicationRecorder, PostgresFactory
from psycopg.conninfo import conninfo_to_dict

from .event_log import EventLog
from .postgres_url import Address


class EventFactory(PostgresFactory):
    def application_recorder(self) -> ApplicationRecorder:
        # The table is there: bread makes it (postgres_open.py), under the library's columns.
        return PostgresApplicationRecorder(datastore=self.datastore, events_table_name="stored_events")


class PostgresEventLog(EventLog):
    """For auditors: what is written by it would pass bread's views by."""

    factory_class = EventFactory

    def __init__(self, address: Address, schema: str) -> None:
        given: dict[str, Any] = conninfo_to_dict(address.url)
        super().__init__(
            {
                "POSTGRES_DBNAME": str(given.get("dbname") or ""),
                "POSTGRES_HOST": str(given.get("host") or "127.0.0.1"),
                "POSTGRES_PORT": str(given.get("port") or 5432),
                "POSTGRES_USER": str(given.get("user") or ""),
                "POSTGRES_PASSWORD": address.password() or "",
                "POSTGRES_SCHEMA": schema,
                "POSTGRES_CONNECT_TIMEOUT": "5",
                "POSTGRES_LOCK_TIMEOUT": "5",
                "CREATE_TABLE": "no",
                "ORIGINATOR_ID_TYPE": "text",
            }
        )
