"""Traps of the model layer: arguments, ids and refusals of calls, and what is sent back."""

from __future__ import annotations

import json
from itertools import pairwise
from typing import Any

import pytest
from pydantic_ai.messages import ModelRequest, ModelResponse, ToolReturnPart

from bread import define_tool
from bread.domain.messages import PYDANTIC_AI, AnyMessage, Message, ToolUse, UserMessage, native_message, read_turn
from bread.runtime.layer_messages import CallIds, to_layer
from models.kit import (
    CHAT,
    CLAUDE,
    FETCH,
    GEMINI,
    HI,
    RESPONSES,
    Provide,
    assistant,
    call_ids,
    conversation,
    done,
    outcome,
    outcomes,
    request,
    said,
    told,
)
from models.protocols import Part, Thought, calls, says
from models.stub import Stub
from scenes import OpenBread, ask_first, asking, engine_of, names
from support import read, types

from .traps import agent_of, fetch

# Where a run is part of a test: with every stream forgotten and loaded again after each commit.
HARDEST = pytest.mark.parametrize("mode", ["replay"])


BAD_ARGUMENTS = (
    '{"url":',
    '{"url":"x"',
    "[1]",
    "3",
    '"x"',
    '{"url":NaN}',
    '{"url":"x"}{"url":"x"}',
    "\x00",
    "[" * 2000,
)


@HARDEST
@pytest.mark.parametrize("name", [CHAT, RESPONSES, CLAUDE])
async def test_broken_arguments_reach_the_model_as_an_error(
    stub: Stub, provide: Provide, open_bread: OpenBread, name: str
) -> None:
    """trap 7, B7: nothing is executed and nobody is asked; the model is told, can be sent it back, and goes on."""
    model = provide(name)
    async with open_bread(agent_of(model, fetch, asking("ask"))) as bread:
        for bad in BAD_ARGUMENTS:
            stub.plays(
                says(*calls("tool_fetch", bad, id="c1"), *calls("human_ask", bad, id="c2", index=1), finish="length"),
                says("I see. ", *calls("tool_fetch", '{"url":"x"}', id="c3")),
                says("Done."),
            )
            run = bread.run("a", "go")
            crumbs = await read(run)
            assert types(crumbs) == [
                "agent:run:start", "tool:error", "tool:error", "text:delta", "tool:call", "tool:result", "text:delta",
                "agent:run:end",
            ]  # fmt: skip
            told_to_model = outcomes(stub.bodies[-2])
            assert told_to_model.keys() == {"c1", "c2"}
            assert all("argument" in found for found in told_to_model.values())
            sent = [found[3] for found in conversation(stub.bodies[-1]) if found[0] == "call"]
            assert all("INVALID_JSON" in str(args) for args in sent[:2])
            assert "INVALID_JSON" not in str(sent[2])


# --- 8: ids of calls --------------------------------------------------------------------------------------------------


@HARDEST
@pytest.mark.parametrize("name", [CHAT, CLAUDE, RESPONSES])
async def test_ids_that_repeat_or_are_missing_are_told_apart(
    stub: Stub, provide: Provide, open_bread: OpenBread, name: str
) -> None:
    """trap 8, B29: in a turn, over turns, over runs of a session: each call has its own outcome, here and there."""
    done_with: list[str] = []

    @define_tool
    async def note(what: str) -> str:
        done_with.append(what)
        return f"noted {what}"

    def noted(*whats: str, id: str | None = "call_1") -> list[Part]:
        return [p for n, what in enumerate(whats) for p in calls("tool_note", f'{{"what":"{what}"}}', id=id, index=n)]

    stub.plays(says(*noted("a", "b")), says(*noted("c")), says(*noted("d", "e", id="")), says("One."))
    stub.plays(says(*noted("f")), says(*noted("g", id=None)), says("Two."))
    async with open_bread(agent_of(provide(name), note)) as bread:
        assert await bread.run("a", "go", session="s") == "One."
        assert await bread.run("a", "go on", session="s") == "Two."
    assert sorted(done_with) == list("abcdefg")
    ids, found = call_ids(stub.bodies[-1]), outcomes(stub.bodies[-1])
    assert len(set(ids)) == 7
    assert [found[one] for one in ids] == [f"noted {what}" for what in "abcdefg"]
    assert all(one and len(one) <= 40 and set(one) <= set(ID_LETTERS) for one in ids)
    assert ids[0] == "call_1"  # the provider's own
    for earlier, later in pairwise(stub.bodies):
        assert call_ids(later)[: len(call_ids(earlier))] == call_ids(earlier)


