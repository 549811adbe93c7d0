"""A process that traces: OpenTelemetry's SDK with spans that stay in memory."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from bread import Agent, Bread
from bread.domain.envelope import Recorded
from scenes import Checked, OpenBread, come, engine_of
from support import Mode


class Spans:
    """The spans that have ended, in the order of their ends."""

    def __init__(self, provider: TracerProvider) -> None:
        self._kept = InMemorySpanExporter()
        provider.add_span_processor(SimpleSpanProcessor(self._kept))
        self.tracer = provider.get_tracer("tests")

    @property
    def all(self) -> list[ReadableSpan]:
        return list(self._kept.get_finished_spans())

    def named(self, name: str) -> list[ReadableSpan]:
        return [span for span in self.all if span.name == name]

    def one(self, name: str) -> ReadableSpan:
        [span] = self.named(name)
        return span

    def segments(self, agent: str = "a") -> list[ReadableSpan]:
        return self.named(f"invoke_agent {agent}")


def attributes(span: ReadableSpan) -> dict[str, Any]:
    return dict(span.attributes or {})


def end(span: ReadableSpan) -> Any:
    """How a segment ended."""
    return attributes(span)["bread.segment.end"]


def text_of(span: ReadableSpan) -> str:
    """The trace context of a span as the log has it."""
    return f"00-{span.context.trace_id:032x}-{span.context.span_id:016x}-{span.context.trace_flags:02x}"


def parent_of(span: ReadableSpan) -> int | None:
    return span.parent.span_id if span.parent else None


def linked(span: ReadableSpan) -> list[int]:
    return [link.context.span_id for link in span.links]


async def at_rest(bread: Bread) -> None:
    """Until no run is performed here any more: each segment has ended."""
    await come(lambda: not engine_of(bread).actors)


async def recorded(bread: Bread, run_id: str) -> list[Recorded]:
    """The stream of a run."""
    return await engine_of(bread).journal.events(run_id)


@pytest.fixture
def spans(monkeypatch: pytest.MonkeyPatch) -> Iterator[Spans]:
    provider = TracerProvider(shutdown_on_exit=False)
    # The API lets a process set its provider once; here it is another one for each test.
    monkeypatch.setattr(trace, "_TRACER_PROVIDER", provider)
    yield Spans(provider)
    provider.shutdown()


@pytest.fixture
def open_bread(mode: Mode, store: str) -> OpenBread:
    """`async with open_bread(agent, ...) as bread:` on the store of this test; backoff of model retries is short."""

    def make(*agents: Agent, **options: Any) -> Bread:
        settings: dict[str, Any] = {"store": store, "always_replay": mode == "replay", "backoff": (0.01,), "grace": 0.0}
        return Checked(agents=agents, **(settings | options))

    return make
