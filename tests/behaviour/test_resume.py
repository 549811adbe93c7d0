"""Resuming: a new stream, the same run; what refuses it, what survives it."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from bread import ModelRequest, RunSuspended, define_tool
from bread.testing import call, pause, text
from scenes import (
    DURABLE,
    Counter,
    Gate,
    OpenBread,
    Spy,
    agent,
    ask_first,
    asking,
    asks,
    ended,
    names,
    output_of,
    question,
    questions,
    refused,
    until,
)
from support import read, said, types, wire


async def test_a_resume_is_a_new_stream_of_the_same_run(open_bread: OpenBread) -> None:
    """B49: human:resumed with checkpointId, response and kind, text, agent:run:end; same run, session and agent."""
    async with open_bread(agent(asks(after="Thank you."), asking())) as bread:
        asked = await ask_first(bread, session="s1")
        handle = bread.resume(asked.checkpoint_id, {"yes": 1})
        crumbs = await read(handle)
        assert types(crumbs) == ["human:resumed", "text:delta", "agent:run:end"]
        resumed = wire(crumbs[0])
        assert (resumed["checkpointId"], resumed["response"]) == (asked.checkpoint_id, {"yes": 1})
        assert (resumed["kind"], resumed["toolName"], resumed["toolCallId"]) == ("input", "ask", asked.tool_call_id)
        assert said(crumbs) == wire(crumbs[-1])["output"] == "Thank you."
        for crumb in crumbs:
            assert (crumb.run_id, crumb.session_id, crumb.agent_id) == (asked.run_id, "s1", "a")
        assert handle.run_id == asked.run_id


async def test_the_checkpoint_leaves_the_list_with_the_claim(open_bread: OpenBread) -> None:
    """B50: in the claim's commit, before anything of the continuation can be noticed."""
    seen: list[Any] = []

    async def turn(request: ModelRequest) -> list[Any]:
        if request.turn == 1:
            seen.append((await bread.list_checkpoints()).items)
            seen.append((await bread.get_checkpoint(asked.checkpoint_id)).status)
            return [text("Thanks.")]
        return [call("human_ask")]

    async with open_bread(agent(turn, asking())) as bread:
        asked = await ask_first(bread)
        assert len((await bread.list_checkpoints()).items) == 1
        async for crumb in bread.resume(asked.checkpoint_id, "yes"):
            if crumb.type == "human:resumed":
                assert (await bread.list_checkpoints()).items == []
        log = [event async for event in bread.audit(asked.run_id)]
    assert seen == [[], "claimed"]
    commit = {event.name: event.commit for event in log}
    assert commit["checkpoint.claimed"] == commit["run.resumed"]


async def test_the_answer_is_the_tools_result_and_the_session_is_the_prompt(open_bread: OpenBread) -> None:
    """B51: the answer for the pending call, the history of the session, no finished tool again."""
    ran = Counter()

    @define_tool
    async def fetch() -> str:
        return f"fetched {ran()}"

    spy = Spy([[call("tool_fetch")], [text("Hm."), call("human_ask", {"q": 1}, id="c9")], [text("Done.")]])
    async with open_bread(agent(spy, fetch, asking())) as bread:
        asked = await ask_first(bread)
        await bread.resume(asked.checkpoint_id, "yes")
    assert ran.total == 1
    assert spy.seen[2] == [
        ("user", "go"),
        ("assistant", "", [("tool_fetch", {})]),
        ("tool", "tool_fetch", "fetched 1", "ok"),
        ("assistant", "Hm.", [("human_ask", {"q": 1})]),
        ("tool", "human_ask", "yes", "ok"),
    ]
    answer: Any = spy.requests[2].messages[-1]
    assert answer.call_id == asked.tool_call_id == "c9"


async def test_a_chain_of_questions_may_go_on_at_will(open_bread: OpenBread) -> None:
    """B52, C28: every suspension has a new checkpoint and the same run."""
    rounds = 12

    def turn(request: ModelRequest) -> list[Any]:
        return [text("Enough.")] if request.turn == rounds else [call("human_ask", {"round": request.turn})]

    async with open_bread(agent(turn, asking())) as bread:
        asked = await ask_first(bread, session="s1")
        run_id, seen = asked.run_id, {asked.checkpoint_id}
        for number in range(1, rounds):
            asked = question(await read(bread.resume(asked.checkpoint_id, number)))
            assert (asked.run_id, asked.args) == (run_id, {"round": number})
            seen.add(asked.checkpoint_id)
        assert len(seen) == rounds
        assert await bread.resume(asked.checkpoint_id, "last") == "Enough."
        answers = [m["content"] for m in await bread.sessions.messages("s1") if m["role"] == "tool"]
        assert answers == [*range(1, rounds), "last"]