ID_LETTERS = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-"


def sent_ids(messages: list[AnyMessage], ids: CallIds) -> tuple[list[str], list[str]]:
    """The ids of calls and of outcomes, in the order of the conversation."""
    layer = to_layer(messages, "", ids)
    called = [part.tool_call_id for one in layer if isinstance(one, ModelResponse) for part in one.tool_calls]
    returned = [
        part.tool_call_id
        for one in layer
        if isinstance(one, ModelRequest)
        for part in one.parts
        if isinstance(part, ToolReturnPart)
    ]
    return called, returned


def elsewhere(*given: str) -> list[AnyMessage]:
    """A turn that a script or another provider wrote, and its outcomes."""
    uses = tuple(ToolUse("tool_fetch", {}, one) for one in given)
    return [assistant(native_message("", uses)), *(outcome(one, "ok") for one in given)]


def test_ids_of_others_are_made_such_that_everybody_takes_them() -> None:
    """trap 8: letters, digits, - and _, at most 40, each once; the same history always gives the same."""
    given = ["call_5.0", "a" * 60, "a" * 60 + "b", "call_1~5.1", "functions.f:0", "é", "call-5-0"]
    history = [*elsewhere(*given), *elsewhere("call_5.0"), *elsewhere(*given)]
    called, returned = sent_ids(history, CallIds("openai"))
    assert called == returned
    assert len(set(called)) == len(called) == 15
    assert all(set(one) <= set(ID_LETTERS) and len(one) <= 40 for one in called)
    assert (called[0], called[6], called[7]) == ("call_5-0", "call-5-0", "call_5-0-2")
    assert sent_ids(history, CallIds("openai"))[0] == called
    assert sent_ids(history[:9], CallIds("openai"))[0] == called[:8]


def test_a_provider_gets_its_own_ids_back() -> None:
    """trap 8: some insist on a form of their own; another provider is spared it."""
    data: Any = {
        "kind": "response", "provider_name": "moonshotai",
        "parts": [{"part_kind": "tool-call", "tool_name": "tool_fetch", "args": "{}", "tool_call_id": "functions.f:0"}],
    }  # fmt: skip
    history: list[AnyMessage] = [assistant(Message(codec=PYDANTIC_AI, data=data)), outcome("functions.f:0", "ok")]
    assert sent_ids(history, CallIds("moonshotai")) == (["functions.f:0"],) * 2
    assert sent_ids(history, CallIds("openai")) == (["functions-f-0"],) * 2


@pytest.mark.parametrize("name", [CHAT, CLAUDE])
async def test_a_providers_own_ids_over_http(stub: Stub, provide: Provide, name: str) -> None:
    """trap 8: what it was called comes back as it was, also for the outcome."""
    stub.plays(says(*calls("tool_fetch", id="functions.fetch:0")), says("ok"))
    model = provide(name)
    first = done(await told(model, request(HI, tools=[FETCH]))).message
    await told(model, request(HI, assistant(first), outcome("functions.fetch:0", "page"), tools=[FETCH]))
    assert call_ids(stub.bodies[1]) == [*outcomes(stub.bodies[1])] == ["functions.fetch:0"]


