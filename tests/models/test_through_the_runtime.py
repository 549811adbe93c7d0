"""Runs whose model answers over HTTP: what fails, is cut, killed or answered there, and what everybody sees of it."""

from __future__ import annotations

import asyncio
import signal
import sys
from pathlib import Path
from typing import Any

import pytest

from bread import Agent, Bread, define_agent, define_tool
from bread.domain.errors import RunStopped
from bread.domain.ports import Logged
from bread.domain.run_events import ModelResponded
from bread.projections.render import RunInfo
from bread.runtime.providers import ProviderModel
from bread.testing import ScriptedModel, call, text
from crash.processes import Log
from models.child import COUNTED, agent_at
from models.kit import CHAT, CLAUDE, KEY, Provide, call_ids, conversation, model_at, outcomes
from models.protocols import ABORT, CUT, SILENCE, calls, says, status
from models.stub import Stub
from observers.clients import Client, log_of
from scenes import ONLY_FILE, OpenBread, ask_first, asking, ended, names, question, refused
from support import read, said, types, wire

BOTH_STORES = pytest.mark.parametrize("mode", ["memory", "sqlite", "replay"])


@define_tool
async def fetch(url: str) -> str:
    """Fetch a page."""
    return f"the page of {url}"


def agent_of(model: Any, *tools: Any, **options: Any) -> Agent:
    return define_agent("a", model=model, tools=tools, settings={"timeout": 10}, **options)


async def the_log(bread: Bread, run_id: str) -> tuple[list[Logged], RunInfo]:
    run = await bread.get_run(run_id)
    log = log_of([event async for event in bread.audit(run_id)])
    return log, RunInfo(run_id, run_id, run.session_id, run.agent_id)


# --- failures ---------------------------------------------------------------------------------------------------------


async def test_a_provider_that_fails_twice_and_then_answers(
    stub: Stub, provide: Provide, open_bread: OpenBread
) -> None:
    """B59: each attempt is one request, one event and one crumb; the answer is right, and no key is in any of it."""
    stub.plays(status(503, f"down, {KEY}"), says("Once up", ABORT), says("Here ", "you are."))
    async with open_bread(agent_of(provide())) as bread:
        crumbs = await read(bread.run("a", "go"))
        assert types(crumbs, "text:reset") == [
            "agent:run:start", "model:retry", "text:delta", "model:retry", "text:delta", "agent:run:end",
        ]  # fmt: skip
        retries = [crumb for crumb in crumbs if crumb.type == "model:retry"]
        assert [(crumb.attempt, crumb.code) for crumb in retries] == [(1, "MODEL_ERROR"), (2, "MODEL_ERROR")]
        assert retries[0].message == "503 from stub-1: down, ***"
        assert said(crumbs) == "Here you are."
        assert len(stub.requests) == 3
        assert stub.bodies[0] == stub.bodies[1] == stub.bodies[2]
        run_id = crumbs[0].run_id
        assert await names(bread, run_id) == [
            "started", "model_failed", "model_failed", "model_responded", "completed",
        ]  # fmt: skip
        events = [event.model_dump_json() async for event in bread.audit(run_id)]
        assert KEY not in "".join(events) + "".join(crumb.model_dump_json() for crumb in crumbs)
        responded = (await the_log(bread, run_id))[0][3].recorded.event
        assert isinstance(responded, ModelResponded)
        assert (responded.model, responded.finish, responded.message.codec) == (CHAT, "stop", "pydantic-ai/2")
        assert responded.usage is not None
        assert (responded.usage.input_tokens, responded.usage.output_tokens) == (11, 7)


async def test_a_provider_says_when_to_come_back(stub: Stub, provide: Provide, open_bread: OpenBread) -> None:
    """B59: retry-after is waited for, where it is longer than the own backoff."""
    stub.plays(status(429, headers={"retry-after-ms": "250"}), says("ok"))
    async with open_bread(agent_of(provide())) as bread:
        crumbs = await read(bread.run("a", "go"))
    [retry] = [crumb for crumb in crumbs if crumb.type == "model:retry"]
    assert (retry.retry_at - retry.timestamp).total_seconds() >= 0.2
    first, second = stub.requests
    assert second.at - first.at >= 0.25