async def test_unknown_and_used_checkpoints_are_not_found(open_bread: OpenBread) -> None:
    """B53, C4, Q CHECKPOINT_NOT_FOUND: also with another answer, and with the id of something else."""
    async with open_bread(agent(asks(), asking())) as bread:
        asked = await ask_first(bread)
        for wrong in ("cp_unknown", "", asked.run_id, asked.session_id, asked.checkpoint_id.upper()):
            with refused("CHECKPOINT_NOT_FOUND"):
                await bread.resume(wrong, "yes")
        await bread.resume(asked.checkpoint_id, "yes")
        for answer in ("yes", "no"):
            with refused("CHECKPOINT_NOT_FOUND"):
                await bread.resume(asked.checkpoint_id, answer)


@DURABLE
async def test_an_agent_that_is_gone_keeps_the_checkpoint(open_bread: OpenBread) -> None:
    """B54, Q AGENT_NOT_FOUND: after it is registered again the same resume works."""
    async with open_bread(agent(asks(), asking())) as bread:
        asked = await ask_first(bread)
    async with open_bread(agent(asks(), asking(), id="another")) as bread:
        with refused("AGENT_NOT_FOUND"):
            await bread.resume(asked.checkpoint_id, "yes")
        assert [one.id for one in (await bread.list_checkpoints()).items] == [asked.checkpoint_id]
    async with open_bread(agent(asks(), asking())) as bread:
        assert await bread.resume(asked.checkpoint_id, "yes") == "Thanks."


@pytest.mark.parametrize("how", ["await", "iterate"])
async def test_errors_come_at_the_first_await_or_iteration(open_bread: OpenBread, how: str) -> None:
    """B55: never when the handle is made, never later."""
    async with open_bread(agent(asks(), asking())) as bread:
        cases = [
            (bread.resume("cp_unknown", "yes"), "CHECKPOINT_NOT_FOUND"),
            (bread.resume("cp_unknown", object()), "INPUT_INVALID"),
            (bread.run("nobody", "go"), "AGENT_NOT_FOUND"),
            (bread.run("a", "go", session=" "), "INPUT_INVALID"),
            (bread.retry("run_unknown"), "RUN_NOT_FOUND"),
            (bread.observe("run_unknown"), "RUN_NOT_FOUND"),
            (bread.observe("run_unknown", after="nonsense"), "INPUT_INVALID"),
        ]
        for handle, code in cases:
            with refused(code):
                if how == "await":
                    await handle
                else:
                    await anext(aiter(handle))
            with refused(code):  # once and for all
                await handle


async def test_a_resume_says_who_answers(open_bread: OpenBread) -> None:
    """B56: author and comment are in the crumb, the log and the checkpoint; without an author it is the program."""
    async with open_bread(agent(asks({"n": 1}, {"n": 2}), asking())) as bread:
        first, second = questions(await read(bread.run("a", "go")))
        one = await until(bread.resume(first.checkpoint_id, 1, author="ann", comment="ok"), "human:resumed")
        assert one.author == "ann"
        settled = await bread.get_checkpoint(first.checkpoint_id)
        assert (settled.comment, settled.settled_by.id if settled.settled_by else None) == ("ok", "ann")
        other = await until(bread.resume(second.checkpoint_id, 2), "human:resumed")
        assert other.author is None
        principals = {
            event.stream: (event.by.kind, event.by.id)
            async for event in bread.audit(first.run_id)
            if event.name == "checkpoint.claimed"
        }
        assert principals == {first.checkpoint_id: ("user", "ann"), second.checkpoint_id: ("app", "local")}


async def test_a_repeated_resume_gets_the_same_continuation(open_bread: OpenBread) -> None:
    """B56, Q IDEMPOTENCY_CONFLICT: the same key and answer give the same stream, another answer is refused."""
    ran = Counter()

    @define_tool
    async def publish() -> int:
        return ran()

    script = [[call("human_ask")], [call("tool_publish")], [text("Out.")]]
    async with open_bread(agent(script, asking(), publish)) as bread:
        asked = await ask_first(bread)
        first = await read(bread.resume(asked.checkpoint_id, "yes", idempotency_key="k"))
        before = await names(bread, asked.run_id)
        again = await read(bread.resume(asked.checkpoint_id, "yes", idempotency_key="k"))
        assert types(again) == types(first) == [
            "human:resumed", "tool:call", "tool:result", "text:delta", "agent:run:end",
        ]  # fmt: skip
        assert again[0].seq == first[0].seq
        assert await bread.resume(asked.checkpoint_id, "yes", idempotency_key="k") == "Out."
        with refused("IDEMPOTENCY_CONFLICT"):
            await bread.resume(asked.checkpoint_id, "no", idempotency_key="k")
        with refused("IDEMPOTENCY_CONFLICT"):
            await bread.resume(asked.checkpoint_id, "yes", comment="other", idempotency_key="k")
        with refused("CHECKPOINT_NOT_FOUND"):
            await bread.resume(asked.checkpoint_id, "yes", idempotency_key="other")
        with refused("CHECKPOINT_NOT_FOUND"):
            await bread.resume(asked.checkpoint_id, "yes")
        assert await names(bread, asked.run_id) == before
    assert ran.total == 1


