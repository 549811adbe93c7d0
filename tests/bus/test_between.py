"""Processes hear each other by the bus: what is said, what is hinted, what is committed."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bread import AnyCrumb, Bread
from bread.domain.envelope import APP, Meta, Recorded
from bread.domain.events import Event
from bread.domain.ports import Logged
from bread.domain.run_events import RunCancelled, RunTaken
from bread.runtime.servers import NatsServer
from bread.testing import call, pause, text
from bread.transport.local import HEARD_TEXTS, HintFrame, LocalHub, TextFrame
from observers.clients import Client, attach
from scenes import agent, asking, engine_of
from support import read, said, wire

from .test_relay import store_in


def deaf(bread: Bread) -> None:
    """What others commit comes by the bus alone."""
    engine_of(bread).journal.on_foreign = lambda entries: None


async def test_b66_b124_an_observer_elsewhere_hears_text_as_it_is_said(server: NatsServer, tmp_path: Path) -> None:
    """And one who comes in the middle of the turn gets it from its beginning, then goes on with the others."""
    gates = [asyncio.Event() for _ in range(3)]
    script: list[Any] = []
    for number, gate in enumerate(gates):
        script += [text(f"{number} "), text("and "), pause(gate.wait)]
    options: dict[str, Any] = {"store": store_in(tmp_path), "nats": server.url}
    async with (
        Bread(agents=[agent([[*script, text("done.")]], id="talker")], **options) as talks,
        Bread(executes=False, **options) as watches,
    ):
        run_id = await talks.start("talker", "go")
        late: asyncio.Task[list[AnyCrumb]] | None = None
        crumbs: list[AnyCrumb] = []
        async for crumb in watches.observe(run_id):
            crumbs.append(crumb)
            if said(crumbs) == "0 and " and not gates[0].is_set():
                gates[0].set()
            if said(crumbs) == "0 and 1 and " and late is None:
                late = asyncio.create_task(until_said(watches, run_id, "0 and 1 and "))
                first = await late
                gates[1].set()
                gates[2].set()
        assert [(c.offset, c.text) for c in first if c.type == "text:delta"] == [(0, "0 and 1 and ")]
        assert said(crumbs) == "0 and 1 and 2 and done."
        assert len([c for c in crumbs if c.type == "text:delta"]) >= 3


async def until_said(bread: Bread, run_id: str, words: str) -> list[AnyCrumb]:
    crumbs: list[AnyCrumb] = []
    async for crumb in bread.observe(run_id):
        crumbs.append(crumb)
        if said(crumbs) == words:
            break
    return crumbs


async def test_b66_b8_b9_hints_and_events_of_others_come_by_the_bus(server: NatsServer, tmp_path: Path) -> None:
    """Also where the tail of the store is not looked at; both ways together nothing comes twice."""
    clerk = agent([[text("May I? "), call("human_ask", {"a": 1})], [text("Thanks.")]], asking(), id="clerk")
    options: dict[str, Any] = {"store": store_in(tmp_path), "nats": server.url}
    async with (
        Bread(agents=[clerk], **options) as works,
        Bread(executes=False, **options) as hears,
        Bread(executes=False, **options) as both,
    ):
        deaf(hears)
        run_id = await works.start("clerk", "go", session="s")
        await read(works.observe(run_id, until="rest"))
        asked = (await works.get_run(run_id)).checkpoints[0]
        last = [wire(c) async for c in works.observe(run_id, until="rest")][-1]["cursor"]
        waiting = [await attach(one, run_id, last) for one in (hears, both)]
        answered = await read(works.resume(asked, "yes"))
        seen = [[crumb async for crumb in one] for one in waiting]
        for crumbs in seen:
            client = Client()
            for crumb in crumbs:
                client.take(wire(crumb))
            assert [c.type for c in crumbs if c.type != "text:delta"] == ["human:resumed", "agent:run:end"]
            assert said(crumbs) == "Thanks."
        assert answered[-1].type == "agent:run:end"


async def test_b9_hints_of_another_process_are_heard(server: NatsServer, tmp_path: Path) -> None:
    go_on = asyncio.Event()
    script: list[Any] = [[text("So: "), pause(go_on.wait), call("human_ask", {"a": 1})], [text("Thanks.")]]
    options: dict[str, Any] = {"store": store_in(tmp_path), "nats": server.url}
    async with (
        Bread(agents=[agent(script, asking(), id="clerk")], **options) as works,
        Bread(executes=False, **options) as hears,
    ):
        run_id = await works.start("clerk", "go")
        kinds: list[str] = []
        async for crumb in hears.observe(run_id, until="rest"):
            kinds.append(crumb.type)
            go_on.set()
        assert {"tool:input:start", "tool:input:delta", "tool:input:end"} <= set(kinds)


async def test_b124_many_small_pieces_are_few_messages(server: NatsServer, tmp_path: Path) -> None:
    """A model that says a letter at a time does not flood the others; who observes here gets each letter."""
    letters = "All happy families are alike." * 20
    options: dict[str, Any] = {"store": store_in(tmp_path), "nats": server.url}
    script: list[Any] = [part for one in letters for part in (text(one), pause(lambda: asyncio.sleep(0)))]
    async with Bread(agents=[agent([script], id="talker")], **options) as talks:
        client = engine_of(talks).transport.link.client  # type: ignore[attr-defined]
        before = client.stats["out_msgs"]
        crumbs = await read(talks.run("talker", "go"))
        assert said(crumbs) == letters
        assert len([c for c in crumbs if c.type == "text:delta"]) > 100
    assert client.stats["out_msgs"] - before < len(letters) / 4


# --- the hub ----------------------------------------------------------------------------------------------------------


def event(root: str, of: Event) -> Logged:
    return Logged(Recorded(root, 3, of, Meta(1.0, APP, "c", 3, root), 3))


def test_b124_what_is_heard_from_its_beginning_is_kept_for_those_who_come_late() -> None:
    hub = LocalHub()
    for offset, words in ((0, "One "), (4, "two "), (8, "three")):
        hub.heard("r", TextFrame("r", 1, offset, words))
    hub.heard("r", TextFrame("child", 5, 3, "missed the beginning"))
    hub.heard("q", TextFrame("q", 1, 0, "another tree"))
    assert hub.live_texts("r") == [TextFrame("r", 1, 0, "One two three")]


def test_b124_a_text_with_a_hole_is_not_kept() -> None:
    """Nor what follows the hole."""
    hub = LocalHub()
    for offset, words in ((0, "One "), (8, "three"), (4, "two "), (13, "four")):
        hub.heard("r", TextFrame("r", 1, offset, words))
    assert hub.live_texts("r") == []


def test_b124_a_text_that_is_over_is_not_kept() -> None:
    """Whoever says so: another process by the bus, the tail of the store, or this process, which took the run."""
    ends: list[Callable[[LocalHub], None]] = [
        lambda hub: hub.heard("r", event("r", RunCancelled(reason="no"))),
        lambda hub: hub.publish_events([event("r", RunCancelled(reason="no"))], own=False),
        lambda hub: hub.publish_events([event("r", RunTaken(owner="w", previous=None, reason="orphaned"))]),
    ]
    for end in ends:
        hub = LocalHub()
        hub.heard("r", TextFrame("r", 1, 0, "One"))
        hub.heard("r", TextFrame("child", 2, 0, "Two"))
        hub.heard("r", HintFrame("r", "reasoning", {"text": "hm"}))
        end(hub)
        assert hub.live_texts("r") == [TextFrame("child", 2, 0, "Two")]


def test_texts_of_processes_that_died_are_not_kept_for_ever() -> None:
    hub = LocalHub()
    for number in range(HEARD_TEXTS + 5):
        hub.heard(f"r{number}", TextFrame("r", 1, 0, "One"))
    assert [bool(hub.live_texts(f"r{number}")) for number in (0, 4, 5, HEARD_TEXTS + 4)] == [False, False, True, True]
