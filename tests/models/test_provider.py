"""A provider's model over real HTTP: what is told, what is sent, what goes wrong, and what it needs to begin."""

from __future__ import annotations

import asyncio
import socket
from typing import Any

import pytest

from bread.domain.errors import InvalidInput
from bread.domain.messages import read_turn
from bread.domain.ports import ReasoningDelta, TextDelta, ToolSpec
from bread.runtime.providers import define_model
from models.kit import (
    ASK,
    CHAT,
    CLAUDE,
    EVERY_PROTOCOL,
    FETCH,
    GEMINI,
    HI,
    KEY,
    RESPONSES,
    Provide,
    done,
    failure,
    inputs,
    request,
    said,
    thought,
    told,
    used,
)
from models.protocols import SILENCE, Args, Open, Raw, Reply, Thought, calls, says, status
from models.stub import Stub

# --- what is told -----------------------------------------------------------------------------------------------------


@EVERY_PROTOCOL
async def test_text_comes_piece_by_piece(stub: Stub, provide: Provide, name: str) -> None:
    """B1: each piece is told before the provider says the next one."""
    gates = [asyncio.Event() for _ in range(3)]
    stub.plays(says("One ", gates[0], "two ", gates[1], "three", gates[2], "."))
    pieces = []
    async for event in provide(name).stream(request(HI)):
        if isinstance(event, TextDelta):
            pieces.append(event.text)
            if len(pieces) <= 3:
                gates[len(pieces) - 1].set()
    assert pieces == ["One ", "two ", "three", "."]


@EVERY_PROTOCOL
async def test_a_turn_ends_with_what_was_said_why_it_ended_and_what_it_cost(
    stub: Stub, provide: Provide, name: str
) -> None:
    """B1: the stored message, the finish reason, and the tokens as the provider counts them."""
    usage = {"prompt_tokens_details": {"cached_tokens": 5}} if name == CHAT else {}
    if name == GEMINI:
        usage = {"cachedContentTokenCount": 5}  # type: ignore[dict-item]
    stub.plays(says("Good ", "day.", usage=usage))
    end = done(await told(provide(name)))
    assert (read_turn(end.message).text, end.finish, end.message.codec) == ("Good day.", "stop", "pydantic-ai/2")
    assert end.usage is not None
    # Anthropic counts what comes from a cache or goes into it apart: 11 + 5 + 3.
    assert end.usage.input_tokens == (19 if name == CLAUDE else 11)
    extra = end.usage.model_extra or {}
    assert (end.usage.output_tokens, extra["cache_read_tokens"]) == (7, 5)
    assert extra.get("cache_write_tokens") == (3 if name == CLAUDE else None)


@EVERY_PROTOCOL
async def test_a_turn_that_became_too_long_says_so(stub: Stub, provide: Provide, name: str) -> None:
    """B1: it is an answer, and the reason is not `stop`."""
    stub.plays(says("Once upon a", finish="length"))
    end = done(await told(provide(name)))
    assert (read_turn(end.message).text, end.finish) == ("Once upon a", "length")


@pytest.mark.parametrize("name", [CHAT, RESPONSES, CLAUDE])
async def test_calls_come_in_fragments(stub: Stub, provide: Provide, name: str) -> None:
    """B9: cut anywhere, also in an escape or between the halves of a character, the arguments are whole."""
    args = '{"url":"https://x.test/\\u00e9?q=\\"\\ud83d\\ude00\\"","n":[1,{"é😀":null}]}'
    model = provide(name)
    for size in (1, 2, 3, 5, 1000):
        both = [*calls("tool_fetch", args, id="c1", size=size), *calls("human_ask", '{"what":"é"}', id="c2", index=1)]
        stub.plays(says("Let me see. ", *both))
        events = await told(model, request(HI, tools=[FETCH, ASK]))
        first, second = read_turn(done(events).message).calls
        assert (first.tool, first.id, first.malformed) == ("tool_fetch", "c1", False)
        assert first.args == {"url": 'https://x.test/é?q="😀"', "n": [1, {"é😀": None}]}
        assert (second.tool, second.id, second.args) == ("human_ask", "c2", {"what": "é"})
        assert inputs(events) == {0: args, 1: '{"what":"é"}'}
        assert said(events) == "Let me see. "
        assert done(events).finish in ("tool_call", "stop")


