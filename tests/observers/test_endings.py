"""Where a stream ends, and where it does not."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from bread import Agent, AnyCrumb, Bread, BreadError, define_agent, define_tool
from bread.domain.envelope import APP, Meta, Recorded
from bread.domain.events import Erased, Event
from bread.domain.messages import native_message
from bread.domain.ports import Logged
from bread.domain.run_events import ModelFailed, ModelResponded, RunCancelled, RunFailed, RunStarted, RunTaken
from bread.projections.render import RunInfo
from bread.runtime import reads
from bread.runtime.observer import Observer
from bread.testing import ScriptedModel, call, fail, pause, text
from bread.transport.cursor import Cursor, parse_cursor
from bread.transport.local import HintFrame, LocalHub
from crash.stores import Shared, place_of
from support import read, said, types

from .agents import sign, speech
from .clients import LAST, Client, attach, durable, is_read_out


def agent(*turns: Any, **more: Any) -> Agent:
    return define_agent("worker", model=ScriptedModel(list(turns)), **({"tools": [sign]} | more))


async def first_question(bread: Bread, run: Any) -> str:
    return next(crumb.checkpoint_id for crumb in await read(run) if crumb.type == "human:required")


# --- rests and ends ---------------------------------------------------------------------------------------------------


async def test_b135_a_passive_stream_stays_open_over_suspensions(open_bread: Callable[..., Bread]) -> None:
    turns = [[text("One? "), call("human_sign")], [text("Two? "), call("human_sign")], [text("Done.")]]
    async with open_bread(agent(*turns)) as bread:
        run_id = await bread.start("worker", "go")
        shown = []
        async for crumb in bread.observe(run_id):
            shown.append(crumb)
            if crumb.type == "human:required":
                # The run rests, and this stream is read on: there is no crumb before somebody answers.
                assert (await bread.get_run(run_id)).status == "suspended"
                await bread.resume(crumb.checkpoint_id, "yes")._start()
        assert types(shown) == [
            "agent:run:start", "text:delta", "human:required", "human:resumed", "text:delta", "human:required",
            "human:resumed", "text:delta", "agent:run:end",
        ]  # fmt: skip
        assert said(shown) == "One? Two? Done."


@pytest.mark.parametrize("end", ["completed", "failed", "cancelled"])
async def test_b135_a_stream_that_is_opened_after_the_end_shows_all_and_ends(
    open_bread: Callable[..., Bread], end: str
) -> None:
    turn = {
        "completed": [text("Hi.")],
        "failed": [text("Hi."), fail(retryable=False)],
        "cancelled": [call("human_sign")],
    }
    async with open_bread(agent(turn[end])) as bread:
        run = bread.run("worker", "go")
        live = Client()
        for crumb in await read(run):
            live.take(crumb.wire())
        if end == "cancelled":
            await bread.cancel(run.run_id, reason="enough")
        whole = [crumb.wire() for crumb in await read(bread.observe(run.run_id))]
        assert whole[-1]["type"] in LAST
        assert durable(whole)[: len(durable(live.crumbs))] == durable(live.crumbs)
        for cut in whole:
            rest = [c.wire() for c in await read(bread.observe(run.run_id, after=cut["cursor"]))]
            assert [c["seq"] for c in rest] == [c["seq"] for c in whole if c["seq"] > cut["seq"]]


async def test_b135_b59_after_a_retry_a_stream_goes_over_the_failure(open_bread: Callable[..., Bread]) -> None:
    answers: Iterator[list[Any]] = iter([[text("Oh "), fail(retryable=False)], [text("Better.")]])
    async with open_bread(define_agent("worker", model=ScriptedModel(lambda request: next(answers)))) as bread:
        run = bread.run("worker", "go")
        failed = await read(run)
        assert types(failed)[-1] == "agent:error"
        assert [c.seq for c in await read(bread.observe(run.run_id))] == sorted({c.seq for c in failed} - {2})
        retried = await read(bread.retry(run.run_id))
        assert types(retried) == ["agent:run:retry", "text:delta", "agent:run:end"]
        for after in (None, failed[0].cursor, failed[-1].cursor):
            shown = await read(bread.observe(run.run_id, after=after))
            assert shown[-1].type == "agent:run:end"
            assert [c.type for c in shown].count("agent:run:retry") == 1
        assert await read(bread.observe(run.run_id, after=shown[-1].cursor)) == []


async def test_b135_b59_who_watched_before_the_failure_sees_the_retry_too(open_bread: Callable[..., Bread]) -> None:
    """A reader that is at the failure when the run has gone on is not left there."""
    gate = asyncio.Event()
    first = [pause(gate.wait), text("Oh "), fail(retryable=False)]
    answers: Iterator[list[Any]] = iter([first, [text("Better.")]])
    async with open_bread(define_agent("worker", model=ScriptedModel(lambda request: next(answers)))) as bread:
        run_id = await bread.start("worker", "go")
        watcher = Client()
        retried: list[Any] = []
        async for crumb in bread.observe(run_id):
            watcher.take(crumb.wire())
            gate.set()
            if crumb.type == "agent:error":
                retried = await read(bread.retry(run_id))  # the watcher's stream is held here meanwhile
        assert durable(watcher.crumbs)[-2:] == durable([crumb.wire() for crumb in retried])
        assert durable(watcher.crumbs) == durable([crumb.wire() for crumb in await read(bread.observe(run_id))])
        assert watcher.resets == 1


async def test_b135_a_stream_does_not_wait_for_a_run_that_ended_while_it_looked(
    open_bread: Callable[..., Bread], monkeypatch: pytest.MonkeyPatch
) -> None:
    """B130: the end that is committed between "there is nothing new" and "is it over?" is shown, not only believed."""
    gate = asyncio.Event()
    async with open_bread(agent([call("human_sign")], [pause(gate.wait), text("Done.")])) as bread:
        checkpoint = await first_question(bread, bread.run("worker", "go"))
        run = bread.resume(checkpoint, "yes")
        await run._start()
        seen = await attach(bread, run.run_id, (await _last_cursor(bread, run.run_id)))
        journal = bread._running().journal
        log, ended = journal.log, asyncio.Event()

        async def log_then_the_end(root: str, after: int, limit: int) -> list[Logged]:
            page = await log(root, after, limit)
            if not page and not ended.is_set():
                ended.set()
                gate.set()
                await read(seen)
                assert (await bread.get_run(run.run_id)).status == "completed"
            return page

        cursor = await _last_cursor(bread, run.run_id)
        monkeypatch.setattr(journal, "log", log_then_the_end)
        late = await read(bread.observe(run.run_id, after=cursor))
        assert ended.is_set()
        assert types(late) == ["text:delta", "agent:run:end"]


async def _last_cursor(bread: Bread, run_id: str) -> str:
    return str([event.seq async for event in bread.audit(run_id)][-1])


async def test_b135_a_stream_that_is_open_when_its_process_closes_ends_with_an_error(
    open_bread: Callable[..., Bread],
) -> None:
    async with open_bread(agent([call("human_sign")])) as bread:
        run = bread.run("worker", "go")
        await read(run)
        waiting = await attach(bread, run.run_id, await _last_cursor(bread, run.run_id))
        reader = asyncio.create_task(read(waiting))
    with pytest.raises(BreadError, match="NOT_OPEN"):
        await reader


@pytest.mark.parametrize("words", [3, 700], ids=["with frames left", "fallen behind"])
async def test_b135_b130_a_stream_that_is_read_on_after_its_process_has_closed_ends_with_an_error(
    open_bread: Callable[..., Bread], words: int
) -> None:
    """Whatever it still had to show or to look up: what it has shown is right, and then it says that it cannot."""
    never, client = asyncio.Event(), Client()
    async with open_bread(agent([text(speech(words)), pause(never.wait)])) as bread:
        stream = aiter(bread.observe(await bread.start("worker", "go")))
        while not client.texts:
            client.take((await anext(stream)).wire())
        bread._running().hub.publish(
            client.crumbs[0]["runId"], HintFrame(client.crumbs[0]["runId"], "reasoning", {"text": "hm"})
        )
        if words > 3:
            bread._running().hub.poke_all()
    with pytest.raises(BreadError) as caught:
        await take_all(client, stream)
    assert caught.value.code in ("NOT_OPEN", "STORE_UNAVAILABLE")
    # The run was given back: what had been said of its turn is void for whoever was told so in time.
    assert client.resets == 1 or speech(words).startswith(client.texts[1])


async def take_all(client: Client, stream: AsyncIterator[AnyCrumb]) -> None:
    async for crumb in stream:
        client.take(crumb.wire())


# --- deleted sessions -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("pending", [True, False], ids=["suspended", "in mid-turn"])
async def test_b75_b77_c60_deleting_the_session_ends_the_streams(
    open_bread: Callable[..., Bread], pending: bool
) -> None:
    never = asyncio.Event()
    turn = [text("One moment "), call("human_sign")] if pending else [text("One moment "), pause(never.wait)]
    async with open_bread(agent(turn)) as bread:
        run_id = await bread.start("worker", "go", session="s1")
        watcher = Client()
        reading = aiter(bread.observe(run_id))
        async for crumb in reading:
            watcher.take(crumb.wire())
            if crumb.type == ("human:required" if pending else "text:delta"):
                break
        await bread.sessions.delete("s1")
        async for crumb in reading:
            watcher.take(crumb.wire())
        ending = [crumb["type"] for crumb in watcher.crumbs[-2:]]
        assert ending == ["human:discarded" if pending else "text:reset", "agent:error"]
        assert watcher.crumbs[-1]["code"] == "SESSION_DELETED"
        assert bool(watcher.texts) is pending  # what was cut off is void
        for after in (None, watcher.cursor):
            with pytest.raises(BreadError, match="RUN_NOT_FOUND"):
                await read(bread.observe(run_id, after=after))


@pytest.mark.parametrize("pending", [True, False], ids=["suspended", "in mid-turn"])
async def test_b66_b75_b77_deleting_the_session_in_another_process_ends_the_streams(
    shared: Shared, pending: bool
) -> None:
    never = asyncio.Event()
    turn = [text("One moment "), call("human_sign")] if pending else [call("tool_slow")]

    @define_tool
    async def slow() -> None:
        await never.wait()

    helper = agent(turn, tools=[sign, slow])
    async with Bread(agents=[helper], **place_of(shared)) as one, Bread(**place_of(shared), executes=False) as other:
        run_id = await one.start("worker", "go", session="s1")
        watcher = Client()
        reading = aiter(other.observe(run_id))
        async for crumb in reading:
            watcher.take(crumb.wire())
            if crumb.type == ("human:required" if pending else "tool:call"):
                break
        waiting = asyncio.ensure_future(anext(reading))
        while not is_read_out(other._running().hub, run_id):
            await other.list_runs()
        await one.sessions.delete("s1")
        watcher.take((await waiting).wire())
        async for crumb in reading:
            watcher.take(crumb.wire())
        assert watcher.crumbs[-1]["code"] == "SESSION_DELETED"
        if pending:
            assert watcher.crumbs[-2]["type"] == "human:discarded"
        with pytest.raises(BreadError, match="RUN_NOT_FOUND"):
            await read(other.observe(run_id))


async def test_b77_b124_a_reader_that_comes_back_to_a_deleted_run_in_time_gets_its_text_reset() -> None:
    """Its session is deleted after it has come back and before it has read: what it was shown of a turn is void."""
    root = RunInfo("run_1", "run_1", "s1", "worker")
    crumbs = [crumb.wire() async for crumb in _observer([entry(1, STARTED)], parse_cursor("1~1:5"), None).crumbs()]
    assert [(c["type"], c.get("code"), c["cursor"]) for c in crumbs] == [
        ("text:reset", None, "1"),
        ("agent:error", "SESSION_DELETED", "2"),
    ]
    assert {c["runId"] for c in crumbs} == {root.run_id}


# --- logs that the runtime does not write yet, or only in bad company -------------------------------------------------

STARTED = RunStarted(agent="worker", input="go", session="s1", root="run_1", started=1.0)
FAILED = ModelFailed(turn=0, base=1, attempt=1, code="MODEL_ERROR", message="busy", retry_at=2.0)
SPOKEN = ModelResponded(turn=0, base=1, message=native_message("Hello there."), model="scripted", finish="stop")


def entry(seq: int, event: Event, stream: str = "run_1") -> Logged:
    return Logged(Recorded(stream, seq, event, Meta(1.0, APP, "c", seq, "run_1", "s1"), seq))


class _Store:
    """A journal that has a page of a log; `status` None says that the run is not there."""

    def __init__(self, log: list[Logged], status: str | None) -> None:
        self._log, self._status = log, status

    async def log(self, root: str, after: int, limit: int) -> list[Logged]:
        known = self._log if self._status else self._log[:1] if after == 0 else []
        return [one for one in known if one.recorded.meta.seq > after][:limit]

    async def ask(self, question: Any, *args: Any) -> Any:
        assert question is reads.standing
        return reads.Standing(self._status, self._log[-1].recorded.meta.seq if self._status else 0, False)


def _observer(log: list[Logged], cursor: Cursor, status: str | None, hub: LocalHub | None = None) -> Observer:
    engine: Any = SimpleNamespace(journal=_Store(log, status), hub=hub or LocalHub(), families={})
    return Observer(engine, RunInfo("run_1", "run_1", "s1", "worker"), cursor, at_rest=False)


async def test_b76_the_tombstones_of_children_do_not_open_an_ended_stream_again() -> None:
    hub = LocalHub()
    crumbs = _observer([entry(1, STARTED)], Cursor(), "running", hub).crumbs()
    assert (await anext(crumbs)).seq == 1
    waiting = asyncio.ensure_future(anext(crumbs))
    while not is_read_out(hub, "run_1"):
        await asyncio.to_thread(lambda: None)
    hub.remember("run_1")
    hub.publish_events([entry(2, Erased()), entry(3, Erased(), "run_2"), entry(4, Erased(), "run_3")])
    assert (await waiting).wire()["code"] == "SESSION_DELETED"
    assert [crumb async for crumb in crumbs] == []


@pytest.mark.parametrize(
    "ending",
    [RunTaken(owner="w", reason="orphaned"), RunFailed(code="X", message="y"), RunCancelled(reason="z"), FAILED],
    ids=lambda event: event.NAME,
)
async def test_b124_b130_a_reset_leaves_the_event_that_made_it_to_come(ending: Event) -> None:
    """Its cursor is from before that event: who leaves between the reset and the crumb beside it is shown it later."""
    log = [entry(1, STARTED), entry(2, ending), entry(3, RunFailed(code="X", message="the end"))]
    reset, *others = [c.wire() async for c in _observer(log, parse_cursor("1~1:5"), "failed").crumbs()]
    assert (reset["type"], reset["base"], reset["seq"], reset["cursor"]) == ("text:reset", 1, 1, "1")
    again = [c.wire() async for c in _observer(log, parse_cursor(reset["cursor"]), "failed").crumbs()]
    assert again == others
    assert len(others) == (1 if isinstance(ending, RunTaken) else 2)


async def test_b124_the_last_words_of_an_attempt_that_is_over_are_not_shown() -> None:
    """A process that was replaced goes on talking until it learns of it; a cursor past that is past those words."""
    hub = LocalHub()
    hub.publish_text("run_1", "run_1", 1, "Hello ")
    log = [entry(1, STARTED), entry(2, RunTaken(owner="w", reason="orphaned", previous="v"))]
    crumbs = _observer(log, Cursor(2), "running", hub).crumbs()
    waiting = asyncio.ensure_future(anext(crumbs))
    while not is_read_out(hub, "run_1"):
        await asyncio.to_thread(lambda: None)
    hub.publish_text("run_1", "run_1", 1, "there.")
    hub.publish_text("run_1", "run_1", 2, "Good morning.")
    shown = (await waiting).wire()
    assert (shown["text"], shown["base"]) == ("Good morning.", 2)
    await crumbs.aclose()


async def test_b124_live_text_goes_on_where_the_cursor_stands() -> None:
    hub = LocalHub()
    hub.publish_text("run_1", "run_1", 1, "Hello ")
    log = [entry(1, STARTED)]
    crumbs = _observer(log, parse_cursor("1~1:2"), "running", hub).crumbs()
    first = (await anext(crumbs)).wire()
    assert (first["text"], first["offset"], first["cursor"]) == ("llo ", 2, "1~1:6")
    log.append(entry(2, SPOKEN))
    hub.publish_events(log[1:])
    rest = (await anext(crumbs)).wire()
    assert (rest["text"], rest["offset"], rest["cursor"]) == ("there.", 6, "2")
    await crumbs.aclose()


async def test_b124_at_most_eight_texts_are_live_and_the_others_come_whole() -> None:
    hub = LocalHub()
    log = [entry(1, STARTED)] + [
        entry(seq, STARTED.model_copy(update={"agent": f"a{seq}"}), f"run_{seq}") for seq in range(2, 12)
    ]
    observer = _observer(log, Cursor(), "running", hub)
    observer._family.infos |= {f"run_{n}": RunInfo(f"run_{n}", "run_1", "s1", f"a{n}") for n in range(1, 12)}
    for seq in range(1, 12):
        hub.publish_text("run_1", f"run_{seq}", seq, "Hello ")
    crumbs = observer.crumbs()
    shown = [(await anext(crumbs)).wire() for _ in range(11 + 8)]
    assert [c["base"] for c in shown if c["type"] == "text:delta"] == list(range(1, 9))
    assert parse_cursor(shown[-1]["cursor"]) == Cursor(11, dict.fromkeys(range(1, 9), 6))
    for seq in range(1, 12):
        turn = SPOKEN.model_copy(update={"base": seq})
        hub.publish_events([entry(11 + seq, turn, f"run_{seq}")])
    rest = [(await anext(crumbs)).wire() for _ in range(11)]
    assert [c["text"] for c in rest] == ["there."] * 8 + ["Hello there."] * 3
    await crumbs.aclose()
