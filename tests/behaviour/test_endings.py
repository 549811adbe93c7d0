"""How a question can end other than by an answer: deadlines, cancels, deletions; and what history says of it."""

from __future__ import annotations

import asyncio
import datetime
from collections.abc import Set as AbstractSet
from typing import Any

import pytest
from pydantic import BaseModel

from bread import AnswerCheckpoint, Bread, BreadError, CancelRun, Principal, StartRun, define_human_tool, define_tool
from bread.testing import ManualClock, call, text
from scenes import (
    ANY,
    DURABLE,
    Counter,
    OpenBread,
    Spy,
    agent,
    ask_first,
    asking,
    asks,
    ended,
    engine_of,
    names,
    question,
    questions,
    refused,
    until,
)
from support import read, trials, types, wire


def overdue(bread: Bread, clock: ManualClock) -> None:
    """The deadline passes, and somebody looks."""
    clock.now += 61.0
    engine_of(bread).sweep.soon()


@pytest.mark.parametrize("fallback", [None, {"approved": False, "why": "nobody answered"}, "no", False, 0])
async def test_a_deadline_that_passes_is_an_outcome_of_its_own(open_bread: OpenBread, fallback: Any) -> None:
    """C59: denied by default, told apart from an answer; with on_timeout that value is the tool's output."""
    clock, spy = ManualClock(), Spy(asks())
    async with open_bread(agent(spy, asking(timeout=60, on_timeout=fallback)), clock=clock) as bread:
        asked = await ask_first(bread, session="s1")
        assert asked.deadline is not None
        assert asked.deadline.timestamp() == clock.now + 60
        clock.now += 59.0
        engine_of(bread).sweep.soon()
        assert (await bread.get_checkpoint(asked.checkpoint_id)).status == "pending"
        watching = asyncio.create_task(read(bread.observe(asked.run_id, after=asked.cursor)))
        overdue(bread, clock)
        crumbs = await watching
        first = wire(crumbs[0])
        assert (first["type"], first["verdict"], first.get("response")) == ("human:resumed", "expired", fallback)
        assert "author" not in first
        errors = [crumb.code for crumb in crumbs if crumb.type == "tool:error"]
        assert errors == (["EXPIRED"] if fallback is None else [])
        settled = await bread.get_checkpoint(asked.checkpoint_id)
        assert (settled.status, settled.verdict) == ("expired", "expired")
        assert settled.settled_by is not None
        assert settled.settled_by.kind == "system"
        with refused("CHECKPOINT_NOT_FOUND"):
            await bread.resume(asked.checkpoint_id, "yes")
    expected = ("nobody answered before the deadline", "error") if fallback is None else (fallback, "ok")
    assert spy.seen[1][-1] == ("tool", "human_ask", *expected)


async def test_an_answer_after_the_deadline_commits_the_expiry_instead(open_bread: OpenBread) -> None:
    """C59, B53, Q CHECKPOINT_NOT_FOUND: who comes late is told so, and the run goes on without his answer."""
    clock, spy = ManualClock(), Spy(asks())
    async with open_bread(agent(spy, asking(timeout=60, on_timeout="late")), clock=clock) as bread:
        asked = await ask_first(bread)
        clock.now += 60.0
        with refused("CHECKPOINT_NOT_FOUND"):
            await bread.resume(asked.checkpoint_id, "yes")
        assert (await ended(bread, asked.run_id))[-1].type == "agent:run:end"
        assert (await bread.get_checkpoint(asked.checkpoint_id)).status == "expired"
    assert spy.seen[1][-1][2:] == ("late", "ok")


async def test_an_answer_in_time_counts_whatever_the_clock_says_later(open_bread: OpenBread) -> None:
    """C59: the deadline is judged in the claim."""
    clock, spy = ManualClock(), Spy(asks())
    async with open_bread(agent(spy, asking(timeout=60, on_timeout="late")), clock=clock) as bread:
        asked = await ask_first(bread)
        clock.now += 59.9
        assert await bread.resume(asked.checkpoint_id, "yes") == "Thanks."
        overdue(bread, clock)
        assert (await bread.get_checkpoint(asked.checkpoint_id)).status == "claimed"
    assert spy.seen[1][-1][2:] == ("yes", "ok")


async def test_answers_race_the_deadline(open_bread: OpenBread) -> None:
    """C59: one of them wins, an answer or the expiry, and the model is told that one."""
    for _ in range(trials(10, 200)):
        clock, spy = ManualClock(), Spy(asks())
        async with open_bread(agent(spy, asking(timeout=60, on_timeout="late")), clock=clock) as bread:
            asked = await ask_first(bread, session=None)

            async def answer(n: int, asked: Any = asked, bread: Bread = bread) -> Any:
                try:
                    return await bread.resume(asked.checkpoint_id, f"answer {n}")
                except BreadError as error:
                    return error.code

            async def pass_by(bread: Bread = bread, clock: ManualClock = clock) -> None:
                overdue(bread, clock)

            outcomes = await asyncio.gather(answer(1), answer(2), pass_by(), answer(3), answer(4))
            won = [one for one in outcomes if one == "Thanks."]
            lost = [one for one in outcomes if one == "CHECKPOINT_NOT_FOUND"]
            assert len(won) <= 1
            assert len(lost) == 4 - len(won)
            assert (await ended(bread, asked.run_id))[-1].type == "agent:run:end"
            settled = await bread.get_checkpoint(asked.checkpoint_id)
            assert settled.status == ("claimed" if won else "expired")
            assert (await names(bread, asked.run_id)).count("resumed") == 1
        told = spy.seen[1][-1][2]
        assert told == settled.response
        assert told.startswith("answer") if won else told == "late"


