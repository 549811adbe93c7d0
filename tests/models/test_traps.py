"""The traps of the model layer that were found by measuring it, each sprung against the adapter.

A trap's number is that of the list of what was measured (surfaces 1.3).
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from itertools import pairwise
from pathlib import Path
from random import Random
from typing import Any

import pytest
from pydantic import ValidationError
from pydantic_ai.messages import ModelMessagesTypeAdapter, ModelResponse

from bread.domain.errors import StoreUnreadable
from bread.domain.messages import PYDANTIC_AI, Message, ToolUse, read_turn
from bread.domain.ports import TextDelta
from bread.runtime.layer_messages import from_layer, to_layer
from bread.transport.codec import pack, unpack
from models.kit import (
    ASK,
    CHAT,
    CLAUDE,
    EVERY_PROTOCOL,
    FETCH,
    GEMINI,
    HI,
    RESPONSES,
    Provide,
    assistant,
    broken,
    done,
    failure,
    request,
    said,
    told,
)
from models.protocols import ABORT, CUT, Part, Thought, calls, says, status
from models.record import PARTS
from models.stub import Stub
from scenes import OpenBread
from support import trials

from .traps import agent_of, fetch

TURNS = sorted(Path(__file__).with_name("turns").glob("*.json"))


# --- 1 and 2: half a stream, and attempts that nobody sees ------------------------------------------------------------


@EVERY_PROTOCOL
async def test_a_stream_that_ends_early_is_an_error(stub: Stub, provide: Provide, name: str) -> None:
    """trap 1: cleanly, without a reason to end, in the text, in a call, or after a whole one: each is retryable."""
    model = provide(name)
    middle = [*calls("tool_fetch", '{"url":"x"}')[:-1]]
    for parts in (["Once upon"], [], ["Hm. ", *middle], ["Hm. ", *calls("tool_fetch", '{"url":"x"}')]):
        stub.plays(says(*parts, CUT))
        pieces, error = await broken(model)
        assert error.retryable
        assert any(words in str(error) for words in ("cut short", "without a `finish_reason`", "without content"))
        assert said(pieces) == "".join(part for part in parts if isinstance(part, str))


@EVERY_PROTOCOL
async def test_a_connection_that_is_reset_is_an_error(stub: Stub, provide: Provide, name: str) -> None:
    """trap 1: it was one all the time."""
    stub.plays(says("Once upon", ABORT))
    assert (await failure(provide(name))).retryable


@pytest.mark.parametrize("name", [CHAT, CLAUDE])
async def test_a_reason_that_nobody_has_heard_of_is_one(stub: Stub, provide: Provide, name: str) -> None:
    """trap 1: what comes whole and ends for a new reason was not cut short."""
    stub.plays(says("All of it.", finish="out_of_words"))
    end = done(await told(provide(name)))
    assert (read_turn(end.message).text, end.finish) == ("All of it.", "out_of_words")


@EVERY_PROTOCOL
async def test_an_attempt_is_one_request(stub: Stub, provide: Provide, name: str) -> None:
    """trap 2: the clients would make two or more of each; also if the settings ask for it."""
    model = provide(name)
    failing = [status(429, headers={"retry-after": "0"}), *(status(code) for code in (408, 409, 500, 503))]
    for count, reply in enumerate([*failing, says(ABORT), says("Once", ABORT), says("Once", CUT)], 1):
        stub.plays(reply, says("This was not asked for."))
        await failure(model, request(HI, settings={"max_retries": 3} if count % 2 else {}))
        assert len(stub.requests) == count
        stub.forget()


# --- 3: where text comes from -----------------------------------------------------------------------------------------


@EVERY_PROTOCOL
async def test_no_text_is_lost_or_told_twice(stub: Stub, provide: Provide, name: str) -> None:
    """trap 3: the first piece comes with the part it begins; between thoughts and calls new parts begin."""
    random, model = Random(3), provide(name)
    for _ in range(trials(12, 300)):
        parts: list[Part] = []
        for index in range(random.randint(1, 4)):
            words = "".join(random.choice("aé😀 \n<|>") for _ in range(random.randint(1, 30)))
            cuts = sorted({0, len(words), *(random.randint(0, len(words)) for _ in range(3))})
            parts += [words[start:end] for start, end in pairwise(cuts)]
            if random.random() < 0.4 and name != RESPONSES:
                parts.append(Thought("hm"))
            if random.random() < 0.4:
                parts += calls("tool_fetch", '{"url":"x"}', id=f"c{index}", index=index)
        # Some protocols have no words after a call; what is said is said all the same.
        stub.plays(says(*parts))
        events = await told(model, request(HI, tools=[FETCH]))
        assert said(events) == read_turn(done(events).message).text == "".join(p for p in parts if isinstance(p, str))


async def test_one_piece_is_told_as_such(stub: Stub, provide: Provide) -> None:
    """trap 3: a turn of a single chunk has no delta at all."""
    stub.plays(says("Yes."))
    events = await told(provide())
    assert events[:-1] == [TextDelta("Yes.")]


async def test_text_that_the_layer_takes_for_thoughts(stub: Stub, provide: Provide) -> None:
    """trap 3: tags of thoughts are taken out of the text; what is told stays what is stored."""
    stub.plays(says("<think>", "well", "</think>", "So: ", "<b>yes</b>"))
    events = await told(provide())
    assert said(events) == read_turn(done(events).message).text == "So: <b>yes</b>"


# --- 4, 5, 6: messages that were stored -------------------------------------------------------------------------------


def stored(data: Any) -> bytes:
    return pack(Message(codec=PYDANTIC_AI, data=data).model_dump())


def again(message: Message) -> Message:
    """The message as the layer has it, stored again."""
    [response] = ModelMessagesTypeAdapter.validate_python([message.data])
    assert isinstance(response, ModelResponse)
    return from_layer(response)


def as_history(message: Message) -> ModelResponse:
    """The message as it is sent back."""
    [response, _] = to_layer([assistant(message)], "")
    assert isinstance(response, ModelResponse)
    return response


@EVERY_PROTOCOL
async def test_the_bytes_of_a_stored_message_are_stable(stub: Stub, provide: Provide, name: str) -> None:
    """trap 4: objects are not kept by a round trip (the provider's time becomes text), bytes are: also by a second."""
    stub.plays(says(*PARTS[name]))
    first = done(await told(provide(name), request(HI, tools=[FETCH, ASK]))).message
    if name in (CHAT, RESPONSES):
        assert first.data["provider_details"]["timestamp"] == "2026-09-21T14:13:20Z"  # type: ignore[index, call-overload]
    kept = pack(first.model_dump())
    loaded = Message.model_validate(unpack(kept))
    assert loaded == first
    assert pack(again(loaded).model_dump()) == kept
    assert pack(again(again(loaded)).model_dump()) == kept


def nothings(value: Any) -> int:
    match value:
        case dict():
            return sum(nothings(one) for one in value.values())
        case list():
            return sum(nothings(one) for one in value)
    return value is None


async def test_nothing_is_stored_for_what_is_not_there(stub: Stub, provide: Provide) -> None:
    """trap 5: fields that are None are left out, and it loads; without its defaults it would not."""
    stub.plays(says("Hm. ", *calls("tool_fetch", '{"url":"x"}')))
    message = done(await told(provide(), request(HI, tools=[FETCH]))).message
    assert nothings(message.data) == 0
    [response] = ModelMessagesTypeAdapter.validate_python([message.data])
    whole = ModelMessagesTypeAdapter.dump_python([response], mode="json")[0]
    assert nothings(whole) > 5
    assert len(stored(message.data)) < 0.8 * len(stored(whole))
    bare = ModelMessagesTypeAdapter.dump_python([response], mode="json", exclude_defaults=True)[0]
    with pytest.raises(ValidationError):
        again(Message(codec=PYDANTIC_AI, data=bare))


@pytest.mark.parametrize("file", TURNS, ids=lambda file: file.stem)
def test_turns_that_earlier_releases_stored_are_read_and_sent_back(file: Path) -> None:
    """trap 6: each recorded turn has the same reading, and the same bytes, in every release."""
    for name, data in json.loads(file.read_text()).items():
        message = Message(codec=PYDANTIC_AI, data=data)
        turn = read_turn(message)
        assert turn.text == "Let me see. 你好\n"
        assert turn.reasoning == ("" if name == RESPONSES else "They want a page. é😀")
        expected = [
            ToolUse("tool_fetch", {"url": "https://x.test/é"}, "call_a"),
            ToolUse("human_ask", {}, "call_b"),
            ToolUse("tool_fetch", '{"url": "https://x.t', "call_c", malformed=True),
        ]
        assert list(turn.calls) == (expected[:2] if name == GEMINI else expected)
        assert stored(again(message).data) == stored(data)
        assert [part.part_kind for part in as_history(message).parts] == [part["part_kind"] for part in data["parts"]]


def test_there_are_recorded_turns() -> None:
    """trap 6: else the test above would show nothing."""
    assert [file.stem for file in TURNS][:1] == ["pydantic-ai-2.68.0"]
    assert json.loads(TURNS[0].read_text()).keys() == {CHAT, CLAUDE, GEMINI, RESPONSES}


DATA: Any = {"kind": "response", "parts": [{"part_kind": "text", "content": "Hi."}]}


def test_a_part_of_an_unknown_kind_is_refused() -> None:
    """trap 6: a turn of a later release is not sent back without what this one cannot read."""
    data = {**DATA, "parts": [*DATA["parts"], {"part_kind": "hologram", "content": "secret of mine"}]}
    with pytest.raises(StoreUnreadable, match=r"EVENT_UNKNOWN: this release cannot read a turn.*hologram") as caught:
        as_history(Message(codec=PYDANTIC_AI, data=data))
    assert "secret of mine" not in str(caught.value)
    with pytest.raises(StoreUnreadable, match="STORE_INVALID"):
        as_history(Message(codec=PYDANTIC_AI, data={"kind": "request", "parts": []}))


async def test_a_request_with_it_is_refused_loudly(stub: Stub, provide: Provide) -> None:
    """trap 6: the attempt fails before anything is sent."""
    data = {**DATA, "parts": [*DATA["parts"], {"part_kind": "hologram", "content": "?"}]}
    message = Message(codec=PYDANTIC_AI, data=data)
    with pytest.raises(StoreUnreadable, match="EVENT_UNKNOWN"):
        await told(provide(), request(HI, assistant(message), HI))
    assert stub.requests == []


def test_unknown_fields_are_ignored() -> None:
    """trap 6: a later release may say more about what this one knows."""
    parts: Any = [{**part, "hue": 3} for part in DATA["parts"]]
    found = as_history(Message(codec=PYDANTIC_AI, data={**DATA, "parts": parts, "hologram": {"a": 1}}))
    assert [part.part_kind for part in found.parts] == ["text"]


READER = """
import asyncio, sys
from bread import Bread
async def main():
    async with Bread(store=sys.argv[1], executes=False) as bread:
        said = [c.text async for c in bread.observe(sys.argv[2]) if c.type == "text:delta"]
        events = [event.name async for event in bread.audit(sys.argv[2])]
        run = await bread.get_run(sys.argv[2])
        report = await bread.check()
        print(said, run.output, len(events), report.problems)
    print([name for name in sys.modules if name.partition(".")[0] in ("pydantic_ai", "openai", "httpx2")])
asyncio.run(main())
"""


@pytest.mark.parametrize("mode", ["sqlite"])
async def test_a_log_is_read_without_the_layer(stub: Stub, provide: Provide, open_bread: OpenBread, store: str) -> None:
    """trap 6: who lists, audits and watches needs no provider's package, and loads none."""
    stub.plays(says("Let me see. ", *calls("tool_fetch", '{"url":"x"}')), says("It says x."))
    async with open_bread(agent_of(provide(), fetch)) as bread:
        run = bread.run("a", "go")
        assert await run == "It says x."
    found = await asyncio.to_thread(
        subprocess.run,
        [sys.executable, "-c", READER, store, run.run_id],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    assert found.stdout.splitlines() == ["['Let me see. ', 'It says x.'] It says x. 6 []", "[]"]
