"""The hub of one process: it waits for nobody, loses nothing that the store does not have, and keeps nothing."""

from __future__ import annotations

import asyncio
import gc
import weakref
from collections.abc import Callable
from contextlib import aclosing
from typing import Any

import pytest

from bread import Bread, BreadError, define_agent
from bread.domain.envelope import APP, Meta, Recorded
from bread.domain.ports import Logged
from bread.domain.run_events import Parked
from bread.testing import ScriptedModel, pause, text
from bread.transport.local import QUEUE, RECENT, HintFrame, Lagging, LocalHub, Subscription, TextFrame
from support import read, said

ROOT = "run_1"


def event(seq: int, root: str | None = ROOT) -> Logged:
    return Logged(Recorded(root or "session:s1", seq, Parked(pending=1), Meta(1.0, APP, "c", seq, root, "s1"), seq))


def hint(text: str) -> HintFrame:
    return HintFrame(ROOT, "reasoning", {"text": text})


async def drained(subscription: Subscription) -> list[Any]:
    """What waits, without waiting."""
    return [await subscription.get() for _ in range(len(subscription._frames))]


async def test_b122_frames_come_in_order_to_whoever_observes_their_root() -> None:
    hub = LocalHub()
    mine, too, other = hub.subscribe(ROOT), hub.subscribe(ROOT), hub.subscribe("run_2")
    hub.publish_events([event(1), event(2), event(3, root=None), event(1, root="run_2")])
    hub.publish_text(ROOT, ROOT, 2, "a")
    hub.publish(ROOT, hint("hm"))
    expected = [event(1), event(2), TextFrame(ROOT, 2, 0, "a"), hint("hm")]
    assert await drained(mine) == expected
    assert await drained(too) == expected
    assert await drained(other) == [event(1, root="run_2")]


async def test_b130_a_reader_waits_for_the_next_frame() -> None:
    hub = LocalHub()
    subscription = hub.subscribe(ROOT)
    waiting = asyncio.ensure_future(subscription.get())
    hub.publish_events([event(1)])
    assert await waiting == event(1)


async def test_b130_a_queue_is_bounded_and_who_lags_is_told_once() -> None:
    hub = LocalHub()
    slow, fast = hub.subscribe(ROOT), hub.subscribe(ROOT)
    for seq in range(1, QUEUE + 2):
        hub.publish_events([event(seq)])
        assert len(slow._frames) <= QUEUE
        assert await fast.get() == event(seq)  # nobody else is touched
    hub.publish_events([event(QUEUE + 2)])  # comes before the reader looks: it is in the store by then
    with pytest.raises(Lagging):
        await slow.get()
    hub.publish_events([event(QUEUE + 3)])
    assert await slow.get() == event(QUEUE + 3)


async def test_b130_exactly_what_fits_is_kept() -> None:
    hub = LocalHub()
    subscription = hub.subscribe(ROOT)
    hub.publish_events(event(seq) for seq in range(1, QUEUE + 1))
    assert await drained(subscription) == [event(seq) for seq in range(1, QUEUE + 1)]


async def test_b66_a_poke_makes_everybody_look_at_the_store() -> None:
    hub = LocalHub()
    waiting = asyncio.ensure_future(hub.subscribe(ROOT).get())
    full = hub.subscribe("run_2")
    hub.publish_events([event(1, root="run_2")])
    hub.poke_all()
    with pytest.raises(Lagging):
        await waiting
    with pytest.raises(Lagging):
        await full.get()


async def test_b124_live_text_is_whole_for_who_comes_late() -> None:
    hub = LocalHub()
    for piece in ("a\U0001f680", "e\u0301", ""):
        hub.publish_text(ROOT, ROOT, 4, piece)
    hub.publish_text(ROOT, "run_child", 9, "other branch")
    assert hub.live_texts(ROOT) == [
        TextFrame(ROOT, 4, 0, "a\U0001f680e\u0301"),
        TextFrame("run_child", 9, 0, "other branch"),
    ]
    late = hub.subscribe(ROOT)
    hub.publish_text(ROOT, ROOT, 4, "b")
    assert await late.get() == TextFrame(ROOT, 4, 4, "b")  # offsets are code points
    hub.end_text(ROOT, 4)
    assert [frame.base for frame in hub.live_texts(ROOT)] == [9]
    hub.publish_text(ROOT, ROOT, 12, "next attempt")
    assert hub.live_texts(ROOT)[-1] == TextFrame(ROOT, 12, 0, "next attempt")
    assert hub.live_texts("run_2") == []