async def test_what_will_not_go_better_fails_at_once(stub: Stub, provide: Provide, open_bread: OpenBread) -> None:
    """B59: a request that is refused as such is not repeated; everything is kept."""
    stub.plays(status(400, "maximum context length is 9", code="context_length_exceeded"), says("ok"))
    async with open_bread(agent_of(provide())) as bread:
        run = bread.run("a", "go")
        with pytest.raises(RunStopped, match="MODEL_ERROR: 400 from stub-1: maximum context length is 9"):
            await run
        assert len(stub.requests) == 1
        assert await bread.retry(run.run_id) == "ok"


async def test_a_dead_provider_loses_no_answer(stub: Stub, provide: Provide, open_bread: OpenBread) -> None:
    """B59, B51: an answer is claimed and kept; with the provider back on its port, retry goes on behind the tools."""
    fetched: list[str] = []

    @define_tool
    async def take(what: str) -> str:
        fetched.append(what)
        return f"took {what}"

    both = [*calls("tool_take", '{"what":"a"}', id="c1"), *calls("human_ask", '{"what":"b"}', id="c2", index=1)]
    stub.plays(says("And? ", *both))
    async with open_bread(agent_of(provide(), take, asking("ask"))) as bread:
        asked = await ask_first(bread, session="s")
        await stub.stop()
        crumbs = await read(bread.resume(asked.checkpoint_id, "blue", author="ann"))
        assert types(crumbs) == ["human:resumed", *["model:retry"] * 3, "agent:error"]
        assert [crumb.attempt for crumb in crumbs if crumb.type == "model:retry"] == [1, 2, 3]
        run = await bread.get_run(asked.run_id)
        assert (run.status, run.code) == ("failed", "MODEL_ERROR")
        settled = await bread.get_checkpoint(asked.checkpoint_id)
        assert (settled.status, settled.response) == ("claimed", "blue")
        with refused("CHECKPOINT_NOT_FOUND"):
            await bread.resume(asked.checkpoint_id, "red")
        await stub.start()
        stub.plays(says("Blue it is."))
        assert await bread.retry(asked.run_id) == "Blue it is."
        assert outcomes(stub.bodies[-1]) == {"c1": "took a", "c2": "blue"}
        assert fetched == ["a"]
        stub.plays(says("Yes."))
        assert await bread.run("a", "sure?", session="s") == "Yes."


# --- text -------------------------------------------------------------------------------------------------------------

SPEECH = "".join(chr(97 + number % 26) for number in range(57))


@pytest.mark.parametrize("left_at", [0, 1, 23, 56, 57])
@BOTH_STORES
async def test_a_stream_that_is_cut_after_57_characters(
    stub: Stub, provide: Provide, open_bread: OpenBread, left_at: int
) -> None:
    """B124, B130: who watches is told that the text is void, and has the exact text in the end.

    So has somebody who leaves in the middle of the 57 and comes back, while they are said and when all is over.
    """
    cut, go_on = asyncio.Event(), asyncio.Event()
    stub.plays(says(*SPEECH, cut, CUT), says("A better ", go_on, "answer."))
    async with open_bread(agent_of(provide())) as bread:
        run_id = await bread.start("a", "go")
        watcher, early, late = Client(), Client(), Client()
        watching = asyncio.create_task(watcher.follow(bread, run_id))
        await see(early, bread, run_id, SPEECH[:left_at])
        await see(late, bread, run_id, SPEECH[:left_at])
        whole = Client()
        await see(whole, bread, run_id, SPEECH)
        assert [*whole.texts.values()] == [SPEECH]
        again = asyncio.create_task(early.follow(bread, run_id))
        cut.set()
        await stub.request(2)
        middle = Client()
        await see(middle, bread, run_id, "A better ")
        go_on.set()
        await asyncio.gather(watching, again, late.follow(bread, run_id), middle.follow(bread, run_id))
        log, info = await the_log(bread, run_id)
        for client in (watcher, early, late, middle):
            client.check(log, info)
            assert [*client.texts.values()] == ["A better answer."]
        assert watcher.resets == 1
        assert late.resets == (1 if left_at else 0)
        assert (await bread.get_run(run_id)).output == "A better answer."


async def see(client: Client, bread: Bread, run_id: str, words: str) -> None:
    """Watch until these words of an attempt were shown, and leave in the middle."""
    async for crumb in bread.observe(run_id, after=client.cursor):
        client.take(crumb.wire())
        if not words or any(text.startswith(words) for text in client.texts.values()):
            return


