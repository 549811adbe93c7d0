"""What is in a trace: segments, model calls, tools; with names, kinds, attributes, parents; and nothing secret."""

from __future__ import annotations

from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.trace import SpanKind, StatusCode

from bread import RunStopped, define_model, define_tool
from bread.domain.run_events import ModelResponded
from bread.runtime import tracing
from bread.testing import call, fail, text
from scenes import ONLY_FILE, OpenBread, agent, ask_first, asking
from tracing.conftest import Spans, at_rest, attributes, end, parent_of, recorded

SECRET = "tulip-4711"  # what must not be exported


@define_tool
def in_thread(n: int) -> int:
    with trace.get_tracer("user").start_as_current_span("own work"):
        return n


@define_tool
async def awaited(n: int) -> int:
    with trace.get_tracer("user").start_as_current_span("own work"):
        return n


@define_tool
async def streamed(n: int) -> AsyncIterator[int]:
    with trace.get_tracer("user").start_as_current_span("own work"):
        yield n


TOOLS = [in_thread, awaited, streamed]


@pytest.mark.parametrize("name", ["in_thread", "awaited", "streamed"])
async def test_a_run_with_a_tool(spans: Spans, open_bread: OpenBread, name: str) -> None:
    """The conventions' names, kinds and attributes; a tool's own spans are below the tool's, whatever kind it is."""
    a = agent([[text("So. "), call(f"tool_{name}", {"n": 1})], [text("Done.")]], *TOOLS)
    async with open_bread(a) as bread:
        handle = bread.run("a", "go", session="s")
        assert await handle == "Done."
        await at_rest(bread)
    assert [span.name for span in spans.all] == [
        "chat scripted",
        "own work",
        f"execute_tool {name}",
        "chat scripted",
        "invoke_agent a",
    ]
    first, own, tool, second, segment = spans.all
    assert {span.kind for span in (first, second)} == {SpanKind.CLIENT}
    assert {span.kind for span in (tool, segment)} == {SpanKind.INTERNAL}
    assert segment.parent is None
    assert [parent_of(span) for span in (first, tool, second)] == [segment.context.span_id] * 3
    assert parent_of(own) == tool.context.span_id
    assert {span.context.trace_id for span in spans.all} == {segment.context.trace_id}
    common = {
        "gen_ai.agent.name": "a",
        "gen_ai.conversation.id": "s",
        "bread.run.id": handle.run_id,
        "bread.root_run.id": handle.run_id,
        "bread.session.id": "s",
    }
    model = {"gen_ai.provider.name": "scripted", "gen_ai.request.model": "scripted"}
    assert attributes(segment) == common | model | {
        "gen_ai.operation.name": "invoke_agent",
        "gen_ai.agent.id": "a",
        "bread.segment.end": "completed",
    }
    assert attributes(tool) == common | {
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": name,
        "gen_ai.tool.call.id": "call_0_0",
        "gen_ai.tool.type": "function",
    }
    assert attributes(first).items() >= (common | model | {"gen_ai.operation.name": "chat"}).items()
    assert attributes(second)["gen_ai.response.finish_reasons"] == ("stop",)
    assert {span.status.status_code for span in spans.all} == {StatusCode.UNSET}


@ONLY_FILE
async def test_tokens_are_those_of_the_turn(spans: Spans, open_bread: OpenBread) -> None:
    async with open_bread(agent([[text("one two three")]])) as bread:
        handle = bread.run("a", "go")
        await handle
        turns = [
            one.event for one in await recorded(bread, str(handle.run_id)) if isinstance(one.event, ModelResponded)
        ]
        await at_rest(bread)
    [usage] = [turn.usage for turn in turns]
    assert usage is not None
    found = attributes(spans.one("chat scripted"))
    assert found["gen_ai.usage.input_tokens"] == usage.input_tokens
    assert found["gen_ai.usage.output_tokens"] == usage.output_tokens > 0


