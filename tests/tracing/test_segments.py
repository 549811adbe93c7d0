"""Segments: each ends where its run rests, begins in the trace of what began it, and is linked to the one before it."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from typing import Any

import pytest
from opentelemetry import trace

from bread import Supervisor, define_agent
from bread.domain.run_events import ModelResponded, Resumed, RunStarted
from bread.runtime import tracing
from bread.testing import ScriptedModel, call, pause, text
from scenes import DURABLE, ONLY_FILE, OpenBread, agent, ask_first, asking, asks
from tracing.conftest import Spans, at_rest, attributes, end, linked, parent_of, recorded, text_of


async def test_a_segment_ends_at_the_suspension_and_the_next_is_linked_to_it(
    spans: Spans, open_bread: OpenBread
) -> None:
    """Nothing is open while a run waits; what is resumed goes on in the trace of who resumed it."""
    async with open_bread(agent(asks(), asking())) as bread:
        with spans.tracer.start_as_current_span("begins"):
            asked = await ask_first(bread)
        await at_rest(bread)
        [first] = spans.segments()
        assert (end(first), parent_of(first)) == ("suspended", spans.one("begins").context.span_id)
        with spans.tracer.start_as_current_span("answers"):
            await bread.resume(asked.checkpoint_id, "yes")
        await at_rest(bread)
        events = await recorded(bread, asked.run_id)
    _, second = spans.segments()
    assert end(second) == "completed"
    assert linked(second) == [first.context.span_id]
    assert parent_of(second) == spans.one("answers").context.span_id
    assert second.context.trace_id == spans.one("answers").context.trace_id != first.context.trace_id
    named = {type(one.event): one.meta.traceparent for one in events}
    turns = [one.meta.traceparent for one in events if isinstance(one.event, ModelResponded)]
    assert named[RunStarted] == text_of(spans.one("begins"))
    assert named[Resumed] == text_of(spans.one("answers"))
    assert turns == [text_of(first), text_of(second)]


@DURABLE
async def test_the_link_survives_the_process(spans: Spans, open_bread: OpenBread) -> None:
    """Another process resumes: it reads from the log which segment came before."""
    a = agent(asks(), asking())
    async with open_bread(a) as bread:
        asked = await ask_first(bread)
        await at_rest(bread)
    async with open_bread(a) as later:
        await later.resume(asked.checkpoint_id, "yes")
        await at_rest(later)
    first, second = spans.segments()
    assert (linked(first), linked(second)) == ([], [first.context.span_id])
    assert attributes(first)["bread.run.id"] == attributes(second)["bread.run.id"] == asked.run_id


@ONLY_FILE
async def test_a_delegate_goes_on_in_the_trace_of_who_delegated(spans: Spans, open_bread: OpenBread) -> None:
    boss = define_agent(
        "boss",
        model=ScriptedModel([[call("core_delegate", {"agentId": "a", "input": "go"})], [text("Done.")]]),
        supervisor=Supervisor(agents=["a"]),
    )
    async with open_bread(boss, agent([[text("Hi.")]])) as bread:
        assert await bread.run("boss", "go") == "Done."
        await at_rest(bread)
    [child] = spans.segments("a")
    before = spans.segments("boss")[0]
    assert parent_of(child) == before.context.span_id
    assert {span.context.trace_id for span in spans.all} == {before.context.trace_id}


@ONLY_FILE
async def test_a_run_that_is_given_back(spans: Spans, open_bread: OpenBread) -> None:
    """Its segment ends with the process, and says so."""
    begun, never = asyncio.Event(), asyncio.Event()

    async def begin() -> None:
        begun.set()
        await never.wait()

    async with open_bread(agent([[pause(begin), text("Never.")]])) as bread:
        await bread.start("a", "go")
        await begun.wait()
    [segment] = spans.segments()
    assert end(segment) == "given_back"


def test_a_request_names_its_trace() -> None:
    """W3C: what is no traceparent says nothing, and of a later version only what it shares is read."""
    good = f"00-{'a' * 32}-{'b' * 16}-01"
    found: dict[str, Any] = {}
    for header in (good, f"01-{'a' * 32}-{'b' * 16}-01-more", f"00-{'0' * 32}-{'b' * 16}-01", f"ff{good[2:]}", "x", ""):
        with tracing.request_of(header):
            found[header] = tracing.traceparent()
    assert [*found.values()] == [good, good, None, None, None, None]
    assert tracing.traceparent() is None


@ONLY_FILE
async def test_without_a_provider_nothing_happens(open_bread: OpenBread, monkeypatch: pytest.MonkeyPatch) -> None:
    """The log names no trace, and a run costs no span."""
    monkeypatch.setattr(trace, "_TRACER_PROVIDER", None)
    async with open_bread(agent([[text("Hi.")]])) as bread:
        handle = bread.run("a", "go")
        assert await handle == "Hi."
        events = await recorded(bread, str(handle.run_id))
    assert {one.meta.traceparent for one in events} == {None}


def test_the_api_is_not_imported_by_bread() -> None:
    """Whoever traces has imported it; nobody else pays for it."""
    program = (
        "import asyncio, sys\n"
        "from bread import Bread, define_agent\n"
        "from bread.testing import ScriptedModel, text\n"
        "async def main():\n"
        "    a = define_agent('a', model=ScriptedModel([[text('Hi.')]]))\n"
        "    async with Bread(agents=[a], store='memory://') as bread:\n"
        "        assert await bread.run('a', 'go') == 'Hi.'\n"
        "asyncio.run(main())\n"
        "print([name for name in sys.modules if name.startswith('opentelemetry')])\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