async def test_gemini_gives_calls_whole(stub: Stub, provide: Provide) -> None:
    """B9: arguments that come as a value are told as their JSON."""
    stub.plays(says("Hm. ", *calls("tool_fetch", '{"url":"é"}', id="c1"), *calls("human_ask", id="c2", index=1)))
    events = await told(provide(GEMINI), request(HI, tools=[FETCH, ASK]))
    assert inputs(events) == {0: '{"url": "é"}', 1: ""}
    assert [(use.tool, use.args, use.id) for use in read_turn(done(events).message).calls] == [
        ("tool_fetch", {"url": "é"}, "c1"),
        ("human_ask", {}, "c2"),
    ]


async def test_fragments_of_several_calls_may_come_in_turn(stub: Stub, provide: Provide) -> None:
    """B9: fragments are put together by index, and no call is said to be complete before its last one."""
    opened = [Open(0, "tool_fetch", "c1"), Open(1, "tool_fetch", "c2"), Open(2, "human_ask", "c3")]
    pieces = [Args(0, '{"url":'), Args(1, '{"url'), Args(0, '"a'), Args(2, "{}"), Args(1, '":"b"}'), Args(0, '"}')]
    stub.plays(says(*opened, *pieces))
    events = await told(provide(), request(HI, tools=[FETCH, ASK]))
    assert inputs(events) == {0: '{"url":"a"}', 1: '{"url":"b"}', 2: "{}"}
    assert [use.args for use in read_turn(done(events).message).calls] == [{"url": "a"}, {"url": "b"}, {}]


@EVERY_PROTOCOL
async def test_a_connection_that_gives_single_bytes(stub: Stub, provide: Provide, name: str) -> None:
    """B1: characters of several bytes come whole."""
    stub.plays(says("Grüße, 😀", " 你好", *calls("tool_fetch", '{"url":"é😀"}', id="c1", size=3), torn=True))
    events = await told(provide(name), request(HI, tools=[FETCH]))
    turn = read_turn(done(events).message)
    assert said(events) == turn.text == "Grüße, 😀 你好"
    assert turn.calls[0].args == {"url": "é😀"}


@pytest.mark.parametrize("name", [CHAT, CLAUDE, GEMINI])
async def test_thoughts_are_told_apart_from_text(stub: Stub, provide: Provide, name: str) -> None:
    """B9: reasoning is a hint of its own and stays with the message."""
    stub.plays(says(Thought("So they "), Thought("want...", "U0lH"), "Yes."))
    events = await told(provide(name))
    assert (thought(events), said(events)) == ("So they want...", "Yes.")
    assert [type(event) for event in events[:3]] == [ReasoningDelta, ReasoningDelta, TextDelta]
    assert read_turn(done(events).message).reasoning == "So they want..."


# --- what is sent -----------------------------------------------------------------------------------------------------


async def test_prompt_settings_and_tools_are_sent(stub: Stub, provide: Provide) -> None:
    """B1: the prompt as system message, the settings under the protocol's names, each tool with its schema."""
    stub.plays(says("ok"))
    settings = {"temperature": 0.25, "max_tokens": 99, "openai_user": "u1", "extra_headers": {"x-more": "1"}}
    await told(provide(), request(HI, tools=[FETCH], settings=settings))
    [sent] = stub.requests
    assert sent.path == "/v1/chat/completions"
    assert sent.headers["authorization"] == f"Bearer {KEY}"
    assert sent.headers["x-more"] == "1"
    assert sent.body["model"] == "stub-1"
    assert (sent.body["temperature"], sent.body["max_completion_tokens"], sent.body["user"]) == (0.25, 99, "u1")
    assert sent.body["messages"][0] == {"role": "system", "content": "You are brief."}
    [tool] = sent.body["tools"]
    assert tool["function"]["name"] == "tool_fetch"
    assert tool["function"]["description"] == "Fetch a page."
    assert tool["function"]["parameters"]["properties"] == {"url": {"type": "string"}}


@pytest.mark.parametrize("name", [CHAT, RESPONSES])
async def test_a_tool_that_takes_anything_is_offered_as_such(stub: Stub, provide: Provide, name: str) -> None:
    """B20: the layer would close an object without properties, and the model could say nothing."""
    stub.plays(says("ok"))
    schema: Any = {"type": "object", "properties": {"more": {"type": "object"}, "enum": {"const": {"type": "object"}}}}
    tools = [ToolSpec("human_any", "", {"type": "object"}), ToolSpec("human_more", "", schema)]
    await told(provide(name), request(HI, tools=tools))
    first, second = (tool.get("function", tool)["parameters"] for tool in stub.bodies[0]["tools"])
    assert first["additionalProperties"] is True
    assert second["properties"]["more"]["additionalProperties"] is True
    assert second["properties"]["enum"] == {"const": {"type": "object"}}


