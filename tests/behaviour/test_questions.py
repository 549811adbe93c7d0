"""Human tools: what the model sees, what the person sees, what comes back."""

from __future__ import annotations

import asyncio
from itertools import permutations
from typing import Any

import pytest
from pydantic import BaseModel

from bread import RunSuspended, define_human_tool, define_tool
from bread.testing import call, text
from scenes import (
    ANY,
    Counter,
    Gate,
    Heard,
    OpenBread,
    Spy,
    agent,
    ask_first,
    asking,
    asks,
    durable,
    ended,
    names,
    question,
    questions,
    refused,
)
from support import read, types, wire


class Publish(BaseModel):
    """Ask before something is published."""

    url: str
    words: int = 0


class Decision(BaseModel):
    choice: str
    weight: int = 1


async def test_a_human_tool_executes_nothing_and_suspends(open_bread: OpenBread) -> None:
    """B19, B21: no tool:call, no agent:run:end; the stream closes with human:required as its last crumb."""
    async with open_bread(agent(asks({"url": "https://x.test"}), asking())) as bread:
        handle = bread.run("a", "go")
        crumbs = await read(handle)
        assert types(crumbs) == ["agent:run:start", "human:required"]
        run = await bread.get_run(handle.run_id)
        assert (run.status, run.owner) == ("suspended", None)
        assert run.checkpoints == (question(crumbs).checkpoint_id,)
        assert "tool_called" not in await names(bread, handle.run_id)


async def test_the_question_has_everything_that_an_answer_needs(open_bread: OpenBread) -> None:
    """B21, B22, B45: the crumb's fields, the schema of the arguments and those of this call; the same as listed."""
    tool = define_human_tool("publish", Publish, response=Decision, prompt="Publish {url}?", timeout=60)
    script = [[call("human_publish", {"url": "https://x.test"}, id="c1")], [text("Thanks.")]]
    async with open_bread(agent(script, tool)) as bread:
        handle = bread.run("a", "go", session="s1")
        asked = wire((await read(handle))[-1])
        listed = (await bread.list_checkpoints()).items[0].model_dump(mode="json", by_alias=True, exclude_none=True)
    assert asked.keys() == {
        *("seq", "cursor", "runId", "rootRunId", "agentId", "sessionId", "path", "timestamp", "type"),
        *("checkpointId", "kind", "toolName", "toolCallId", "args", "schema", "responseSchema", "prompt", "deadline"),
    }
    assert (asked["kind"], asked["toolName"], asked["toolCallId"]) == ("input", "publish", "c1")
    assert asked["args"] == {"url": "https://x.test"}
    assert asked["schema"] == Publish.model_json_schema()
    assert asked["responseSchema"] == Decision.model_json_schema()
    assert asked["prompt"] == "Publish https://x.test?"
    assert asked["runId"] == asked["rootRunId"] == handle.run_id
    assert (asked["agentId"], asked["sessionId"]) == ("a", "s1")
    assert listed.pop("id") == asked["checkpointId"]
    assert {name: asked[name] for name in listed if name in asked} == {
        name: value for name, value in listed.items() if name in asked
    }
    assert listed.keys() - asked.keys() == {"status", "createdAt", "version", "pending"}
    assert (listed["status"], listed["version"], listed["pending"]) == ("pending", 1, [])


async def test_the_model_sees_a_tool_with_a_schema_and_a_description(open_bread: OpenBread) -> None:
    """B20, B13: human_<name> with its schema; its description, or a generic one."""
    spy = Spy(asks())
    described = define_human_tool("publish", Publish, description="Ask the editor.")
    async with open_bread(agent(spy, asking(), described)) as bread:
        await ask_first(bread)
    plain, editor = spy.requests[0].tools
    assert (plain.name, plain.schema) == ("human_ask", ANY)
    assert "ask" in plain.description
    assert "person" in plain.description.lower()
    assert (editor.name, editor.description) == ("human_publish", "Ask the editor.")
    assert editor.schema == Publish.model_json_schema()


@pytest.mark.parametrize(
    ("prompt", "args", "shown"),
    [
        ("Publish {url}?", {"url": "https://x.test"}, "Publish https://x.test?"),
        ("{a} and {a}, {b}", {"a": 1, "b": None}, "1 and 1, None"),
        ("{missing} {url.host} {0} {", {"url": "u"}, "{missing} {url.host} {0} {"),
        ("Sure?", {"url": "u"}, "Sure?"),
    ],
)
async def test_the_prompt_is_filled_in_with_the_arguments(
    open_bread: OpenBread, prompt: str, args: dict[str, Any], shown: str
) -> None:
    """B23: `{argument}` and nothing else; what is not there stays as it is written."""
    async with open_bread(agent(asks(args), asking(prompt=prompt))) as bread:
        assert (await ask_first(bread)).prompt == shown


