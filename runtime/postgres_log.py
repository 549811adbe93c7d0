"""The event log on PostgreSQL, as an application of the `eventsourcing` library."""

from __future__ import annotations

from typing import Any

from eventsourcing.persistence import ApplicationRecorder, InfrastructureFactory
from eventsourcing.postgres import PostgresApplicationRecorder, PostgresFactory
from eventsourcing.utils import Environment
from psycopg.rows import dict_row

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
        self._address = address
        unused = dict.fromkeys(("DBNAME", "HOST", "PORT", "USER", "PASSWORD"), "as the URL says")
        super().__init__(
            {
                **{f"POSTGRES_{name}": value for name, value in unused.items()},
                "POSTGRES_SCHEMA": schema,
                "POSTGRES_CONNECT_TIMEOUT": "5",
                "POSTGRES_LOCK_TIMEOUT": "5",
                "CREATE_TABLE": "no",
                "ORIGINATOR_ID_TYPE": "text",
            }
        )

    def construct_factory(self, env: Environment) -> InfrastructureFactory[Any]:
        factory = EventFactory(env)
        # The library has settings for five parts of a URL. Here it is all of them, as for every other connection.
        pool = factory.datastore.pool
        pool.conninfo, pool.kwargs = self._address.full, {"row_factory": dict_row}
        return factory