def test_a_provider_that_wants_ids_of_a_length() -> None:
    """trap 8: Mistral takes 9 letters and digits, and the layer fits them only for its own agents."""
    called, returned = sent_ids(elsewhere("abcdefgh1", "call_1", "call_2", "a-b-c-d-e"), CallIds("mistral", 9))
    assert called == returned
    assert called[0] == "abcdefgh1"
    assert len(set(called)) == 4
    assert all(len(one) == 9 and one.isalnum() for one in called)


# --- 9: a no ----------------------------------------------------------------------------------------------------------


@HARDEST
@pytest.mark.parametrize("name", [CHAT, CLAUDE])
async def test_a_no_reaches_the_model_as_a_denial(
    stub: Stub, provide: Provide, open_bread: OpenBread, name: str
) -> None:
    """trap 9, B37: neither as a result of the tool nor as its failure; the reason goes along."""

    @define_tool
    async def broken() -> str:
        raise ValueError("out of paper")

    stub.plays(
        says(*calls("tool_fetch", '{"url":"x"}', id="c1"), *calls("tool_broken", id="c2", index=1)), says("Pity.")
    )
    async with open_bread(agent_of(provide(name), fetch, broken, permissions={"ask": ["tool:fetch"]})) as bread:
        asked = await ask_first(bread)
        assert await bread.resume(asked.checkpoint_id, {"approved": False, "reason": "too red"}) == "Pity."
    found = outcomes(stub.bodies[1])
    assert found["c1"] == "denied by a person: too red"
    assert "out of paper" in found["c2"]
    if name == CLAUDE:
        parts = {part["tool_use_id"]: part for part in stub.bodies[1]["messages"][-1]["content"]}
        assert (parts["c1"]["is_error"], parts["c2"]["is_error"]) == (False, True)
    else:
        assert json.loads(found["c2"]).keys() == {"error"}


def test_outcomes_have_the_layers_names() -> None:
    """trap 9: ok, error and denied are success, failed and denied."""
    history = [
        *elsewhere("c1", "c2", "c3")[:1],
        outcome("c1", 1),
        outcome("c2", "x", "error"),
        outcome("c3", "n", "denied"),
    ]
    last = to_layer(history, "")[-1]
    assert [part.outcome for part in last.parts if isinstance(part, ToolReturnPart)] == ["success", "failed", "denied"]


# --- 10: what is sent -------------------------------------------------------------------------------------------------


@HARDEST
@pytest.mark.parametrize("name", [CHAT, CLAUDE, GEMINI])
async def test_the_history_is_sent_as_it_was(stub: Stub, provide: Provide, open_bread: OpenBread, name: str) -> None:
    """trap 10, B5: each request is the one before it and what came since; thoughts go back with their signatures."""
    stub.plays(
        says(Thought("Hm, a page.", "c2lnbmVk"), "Let me see. ", *calls("tool_fetch", '{"url":"x"}', id="c1")),
        says("It says x."),
        says("Again?"),
    )
    async with open_bread(agent_of(provide(name), fetch, prompt="You fetch.")) as bread:
        assert await bread.run("a", "go", session="s") == "It says x."
        assert await bread.run("a", {"more": "é"}, session="s") == "Again?"
    key = "contents" if name == GEMINI else "messages"
    first, second, third = (body[key] for body in stub.bodies)
    assert second[: len(first)] == first
    assert third[: len(second)] == second
    assert (len(first), len(second), len(third)) == ((2, 4, 6) if name == CHAT else (1, 3, 5))
    said_so = [found for found in conversation(stub.bodies[2]) if found[0] in ("user", "outcome")]
    assert said_so == [("user", "go"), ("outcome", "c1", "the page of x"), ("user", '{"more": "é"}')]
    if name == CLAUDE:
        assert second[1]["content"][0] == {"type": "thinking", "thinking": "Hm, a page.", "signature": "c2lnbmVk"}
        assert [body["system"] for body in stub.bodies] == [[{"type": "text", "text": "You fetch."}]] * 3
    elif name == CHAT:
        assert second[2]["reasoning_content"] == "Hm, a page."
    else:
        assert "c2lnbmVk" in json.dumps(second[1])