async def test_an_unknown_setting_is_refused(stub: Stub, provide: Provide) -> None:
    """Q MODEL_NOT_READY: a setting that nobody reads is a mistake; nothing is sent."""
    chat, claude = provide(), provide(CLAUDE)
    unknown = [(chat, "nonsense"), (chat, "openai_nonsense"), (chat, "anthropic_thinking"), (claude, "openai_user")]
    for model, setting in unknown:
        with pytest.raises(InvalidInput, match=f"has no setting '{setting}'; there are: .*temperature") as caught:
            await model.prepare({setting: 1})
        assert caught.value.code == "MODEL_NOT_READY"
        error = await failure(model, request(HI, settings={setting: 1}))
        assert not error.retryable
    assert stub.requests == []


async def test_a_setting_that_the_model_ignores_is_refused(stub: Stub, provide: Provide) -> None:
    """Q MODEL_NOT_READY: the layer would leave it out without a word."""
    with pytest.raises(InvalidInput, match="MODEL_NOT_READY: openai:stub-1 ignores the setting 'top_k'"):
        await provide().prepare({"top_k": 3})
    await provide(CLAUDE).prepare({"top_k": 3, "anthropic_thinking": {"type": "disabled"}})
    await provide().prepare({})
    await provide().prepare()


ANSWER = {"type": "object", "properties": {"title": {"type": "string"}}, "required": ["title"]}


async def test_structured_output_is_enforced_where_the_provider_can(stub: Stub, provide: Provide) -> None:
    """B11: the schema goes along as the response format; tools stay as they are, and none is forced."""
    stub.plays(says('{"title": "x"}'), says('{"title": "x"}'), says('{"title": "x"}'))
    for name in (CHAT, CLAUDE, RESPONSES):
        end = done(await told(provide(name), request(HI, tools=[FETCH], output=ANSWER)))
        assert read_turn(end.message).text == '{"title": "x"}'
    chat, claude, responses = stub.bodies
    form = chat["response_format"]
    assert (form["type"], form["json_schema"]["schema"]["properties"]) == ("json_schema", ANSWER["properties"])
    assert claude["output_config"]["format"]["schema"]["required"] == ["title"]
    assert responses["text"]["format"]["type"] == "json_schema"
    assert chat["tool_choice"] == responses["tool_choice"] == "auto"
    assert claude["tool_choice"] == {"type": "auto"}
    assert [len(body["tools"]) for body in stub.bodies] == [1, 1, 1]


@pytest.mark.parametrize(
    ("name", "tools", "schema", "says_object"),
    [
        ("anthropic:claude-3-haiku-20240307", [FETCH], ANSWER, True),  # does not enforce any
        (GEMINI, [FETCH], ANSWER, True),  # not together with tools
        (CHAT, [FETCH], {"type": "object"}, True),  # enforced schemas have closed objects only
        (CHAT, [], {"type": "object", "properties": {}, "additionalProperties": {"type": "integer"}}, True),
        (CHAT, [FETCH], {"type": "array", "items": {"type": "string"}}, False),  # and are objects
        (CLAUDE, [], {"enum": ["red", "blue"]}, False),
    ],
)
async def test_structured_output_is_asked_for_elsewhere(
    stub: Stub, provide: Provide, name: str, tools: list[Any], schema: Any, says_object: bool
) -> None:
    """B11: the schema stands in the prompt, open where it is open; no other shape than it allows is demanded."""
    stub.plays(says("[]"))
    await told(provide(name), request(HI, tools=tools, output=schema))
    [body] = stub.bodies
    prompt = str(body.get("system", body.get("systemInstruction", body.get("messages"))))
    assert ("JSON object" in prompt) is says_object
    assert "fits this schema" in prompt or "compatible with this schema" in prompt
    for word in ("title", "additionalProperties", "items", "enum"):
        if word in schema or word in schema.get("properties", {}):
            assert f'"{word}": ' in prompt
    assert "json_schema" not in str(body.get("response_format")) + str(body.get("output_config"))
    assert ("response_format" in body) is (name == CHAT and says_object)
    assert '"additionalProperties": false' not in prompt or schema == ANSWER


# --- what goes wrong --------------------------------------------------------------------------------------------------


@EVERY_PROTOCOL
async def test_what_may_go_better_is_retryable_and_what_will_not_is_not(
    stub: Stub, provide: Provide, name: str
) -> None:
    """B59: too busy, or the key wrong, the model unknown, the request too long: the status and the provider's words."""
    model = provide(name)
    for codes, retryable in (((408, 409, 429, 500, 502, 503, 529), True), ((400, 401, 402, 403, 404, 413, 422), False)):
        for code in codes:
            stub.plays(status(code, "not\nlike  this"))
            error = await failure(model)
            assert (error.retryable, error.retry_after) == (retryable, None), code
            assert str(error) == f"{code} from {name.partition(':')[2]}: not like this"


