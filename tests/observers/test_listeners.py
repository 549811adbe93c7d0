"""Listeners hear what streams show: all of it, once, in order, after the commit, and they harm nobody."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any

import pytest

from bread import (
    AnyCrumb,
    Bread,
    BreadError,
    define_agent,
    define_tool,
)
from bread.domain.ports import Logged
from bread.testing import ScriptedModel, call, pause, text
from support import read

from .clients import LIVE, Client, Heard, Wire, attach, durable, log_of
from .listening import agent, everything, expect_whole, live_through, live_to_rest
from .viewers import is_deletion

INFO_KEYS = ("runId", "rootRunId", "agentId", "sessionId")


async def whole_log(bread: Bread, run_id: str) -> list[Logged]:
    return log_of([event async for event in bread.audit(run_id)])


async def test_a17_b122_a2_a_listener_hears_what_the_stream_shows(open_bread: Callable[..., Bread]) -> None:
    heard = Heard()
    async with open_bread(everything()) as bread:
        bread.on("crumb", heard)
        run_id = await live_through(bread, bread.run("worker", "go"))
        await heard.last()
        await expect_whole(bread, run_id, heard)
        assert "model:retry" in {crumb["type"] for crumb in heard.crumbs}


async def test_a2_a17_an_awaited_run_is_heard_to_its_last_crumb(open_bread: Callable[..., Bread]) -> None:
    """Leaving the context at once takes nothing from a listener, however slow it is."""
    heard: list[str] = []

    async def slow(crumb: AnyCrumb) -> None:
        for _ in range(5):
            await bread.list_runs()
        heard.append(crumb.type)

    async with open_bread(agent([text("One two three.")])) as bread:
        bread.on("crumb", slow)
        assert await bread.run("worker", "go") == "One two three."
    assert heard[-1] == "agent:run:end"


async def test_a17_what_is_committed_while_the_program_closes_is_heard(
    open_bread: Callable[..., Bread], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A tool that comes to its end in the grace of the closing: its result is kept, and told to a slow listener."""
    gate, heard = asyncio.Event(), Heard()

    @define_tool
    async def slow() -> str:
        await gate.wait()
        return "slow"

    async def slowly(crumb: AnyCrumb) -> None:
        for _ in range(200):
            await asyncio.to_thread(int)
        heard(crumb)

    model = ScriptedModel([[call("tool_slow")], [text("Done.")]])
    async with open_bread(define_agent("worker", model=model, tools=[slow])) as bread:
        bread.on("crumb", slowly)
        await bread.start("worker", "go")
        await heard.until(lambda crumbs: bool(crumbs) and crumbs[-1]["type"] == "tool:call")
        engine = bread._running()
        close = engine.close

        async def close_and_let_go(grace: float) -> None:
            gate.set()
            await close(grace)

        monkeypatch.setattr(engine, "close", close_and_let_go)
    assert heard.crumbs[-1]["type"] == "tool:result"


async def test_b24_a_question_is_heard_also_if_the_program_ends_at_it(open_bread: Callable[..., Bread]) -> None:
    heard: list[str] = []

    async def notify(crumb: AnyCrumb) -> None:
        await bread.list_runs()
        assert crumb.type == "human:required"
        heard.append(crumb.checkpoint_id)

    async with open_bread(agent([call("human_sign")], [text("Done.")])) as bread:
        bread.on("human:required", notify)
        with pytest.raises(BreadError, match="RUN_SUSPENDED") as caught:
            await bread.run("worker", "go")
    assert heard == caught.value.details["checkpoints"]