async def test_without_a_prompt_the_question_names_the_tool(open_bread: OpenBread) -> None:
    """B23: a plain default."""
    async with open_bread(agent(asks(), asking())) as bread:
        asked = await ask_first(bread)
        assert "ask" in asked.prompt
        assert (await bread.get_checkpoint(asked.checkpoint_id)).prompt == asked.prompt


async def test_listeners_of_questions_get_the_event(open_bread: OpenBread) -> None:
    """B24, B47: whoever listens for human:required gets it, with what the stream shows, once."""
    heard = Heard("human:required")
    async with open_bread(agent(asks({"q": 1}), asking())) as bread:
        bread.on("human:required", heard)
        shown = await ask_first(bread)
        await heard.wait()
        assert durable(heard) == durable([shown])
        assert [one.id for one in (await bread.list_checkpoints()).items] == [shown.checkpoint_id]


@pytest.mark.parametrize("lists", [{"deny": ["tool:*", "core:*"]}, {"allow": ["tool:nothing"]}, {"ask": ["tool:*"]}])
async def test_human_tools_are_exempt_from_permissions(open_bread: OpenBread, lists: dict[str, Any]) -> None:
    """B25, C46: whatever the lists say, the question is asked, and it is no approval."""
    async with open_bread(agent(asks(), asking(), permissions=lists)) as bread:
        assert (await ask_first(bread)).kind == "input"


async def test_an_ordinary_tool_of_the_same_turn_runs_once(open_bread: OpenBread) -> None:
    """B26, C44: it runs, its result is kept, and the resume does not run it again."""
    ran = Counter()

    @define_tool
    async def fetch(page: str) -> str:
        return f"{page} {ran(page)}"

    calls = [call("tool_fetch", {"page": "x"}), call("human_ask"), call("tool_fetch", {"page": "y"})]
    spy = Spy([calls, [text("Done.")]])
    async with open_bread(agent(spy, fetch, asking())) as bread:
        crumbs = await read(bread.run("a", "go"))
        assert sorted(types(crumbs)) == sorted(["agent:run:start", *["tool:call", "tool:result"] * 2, "human:required"])
        assert crumbs[-1].type == "human:required"
        assert len(spy.requests) == 1
        resumed = await read(bread.resume(question(crumbs).checkpoint_id, "yes"))
        assert types(resumed) == ["human:resumed", "text:delta", "agent:run:end"]
    assert ran.of == {"x": 1, "y": 1}
    assert spy.seen[1][2:] == [
        ("tool", "tool_fetch", "x 1", "ok"),
        ("tool", "human_ask", "yes", "ok"),
        ("tool", "tool_fetch", "y 1", "ok"),
    ]


@pytest.mark.parametrize(
    "answer", [{"choice": 5}, {"weight": 1}, "yes", [], 7, True, {"choice": "a", "weight": "heavy"}, {}, None]
)
async def test_an_answer_that_does_not_fit_leaves_the_question(open_bread: OpenBread, answer: Any) -> None:
    """B27, B58, Q RESPONSE_INVALID: with the places that do not fit; the checkpoint stays pending."""
    tool = define_human_tool("ask", ANY, response=Decision)
    async with open_bread(agent(asks(), tool)) as bread:
        asked = await ask_first(bread)
        before = await names(bread, asked.run_id)
        with refused("RESPONSE_INVALID") as caught:
            await bread.resume(asked.checkpoint_id, answer)
        assert answer is None or caught.value.details["problems"]
        assert await names(bread, asked.run_id) == before
        assert [one.id for one in (await bread.list_checkpoints()).items] == [asked.checkpoint_id]
        assert await bread.resume(asked.checkpoint_id, {"choice": "a"}) == "Thanks."


async def test_the_places_that_do_not_fit_are_named(open_bread: OpenBread) -> None:
    """B27: each of them with its path, as text for people and as a list for programs."""
    schema = {
        "type": "object",
        "properties": {"who": {"type": "object", "properties": {"age": {"type": "integer", "minimum": 0}}}},
        "required": ["who", "when"],
    }
    async with open_bread(agent(asks(), define_human_tool("ask", ANY, response=schema))) as bread:
        asked = await ask_first(bread)
        with refused("RESPONSE_INVALID") as caught:
            await bread.resume(asked.checkpoint_id, {"who": {"age": -1}})
    problems = caught.value.details["problems"]
    assert len(problems) == 2
    assert any(problem.startswith("who.age: ") for problem in problems)
    assert any("'when'" in problem for problem in problems)
    assert all(problem in caught.value.message for problem in problems)