@DURABLE
async def test_a_deadline_that_passed_while_nobody_was_there(open_bread: OpenBread) -> None:
    """C59, B48: whoever opens the store next lets it expire; a question without a deadline waits on."""
    clock = ManualClock()
    script = [[call("human_quick"), call("human_ask")], [text("Thanks.")]]
    asker = agent(script, asking("quick", timeout=60), asking())
    async with open_bread(asker, clock=clock) as bread:
        quick, patient = questions(await read(bread.run("a", "go")))
    clock.now += 1e6
    async with open_bread(asker, clock=clock) as bread:
        await until(bread.observe(quick.run_id, after=patient.cursor), "human:resumed")
        assert [one.id for one in (await bread.list_checkpoints()).items] == [patient.checkpoint_id]
        assert await bread.resume(patient.checkpoint_id, "yes") == "Thanks."


@pytest.mark.parametrize("how", ["cancel", "expire", "supersede"])
async def test_no_history_dangles(open_bread: OpenBread, how: str) -> None:
    """C58, B60: every call that got no answer has a synthetic result, and the next run of the session sees it."""
    clock = ManualClock()

    def turn(request: Any) -> list[Any]:
        first = request.turn == 0 and request.messages[-1].text == "one"
        return [call("human_ask", {"n": 1}), call("human_ask", {"n": 2})] if first else [text("Fine.")]

    spy = Spy(turn)
    async with open_bread(agent(spy, asking(timeout=60)), clock=clock) as bread:
        first, second = questions(await read(bread.run("a", "one", session="s1")))
        await read(bread.resume(first.checkpoint_id, "yes"))
        if how == "cancel":
            await bread.cancel(first.run_id, reason="enough")
        elif how == "expire":
            overdue(bread, clock)
            await ended(bread, first.run_id)
        await bread.run("a", "two", session="s1", on_pending="cancel")
        with refused("CHECKPOINT_NOT_FOUND"):
            await bread.resume(second.checkpoint_id, "yes")
    sent = spy.requests[-1].messages
    for index, message in enumerate(sent):
        if message.role == "assistant":
            results = sent[index + 1 : index + 1 + len(message.calls)]
            assert [getattr(one, "call_id", None) for one in results] == list(message.call_ids)
            assert all(one.role == "tool" and one.content is not None for one in results)
    outcomes = [message.outcome for message in sent if message.role == "tool"]
    assert outcomes == ["ok", "error"]


async def test_a_pending_run_can_be_cancelled(open_bread: OpenBread) -> None:
    """C60, B18: a later answer is refused, also one with a key; the stream shows what became of the questions."""
    async with open_bread(agent(asks({"n": 1}, {"n": 2}), asking())) as bread:
        first, second = questions(await read(bread.run("a", "go", session="s1")))
        watching = asyncio.create_task(read(bread.observe(first.run_id, after=second.cursor)))
        accepted = await bread.send(
            CancelRun(run_id=first.run_id, reason="enough", by=Principal(kind="user", id="ann"))
        )
        assert accepted.status == "cancelled"
        crumbs = await watching
        assert types(crumbs) == [*["human:discarded"] * 2, *["tool:error"] * 2, "agent:error"]
        assert [crumb.code for crumb in crumbs if crumb.type == "tool:error"] == ["RUN_CANCELLED"] * 2
        for options in ({}, {"idempotency_key": "k"}):
            with refused("CHECKPOINT_NOT_FOUND"):
                await bread.resume(second.checkpoint_id, "yes", **options)  # type: ignore[arg-type]
        settled = await bread.get_checkpoint(second.checkpoint_id)
        assert (settled.status, settled.response) == ("discarded", None)
        assert settled.settled_by is not None
        assert settled.settled_by.id == "ann"
        with refused("RUN_NOT_RETRYABLE"):
            await bread.retry(first.run_id)