async def test_repeated_resumes_at_the_same_instant_are_one(open_bread: OpenBread) -> None:
    """B56: a client that sends its answer again before it was acknowledged gets the continuation, whoever wins."""
    async with open_bread(agent(asks(), asking())) as bread:
        asked = await ask_first(bread)
        outputs = await asyncio.gather(
            *(output_of(bread.resume(asked.checkpoint_id, "yes", idempotency_key="k")) for _ in range(10))
        )
        assert outputs == ["Thanks."] * 10
        assert (await names(bread, asked.run_id)).count("resumed") == 1


async def test_a_repeated_start_gets_the_same_run(open_bread: OpenBread) -> None:
    """B56, B3: one run for one key, also at the same instant; the same key with another body is refused."""
    async with open_bread(agent([[text("Hi.")]])) as bread:
        ids = await asyncio.gather(*(bread.start("a", "go", idempotency_key="order-17") for _ in range(10)))
        assert len(set(ids)) == 1
        handle = bread.run("a", "go", idempotency_key="order-17")
        assert await handle == "Hi."
        assert handle.run_id == ids[0]
        for other in ({"input": "stop"}, {"session": "s9"}, {"tags": {"a": "b"}}):
            with refused("IDEMPOTENCY_CONFLICT"):
                await bread.run("a", **({"input": "go"} | other), idempotency_key="order-17")
        assert [run.id for run in (await bread.list_runs()).items] == [ids[0]]


@DURABLE
async def test_the_configuration_is_the_present_one(open_bread: OpenBread) -> None:
    """B57: prompt, model, settings, tools and permissions of now; history from the store."""

    @define_tool
    async def fetch() -> str:
        return "fetched"

    async with open_bread(agent(asks(), asking(), fetch, prompt="Old.")) as bread:
        asked = await ask_first(bread)
    spy = Spy([[], [call("tool_fetch")], [text("New.")]])
    new = agent(spy, fetch, asking("other"), prompt="New.", permissions={"ask": ["tool:fetch"]})
    async with open_bread(new) as bread:
        again = question(await read(bread.resume(asked.checkpoint_id, "yes")))
        assert (again.kind, again.tool_name) == ("approval", "fetch")
    (request,) = spy.requests
    assert request.prompt == "New."
    assert [spec.name for spec in request.tools] == ["tool_fetch", "human_other"]
    assert spy.seen[0] == [("user", "go"), ("assistant", "", [("human_ask", {})]), ("tool", "human_ask", "yes", "ok")]


async def test_a_run_that_nobody_reads_goes_on(open_bread: OpenBread) -> None:
    """B61: to its end, or its next suspension."""
    async with open_bread(agent([[text("Hi.")]]), agent(asks(), asking(), id="b")) as bread:
        run_id = await bread.start("a", "go")
        assert (await ended(bread, run_id))[-1].type == "agent:run:end"
        asked = await until(bread.observe(await bread.start("b", "go")), "human:required")
        assert (await bread.get_run(asked.run_id)).status == "suspended"


async def test_a_client_that_goes_away_changes_nothing(open_bread: OpenBread) -> None:
    """B61: a stream that is left in the middle, of a run and of a resume."""
    gates = Gate(), Gate()
    script = [[text("One "), pause(gates[0]), call("human_ask")], [text("Two "), pause(gates[1]), text("three.")]]
    async with open_bread(agent(script, asking())) as bread:
        handle = bread.run("a", "go")
        assert (await until(handle, "text:delta")).text
        gates[0].open()
        asked = await until(bread.observe(handle.run_id), "human:required")
        assert (await until(bread.resume(asked.checkpoint_id, "yes"), "human:resumed")).run_id == handle.run_id
        gates[1].open()
        crumbs = await ended(bread, handle.run_id)
        assert crumbs[-1].type == "agent:run:end"
        assert said(crumbs) == "One Two three."


async def test_a_resume_that_is_awaited_and_suspends_again_says_so(open_bread: OpenBread) -> None:
    """B52, B2: RunSuspended with the new checkpoint."""
    async with open_bread(agent([[call("human_ask")], [call("human_ask")], [text("Done.")]], asking())) as bread:
        asked = await ask_first(bread)
        with pytest.raises(RunSuspended) as caught:
            await bread.resume(asked.checkpoint_id, "yes")
        (again,) = caught.value.checkpoints
        assert again != asked.checkpoint_id
        assert await bread.resume(again, "yes") == "Done."
