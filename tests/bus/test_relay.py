"""B130: what a program sees that has only NATS, against what an observer of the store sees."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from bread import Bread, define_agent, define_tool
from bread.runtime import relay as relaying
from bread.runtime.servers import NatsServer
from bread.testing import ScriptedModel, call, pause, text
from bread.transport.jetstream import JetStream
from bread.transport.subjects import pattern
from nats_server import kept, outside
from observers.clients import attach
from scenes import agent, asking, engine_of, questions
from support import read, wire
from teams import hands_on
from tree_agents import everybody

from .outsider import in_order, listening, shown, stored

TREES = ["contract", "case", "plain", "faulty"]


def store_in(folder: Path) -> str:
    return f"sqlite:///{folder}/bread.db"


async def play(bread: Bread, name: str) -> str:
    """A run to its end, whatever it asks on the way."""
    handle = bread.run_pipeline(name, "go") if name in bread.pipelines else bread.run(name, "go")
    crumbs = await read(handle)
    while asked := questions(crumbs):
        crumbs = [c for one in asked for c in await read(bread.resume(one.checkpoint_id, {"approved": True}))]
    return handle.run_id


@pytest.mark.parametrize("name", [*TREES, "host", "law", "broken"])
async def test_b130_b122_the_crumbs_in_the_stream_are_those_of_an_observer(
    server: NatsServer, tmp_path: Path, name: str
) -> None:
    """Whole text turns, branches, delegations, loops and failures: the same crumbs, to the last field."""
    agents, pipelines = everybody.agents.values(), {p.id: p.steps for p in everybody.pipelines.values()}
    async with Bread(agents=agents, pipelines=pipelines, store=store_in(tmp_path), nats=server.url) as bread:
        run_id = await play(bread, name)
        expected = [wire(crumb) async for crumb in bread.observe(run_id)]
    frames = await stored(server, run_id)
    assert shown(frames) == expected
    assert in_order(frames)
    assert all(frame["crumb"]["runId"] == frame["run"] and frame["crumb"]["seq"] == frame["seq"] for frame in frames)


@pytest.mark.parametrize("visibility", ["passthrough", "mediate", "hidden"])
async def test_b101_what_is_hidden_is_there_and_marked(server: NatsServer, tmp_path: Path, visibility: str) -> None:
    """B130: the whole log, each crumb with whether an observer of the root is shown it."""
    child = agent([[text("Well. "), call("human_ask")], [text("Done.")]], asking(), id="child")
    boss = hands_on("child", visibility=visibility)
    async with Bread(agents=[boss, child], store=store_in(tmp_path), nats=server.url) as bread:
        run_id = await play(bread, "boss")
        expected = [wire(crumb) async for crumb in bread.observe(run_id)]
    frames = await stored(server, run_id)
    assert shown(frames) == expected
    hidden = [frame["type"] for frame in frames if not frame["visible"]]
    assert bool(hidden) == (visibility != "passthrough")
    assert {"human:required", "human:resumed"}.isdisjoint(hidden)
    assert {frame["run"] for frame in frames} > {run_id}


async def test_b130_each_writer_publishes_in_the_order_of_the_tree(server: NatsServer, tmp_path: Path) -> None:
    """One process performs, another one answers: one stream, in the order of the log, nothing twice."""
    clerk = agent([[call("human_ask")], [call("human_ask")], [text("Done.")]], asking())
    options: dict[str, Any] = {"store": store_in(tmp_path), "nats": server.url}
    async with Bread(agents=[clerk], **options) as works, Bread(executes=False, **options) as answers:
        runs = [works.run("a", "go") for _ in range(5)]
        for run in runs:
            await run.begin()

        async def serve(run_id: str) -> None:
            async for crumb in answers.observe(run_id):
                if crumb.type == "human:required":
                    await answers.resume(crumb.checkpoint_id, "yes")._start()

        await asyncio.gather(*(serve(run.run_id) for run in runs))
        expected = {run.run_id: [wire(c) async for c in works.observe(run.run_id)] for run in runs}
        workers = {event.worker async for event in works.audit(runs[0].run_id)}
        assert workers == {works.worker, answers.worker}
    frames = await stored(server)
    assert in_order(frames)
    for run_id, crumbs in expected.items():
        assert shown([frame for frame in frames if frame["root"] == run_id]) == crumbs


async def test_b24_questions_are_told_once_more_and_small(server: NatsServer, tmp_path: Path) -> None:
    """B130: asked, answered, discarded: one subscription for all agents, without the arguments."""
    clerk = agent([[call("human_ask", {"secret": "hunter2"})], [text("Done.")]], asking(prompt="Well?"))
    async with (
        listening(server, pattern("human")) as outsider,
        Bread(agents=[clerk], store=store_in(tmp_path), nats=server.url) as bread,
    ):
        first = questions(await read(bread.run("a", "go")))[0]
        await bread.resume(first.checkpoint_id, "yes", author="ann")
        second = questions(await read(bread.run("a", "go")))[0]
        await bread.cancel(second.run_id)
        frames = await outsider.until(lambda frames: len(frames) == 4)
    assert [frame["type"] for frame in frames] == [
        "human:required",
        "human:resumed",
        "human:required",
        "human:discarded",
    ]
    assert [frame["human"]["checkpointId"] for frame in frames] == [first.checkpoint_id] * 2 + [
        second.checkpoint_id
    ] * 2
    assert frames[0]["human"]["prompt"] == "Well?"
    assert (frames[0]["agent"], frames[0]["session"]) == ("a", first.session_id)
    assert frames[1]["human"]["author"] == "ann"
    assert "hunter2" not in str(frames)


async def test_b8_b9_b124_text_is_told_as_it_is_said_and_hints_too(server: NatsServer, tmp_path: Path) -> None:
    """At most once, on a subject of their own; and pieces that come at once are put together."""
    go_on, heard = asyncio.Event(), asyncio.Event()

    @define_tool
    async def count() -> Any:
        yield 1
        yield 2

    script: list[list[Any]] = [
        [text("One "), text("two "), pause(go_on.wait), text("three."), call("tool_count")],
        [text("Done.")],
    ]
    talker = define_agent("talker", model=ScriptedModel(script), tools=[count])
    async with (
        listening(server, pattern("live", agent="talker")) as outsider,
        Bread(agents=[talker], store=store_in(tmp_path), nats=server.url) as bread,
    ):
        run_id = await bread.start("talker", "go")
        texts = await outsider.until(lambda frames: "".join(f["crumb"].get("text", "") for f in frames) == "One two ")
        assert {frame["crumb"]["type"] for frame in texts} == {"text:delta"}
        assert (texts[0]["crumb"]["offset"], texts[0]["crumb"]["base"]) == (0, texts[0]["seq"])
        go_on.set()
        heard.set()
        await read(bread.observe(run_id))
        await outsider.until(lambda frames: any("Done." in f["crumb"].get("text", "") for f in frames))
        # The cursor of a piece is good for going on behind it.
        async for crumb in bread.observe(run_id, after=texts[-1]["crumb"]["cursor"]):
            if crumb.type == "text:delta":
                assert (crumb.text, crumb.offset) == ("three.", len("One two "))
                break
    kinds = [frame["type"] for frame in outsider.frames]
    assert {"tool:input:start", "tool:input:end", "tool:result:partial"} <= set(kinds)
    said: dict[int, str] = {}
    for crumb in (f["crumb"] for f in outsider.frames if f["type"] == "text:delta"):
        assert crumb["offset"] == len(said.get(crumb["base"], ""))
        said[crumb["base"]] = said.get(crumb["base"], "") + crumb["text"]
    assert list(said.values()) == ["One two three.", "Done."]
    assert kinds.count("text:delta") < 6
    assert await stored(server, run_id, "live") == []


async def test_b73_b77_a_deleted_session_is_purged(server: NatsServer, tmp_path: Path) -> None:
    """What was kept of it goes, and how it ended stays; others keep theirs."""
    clerk = agent([[text("A secret. "), call("human_ask")], [text("Done.")]], asking())
    async with Bread(agents=[clerk], store=store_in(tmp_path), nats=server.url) as bread:
        gone = questions(await read(bread.run("a", "go", session="gone.*")))[0]
        stays = questions(await read(bread.run("a", "go", session="stays")))[0]
        assert await bread.sessions.delete("gone.*")
        await bread.resume(stays.checkpoint_id, "yes")
    left = await stored(server, gone.root_run_id)
    assert [frame["type"] for frame in left] == ["human:discarded", "agent:error"]
    assert left[-1]["crumb"]["code"] == "SESSION_DELETED"
    assert "secret" not in str(left)
    assert [frame["type"] for frame in await stored(server, gone.root_run_id, "human")] == ["human:discarded"]
    assert [frame["type"] for frame in await stored(server, stays.root_run_id)][-1] == "agent:run:end"


async def test_b73_what_another_process_has_deleted_is_not_published_any_more(
    server: NatsServer, tmp_path: Path
) -> None:
    """It may have been on its way when the other one purged the stream."""
    clerk = agent([[text("A secret. "), call("human_ask")], [text("Done.")]], asking())
    options: dict[str, Any] = {"store": store_in(tmp_path), "nats": server.url}
    async with Bread(agents=[clerk], **options) as works, Bread(executes=False, **options) as deletes:
        # The first process is slow: its messages reach the stream after the purge.
        bus = engine_of(works).relay.bus  # type: ignore[union-attr]
        arrived, go_on, keep = asyncio.Event(), asyncio.Event(), bus.keep

        async def held(message: Any) -> int:
            arrived.set()
            await go_on.wait()
            return await keep(message)

        bus.keep = held  # type: ignore[method-assign]
        asked = questions(await read(works.run("a", "go", session="s")))[0]
        await arrived.wait()
        async with listening(server, pattern("crumbs", root=asked.root_run_id)) as outsider:
            watching = await attach(works, asked.root_run_id, asked.cursor)
            assert await deletes.sessions.delete("s")
            await outsider.ended(asked.root_run_id)
            assert [crumb.type async for crumb in watching][-1] == "agent:error"  # the first has heard of it, too
        go_on.set()
    left = await stored(server, asked.root_run_id)
    assert [frame["type"] for frame in left] == ["human:discarded", "agent:error"]


async def test_b130_a_crumb_that_is_too_large_is_cut_and_found_in_the_store(server: NatsServer, tmp_path: Path) -> None:
    @define_tool
    async def bulk() -> str:
        return "x" * 600_000

    clerk = agent([[call("tool_bulk")], [text("Done.")]], bulk)
    async with Bread(agents=[clerk], store=store_in(tmp_path), nats=server.url) as bread:
        run = bread.run("a", "go")
        await run
        frames = await stored(server, run.run_id)
        [cut] = [frame for frame in frames if frame.get("truncated")]
        assert (cut["type"], "result" in cut["crumb"]) == ("tool:result", False)
        whole = await anext(aiter(bread.observe(cut["fetch"]["run"], after=cut["fetch"]["after"])))
        assert (whole.type, whole.seq) == ("tool:result", cut["seq"])
    assert [frame["type"] for frame in frames] == [
        "agent:run:start",
        "tool:call",
        "tool:result",
        "text:delta",
        "agent:run:end",
    ]


async def test_b130_a_server_that_takes_less_gets_less(tmp_path: Path) -> None:
    """Its own limits hold: of a message, and of one in the stream."""
    with NatsServer(tmp_path / "small", "max_payload: 64KB") as server:
        clerk = agent([[text("x" * 70_000)]])
        async with Bread(agents=[clerk], store=store_in(tmp_path), nats=server.url) as bread:
            run = bread.run("a", "go")
            await run
        frames = await stored(server, run.run_id)
        assert [(f["type"], "truncated" in f) for f in frames] == [
            ("agent:run:start", False),
            ("text:delta", True),
            ("agent:run:end", True),
        ]


async def test_b130_more_trees_than_memory_is_for_are_read_from_the_log(
    server: NatsServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While the bus does not take anything, one position in the log stands for all that waits."""
    monkeypatch.setattr(relaying, "LANES", 3)
    monkeypatch.setattr(relaying, "PAGE", 10)
    clerk = agent([[text("Hello."), call("human_ask")], [text("Done.")]], asking())
    async with Bread(agents=[clerk], store=store_in(tmp_path), nats=server.url) as bread:
        relay = engine_of(bread).relay
        assert relay is not None
        before, keep, go_on = relay.published_upto, relay.bus.keep, asyncio.Event()

        async def held(message: Any) -> int:
            await go_on.wait()
            return await keep(message)

        relay.bus.keep = held  # type: ignore[method-assign]
        asked = [questions(await read(bread.run("a", "go")))[0] for _ in range(8)]
        assert relay.published_upto == before + 1  # that a session was opened is no event of a tree
        assert len(relay._lanes) <= 3
        go_on.set()
        async with listening(server, pattern("human")) as outsider:
            for question in asked:
                await bread.resume(question.checkpoint_id, "yes")
            # Who listens hears some of it twice: it is told by the set of (root, seq).
            await outsider.until(lambda fs: len({f["root"] for f in fs if f["type"] == "human:resumed"}) == 8)
        expected = {q.run_id: [wire(c) async for c in bread.observe(q.run_id)] for q in asked}
    assert relay.published_upto == [e async for e in _audit(tmp_path)][-1].position
    frames = await stored(server)
    assert in_order(frames)
    assert {root: shown([f for f in frames if f["root"] == root]) for root in expected} == expected


async def _audit(folder: Path) -> Any:
    async with Bread(store=store_in(folder), executes=False) as bread:
        async for event in bread.audit():
            if event.root_run_id is not None:
                yield event


async def test_b77_the_stream_is_there_with_what_it_must_have(server: NatsServer, tmp_path: Path) -> None:
    """Made by the first process; a later one changes what it is told to, and nothing else."""
    async with Bread(store=store_in(tmp_path), nats=server.url):
        pass
    client = await outside(server)
    config = (await client.jetstream().stream_info("BREAD_CRUMBS")).config
    assert (config.max_age, config.duplicate_window, config.max_consumers) == (3600, 120, 10_000)
    await client.jetstream().update_stream(config.evolve(max_age=7200))
    async with Bread(store=store_in(tmp_path), nats=server.url):
        assert (await client.jetstream().stream_info("BREAD_CRUMBS")).config.max_age == 7200
    async with Bread(store=store_in(tmp_path), transport=JetStream(server.url, max_age=60.0, max_bytes=10_000_000)):
        config = (await client.jetstream().stream_info("BREAD_CRUMBS")).config
        assert (config.max_age, config.max_bytes) == (60, 10_000_000)
    await client.close()
    assert await kept(server) == []