@pytest.mark.parametrize("answer", ["yes", "", 0, False, [], {}, [1, {"a": None}], {"approved": True}, 1.5, "ünï"])
async def test_without_a_response_type_anything_but_null_is_the_tools_output(
    open_bread: OpenBread, answer: Any
) -> None:
    """B27: any JSON value but null; it reaches the model as it was given."""
    spy = Spy(asks())
    async with open_bread(agent(spy, asking())) as bread:
        asked = await ask_first(bread)
        for nothing in ({}, {"response": None}):
            with refused("RESPONSE_INVALID"):
                await bread.resume(asked.checkpoint_id, **nothing)
        await bread.resume(asked.checkpoint_id, answer)
    assert spy.seen[1][-1] == ("tool", "human_ask", answer, "ok")


async def test_the_response_is_in_the_crumb_the_log_and_the_history(open_bread: OpenBread) -> None:
    """B28, B46: human:resumed, audit, session history, and the settled checkpoint with who, what and when."""
    answer = {"ok": [1, 2]}
    async with open_bread(agent(asks(), asking())) as bread:
        asked = await ask_first(bread, session="s1")
        resumed = (await read(bread.resume(asked.checkpoint_id, answer, author="ann", comment="fine by me")))[0]
        assert resumed.type == "human:resumed"
        assert wire(resumed) | {"response": answer, "author": "ann", "verdict": "answered"} == wire(resumed)
        log = [event async for event in bread.audit(asked.run_id)]
        claimed, answered = (
            next(one for one in log if one.name == name) for name in ("checkpoint.claimed", "run.resumed")
        )
        assert answered.data["response"] == answer
        assert claimed.data["comment"] == "fine by me"
        assert answered.commit == claimed.commit
        assert (answered.by.kind, answered.by.id) == (claimed.by.kind, claimed.by.id) == ("user", "ann")
        assert [m["content"] for m in await bread.sessions.messages("s1") if m["role"] == "tool"] == [answer]
        settled = await bread.get_checkpoint(asked.checkpoint_id)
        assert (settled.status, settled.verdict, settled.response) == ("claimed", "answered", answer)
        assert (settled.comment, settled.settled_at) == ("fine by me", answered.at)
        assert settled.settled_by is not None
        assert settled.settled_by.id == "ann"


MIXED = [
    call("human_ask", {"q": 1}),
    call("tool_gated", {"n": 1}),
    call("tool_plain", {"n": 1}),
    call("human_ask", {"q": 2}),
]


@pytest.mark.parametrize("order", list(permutations(range(3))))
async def test_several_questions_of_one_turn_are_answered_in_any_order(
    open_bread: OpenBread, order: tuple[int, ...]
) -> None:
    """B29, C7, C55: each call has its own checkpoint; the model is called again when the last is settled."""
    plain_ran, gated_ran = Counter(), Counter()

    @define_tool
    async def plain(n: int) -> int:
        return plain_ran(n)

    @define_tool
    async def gated(n: int) -> int:
        return gated_ran(n)

    spy = Spy([MIXED, [text("Done.")]])
    tools = asking(), plain, gated
    async with open_bread(agent(spy, *tools, permissions={"ask": ["tool:gated"]})) as bread:
        handle = bread.run("a", "go")
        asked = questions(await read(handle))
        assert [(one.kind, one.tool_name) for one in asked] == [
            ("input", "ask"),
            ("approval", "gated"),
            ("input", "ask"),
        ]
        assert len({one.checkpoint_id for one in asked}) == 3
        assert [one.id for one in (await bread.list_checkpoints()).items] == [one.checkpoint_id for one in asked]
        answers: list[Any] = ["one", {"approved": True}, "two"]
        for done, index in enumerate(order, 1):
            stream = bread.resume(asked[index].checkpoint_id, answers[index])
            if done < 3:
                with pytest.raises(RunSuspended) as caught:
                    await stream
                left = [one.checkpoint_id for i, one in enumerate(asked) if i not in order[:done]]
                assert caught.value.checkpoints == left
                assert len(spy.requests) == 1
            else:
                assert await stream == "Done."
        assert [crumb.type for crumb in await ended(bread, handle.run_id)].count("human:required") == 3
    assert (plain_ran.of, gated_ran.of) == ({1: 1}, {1: 1})
    assert spy.seen[1][2:] == [
        ("tool", "human_ask", "one", "ok"),
        ("tool", "tool_gated", 1, "ok"),
        ("tool", "tool_plain", 1, "ok"),
        ("tool", "human_ask", "two", "ok"),
    ]


