"""Resuming: a new stream, the same run; what refuses it, what survives it."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from bread import ModelError, ModelRequest, RunSuspended, define_tool
from bread.testing import call, fail, pause, text
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
    come,
    ended,
    engine_of,
    names,
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
            *(_output(bread.resume(asked.checkpoint_id, "yes", idempotency_key="k")) for _ in range(10))
        )
        assert outputs == ["Thanks."] * 10
        assert (await names(bread, asked.run_id)).count("resumed") == 1


async def _output(handle: Any) -> Any:
    return await handle


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


async def test_a_provider_that_fails_is_asked_again_and_the_answer_is_kept(open_bread: OpenBread) -> None:
    """B59, C40, Q MODEL_ERROR: attempts with a crumb each, then agent:error; retry goes on, the tool ran once."""
    ran = Counter()
    broken = True

    @define_tool
    async def delete_file() -> int:
        return ran()

    def turn(request: ModelRequest) -> list[Any]:
        if request.turn == 0:
            return [call("tool_delete_file")]
        return [fail("overloaded", times=99)] if broken else [text("Done.")]

    spy = Spy(turn)
    gated = agent(spy, delete_file, permissions={"ask": ["tool:*"]})
    async with open_bread(gated, backoff=(0.0,)) as bread:
        asked = await ask_first(bread, session="s1")
        crumbs = await read(bread.resume(asked.checkpoint_id, {"approved": True}))
        assert types(crumbs) == [
            *("human:resumed", "tool:call", "tool:result"),
            *["model:retry"] * 3,
            "agent:error",
        ]
        assert [crumb.attempt for crumb in crumbs if crumb.type == "model:retry"] == [1, 2, 3]
        assert wire(crumbs[-1])["code"] == "MODEL_ERROR"
        assert [request.attempt for request in spy.requests[1:]] == [0, 1, 2, 3]
        with refused("CHECKPOINT_NOT_FOUND"):
            await bread.resume(asked.checkpoint_id, {"approved": True})
        with refused("MODEL_ERROR"):
            await bread.observe(asked.run_id)
        assert (await bread.get_run(asked.run_id)).code == "MODEL_ERROR"
        broken = False
        crumbs = await read(bread.retry(asked.run_id))
        assert types(crumbs) == ["agent:run:retry", "text:delta", "agent:run:end"]
        with refused("RUN_NOT_RETRYABLE"):
            await bread.retry(asked.run_id)
    assert ran.total == 1
    assert spy.seen[-1][-1] == ("tool", "tool_delete_file", 1, "ok")


async def test_an_attempt_that_fails_in_mid_text_is_made_again(open_bread: OpenBread) -> None:
    """B59, B124: what was shown of it is reset, the text of the turn is that of the attempt that came through."""
    gate = Gate()
    script = [[text("One "), pause(gate), fail("cut off"), text("two.")]]
    async with open_bread(agent(script), backoff=(0.0,)) as bread:
        handle, live = bread.run("a", "go"), []
        async for crumb in handle:
            live.append(crumb)
            if crumb.type == "text:delta":
                gate.open()
        assert "text:reset" in types(live)
        assert types(live)[-2:] == ["text:delta", "agent:run:end"]
        assert said(live) == said(await ended(bread, handle.run_id)) == "One two."


async def test_what_the_provider_asks_for_is_honoured(open_bread: OpenBread) -> None:
    """B59: the next attempt is not before its retry-after; an error that is not retryable ends the run at once."""
    now = 1000.0
    async with open_bread(agent([[fail("slow down", after=3600.0), text("Hi.")]]), clock=lambda: now) as bread:
        run_id = await bread.start("a", "go")
        retry = await until(bread.observe(run_id), "model:retry")
        assert retry.retry_at.timestamp() == 1000.0 + 3600.0
        await bread.cancel(run_id)
    async with open_bread(agent([[fail("bad key", retryable=False)]])) as bread:
        crumbs = await read(bread.run("a", "go"))
        assert types(crumbs) == ["agent:run:start", "agent:error"]


async def test_a_model_that_breaks_in_another_way_fails_the_run(open_bread: OpenBread) -> None:
    """B59: with its class and text, at once; retry goes on."""
    broken = True

    def turn(request: ModelRequest) -> list[Any]:
        if broken:
            raise KeyError("no such deployment")
        return [text("Hi.")]

    async with open_bread(agent(turn)) as bread:
        crumbs = await read(bread.run("a", "go"))
        assert types(crumbs) == ["agent:run:start", "agent:error"]
        assert wire(crumbs[-1])["message"] == "KeyError: 'no such deployment'"
        broken = False
        assert await bread.retry(crumbs[0].run_id) == "Hi."


async def test_a_stream_that_is_cut_short_is_an_error_not_an_answer(open_bread: OpenBread) -> None:
    """B59: a model that stops without the end of its turn is asked again."""

    class Cut(Spy):
        async def stream(self, request: ModelRequest) -> Any:
            async for event in super().stream(request):
                if request.attempt == 0 and type(event).__name__ == "TurnDone":
                    return
                yield event

    async with open_bread(agent(Cut([[text("Half of it.")]])), backoff=(0.0,)) as bread:
        crumbs = await read(bread.run("a", "go"))
        assert [crumb.type for crumb in crumbs if crumb.type == "model:retry"] == ["model:retry"]
        assert said(crumbs) == "Half of it."


def test_a_model_error_says_whether_it_pays_to_try_again() -> None:
    """B59: what adapters raise."""
    error = ModelError("slow down", retry_after=2.5)
    assert (str(error), error.retryable, error.retry_after) == ("slow down", True, 2.5)


async def test_a_session_with_a_pending_question_takes_no_other_run(open_bread: OpenBread) -> None:
    """B60, C16, Q SESSION_SUSPENDED: it names the checkpoints; nothing is written."""
    async with open_bread(agent(asks({"n": 1}, {"n": 2}), asking())) as bread:
        first, second = questions(await read(bread.run("a", "go", session="s1")))
        position = await last_position(bread)
        for options in ({}, {"on_busy": "wait"}, {"tags": {"a": "b"}}):
            with refused("SESSION_SUSPENDED") as caught:
                await bread.run("a", "another", session="s1", **options)
            assert caught.value.details["checkpoints"] == [first.checkpoint_id, second.checkpoint_id]
        assert await last_position(bread) == position
        assert [run.id for run in (await bread.list_runs()).items] == [first.run_id]
        await ask_first(bread, session="s2")


async def last_position(bread: Any) -> int:
    """The number of events in the store."""
    found = 0
    for run in (await bread.list_runs(limit=1000)).items:
        async for event in bread.audit(run.id):
            found = max(found, event.position)
    return found


async def test_a_pending_run_can_be_cancelled_by_the_new_one(open_bread: OpenBread) -> None:
    """B60, C58: on_pending='cancel' cancels it with synthetic results, in the commit of the new start."""
    spy = Spy([[call("human_ask", {"n": 1}), call("human_ask", {"n": 2})], [text("Thanks.")]])
    async with open_bread(agent(spy, asking())) as bread:
        first, second = questions(await read(bread.run("a", "one", session="s1")))
        await read(bread.resume(first.checkpoint_id, "yes"))
        new = question(await read(bread.run("a", "two", session="s1", on_pending="cancel")))
        old = await ended(bread, first.run_id)
        assert (wire(old[-1])["type"], wire(old[-1])["code"]) == ("agent:error", "RUN_CANCELLED")
        assert [crumb.checkpoint_id for crumb in old if crumb.type == "human:discarded"] == [second.checkpoint_id]
        with refused("CHECKPOINT_NOT_FOUND"):
            await bread.resume(second.checkpoint_id, "yes")
        cancelled = [event async for event in bread.audit(first.run_id)][-1]
        started = await anext(bread.audit(new.run_id))
        assert (cancelled.name, started.name) == ("run.cancelled", "run.started")
        assert cancelled.commit == started.commit
    assert spy.seen[1][2:4] == [
        ("tool", "human_ask", "yes", "ok"),
        ("tool", "human_ask", "superseded by a new run", "error"),
    ]
    assert spy.seen[1][4:] == [("user", "two")]


async def test_a_session_with_a_running_run_is_busy(open_bread: OpenBread) -> None:
    """B60, C63, Q SESSION_BUSY: nothing is written; on_busy='wait' starts when the run before has ended."""
    gate = Gate()

    def turn(request: ModelRequest) -> list[Any]:
        said = [message.text for message in request.messages if message.role == "user"]
        return [pause(gate), text("One.")] if said == ["one"] else [text(" and ".join(said))]

    async with open_bread(agent(turn)) as bread:
        first = await bread.start("a", "one", session="s1")
        await gate.reached.wait()
        for options in ({}, {"on_pending": "cancel"}):
            with refused("SESSION_BUSY") as caught:
                await bread.run("a", "two", session="s1", **options)  # type: ignore[arg-type]
            assert caught.value.details["run_id"] == first
        waiting = asyncio.create_task(_output(bread.run("a", "two", session="s1", on_busy="wait")))
        await come(lambda: engine_of(bread).hub._subscriptions)
        assert [run.id for run in (await bread.list_runs()).items] == [first]
        gate.open()
        assert await waiting == "one and two"
        assert [run.session_id for run in (await bread.list_runs()).items] == ["s1", "s1"]


async def test_who_waits_for_a_run_that_is_deleted_is_told(
    open_bread: OpenBread, monkeypatch: pytest.MonkeyPatch
) -> None:
    """B60, B77: also where the session goes between the refusal and the waiting."""
    gate = Gate()
    async with open_bread(agent([[pause(gate), text("One.")]])) as bread:
        await bread.start("a", "one", session="s1")
        await gate.reached.wait()
        ask = engine_of(bread).journal.ask

        async def after_the_deletion(question: Any, *args: Any, **options: Any) -> Any:
            monkeypatch.undo()
            assert question.__name__ == "run_info"
            await bread.sessions.delete("s1")
            return await ask(question, *args, **options)

        monkeypatch.setattr(engine_of(bread).journal, "ask", after_the_deletion)
        with refused("SESSION_DELETED"):
            await bread.start("a", "two", session="s1", on_busy="wait")


async def test_who_waits_for_a_run_that_suspends_is_told(open_bread: OpenBread) -> None:
    """B60: on_busy='wait' waits for a running run, not for a person."""
    gate = Gate()
    async with open_bread(agent([[pause(gate), call("human_ask")], [text("Thanks.")]], asking())) as bread:
        await bread.start("a", "one", session="s1")
        await gate.reached.wait()
        waiting = asyncio.create_task(_output(bread.run("a", "two", session="s1", on_busy="wait")))
        await come(lambda: engine_of(bread).hub._subscriptions)
        gate.open()
        with refused("SESSION_SUSPENDED"):
            await waiting


async def test_many_starts_in_one_session_are_one_run(open_bread: OpenBread) -> None:
    """B60, C63: whatever races, a session has one run at a time; the losers get SESSION_BUSY or SESSION_SUSPENDED."""
    async with open_bread(agent(asks(), asking())) as bread:
        outcomes = await asyncio.gather(*(bread.start("a", n, session="s1") for n in range(20)), return_exceptions=True)
        won = [one for one in outcomes if isinstance(one, str)]
        lost = {getattr(one, "code", one) for one in outcomes if not isinstance(one, str)}
        assert len(won) == 1
        assert lost <= {"SESSION_BUSY", "SESSION_SUSPENDED"}
        assert [run.id for run in (await bread.list_runs()).items] == won


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