async def test_what_is_streamed_is_seen_before_the_next_piece_is_said(
    stub: Stub, provide: Provide, open_bread: OpenBread
) -> None:
    """B1, B9: words and arguments reach who watches as they come over the wire."""
    gates = [asyncio.Event() for _ in range(4)]
    first, second, third = calls("tool_fetch", '{"url":"x"}', size=6)
    stub.plays(says("One ", gates[0], "two. ", gates[1], first, second, gates[2], third, gates[3]), says("Done."))
    seen = []
    async with open_bread(agent_of(provide(), fetch)) as bread:
        async for crumb in bread.run("a", "go"):
            seen.append(crumb.text if crumb.type in ("text:delta", "tool:input:delta") else crumb.type)
            for gate, sign in zip(gates, ("One ", "two. ", '{"url"', ':"x"}'), strict=True):
                if seen[-1] == sign:
                    gate.set()
    assert seen == [
        "agent:run:start", "One ", "two. ", "tool:input:start", '{"url"', ':"x"}', "tool:input:end",
        "tool:call", "tool:result", "Done.", "agent:run:end",
    ]  # fmt: skip


async def test_a_cancel_in_the_middle_of_a_sentence(stub: Stub, provide: Provide, open_bread: OpenBread) -> None:
    """B18: the provider sees its client go, the run is cancelled, and its session is free."""
    stub.plays(says("Once upon", SILENCE), says("Fine."))
    async with open_bread(agent_of(provide())) as bread:
        run = bread.run("a", "go", session="s")
        crumbs = []
        async for crumb in run:
            crumbs.append(crumb)
            if crumb.type == "text:delta":
                assert not stub.requests[0].gone.is_set()
                assert await bread.cancel(run.run_id, reason="enough") == "cancelled"
                await stub.requests[0].gone.wait()
        assert types(crumbs) == ["agent:run:start", "text:delta", "text:reset", "agent:error"]
        assert await names(bread, run.run_id) == ["started", "cancelled"]
        assert await bread.run("a", "go", session="s") == "Fine."
        assert conversation(stub.bodies[1]) == [("user", "go"), ("user", "go")]


@ONLY_FILE
async def test_a_process_that_is_killed_in_the_middle_of_a_sentence(
    stub: Stub, open_bread: OpenBread, store: str, tmp_path: Path
) -> None:
    """B67, B124: another process takes the run, asks the provider again, and no text of the dead one is left."""
    COUNTED.clear()
    stub.plays(says(*calls("tool_count", '{"what":"a"}')), says("Once upon", SILENCE), says("The ", "end."))
    child = await asyncio.create_subprocess_exec(
        sys.executable, str(Path(__file__).with_name("child.py")), store, stub.url, "run_k"
    )
    try:
        sent = await stub.request(2)
        assert outcomes(sent.body) == {"call_1": "counted a"}
        client = Client()
        async with open_bread(agent_at(model_at(stub)), executes=False) as reader:
            await see(client, reader, "run_k", "")
    finally:
        child.kill()
    assert await child.wait() == -signal.SIGKILL
    await sent.gone.wait()
    async with open_bread(agent_at(model_at(stub))) as bread:
        await client.follow(bread, "run_k")
        client.check(*await the_log(bread, "run_k"))
        assert (await bread.get_run("run_k")).output == "The end."
        assert "taken" in await names(bread, "run_k")
    assert COUNTED == []  # it was counted there
    assert len(stub.requests) == 3
    assert stub.bodies[2] == stub.bodies[1]
    assert Log.read(tmp_path / "bread.db").problems == []