async def test_b61_nothing_is_left_of_who_has_gone() -> None:
    hub = LocalHub()
    first, second = hub.subscribe(ROOT), hub.subscribe(ROOT)
    hub.publish_text(ROOT, ROOT, 1, "a")
    gone = weakref.ref(first)
    first.close()
    first.close()
    hub.publish_events([event(1)])
    assert len(first._frames) == 1  # only what had come before
    second.close()
    hub.end_text(ROOT, 1)
    hub.end_text(ROOT, 1)
    hub.end_text("run_2", 1)
    hub.remember(ROOT)
    hub.forget(ROOT)
    hub.forget(ROOT)
    assert not hub._subscriptions
    assert not hub._live
    assert not hub._recent
    del first
    gc.collect()
    assert gone() is None


async def test_b130_the_last_events_are_given_only_without_a_gap() -> None:
    hub = LocalHub()
    hub.publish_events([event(1)])
    assert hub.recent(ROOT, 0) == []  # nobody runs it here
    hub.remember(ROOT)
    hub.publish_events([event(2), event(3)])
    assert hub.recent(ROOT, 0) == []
    assert hub.recent(ROOT, 1) == [event(2), event(3)]
    assert hub.recent(ROOT, 2) == [event(3)]
    assert hub.recent(ROOT, 3) == []
    hub.publish_events([event(5)])  # an own commit, ahead of one that another process made
    assert hub.recent(ROOT, 1) == []
    assert hub.recent(ROOT, 4) == [event(5)]
    hub.publish_events([event(4)])
    assert hub.recent(ROOT, 1) == []
    hub.publish_events(event(seq) for seq in range(6, 6 + RECENT))
    assert hub.recent(ROOT, 5) == [event(seq) for seq in range(6, 6 + RECENT)]
    assert hub.recent(ROOT, 4) == []
    hub.remember(ROOT)  # again: what there is stays
    assert hub.recent(ROOT, 5)


async def test_a_closed_hub_gives_what_there_is_and_then_ends_every_stream() -> None:
    """B135: nobody waits for ever for a process that has closed."""
    hub = LocalHub()
    waiting = asyncio.ensure_future(hub.subscribe(ROOT).get())
    full = hub.subscribe(ROOT)
    hub.publish_text("run_2", "run_2", 1, "not for them")
    hub.close()
    with pytest.raises(BreadError, match="NOT_OPEN"):
        await waiting
    with pytest.raises(BreadError, match="NOT_OPEN"):
        await full.get()


async def idle(bread: Bread) -> None:
    """Until nothing runs here: an actor goes a step after the crumb that ends its run, and its model call after it."""
    while bread._running().actors or bread._listeners._followed:
        await bread.list_runs()
    for _ in range(3):
        await bread.list_runs()


async def test_b61_b150_a_stream_that_is_left_in_the_middle_leaves_nothing_behind(
    open_bread: Callable[..., Bread],
) -> None:
    """By break, by aclose, by cancelling its reader; the run goes on to its end all the same."""
    gate = asyncio.Event()
    model = ScriptedModel([[text("Some words "), pause(gate.wait), text("and the rest.")]])
    async with open_bread(define_agent("worker", model=model)) as bread:
        hub = bread._running().hub
        run_id = await bread.start("worker", "go")

        async for crumb in bread.observe(run_id):
            if crumb.type == "text:delta":
                break
        async with aclosing(aiter(bread.observe(run_id))) as crumbs:
            await anext(crumbs)
            assert hub._subscriptions[run_id]
        assert not hub._subscriptions  # at once, not when somebody collects the garbage
        reader = asyncio.create_task(read(bread.observe(run_id)))
        while len(hub._subscriptions.get(run_id, ())) < 1:
            await bread.list_runs()
        reader.cancel()
        await asyncio.gather(reader, return_exceptions=True)
        assert not hub._subscriptions
        gate.set()
        assert said(await read(bread.observe(run_id))) == "Some words and the rest."
        await idle(bread)
        assert not hub._subscriptions
        assert not hub._live
        assert not hub._recent


async def test_b61_nothing_is_left_after_many_runs_with_listeners(open_bread: Callable[..., Bread]) -> None:
    heard: list[str] = []
    async with open_bread(define_agent("worker", model=ScriptedModel([[text("Hi there.")]]))) as bread:
        hub = bread._running().hub
        bread.on("crumb", lambda crumb: heard.append(crumb.type))
        for _ in range(20):
            assert await bread.run("worker", "go") == "Hi there."
        await bread._listeners.drain(10)
        await idle(bread)
        assert heard.count("agent:run:end") == 20
        assert not hub._subscriptions
        assert not hub._live
        assert not bread._listeners._followed