async def test_an_answer_races_a_cancel(open_bread: OpenBread) -> None:
    """C60, B18: the run is cancelled whoever comes first, an approved call is executed at most once, nothing hangs."""
    for trial in range(trials(10, 200)):
        ran = Counter()

        @define_tool
        async def act() -> int:
            return ran()  # noqa: B023

        gated = agent([[call("tool_act")], [text("Done.")]], act, permissions={"ask": ["tool:*"]})
        async with open_bread(gated) as bread:
            asked = await ask_first(bread)

            async def answer(asked: Any = asked, bread: Bread = bread) -> Any:
                try:
                    return await bread.resume(asked.checkpoint_id, {"approved": True})
                except BreadError as error:
                    return error.code

            async def cancel(asked: Any = asked, bread: Bread = bread, late: int = trial % 10) -> Any:
                for _ in range(late):
                    await asyncio.sleep(0)
                return await bread.cancel(asked.run_id)

            outcome, status = await asyncio.gather(answer(), cancel())
            run = await bread.get_run(asked.run_id)
            assert (outcome, status) in {
                ("CHECKPOINT_NOT_FOUND", "cancelled"),
                ("RUN_CANCELLED", "cancelled"),
                ("Done.", "completed"),
            }
            assert run.status == status
            assert run.checkpoints == ()
        assert ran.total <= 1


async def test_the_commands_are_the_path_that_everything_takes(open_bread: OpenBread) -> None:
    """C2, B56: an answer sent as a command and one through a handle meet at the same claim."""
    async with open_bread(agent(asks(), asking())) as bread:
        started = await bread.send(StartRun(agent="a", input="go", session="s1"))
        assert started.run_id is not None
        asked = await until(bread.observe(started.run_id), "human:required")

        async def send() -> Any:
            try:
                by = Principal(kind="user", id="ann")
                return await bread.send(AnswerCheckpoint(checkpoint_id=asked.checkpoint_id, response="yes", by=by))
            except BreadError as error:
                return error.code

        async def resume() -> Any:
            try:
                return await bread.resume(asked.checkpoint_id, "yes", author="bob")
            except BreadError as error:
                return error.code

        outcomes = await asyncio.gather(*(one() for one in [send, resume] * 10))
        assert outcomes.count("CHECKPOINT_NOT_FOUND") == 19
        assert (await ended(bread, asked.run_id))[-1].type == "agent:run:end"


def test_a_store_that_is_none_is_refused_at_the_start() -> None:
    """C15: not at the gate, hours later."""
    for store in ("", "none", "sqlite://", "sqlite:///", "sqlite:relative.db", "mysql://x", "memory"):
        with refused("INPUT_INVALID"):
            Bread(store=store)


class Money(BaseModel):
    amount: int
    currency: str = "EUR"


@DURABLE
async def test_arguments_of_types_of_ones_own_survive(open_bread: OpenBread) -> None:
    """C43: models, dates and sets as arguments, answers and results, over a suspension and a restart."""

    @define_tool
    async def pay(money: Money, day: datetime.date, tags: frozenset[str] = frozenset()) -> dict[str, Any]:
        assert isinstance(money, Money)
        assert isinstance(day, datetime.date)
        assert isinstance(tags, AbstractSet)
        return {"paid": money, "on": day, "tags": sorted(tags)}

    args: Any = {"money": {"amount": 5}, "day": "2026-12-01", "tags": ["b", "a"]}
    spy = Spy([[call("tool_pay", args)], [text("Done.")]])
    payer = agent(spy, pay, permissions={"ask": ["tool:pay"]})
    async with open_bread(payer) as bread:
        asked = await ask_first(bread, input=Money(amount=1))
        assert asked.args == args
    async with open_bread(payer) as bread:
        await bread.resume(asked.checkpoint_id, {"approved": True})
        assert (await bread.get_run(asked.run_id)).input == {"amount": 1, "currency": "EUR"}
    paid = {"paid": {"amount": 5, "currency": "EUR"}, "on": "2026-12-01", "tags": ["a", "b"]}
    assert spy.seen[1][-1] == ("tool", "tool_pay", paid, "ok")


@DURABLE
async def test_two_breads_write_one_session(open_bread: OpenBread) -> None:
    """C63, B60: whoever is second is refused, and hears of what the other one did."""
    async with open_bread(agent(asks(), asking())) as one, open_bread(agent(asks(), asking())) as two:
        asked = await ask_first(one, session="s1")
        with refused("SESSION_SUSPENDED"):
            await two.run("a", "go", session="s1")
        watching = asyncio.create_task(read(one.observe(asked.run_id, after=asked.cursor)))
        assert await two.resume(asked.checkpoint_id, "yes") == "Thanks."
        assert types(await watching) == ["human:resumed", "text:delta", "agent:run:end"]
        with refused("CHECKPOINT_NOT_FOUND"):
            await one.resume(asked.checkpoint_id, "no")
        again = question(await read(two.run("a", "go", session="s1")))
        assert await one.resume(again.checkpoint_id, "yes") == "Thanks."


def test_a_deadline_is_in_the_future() -> None:
    """C59: a timeout of nothing is refused, and so is a fallback that would not be an answer."""
    for timeout in (0, -1, float("nan")):
        with refused("INPUT_INVALID"):
            define_human_tool("ask", ANY, timeout=timeout)
    with refused("INPUT_INVALID"):
        define_human_tool("ask", ANY, response={"type": "string"}, timeout=5, on_timeout=7)