async def test_questions_of_one_turn_are_answered_at_once(open_bread: OpenBread) -> None:
    """B29: all of them in the same instant; every answer lands on its own call, and the run goes on once."""
    spy = Spy(asks(*({"q": n} for n in range(6))))
    async with open_bread(agent(spy, asking())) as bread:
        handle = bread.run("a", "go")
        asked = questions(await read(handle))
        outcomes = await asyncio.gather(
            *(read(bread.resume(one.checkpoint_id, f"answer {n}")) for n, one in enumerate(asked))
        )
        assert (await bread.get_run(handle.run_id)).output == "Thanks."
        assert sum(crumbs[-1].type == "agent:run:end" for crumbs in outcomes) >= 1
        assert (await names(bread, handle.run_id)).count("completed") == 1
    assert len(spy.requests) == 2
    assert [message[2] for message in spy.seen[1][2:]] == [f"answer {n}" for n in range(6)]


@pytest.mark.parametrize("id", ["", "same"])
async def test_the_same_tool_twice_in_one_turn_is_told_apart(open_bread: OpenBread, id: str) -> None:
    """B29, C8, C48: also where the provider repeats a call id or gives none; answered in reverse order."""

    def turn(request: Any) -> list[Any]:
        calls = [call("human_ask", {"q": n + 10 * request.turn}, id=id) for n in (1, 2)]
        return calls if request.turn < 2 else [text("Done.")]

    spy = Spy(turn)
    async with open_bread(agent(spy, asking())) as bread:
        first = questions(await read(bread.run("a", "go", session="s1")))
        for one in reversed(first):
            crumbs = await read(bread.resume(one.checkpoint_id, f"answer to {one.args['q']}"))  # type: ignore[index,call-overload]
        second = questions(crumbs)
        for one in reversed(second):
            crumbs = await read(bread.resume(one.checkpoint_id, f"answer to {one.args['q']}"))  # type: ignore[index,call-overload]
        assert crumbs[-1].type == "agent:run:end"
        assert len({one.tool_call_id for one in [*first, *second]}) == 4
        history = await bread.sessions.messages("s1")
    asked: dict[Any, Any] = {}
    for message in history:
        if message["role"] == "assistant":
            asked |= {one["toolCallId"]: one["args"]["q"] for one in message["calls"]}  # type: ignore[index,union-attr,call-overload]
        elif message["role"] == "tool":
            assert message["content"] == f"answer to {asked[message['toolCallId']]}"
    assert list(asked.values()) == [1, 2, 11, 12]


async def test_a_question_is_listed_and_answerable_from_the_moment_it_is_opened(open_bread: OpenBread) -> None:
    """C55, B29: while a slow call of the same turn runs on, the question is listed at once and can be answered."""
    gate = Gate()

    @define_tool
    async def slow() -> str:
        await gate()
        return "slowly"

    spy = Spy([[call("tool_slow"), call("human_ask", {"q": 1}), call("human_ask", {"q": 2})], [text("Done.")]])
    async with open_bread(agent(spy, slow, asking())) as bread:
        handle = bread.run("a", "go")
        reading = asyncio.create_task(read(handle))
        await gate.reached.wait()
        first, second = (await bread.list_checkpoints()).items
        stream = bread.resume(first.id, "early")
        early = [crumb async for crumb in _to(stream, "human:resumed")]
        assert [crumb.type for crumb in early] == ["human:required", "human:resumed"]
        gate.open()
        crumbs = await reading
        assert types(crumbs) == [
            *("agent:run:start", "tool:call", "human:required", "human:resumed"),
            *("tool:result", "human:required"),
        ]
        assert [one.checkpoint_id for one in questions(crumbs)] == [first.id, second.id]
        assert await bread.resume(second.id, "late") == "Done."
    assert [message[2] for message in spy.seen[1][2:]] == ["slowly", "early", "late"]


async def _to(stream: Any, type: str) -> Any:
    async for crumb in stream:
        yield crumb
        if crumb.type == type:
            return
