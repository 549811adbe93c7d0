"""The documented client: it answers inside the loop that reads the run."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from bread import Agent, AnyCrumb, Bread, define_agent
from bread.testing import ScriptedModel, call, text
from crash.stores import Shared, place_of
from support import read

from .agents import fetch, sign, speech
from .clients import Client, Wire, durable

SUSPENSIONS = 3


def asker(words: int = 12) -> Agent:
    turns: list[list[Any]] = [
        [text(speech(words, turn)), call("tool_fetch"), call("human_sign", {"turn": turn})]
        for turn in range(SUSPENSIONS)
    ]
    return define_agent("asker", model=ScriptedModel([*turns, [text("Done.")]]), tools=[sign, fetch])


class Streams:
    """Every stream that the client opened, each checked by itself."""

    def __init__(self, bread: Bread) -> None:
        self.bread = bread
        self.clients: list[Client] = []
        self.answered: set[str] = set()

    async def read(self, stream: Any) -> None:
        client = Client()
        self.clients.append(client)
        async for crumb in stream:
            client.take(crumb.wire())
            await self.see(crumb)

    async def see(self, crumb: AnyCrumb) -> None:
        if crumb.type == "human:required" and crumb.checkpoint_id not in self.answered:
            self.answered.add(crumb.checkpoint_id)
            await self.read(self.bread.resume(crumb.checkpoint_id, {"approved": True}))


def union(clients: list[Client]) -> list[Wire]:
    """What all streams showed together, by seq; a crumb that two of them showed is there twice."""
    return sorted((crumb for client in clients for crumb in durable(client.crumbs)), key=lambda crumb: crumb["seq"])


async def whole(bread: Bread, run_id: str) -> Client:
    client = Client()
    for crumb in await read(bread.observe(run_id)):
        client.take(crumb.wire())
    return client


async def expect_all(bread: Bread, run_id: str, clients: list[Client]) -> None:
    all_of_it = await whole(bread, run_id)
    assert union(clients) == durable(all_of_it.crumbs)
    assert {base: said for client in clients for base, said in client.texts.items()} == all_of_it.texts


async def test_b133_resuming_inside_the_loop_nested_shows_everything_once(open_bread: Callable[..., Bread]) -> None:
    async with open_bread(asker()) as bread:
        streams, run = Streams(bread), bread.run("asker", "go")
        await streams.read(run)
        assert len(streams.clients) == SUSPENSIONS + 1
        await expect_all(bread, run.run_id, streams.clients)
        # Each stream ends with its question, the last one with the run.
        ends = [durable(client.crumbs)[-1]["type"] for client in streams.clients]
        assert ends == ["human:required"] * SUSPENSIONS + ["agent:run:end"]
        starts = [durable(client.crumbs)[0]["type"] for client in streams.clients]
        assert starts == ["agent:run:start"] + ["human:resumed"] * SUSPENSIONS


async def test_b133_b130_an_outer_loop_that_is_held_up_too_long_misses_nothing(
    open_bread: Callable[..., Bread],
) -> None:
    """While the inner loops run, more frames pass than the outer stream's queue holds."""
    async with open_bread(asker(words=400)) as bread:
        streams, run = Streams(bread), bread.run("asker", "go")
        await streams.read(run)
        await expect_all(bread, run.run_id, streams.clients)


async def test_b133_b29_several_questions_of_one_turn_answered_as_they_are_read(
    open_bread: Callable[..., Bread],
) -> None:
    turns: list[list[Any]] = [
        [text("All three. "), call("human_sign"), call("tool_fetch"), call("human_sign"), call("human_sign")],
        [text("Done.")],
    ]
    async with open_bread(define_agent("asker", model=ScriptedModel(turns), tools=[sign, fetch])) as bread:
        streams, run = Streams(bread), bread.run("asker", "go")
        await streams.read(run)
        await expect_all(bread, run.run_id, streams.clients)
        ends = [durable(client.crumbs)[-1]["type"] for client in streams.clients]
        assert ends == ["human:required", "human:resumed", "human:resumed", "agent:run:end"]


async def test_b133_a_passive_stream_beside_the_loop_shows_the_same(open_bread: Callable[..., Bread]) -> None:
    async with open_bread(asker()) as bread:
        streams = Streams(bread)
        run_id = await bread.start("asker", "go")
        await streams.read(bread.observe(run_id))  # it stays open, and is read on after each inner stream
        passive, *inner = streams.clients
        await expect_all(bread, run_id, [passive])
        assert len(inner) == SUSPENSIONS
        for client in inner:
            first, last = client.crumbs[0]["seq"], client.crumbs[-1]["seq"]
            assert durable(client.crumbs) == [c for c in durable(passive.crumbs) if first <= c["seq"] <= last]


async def test_b133_b66_the_loop_of_one_process_over_answers_through_another(shared: Shared) -> None:
    """Read here, answered there: each stream is whole on its own, whichever process it was opened in."""
    async with (
        Bread(agents=[asker()], **place_of(shared)) as here,
        Bread(agents=[asker()], **place_of(shared)) as there,
    ):
        streams, run = Streams(there), here.run("asker", "go")
        await streams.read(run)
        await expect_all(here, run.run_id, streams.clients)
        await expect_all(there, run.run_id, streams.clients)
