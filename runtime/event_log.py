"""The event log of a store, as an application of the `eventsourcing` library, so that auditors have that library's API.

Ours are the mapper and, for each database, the factory (sqlite_log.py, postgres_log.py).
"""

from __future__ import annotations

from typing import Any, ClassVar

from eventsourcing.application import Application
from eventsourcing.persistence import ApplicationRecorder, InfrastructureFactory, StoredEvent, Transcoder
from eventsourcing.persistence import Mapper as LibraryMapper
from eventsourcing.utils import Environment, EnvType

from ..domain.envelope import Recorded
from ..transport.codec import decode_event, stored_form


class PlainTranscoder(Transcoder):
    """Our mapper does its own coding; the library wants a transcoder all the same."""

    def encode(self, obj: Any) -> bytes:
        return bytes(obj)

    def decode(self, data: bytes) -> Any:
        return data


class EventMapper(LibraryMapper[str]):
    """Between recorded events and the library's stored ones. Names come from an allow-list, not from class paths."""

    def to_stored_event(self, domain_event: Any) -> StoredEvent:
        topic, state = stored_form(domain_event)
        return StoredEvent(domain_event.stream, domain_event.version, topic, state)

    def to_domain_event(self, stored_event: StoredEvent) -> Recorded:
        return decode_event(
            str(stored_event.originator_id), stored_event.originator_version, stored_event.topic, stored_event.state
        )


class EventLog(Application[str]):
    """The events of one store, with the library's API: `repository`, `notification_log`, `recorder`."""

    name = "bread"
    factory_class: ClassVar[type[InfrastructureFactory[Any]]]

    def construct_env(self, name: str, env: EnvType | None = None) -> Environment:
        # The library would merge the environment of the process in; a store is what it was opened as.
        return Environment(name, env)

    def construct_factory(self, env: Environment) -> InfrastructureFactory[Any]:
        return self.factory_class(env)

    def construct_mapper(self) -> EventMapper:
        return EventMapper(PlainTranscoder())

    def construct_recorder(self) -> ApplicationRecorder:
        return self.factory.application_recorder()