async def test_a_limit_that_waiting_does_not_help_with(stub: Stub, provide: Provide) -> None:
    """B59: 429 also says that the money is gone."""
    stub.plays(status(429, "no credit", code="insufficient_quota"))
    assert not (await failure(provide())).retryable


@EVERY_PROTOCOL
async def test_retry_after_is_handed_on(stub: Stub, provide: Provide, name: str) -> None:
    """B59: how long the provider wants to be left alone, in seconds."""
    stub.plays(status(429, headers={"retry-after": "7"}))
    stub.plays(status(503, headers={"retry-after-ms": "1500", "retry-after": "9"}))
    model = provide(name)
    assert [(await failure(model)).retry_after for _ in range(2)] == [7.0, 1.5]


async def test_an_error_that_is_no_json(stub: Stub, provide: Provide) -> None:
    """B59: what a proxy says, in one line of bounded length."""
    stub.plays(Reply(status=502, body=b"<html>\n<b>Bad Gateway</b>" + b"x" * 9000))
    error = await failure(provide())
    assert error.retryable
    assert str(error).startswith("502 from stub-1: <html> <b>Bad Gateway</b>x")
    assert len(str(error)) < 600


@pytest.mark.parametrize("name", [CHAT, RESPONSES, CLAUDE])
async def test_an_error_in_the_stream(stub: Stub, provide: Provide, name: str) -> None:
    """B59: a provider that breaks off with an error has not answered."""
    error = b'{"type":"error","error":{"type":"overloaded_error","message":"too much to do"}}'
    stub.plays(says("Once ", Raw(b"event: error\ndata: " + error + b"\n\n")))
    failed = await failure(provide(name))
    assert failed.retryable
    assert "too much to do" in str(failed)


@EVERY_PROTOCOL
async def test_a_provider_that_falls_silent(stub: Stub, provide: Provide, name: str) -> None:
    """B59: `timeout` bounds the silence, at the beginning and between two pieces."""
    stub.plays(says(SILENCE), says("Once ", SILENCE))
    model, impatient = provide(name), request(HI, settings={"timeout": 0.2})
    for error in await asyncio.gather(failure(model, impatient), failure(model, impatient)):
        assert error.retryable
        assert "imeout" in str(error)
    for sent in stub.requests:
        await sent.gone.wait()


@EVERY_PROTOCOL
async def test_nobody_there(stub: Stub, name: str) -> None:
    """B59: a refused connection is retryable."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        address = f"http://127.0.0.1:{taken.getsockname()[1]}"
        async with used(define_model(name, base_url=address, api_key=KEY)) as model:
            error = await failure(model)
    assert error.retryable
    assert "onnect" in str(error)


async def test_a_chunk_that_makes_no_sense(stub: Stub, provide: Provide) -> None:
    """B59: garbage is an error that may go away, whatever it does to the client."""
    model = provide()
    for data in (b"{nope", b"[1]", b'{"choices":7}', b'{"choices":[{"delta":3}]}', b"\xff\xfe"):
        stub.plays(says("Once ", Raw(b"data: " + data + b"\n\n")))
        assert (await failure(model)).retryable, data


@pytest.mark.parametrize("name", [CLAUDE, GEMINI])
async def test_a_first_chunk_that_makes_no_sense(stub: Stub, provide: Provide, name: str) -> None:
    """B59: so is garbage before anything was said."""
    data = b'{"usageMetadata":3}' if name == GEMINI else b'{"type":"message_start","message":[]}'
    stub.plays(
        says(Raw(b"event: message_start\ndata: " + data + b"\n\n" if name == CLAUDE else b"data: " + data + b"\n\n"))
    )
    assert (await failure(provide(name))).retryable


@pytest.mark.parametrize("name", [CHAT, CLAUDE])
async def test_a_refusal_is_no_answer(stub: Stub, provide: Provide, name: str) -> None:
    """B59: nothing was said, and asking again does not help; what was said until then counts as an answer."""
    reason = "content_filter" if name == CHAT else "refusal"
    stub.plays(says(finish=reason), says("Well,", finish=reason))
    error = await failure(provide(name))
    assert not error.retryable
    assert "refused" in str(error)
    assert done(await told(provide(name))).finish == "content_filter"
