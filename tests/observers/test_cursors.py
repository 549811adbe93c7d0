"""Cursors: what a reader has seen, so that what it is shown before and after is the whole, wherever it was cut."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from random import Random
from typing import Any

import pytest

from bread import Agent, Bread, BreadError, define_agent, define_tool
from bread.domain.errors import InvalidInput
from bread.projections.render import RunInfo
from bread.testing import ScriptedModel, call, fail, pause, reasoning, text
from bread.transport.cursor import MAX_LIVE, Cursor, parse_cursor
from support import read, trials

from .agents import fetch, sign, speech
from .clients import Client, log_of

# --- the text of a cursor ---------------------------------------------------------------------------------------------


def test_b124_a_cursor_is_its_text() -> None:
    random = Random(1)
    for _ in range(trials(300, 10_000)):
        seq = random.randint(1, 10**6)
        texts = {random.randint(1, seq): random.randint(1, 10**9) for _ in range(random.randint(0, MAX_LIVE))}
        assert parse_cursor(str(Cursor(seq, texts))) == Cursor(seq, texts)
    assert str(Cursor()) == "0"
    assert str(Cursor(7, {3: 0})) == "7"
    assert parse_cursor(None) == Cursor(0, {})


MALFORMED = (
    "", " ", "x", "-1", "+1", "1.0", "1e3", " 1", "1 ", "1\n", "\u0661", "1~", "~1:1", "1~1", "1~1:", "1~:1", "1~a:1",
    "1~1:1,", "1~1:1,,1:1", "1~1:1;1:2", "1~1:-1", "1~2:1", "1~0:1", "9" * 16, "1~1:" + "9" * 16, "0x1", "None",
    "9~" + ",".join(f"{base}:1" for base in range(1, MAX_LIVE + 2)), "1~1:1~1:1", "1\x00",
)  # fmt: skip


@pytest.mark.parametrize("cursor", MALFORMED, ids=ascii)
def test_b136_a_malformed_cursor_is_invalid_input(cursor: str) -> None:
    with pytest.raises(InvalidInput, match="INPUT_INVALID"):
        parse_cursor(cursor)


@pytest.mark.parametrize("cursor", [1, b"1", ["1"], 1.5], ids=repr)
def test_b136_a_cursor_that_is_no_text_is_invalid_input(cursor: Any) -> None:
    with pytest.raises(InvalidInput, match="INPUT_INVALID"):
        parse_cursor(cursor)


async def test_b136_b138_observing_with_a_wrong_cursor_or_an_unknown_run(open_bread: Callable[..., Bread]) -> None:
    """The error comes at the first iteration, and nothing is left of the stream."""
    async with open_bread(_agent([text("Hi.")])) as bread:
        run = bread.run("worker", "go")
        seqs = [crumb.seq for crumb in await read(run)]
        for cursor in ("", "1~9:1", "what"):
            with pytest.raises(BreadError, match="INPUT_INVALID"):
                await read(bread.observe(run.run_id, after=cursor))
        for run_id in ("run_unknown", "", "cp_1", "session:s1", run.run_id + "0"):
            with pytest.raises(BreadError, match="RUN_NOT_FOUND"):
                await read(bread.observe(run_id))
        assert await read(bread.observe(run.run_id, after=str(max(seqs)))) == []
        # One of another run: no stream can go on from there, and none may wait for it for ever.
        with pytest.raises(BreadError, match="INPUT_INVALID"):
            await read(bread.observe(run.run_id, after=str(max(seqs) + 1)))
        assert not bread._running().hub._subscriptions


# --- cut everywhere ---------------------------------------------------------------------------------------------------


def _agent(*turns: Any, **more: Any) -> Agent:
    return define_agent("worker", model=ScriptedModel(list(turns)), **({"tools": [sign]} | more))


@define_tool
async def steps() -> Any:
    for step in ("a", "b"):
        yield step


@define_tool
def delete(path: str) -> str:
    return f"deleted {path}"


@dataclass
class Scenario:
    """An agent, and what people do to its runs as they see them. `begun` is set when somebody watches."""

    agent: Agent
    begun: asyncio.Event
    act: Callable[[Bread, str, Client], Awaitable[None]] | None = None


def long_text(begun: asyncio.Event) -> Scenario:
    return Scenario(_agent([pause(begun.wait), text(speech(60))]), begun)


def failed_attempts(begun: asyncio.Event) -> Scenario:
    turn = [pause(begun.wait), text(speech(9, 1)), fail(times=1), text(speech(9, 2)), fail(times=2), text(speech(9, 3))]
    return Scenario(_agent(turn), begun)


def tools(begun: asyncio.Event) -> Scenario:
    first = [pause(begun.wait), reasoning("hm"), text(speech(9, 4)), call("tool_fetch"), call("tool_steps")]
    return Scenario(_agent(first, [call("tool_fetch")], [text(speech(9, 5))], tools=[fetch, steps]), begun)


async def answer_one(bread: Bread, run_id: str, client: Client) -> None:
    """Answer each question that is not answered yet, the last one first."""
    settled = {crumb["checkpointId"] for crumb in client.crumbs if crumb["type"] == "human:resumed"}
    asked = [crumb["checkpointId"] for crumb in client.crumbs if crumb["type"] == "human:required"]
    pending = [checkpoint for checkpoint in asked if checkpoint not in settled]
    listed = {item.id for item in (await bread.list_checkpoints()).items}
    if client.crumbs[-1]["type"] == "human:required" and set(pending) == listed:
        for checkpoint in reversed(pending):
            kind = (await bread.get_checkpoint(checkpoint)).kind
            await bread.resume(checkpoint, {"approved": True} if kind == "approval" else "yes")._start()


def questions(begun: asyncio.Event) -> Scenario:
    first = [pause(begun.wait), text(speech(9, 6)), call("human_sign"), call("tool_fetch"), call("human_sign")]
    second = [text(speech(9, 7)), call("human_sign")]
    return Scenario(_agent(first, second, [text(speech(9, 8))], tools=[sign, fetch]), begun, answer_one)


def approvals(begun: asyncio.Event) -> Scenario:
    first = [
        pause(begun.wait),
        text(speech(9, 9)),
        call("tool_delete", {"path": "/"}),
        call("tool_delete", {"path": "x"}),
    ]
    agent = _agent(first, [text(speech(9, 10))], tools=[delete], permissions={"ask": ["tool:delete"]})
    return Scenario(agent, begun, answer_one)


def cancelled(begun: asyncio.Event) -> Scenario:
    async def cancel(bread: Bread, run_id: str, client: Client) -> None:
        if sum(crumb["type"] == "text:delta" for crumb in client.crumbs) == 12:
            await bread.cancel(run_id, reason="enough")

    never = asyncio.Event()
    first = [pause(begun.wait), text(speech(20, 11)), pause(never.wait), text("never said")]
    return Scenario(_agent(first), begun, cancel)


def retried(begun: asyncio.Event) -> Scenario:
    async def retry(bread: Bread, run_id: str, client: Client) -> None:
        if client.crumbs[-1]["type"] == "agent:error" and (await bread.get_run(run_id)).status == "failed":
            await bread.retry(run_id)._start()

    first = [pause(begun.wait), text(speech(9, 12)), call("tool_fetch")]
    answers = iter([[text(speech(9, 13)), fail(retryable=False)], [text(speech(9, 14))]])

    def script(request: Any) -> Any:
        return first if request.turn == 0 else next(answers)

    return Scenario(define_agent("worker", model=ScriptedModel(script), tools=[fetch]), begun, retry)


SCENARIOS = [long_text, failed_attempts, tools, questions, approvals, cancelled, retried]


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda make: make.__name__)
async def test_b123_b124_b130_c53_cut_at_every_crumb_before_and_after_are_the_whole(
    open_bread: Callable[..., Bread], scenario: Callable[[asyncio.Event], Scenario]
) -> None:
    """From the cursor of each crumb a reader goes on: at once, while the run runs, and again when it has ended."""
    play = scenario(asyncio.Event())
    async with open_bread(play.agent) as bread:
        run_id = await bread.start("worker", "go")
        main, cuts = Client(), list[Client]()
        over, followers = asyncio.Event(), list[asyncio.Task[Client]]()
        while (await bread.get_run(run_id)).status in ("running", "suspended") or not main.crumbs:
            async for crumb in bread.observe(run_id, after=main.cursor):
                main.take(crumb.wire())
                play.begun.set()
                cuts.append(main.fork())
                followers.append(asyncio.create_task(_to_the_end(main.fork(), bread, run_id, over)))
                if play.act is not None:
                    await play.act(bread, run_id, main)
        log = log_of([event async for event in bread.audit(run_id)])
        info = RunInfo(run_id, run_id, (await bread.get_run(run_id)).session_id, "worker")
        over.set()
        for follower in followers:
            (await follower).check(log, info)
        for client in cuts:
            await client.follow(bread, run_id)
            client.check(log, info)
        assert not bread._running().hub._subscriptions
        deltas = sum(crumb["type"] == "text:delta" for crumb in main.crumbs)
        assert deltas > 5, "the text was not seen live"
        assert main.resets == {"failed_attempts": 2, "cancelled": 1, "retried": 1}.get(scenario.__name__, 0)


async def _to_the_end(client: Client, bread: Bread, run_id: str, over: asyncio.Event) -> Client:
    """Follow, and come back for what was after the end of the stream: a failed run that was retried."""
    await client.follow(bread, run_id)
    await over.wait()
    await client.follow(bread, run_id)
    return client