# --- people and tools -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [CHAT, CLAUDE])
@BOTH_STORES
async def test_a_turn_with_a_question_and_a_tool(
    stub: Stub, provide: Provide, open_bread: OpenBread, name: str
) -> None:
    """B26, B29, B51: every call goes back with its outcome, in the order of the calls, whatever order they came in."""
    turn = [
        *calls("human_ask", '{"what":"colour"}', id="c1"),
        *calls("tool_fetch", '{"url":"x"}', id="c2", index=1),
        *calls("human_ask", '{"what":"size"}', id="c3", index=2),
        *calls("tool_nobody", id="c4", index=3),
    ]
    stub.plays(says("Some questions. ", *turn), says("Blue, 7."))
    async with open_bread(agent_of(provide(name), fetch, asking("ask"))) as bread:
        crumbs = await read(bread.run("a", "go"))
        asked = {wire(crumb)["args"]["what"]: crumb.checkpoint_id for crumb in crumbs if crumb.type == "human:required"}
        assert asked.keys() == {"colour", "size"}
        assert len(stub.requests) == 1
        assert types(await read(bread.resume(asked["size"], 7)))[-1] != "agent:run:end"
        assert await bread.resume(asked["colour"], {"name": "blue"}) == "Blue, 7."
    assert call_ids(stub.bodies[1]) == ["c1", "c2", "c3", "c4"]
    found = outcomes(stub.bodies[1])
    assert [*found] == ["c1", "c2", "c3", "c4"]
    assert (found["c1"], found["c2"], found["c3"]) == ('{"name":"blue"}', "the page of x", "7")
    assert "no tool" in found["c4"]


async def test_a_session_that_changes_its_model(stub: Stub, provide: Provide, open_bread: OpenBread) -> None:
    """B5, B57: a session that a script began goes on with a provider, and the other way round, with one history."""
    script = ScriptedModel([[text("Let me ask. "), call("human_ask", {"what": "é"})], [text("Noted.")]])
    stub.plays(says("Hm. ", *calls("tool_fetch", '{"url":"x"}', id="call_0_0")), says("It says x."))
    tools: list[Any] = [fetch, asking("ask")]
    scripted = define_agent("scripted", model=script, tools=tools)
    heard: list[Any] = []

    def listen(request: Any) -> list[Any]:
        heard.extend(request.messages)
        return [text("Bye.")]

    last = define_agent("last", model=ScriptedModel(listen), tools=tools)
    async with open_bread(scripted, agent_of(provide(), *tools), last) as bread:
        asked = question(await read(bread.run("scripted", "go", session="s")))
        assert await bread.resume(asked.checkpoint_id, "yes") == "Noted."
        assert await bread.run("a", "go on", session="s") == "It says x."
        assert await bread.run("last", "and?", session="s") == "Bye."
    assert conversation(stub.bodies[1]) == [
        ("user", "go"),
        ("assistant", "Let me ask. "),
        ("call", "call_0_0", "human_ask", '{"what":"é"}'),
        ("outcome", "call_0_0", "yes"),
        ("assistant", "Noted."),
        ("user", "go on"),
        ("assistant", "Hm. "),
        ("call", "call_0_0-2", "tool_fetch", '{"url":"x"}'),
        ("outcome", "call_0_0-2", "the page of x"),
    ]
    said_before = [(m.text, [use.tool for use in m.calls]) for m in heard if m.role == "assistant"]
    assert said_before == [
        ("Let me ask. ", ["human_ask"]),
        ("Noted.", []),
        ("Hm. ", ["tool_fetch"]),
        ("It says x.", []),
    ]


async def test_a_misfit_goes_back_and_the_answer_is_the_output(
    stub: Stub, provide: Provide, open_bread: OpenBread
) -> None:
    """B11: the schema is sent, what does not fit is sent back, a question comes between."""
    schema = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
    stub.plays(says(*calls("human_ask", '{"what":"n"}')), says('{"n": "seven"}'), says('```json\n{"n": 7}\n```'))
    async with open_bread(agent_of(provide(), asking("ask"), output=schema)) as bread:
        asked = await ask_first(bread)
        assert await bread.resume(asked.checkpoint_id, 7) == {"n": 7}
        assert len(await ended(bread, asked.run_id)) > 0
    assert all(body["response_format"]["type"] == "json_schema" for body in stub.bodies)
    role, words = conversation(stub.bodies[2])[-1]
    assert role == "user"
    assert "does not fit" in words
    assert "n" in words


async def test_two_breads_share_a_model(stub: Stub, provide: Provide, open_bread: OpenBread, tmp_path: Path) -> None:
    """B61: closing one of them takes no connection from the other; the last one closes them."""
    model = model_at(stub)
    stub.plays(*[says("ok")] * 3)
    async with open_bread(agent_of(model), store="memory://") as first:
        async with open_bread(agent_of(model), store=f"sqlite:///{tmp_path}/other.db") as second:
            assert await second.run("a", "go") == await first.run("a", "go") == "ok"
        assert await first.run("a", "go") == "ok"
        assert len(stub._connections) == 1
    assert isinstance(model, ProviderModel)
    assert not model._clients