async def test_a17_b47_what_is_heard_is_in_the_store(open_bread: Callable[..., Bread]) -> None:
    """After the commit: who reads on hearing finds the event, and a question pending."""
    found: list[str] = []
    heard, problems = Heard(), list[str]()

    async def look(crumb: AnyCrumb) -> None:
        if crumb.type in LIVE:
            return
        names = {event.seq: event.name async for event in bread.audit(crumb.root_run_id)}
        if crumb.seq not in names:
            problems.append(f"{crumb.type} {crumb.seq} is not in the log")
        if crumb.type == "human:required":
            pending = [item.id for item in (await bread.list_checkpoints()).items]
            if crumb.checkpoint_id not in pending:
                problems.append(f"{crumb.checkpoint_id} is not listed")
        found.append(crumb.type)

    async with open_bread(everything()) as bread:
        bread.on("crumb", look)
        bread.on("crumb", heard)
        # The answers are given by a listener too, when it has heard of both questions.
        asked = asyncio.create_task(heard.asked(2))
        run_id = await bread.start("worker", "go")
        await asked
        for item in (await bread.list_checkpoints()).items:
            await read(bread.resume(item.id, "yes"))
        await heard.last()
        await expect_whole(bread, run_id, heard)
    assert not problems
    assert found == [crumb["type"] for crumb in durable(heard.crumbs)]


async def test_b24_question_listeners_hear_questions_and_nothing_else(open_bread: Callable[..., Bread]) -> None:
    everyone, questions = Heard(), Heard()
    async with open_bread(everything()) as bread:
        bread.on("crumb", everyone)
        bread.on("human:required", questions)
        await live_through(bread, bread.run("worker", "go"))
        await everyone.last()
    assert questions.crumbs == [c for c in everyone.crumbs if c["type"] == "human:required"]
    assert len(questions.crumbs) == 2


async def _raises(crumb: AnyCrumb) -> None:
    raise RuntimeError("async listener")


def _raises_at_once(crumb: AnyCrumb) -> None:
    raise RuntimeError("sync listener")


async def _is_cancelled(crumb: AnyCrumb) -> None:
    lost = asyncio.get_running_loop().create_future()
    lost.cancel()
    await lost


@pytest.mark.parametrize("bad", [_raises, _raises_at_once, _is_cancelled], ids=["async", "sync", "cancelled"])
async def test_a17_a_listener_that_raises_is_logged_and_harms_nobody(
    open_bread: Callable[..., Bread], bad: Callable[[AnyCrumb], Any], caplog: pytest.LogCaptureFixture
) -> None:
    before, after = Heard(), Heard()
    async with open_bread(everything()) as bread:
        for listener in (before, bad, after):
            bread.on("crumb", listener)
        with caplog.at_level(logging.ERROR, "bread"):
            run_id = await live_through(bread, bread.run("worker", "go"))
            await before.last()
            await after.last()
        await expect_whole(bread, run_id, before, after)
    logged = [record for record in caplog.records if "a listener failed" in record.message]
    assert len(logged) >= len(durable(after.crumbs))


async def test_a17_a_listener_that_is_taken_away_hears_no_more(open_bread: Callable[..., Bread]) -> None:
    first, other = Heard(), Heard()
    async with open_bread(agent([call("human_sign")], [text("Done.")])) as bread:
        end = bread.on("crumb", first)
        bread.on("crumb", other)
        (asked,) = [c for c in await read(bread.run("worker", "go")) if c.type == "human:required"]
        await first.asked()
        end()
        end()  # a second time is nothing
        assert asked.type == "human:required"
        await read(bread.resume(asked.checkpoint_id, "yes"))
        await other.last()
    assert first.crumbs[-1]["type"] == "human:required"
    assert first.crumbs == other.crumbs[: len(first.crumbs)]


async def test_a17_a_listener_that_takes_itself_away_does_not_disturb_the_others(
    open_bread: Callable[..., Bread],
) -> None:
    once: list[str] = []
    heard = Heard()

    def only_once(crumb: AnyCrumb) -> None:
        once.append(crumb.type)
        end()

    async with open_bread(everything()) as bread:
        end = bread.on("crumb", only_once)
        bread.on("crumb", heard)
        run_id = await live_through(bread, bread.run("worker", "go"))
        await heard.last()
        await expect_whole(bread, run_id, heard)
    assert once == ["agent:run:start"]


