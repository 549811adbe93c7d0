"""A world of streams in memory, and how commits are tried on it."""

from collections.abc import Callable, Sequence

import pytest

from bread.domain.checkpoint import IdempotencyKey
from bread.domain.errors import BreadError
from bread.domain.events import Event, topic_of
from bread.domain.messages import ToolUse

from .support import World, ask

ONE, OTHER = IdempotencyKey(key="order-17", digest="one"), IdempotencyKey(key="order-17", digest="other")


def refused(world: World, act: Callable[[], object], code: str) -> BreadError:
    """Expect a refusal that leaves no trace."""
    before = world.everything()
    with pytest.raises(BreadError) as caught:
        act()
    assert caught.value.code == code
    assert world.everything() == before
    world.verify()
    return caught.value


def topics(events: Sequence[tuple[str, Event]]) -> list[str]:
    return [f"{stream} {topic_of(event).partition('@')[0]}" for stream, event in events]


def asking(world: World, *kinds: str) -> World:
    """A run that waits for one question of each kind: c0, c1, ..."""
    world.start()
    asks = [(ToolUse("sign", number), ask(f"c{number}", kind)) for number, kind in enumerate(kinds)]  # type: ignore[arg-type]
    world.respond(*asks)
    return world
