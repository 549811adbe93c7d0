"""What an event is: a frozen model with an explicit name and version, found again through an allow-list.

The stored topic is `name@version`, never a class path, so that classes may move and nothing outside this list is ever
imported because a database row names it.
"""

from __future__ import annotations

from collections.abc import Callable
from math import isfinite
from typing import Any, ClassVar, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError
from pydantic import JsonValue as JsonValue

from .errors import StoreUnreadable


def finite(value: JsonValue) -> JsonValue:
    """The value with NaN and the infinities, for which JSON has no numbers, as text."""
    match value:
        case float() if not isfinite(value):
            return "NaN" if value != value else "Infinity" if value > 0 else "-Infinity"
        case dict():
            return {key: finite(one) for key, one in value.items()}
        case list():
            return [finite(one) for one in value]
    return value


class Event(BaseModel):
    """Something that happened. Fields of a newer release that this one does not know are kept, not dropped."""

    model_config = ConfigDict(frozen=True, extra="allow", defer_build=True)

    NAME: ClassVar[str]
    VERSION: ClassVar[int]


E = TypeVar("E", bound=Event)
Upcaster = Callable[[dict[str, Any]], dict[str, Any]]

_CLASSES: dict[str, type[Event]] = {}
_CURRENT: dict[str, type[Event]] = {}
_UPCASTERS: dict[tuple[str, int], Upcaster] = {}


def event(name: str, version: int = 1) -> Callable[[type[E]], type[E]]:
    """Register an event class under its stored name and present version."""

    def register(cls: type[E]) -> type[E]:
        if name in _CLASSES:
            raise ValueError(f"event name {name!r} is taken by {_CLASSES[name].__qualname__}")
        cls.NAME, cls.VERSION = name, version
        _CLASSES[name] = _CURRENT[f"{name}@{version}"] = cls
        return cls

    return register


def upcaster(name: str, version: int) -> Callable[[Upcaster], Upcaster]:
    """Register the step that lifts the data of `name` from `version` to `version + 1`."""

    def register(step: Upcaster) -> Upcaster:
        _UPCASTERS[name, version] = step
        return step

    return register


def known_events() -> dict[str, type[Event]]:
    """Every event class by its stored name."""
    return dict(_CLASSES)


def topic_of(event: Event) -> str:
    """The stored topic of an event, `name@version`."""
    return f"{event.NAME}@{event.VERSION}"


def restore(topic: str, data: dict[str, Any]) -> Event:
    """Rebuild an event from its topic and data, lifting old versions.

    Raises StoreUnreadable (EVENT_UNKNOWN) for a name or version that this release does not know.
    """
    cls = _CURRENT.get(topic)
    if cls is not None:
        return _validated(cls, topic, data)
    name, _, tail = topic.rpartition("@")
    cls = _CLASSES.get(name)
    if cls is None or tail not in map(str, range(1, cls.VERSION)):
        raise StoreUnreadable("EVENT_UNKNOWN", f"this release does not know the event {topic!r}", topic=topic)
    for version in range(int(tail), cls.VERSION):
        step = _UPCASTERS.get((name, version))
        if step is None:
            raise StoreUnreadable("EVENT_UNKNOWN", f"{name} has no upcaster from version {version}", topic=topic)
        try:
            data = step(data)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            message = f"the data of a {topic!r} event does not fit its upcaster: {type(error).__name__}"
            raise StoreUnreadable("STORE_INVALID", message, topic=topic) from error
    return _validated(cls, topic, data)


def _validated(cls: type[Event], topic: str, data: dict[str, Any]) -> Event:
    try:
        return cls.model_validate(data)
    except ValidationError as error:
        raise StoreUnreadable(
            "STORE_INVALID",
            f"the data of a {topic!r} event does not fit: {error.error_count()} problem(s)",
            topic=topic,
        ) from error


@event("bread.erased")
class Erased(Event):
    """Tombstone: the stream's payloads were erased; who and when stand in the envelope. A late append collides."""

    reason: Literal["session_deleted"] = "session_deleted"