@ONLY_FILE
async def test_a_model_that_fails(spans: Spans, open_bread: OpenBread) -> None:
    """Each attempt is a span of its own, with its error; so has the segment in which the run failed."""
    async with open_bread(agent([[fail(SECRET, times=1), text("Hi.")], [fail("no", times=99)]])) as bread:
        assert await bread.run("a", "go") == "Hi."
        await at_rest(bread)
    failed, done = spans.named("chat scripted")
    assert (failed.status.status_code, done.status.status_code) == (StatusCode.ERROR, StatusCode.UNSET)
    assert attributes(failed)["error.type"] == "bread.domain.ports.ModelError"
    assert failed.status.description is None
    [segment] = spans.segments()
    assert segment.status.status_code == StatusCode.UNSET


@ONLY_FILE
async def test_a_run_that_fails(spans: Spans, open_bread: OpenBread) -> None:
    async with open_bread(agent([[fail("no", times=99, retryable=False)]])) as bread:
        with pytest.raises(RunStopped):
            await bread.run("a", "go")
        await at_rest(bread)
    [segment] = spans.segments()
    assert segment.status.status_code == StatusCode.ERROR
    assert attributes(segment)["error.type"] == "MODEL_ERROR"
    assert end(segment) == "failed"


class Odd(Exception):
    """An error of the tools' own."""


@define_tool
def explode(error: str) -> str:
    raise Odd(SECRET) if error == "odd" else ValueError(SECRET)


@ONLY_FILE
@pytest.mark.parametrize(("error", "kind"), [("odd", f"{Odd.__module__}.Odd"), ("plain", "ValueError")])
async def test_a_tool_that_raises(spans: Spans, open_bread: OpenBread, error: str, kind: str) -> None:
    """The class of the error and not its words; the run goes on, and so its segment is no error."""
    a = agent([[call("tool_explode", {"error": error})], [text("Oh.")]], explode)
    async with open_bread(a) as bread:
        assert await bread.run("a", "go") == "Oh."
        await at_rest(bread)
    tool = spans.one("execute_tool explode")
    assert (tool.status.status_code, tool.status.description, tool.events) == (StatusCode.ERROR, None, ())
    assert attributes(tool)["error.type"] == kind
    assert spans.segments()[0].status.status_code == StatusCode.UNSET


async def test_nothing_secret_is_exported(spans: Spans, open_bread: OpenBread) -> None:
    """Not from the prompt, the input, an argument, a result, an answer, an error, or what the model says."""

    @define_tool
    def tell(what: str) -> str:
        return what

    script = [
        [text(SECRET), call("tool_tell", {"what": SECRET})],
        [call("tool_explode", {"error": "plain"})],
        [call("human_ask", {"what": SECRET})],
        [fail(SECRET, times=1), text(SECRET)],
    ]
    async with open_bread(agent(script, tell, explode, asking(), prompt=SECRET)) as bread:
        asked = await ask_first(bread, input=SECRET)
        assert await bread.resume(asked.checkpoint_id, SECRET, comment=SECRET) == SECRET
        await at_rest(bread)
        log = [str(event.data) async for event in bread.audit(asked.run_id)]
    assert sum(SECRET in event for event in log) >= 8
    assert len(spans.all) == 9
    assert [span.name for span in spans.all if SECRET in span.to_json()] == []


@pytest.mark.parametrize(
    ("name", "provider", "model"),
    [
        ("openai:gpt-5", "openai", "gpt-5"),
        ("google:gemini-3-pro", "gcp.gemini", "gemini-3-pro"),
        ("bedrock:us.amazon.nova-pro-v1:0", "aws.bedrock", "us.amazon.nova-pro-v1:0"),
        ("gateway/openai:gpt-5", "openai", "gpt-5"),
        ("deepseek:deepseek-chat", "deepseek", "deepseek-chat"),
    ],
)
def test_providers_are_called_as_the_conventions_call_them(name: str, provider: str, model: str) -> None:
    actor: Any = SimpleNamespace(agent=SimpleNamespace(model=define_model(name)))
    assert tracing._model(actor) == {"gen_ai.provider.name": provider, "gen_ai.request.model": model}
