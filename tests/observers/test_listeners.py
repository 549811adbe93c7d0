"""Listeners hear what streams show: all of it, once, in order, after the commit, and they harm nobody."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from bread import (
    Agent,
    AnswerCheckpoint,
    AnyCrumb,
    Bread,
    BreadError,
    RunHandle,
    StoreUnavailable,
    define_agent,
    define_tool,
)
from bread.domain.ports import Logged
from bread.runtime import listeners
from bread.testing import ScriptedModel, call, fail, pause, text
from crash.stores import Shared
from support import read

from .agents import fetch, sign
from .clients import LIVE, Client, Heard, Wire, attach, durable, log_of
from .stage import is_deletion

INFO_KEYS = ("runId", "rootRunId", "agentId", "sessionId")


def agent(*turns: list[Any]) -> Agent:
    return define_agent("worker", model=ScriptedModel(list(turns)), tools=[sign, fetch], permissions={"ask": []})


def everything() -> Agent:
    """Text, a failed attempt after some of it, a tool beside two questions, an answer each, and an end."""
    return agent(
        [text("Well, "), fail("overloaded", times=1), text("I shall \U0001f680 fetch. "), call("tool_fetch")],
        [text("Now sign. "), call("human_sign"), call("tool_fetch"), call("human_sign")],
        [text("Signed twice, done.")],
    )


async def live_through(bread: Bread, run: RunHandle) -> str:
    """Read a run to its end, with an answer to each of its questions; gives its id."""
    questions = [c.checkpoint_id for c in await read(run) if c.type == "human:required"]
    while questions:
        more = await read(bread.resume(questions.pop(), {"yes": True}, author="ann"))
        questions += [c.checkpoint_id for c in more if c.type == "human:required"]
    return run.run_id


async def whole_log(bread: Bread, run_id: str) -> list[Logged]:
    return log_of([event async for event in bread.audit(run_id)])


async def expect_whole(bread: Bread, run_id: str, *clients: Client) -> None:
    """What each client has is what an observer is shown from the start, which is what the log says."""
    observer = Client()
    for crumb in await read(bread.observe(run_id)):
        observer.take(crumb.wire())
    for client in (observer, *clients):
        assert not getattr(client, "wrong", None)
        assert durable(client.crumbs) == durable(observer.crumbs)
        assert client.texts == observer.texts


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


# --- two processes on one store ---------------------------------------------------------------------------------------


class HeldTail:
    """What a process hears of others, held back: the moment between their commit and the next look at the store."""

    def __init__(self, bread: Bread) -> None:
        self._journal = bread._running().journal
        self._tell = self._journal._tell
        self._held: list[tuple[list[Logged], int]] = []
        self._news = asyncio.Event()
        self._journal._tell = self._hold  # type: ignore[method-assign]

    def _hold(self, foreign: list[Logged], position: int) -> None:
        self._held.append((foreign, position))
        self._news.set()

    async def let_go(self) -> None:
        """Tell what was held back, once there is something."""
        while not self._held:
            self._news.clear()
            await self._news.wait()
        self._journal._tell = self._tell  # type: ignore[method-assign]
        for foreign, position in self._held:
            self._tell(foreign, position)


@asynccontextmanager
async def two(shared: Shared, *agents: Agent, executing: Agent | None = None) -> AsyncIterator[tuple[Bread, Bread]]:
    """A process that executes, and one that only answers, on one store."""
    async with (
        Bread(agents=agents, store=shared.url, backoff=(0.01,)) as worker,
        Bread(agents=agents, store=shared.url, executes=False) as desk,
    ):
        yield worker, desk


async def test_a17_b66_listeners_hear_what_another_process_executes(shared: Shared) -> None:
    heard = Heard()
    async with two(shared, everything()) as (worker, desk):
        desk.on("crumb", heard)
        run_id = await live_through(worker, worker.run("worker", "go"))
        await heard.last()
        await expect_whole(worker, run_id, heard)


@pytest.mark.parametrize("known", [True, False], ids=["heard before", "never heard of"])
async def test_a17_b122_an_own_commit_ahead_of_foreign_ones_leaves_no_gap(shared: Shared, known: bool) -> None:
    """An answer of another process is in the store, and this one takes the run before its tail has told it so."""
    heard = Heard()
    async with two(shared, agent([call("human_sign")], [text("Thank you.")])) as (worker, desk):
        if known:
            worker.on("crumb", heard)
        run = worker.run("worker", "go")
        await live_to_rest(run)
        (item,) = (await worker.list_checkpoints()).items
        if known:
            await heard.asked()
        else:
            worker.on("crumb", heard)
        tail = HeldTail(worker)
        await desk.send(AnswerCheckpoint(checkpoint_id=item.id, response="yes"))
        worker._running().sweep_soon()
        await heard.last()
        await tail.let_go()
        await another_run(worker, heard)
        whole = durable([crumb.wire() for crumb in await read(worker.observe(run.run_id))])
        question = next(number for number, crumb in enumerate(whole) if crumb["type"] == "human:required")
        assert durable(heard.crumbs) == whole[0 if known else question + 1 :]


async def live_to_rest(run: Any) -> None:
    with pytest.raises(BreadError, match="RUN_SUSPENDED"):
        await run


async def another_run(bread: Bread, heard: Heard) -> None:
    """One more run through the same listener: whatever it was told twice, it was told before that."""
    await live_to_rest(bread.run("worker", "again"))
    while not heard.of_others:
        await bread.list_runs()
    await bread._listeners.drain(10)


async def test_a17_b122_foreign_commits_that_are_told_late_are_not_heard_twice(shared: Shared) -> None:
    """The run is over, here, before this process is told of the answer of another one that it has executed."""
    gate, heard = asyncio.Event(), Heard()

    @define_tool
    async def slow() -> str:
        await gate.wait()
        return "slow"

    model = ScriptedModel([[call("human_sign"), call("tool_slow")], [text("Both.")]])
    helper = define_agent("worker", model=model, tools=[sign, slow])
    async with two(shared, helper) as (worker, desk):
        worker.on("crumb", heard)
        run_id = await worker.start("worker", "go")
        await heard.until(lambda crumbs: any(c["type"] == "tool:call" for c in crumbs))
        (item,) = (await worker.list_checkpoints()).items
        tail = HeldTail(worker)
        await desk.send(AnswerCheckpoint(checkpoint_id=item.id, response="yes"))
        gate.set()
        await heard.last()
        await tail.let_go()
        await another_run(worker, heard)
        assert durable(heard.crumbs) == durable([crumb.wire() for crumb in await read(worker.observe(run_id))])


async def test_a17_b130_a_store_that_does_not_answer_takes_nothing_from_a_listener(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Some of the listener's reads fail: it hears all the same, and no text of it twice."""
    monkeypatch.setattr(listeners, "RETRY_SECONDS", 0.0)
    heard, gate, reads, failing = Heard(), asyncio.Event(), 0, {1, 2, 4, 6, 9, 10}
    speaking = agent([text("Some \U0001f680 "), pause(gate.wait), text("words. "), call("human_sign")], [text("Done.")])
    async with Bread(agents=[speaking], store=f"sqlite:///{tmp_path}/bread.db") as bread:
        journal = bread._running().journal
        ask = journal.ask

        async def moody(question: Any, *args: Any, **more: Any) -> Any:
            nonlocal reads
            task = asyncio.current_task()
            if task is not None and task.get_name().startswith("listen "):
                reads += 1
                if reads in failing:
                    raise StoreUnavailable("the disk thinks")
            return await ask(question, *args, **more)

        monkeypatch.setattr(journal, "ask", moody)
        bread.on("crumb", heard)
        run = await bread.start("worker", "go")
        await heard.until(lambda crumbs: any(c["type"] == "text:delta" for c in crumbs))
        # The listener falls behind, and has to read the store in the middle of the turn.
        bread._running().hub.poke_all()
        gate.set()
        await heard.asked()
        (item,) = (await bread.list_checkpoints()).items
        await bread.resume(item.id, "yes")
        await heard.last()
        await expect_whole(bread, run, heard)
        assert reads > max(failing)