async def test_signatures_of_one_provider_are_not_sent_to_another(stub: Stub, provide: Provide) -> None:
    """trap 10: a conversation may change its model; what only the other can check stays behind."""
    stub.plays(says(Thought("Hm.", "c2lnbmVk"), "Well. ", *calls("tool_fetch", id="toolu_1")), says("ok"), says("ok"))
    first = done(await told(provide(CLAUDE), request(HI, tools=[FETCH]))).message
    history: list[AnyMessage] = [HI, assistant(first), outcome("toolu_1", "page"), UserMessage("and now?")]
    for name in (CHAT, GEMINI):
        await told(provide(name), request(*history))
        assert "c2lnbmVk" not in json.dumps(stub.bodies[-1])
        assert [found[0] for found in conversation(stub.bodies[-1]) if found[0] in ("call", "outcome")] == [
            "call", "outcome",
        ]  # fmt: skip


async def test_marks_of_chat_templates(stub: Stub, provide: Provide) -> None:
    """trap 10: the one thing that the layer changes: servers of open models would take them for their own."""
    stub.plays(says("ok"), says("ok"))
    marked = UserMessage("a <|im_end|> b")
    await told(provide(CLAUDE), request(marked))
    await told(provide(), request(marked))
    assert [conversation(body)[-1][1] for body in stub.bodies] == ["a <|im_end|> b", "a <\u200d|im_end|> b"]
    model = provide()
    for size in (1, 2, 3, 100):
        echo = "a <\u200d|im_end|> b"
        stub.plays(says(*(echo[at : at + size] for at in range(0, len(echo), size))))
        events = await told(model)
        assert said(events) == read_turn(done(events).message).text == "a <|im_end|> b"


async def test_what_no_provider_takes_does_not_spoil_a_session(stub: Stub, provide: Provide) -> None:
    """trap 10, B4: halves of characters and NaN can be stored, but not sent as JSON: each later turn would fail."""
    half: str = "\ud83d"
    own: Any = {
        "kind": "response",
        "parts": [
            {"part_kind": "text", "content": "a\ud83d\ude00b\ud83d"},
            {"part_kind": "tool-call", "tool_name": "tool_fetch", "args": {"n": float("nan")}, "tool_call_id": "c0"},
        ],
    }
    called = native_message(half, (ToolUse("tool_fetch", {half: [half, float("inf")]}, "c1"),))
    history: list[AnyMessage] = [
        UserMessage(half),
        assistant(Message(codec=PYDANTIC_AI, data=own)),
        outcome("c0", "x"),
        assistant(called),
        outcome("c1", {"x": [half, float("nan")]}),
        HI,
    ]
    for name in (CHAT, CLAUDE, GEMINI, RESPONSES):
        stub.plays(says("ok"))
        await told(provide(name), request(*history, prompt=f"p{half}", tools=[FETCH]))
        assert "a😀b\ufffd" in json.dumps(stub.bodies[-1], ensure_ascii=False)


# --- 11: deltas -------------------------------------------------------------------------------------------------------


@HARDEST
async def test_deltas_are_not_events(stub: Stub, provide: Provide, open_bread: OpenBread) -> None:
    """trap 11, B124: a turn of 500 pieces costs the commits of one of a single piece."""
    pieces = [f"{number} " for number in range(400)]
    stub.plays(says(*pieces, *calls("tool_fetch", '{"url":"x"}', size=1)), says(*pieces, Thought("hm")), says("x"))
    async with open_bread(agent_of(provide(), fetch)) as bread:
        writer = engine_of(bread).journal.writer
        before = writer.commits
        run = bread.run("a", "go")
        assert await run == "".join(pieces)
        assert writer.commits - before == 4
        assert await names(bread, run.run_id) == [
            "started", "model_responded", "tool_called", "tool_returned", "model_responded", "completed",
        ]  # fmt: skip
        before = writer.commits
        assert await bread.run("a", "go") == "x"
        assert writer.commits - before == 2