async def test_a17_whoever_begins_to_listen_in_mid_run_hears_the_rest_without_a_gap(
    open_bread: Callable[..., Bread],
) -> None:
    gate = asyncio.Event()
    heard = Heard()
    async with open_bread(
        agent([text("Before "), pause(gate.wait), text("after. "), call("tool_fetch")], [text("Done.")])
    ) as bread:
        run = bread.run("worker", "go")
        shown: list[Wire] = []
        async for crumb in run:
            shown.append(crumb.wire())
            if crumb.type == "text:delta" and not gate.is_set():
                bread.on("crumb", heard)
                gate.set()
        await heard.last()
    first = heard.crumbs[0]
    assert first["type"] == "text:delta"
    assert first["text"] == "Before after. "  # the turn whole: it is the first thing committed since
    assert durable(heard.crumbs) == durable(shown)[-len(durable(heard.crumbs)) :]
    assert len(durable(heard.crumbs)) == len(durable(shown)) - 1


async def test_a17_an_unknown_event_is_refused(open_bread: Callable[..., Bread]) -> None:
    async with open_bread(everything()) as bread:
        with pytest.raises(BreadError, match="INPUT_INVALID"):
            bread.on("human:resumed", lambda crumb: None)  # type: ignore[arg-type]


@pytest.mark.parametrize("gone", ["suspended", "ended"])
async def test_a17_b75_b77_the_end_of_a_run_that_rests_is_heard_when_its_session_is_deleted(
    open_bread: Callable[..., Bread], gone: str
) -> None:
    """A stream that is open then shows human:discarded and SESSION_DELETED; so a listener hears them."""
    heard, stream = Heard(), Client()
    async with open_bread(agent([call("human_sign")] if gone == "suspended" else [text("Done.")])) as bread:
        bread.on("crumb", heard)
        run = bread.run("worker", "go", session="s1")
        for crumb in await read(run):
            stream.take(crumb.wire())
        await heard.until(lambda crumbs: len(durable(crumbs)) == len(durable(stream.crumbs)))
        if gone == "suspended":
            attached = await attach(bread, run.run_id, stream.cursor)
            await bread.sessions.delete("s1")
            for crumb in await read(attached):
                stream.take(crumb.wire())
            assert [c["type"] for c in stream.crumbs[-2:]] == ["human:discarded", "agent:error"]
        else:
            await bread.sessions.delete("s1")
        await heard.until(lambda crumbs: is_deletion(crumbs[-1]) if crumbs[-1]["type"] == "agent:error" else False)
    if gone == "suspended":
        assert durable(heard.crumbs) == durable(stream.crumbs)
    assert {tuple(crumb[key] for key in INFO_KEYS) for crumb in heard.crumbs} == {
        (run.run_id, run.run_id, "worker", "s1")
    }


async def test_a17_b77_c60_a_session_that_is_deleted_behind_the_end_of_its_run_is_heard_of_once(
    open_bread: Callable[..., Bread],
) -> None:
    """The listener is still busy with the cancel, which discarded a question, when the run is deleted altogether."""
    gate, heard = asyncio.Event(), Heard()

    async def busy(crumb: AnyCrumb) -> None:
        heard(crumb)
        if crumb.type == "agent:error":
            await gate.wait()

    async with open_bread(agent([call("human_sign")])) as bread:
        bread.on("crumb", busy)
        await live_to_rest(run := bread.run("worker", "go", session="s1"))
        await heard.asked()
        await bread.cancel(run.run_id)
        await heard.last()
        await bread.sessions.delete("s1")
        gate.set()
        await heard.until(lambda crumbs: is_deletion(crumbs[-1]))
        ends = [(crumb["type"], crumb.get("code") or crumb.get("reason")) for crumb in durable(heard.crumbs)[-4:]]
    assert ends == [
        ("human:discarded", "cancelled"),
        ("tool:error", "RUN_CANCELLED"),
        ("agent:error", "RUN_CANCELLED"),
        ("agent:error", "SESSION_DELETED"),
    ]
