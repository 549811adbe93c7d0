"""All ways to look at a run show the same: they are made of the same committed events."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from bread import Agent, Bread, define_agent, define_tool
from bread.projections.render import RunInfo
from bread.testing import ScriptedModel, call, fail, text
from crash.stores import Shared, place_of
from support import read

from .agents import fetch, sign, speech
from .clients import Client, Heard, Wire, crumbs_of, durable, log_of, texts_of


@define_tool
async def broken() -> str:
    raise ValueError("no \U0001f680")


@define_tool
def delete(path: str, sure: bool = False) -> str:
    return f"deleted {path} {sure}"


def agent() -> Agent:
    """As many kinds of events as one run can have."""
    turns: list[list[Any]] = [
        [text(speech(5, 1)), fail(), text(speech(5, 2)), call("tool_fetch"), call("tool_broken"), call("tool_unknown")],
        [text(speech(5, 3)), call("human_sign", {"n": 1}), call("tool_fetch"), call("human_sign", {"n": 2})],
        [call("tool_delete", {"path": "/"}), call("tool_delete", {"path": "x"})],
        [text(speech(5, 4))],
    ]
    return define_agent(
        "worker",
        model=ScriptedModel(turns),
        tools=[sign, fetch, broken, delete],
        permissions={"ask": ["tool:delete"]},
    )


ANSWERS: list[Any] = [
    "yes",
    {"no": None},
    {"approved": False, "reason": "no"},
    {"approved": True, "args": {"path": "y"}},
]


class Everybody:
    """The streams of one run, as they were opened one after the other."""

    def __init__(self) -> None:
        self.streams: list[Client] = []

    async def read(self, stream: Any) -> Client:
        client = Client()
        self.streams.append(client)
        async for crumb in stream:
            client.take(crumb.wire())
        return client

    def joined(self) -> list[Wire]:
        """The run stream and the resume streams, one behind the other."""
        return [crumb for client in self.streams for crumb in durable(client.crumbs)]

    def texts(self) -> dict[int, str]:
        return {base: said for client in self.streams for base, said in client.texts.items()}

    async def live_through(self, bread: Bread, **answer: Any) -> str:
        run = bread.run("worker", {"topic": None}, session="s1")
        await self.read(run)
        for response in ANSWERS:
            waiting = (await bread.list_checkpoints(session="s1")).items
            await self.read(bread.resume(waiting[0].id, response, author="ann", **answer))
        assert (await bread.get_run(run.run_id)).status == "completed"
        return run.run_id


async def expect_the_same(bread: Bread, run_id: str, everybody: Everybody, *others: Client) -> None:
    log = log_of([event async for event in bread.audit(run_id)])
    info = RunInfo(run_id, run_id, "s1", "worker")
    expected = durable(crumbs_of(log, info))
    assert everybody.joined() == expected
    assert everybody.texts() == texts_of(log)
    for client in others:
        client.check(log, info)
    kinds = {crumb["type"] for crumb in expected}
    assert kinds >= {"model:retry", "tool:error", "tool:result", "human:required", "human:resumed", "agent:run:end"}
    assert [crumb["seq"] for crumb in expected] == sorted({crumb["seq"] for crumb in expected})


async def test_b122_c29_c39_run_and_resume_observers_listeners_and_the_audit_log_show_the_same(
    open_bread: Callable[..., Bread],
) -> None:
    everybody, heard, replayed = Everybody(), Heard(), Client()
    async with open_bread(agent()) as bread:
        bread.on("crumb", heard)
        run_id = await everybody.live_through(bread)
        await replayed.follow(bread, run_id)
        await heard.last()
        await expect_the_same(bread, run_id, everybody, heard, replayed)


@pytest.mark.parametrize("executes", [True, False])
async def test_b122_b66_c39_c53_another_process_and_a_later_one_show_the_same(shared: Shared, executes: bool) -> None:
    """Live, after the end, and after a restart; from the beginning and from the middle."""
    everybody, live, late, later = Everybody(), Client(), Client(), Client()
    async with Bread(agents=[agent()], **place_of(shared), backoff=(0.01,)) as bread:
        async with Bread(agents=[agent()] if executes else [], **place_of(shared), executes=executes) as other:
            heard = Heard()
            other.on("crumb", heard)
            run_id = await everybody.live_through(bread)
            await live.follow(other, run_id)
            await heard.last()
            await expect_the_same(bread, run_id, everybody, live, heard)
        await late.follow(bread, run_id)
    async with Bread(**place_of(shared), executes=False) as again:
        await later.follow(again, run_id)
        await expect_the_same(again, run_id, everybody, late, later)
        for cut in later.crumbs:
            rest = [crumb.wire() for crumb in await read(again.observe(run_id, after=str(cut["seq"])))]
            assert durable(rest) == [crumb for crumb in durable(later.crumbs) if crumb["seq"] > cut["seq"]]


async def test_c39_a_late_observer_sees_a_pending_question_once_and_an_answered_one_as_answered(shared: Shared) -> None:
    """After a restart: every question once, the answered ones with their answers, the open one without."""
    turns: list[list[Any]] = [[call("human_sign"), call("human_sign")], [text("Done.")]]
    asker = define_agent("worker", model=ScriptedModel(turns), tools=[sign])
    async with Bread(agents=[asker], **place_of(shared)) as bread:
        run = bread.run("worker", "go")
        first, second = [crumb for crumb in await read(run) if crumb.type == "human:required"]
        assert first.type == second.type == "human:required"
        await read(bread.resume(first.checkpoint_id, "yes"))
    async with Bread(**place_of(shared), executes=False) as again:
        shown = await read(again.observe(run.run_id, until="rest"))
        asked = [crumb.checkpoint_id for crumb in shown if crumb.type == "human:required"]
        answered = [crumb.checkpoint_id for crumb in shown if crumb.type == "human:resumed"]
        assert asked == [first.checkpoint_id, second.checkpoint_id]
        assert answered == [first.checkpoint_id]
        assert [item.id for item in (await again.list_checkpoints()).items] == [second.checkpoint_id]


async def test_b49_b122_a_repeated_request_gets_the_same_stream(open_bread: Callable[..., Bread]) -> None:
    """With the same idempotency key: what the first one was shown, crumb by crumb."""
    async with open_bread(agent()) as bread:
        run = [crumb.wire() for crumb in await read(bread.run("worker", "go", session="s1", idempotency_key="a"))]
        again = [crumb.wire() for crumb in await read(bread.run("worker", "go", session="s1", idempotency_key="a"))]
        assert durable(again) == durable(run)
        checkpoint = (await bread.list_checkpoints()).items[0].id
        answer = [crumb.wire() for crumb in await read(bread.resume(checkpoint, "yes", idempotency_key="b"))]
        repeated = [crumb.wire() for crumb in await read(bread.resume(checkpoint, "yes", idempotency_key="b"))]
        assert durable(repeated) == durable(answer)


async def test_b49_b89_b122_a_repeated_answer_that_came_before_its_question_surfaced_gets_the_same_stream(
    open_bread: Callable[..., Bread],
) -> None:
    """The question surfaces in the commit of its answer, just ahead of it: in both streams."""
    gate = asyncio.Event()

    @define_tool
    async def slow() -> str:
        await gate.wait()
        return "slow"

    turns: list[list[Any]] = [[call("human_sign"), call("tool_slow")], [text("Done.")]]
    early = define_agent("worker", model=ScriptedModel(turns), tools=[sign, slow])
    async with open_bread(early) as bread:
        run_id = await bread.start("worker", "go")
        async for crumb in bread.observe(run_id):
            if crumb.type == "tool:call":
                break
        (checkpoint,) = (await bread.list_checkpoints()).items
        first = bread.resume(checkpoint.id, "yes", idempotency_key="b")
        await first._start()
        gate.set()
        shown = [crumb.wire() for crumb in await read(first)]
        assert [crumb["type"] for crumb in durable(shown)[:2]] == ["human:required", "human:resumed"]
        repeated = [crumb.wire() for crumb in await read(bread.resume(checkpoint.id, "yes", idempotency_key="b"))]
        assert durable(repeated) == durable(shown)
