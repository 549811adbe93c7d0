"""Traces: OpenTelemetry spans of run segments, model calls and tools, where the process has a tracer provider.

A segment is what one process performs of a run without a pause: from its actor's start until the run rests, ends or is
somebody else's. It is a child of what began it, whose trace context stands on the event that named the owner, and is
linked to the segment before it, which may be days old and of another process. Names and attributes are those of the
GenAI conventions. No text of a prompt, an argument, a result, an answer or an error is in a span.
"""

from __future__ import annotations

import re
import sys
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import (
    AbstractAsyncContextManager,
    AbstractContextManager,
    asynccontextmanager,
    contextmanager,
    nullcontext,
    suppress,
)
from contextvars import ContextVar
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Any, Literal

from ..domain.envelope import Recorded
from ..domain.errors import BreadError
from ..domain.ports import TurnDone
from ..domain.run_events import (
    ChildResumed,
    ChildReturned,
    ChildSuspended,
    ModelFailed,
    ModelResponded,
    RunTaken,
    Suspended,
    ToolFailed,
    ToolReturned,
)
from ..domain.run_state import Call, RunState
from ..projections.render import leaf_name

if TYPE_CHECKING:
    from opentelemetry.trace import Link, Span, SpanContext, Tracer, TracerProvider

    from .actor import Actor

SegmentEnd = Literal[
    "suspended", "waiting", "completed", "failed", "cancelled", "deleted", "given_back", "taken", "stopped"
]

# The conventions' names of providers that the model layer calls by another one.
PROVIDERS = {
    "azure": "azure.ai.openai",
    "bedrock": "aws.bedrock",
    "google": "gcp.gemini",
    "google-cloud": "gcp.vertex_ai",
    "mistral": "mistral_ai",
    "moonshotai": "moonshot_ai",
    "openai-chat": "openai",
    "openai-responses": "openai",
    "xai": "x_ai",
}
# Of a version after 00 only what it shares with 00 is read, as W3C asks.
_TRACEPARENT = re.compile(r"(?!ff)([0-9a-f]{2})-(?!0{32})([0-9a-f]{32})-(?!0{16})([0-9a-f]{16})-([0-9a-f]{2})(-.*)?")
_PERFORMED = (ModelResponded, ModelFailed, ToolReturned, ToolFailed, Suspended)
_TOLD = (ChildSuspended, ChildResumed, ChildReturned)

_of_request: ContextVar[str | None] = ContextVar("bread_traceparent", default=None)
_known: tuple[TracerProvider, Tracer] | None = None


def _tracer() -> Tracer | None:
    """The tracer of bread; None where nobody traces."""
    global _known
    # Who has set a provider has imported the API: bread never imports it for itself.
    if "opentelemetry.trace" not in sys.modules:
        return None
    from opentelemetry import trace

    provider = trace.get_tracer_provider()
    if isinstance(provider, trace.ProxyTracerProvider | trace.NoOpTracerProvider):
        return None
    if _known is None or _known[0] is not provider:
        _known = provider, provider.get_tracer("bread", _version())
    return _known[1]


def _version() -> str | None:
    with suppress(PackageNotFoundError):
        return version("bread-runtime")
    return None


# --- trace contexts as text -------------------------------------------------------------------------------------------


def traceparent() -> str | None:
    """The trace context here and now (W3C): that of the current span, else that of the request that is served."""
    if "opentelemetry.trace" in sys.modules:
        from opentelemetry import trace

        here = trace.get_current_span().get_span_context()
        if here.is_valid:
            return f"00-{here.trace_id:032x}-{here.span_id:016x}-{here.trace_flags:02x}"
    return _of_request.get()


@contextmanager
def request_of(header: str) -> Iterator[None]:
    """While a request is served that says to which trace it belongs; what is no traceparent says nothing."""
    parts = _parts(header)
    token = _of_request.set(None if parts is None else "00-{}-{}-{}".format(*parts))
    try:
        yield
    finally:
        _of_request.reset(token)


def _parts(text: str | None) -> tuple[str, str, str] | None:
    """Trace id, span id and flags, as hexadecimal digits."""
    found = _TRACEPARENT.fullmatch(text.strip()) if text else None
    if found is None or (found[1] == "00" and found[5]):
        return None
    return found[2], found[3], found[4]


def _span_context(text: str | None) -> SpanContext | None:
    parts = _parts(text)
    if parts is None:
        return None
    from opentelemetry.trace import SpanContext, TraceFlags

    trace_id, span_id, flags = (int(part, 16) for part in parts)
    return SpanContext(trace_id, span_id, is_remote=True, trace_flags=TraceFlags(flags))


# --- segments ---------------------------------------------------------------------------------------------------------


def segment(actor: Actor, events: Sequence[Recorded]) -> AbstractAsyncContextManager[None]:
    """The span of what an actor performs, in a task of its own; `events` are those that are at hand."""
    tracer = _tracer()
    return nullcontext() if tracer is None else _segment(tracer, actor, events)


@asynccontextmanager
async def _segment(tracer: Tracer, actor: Actor, events: Sequence[Recorded]) -> AsyncIterator[None]:
    from opentelemetry import context, trace

    if events[0].version != 1:
        with suppress(BreadError):  # then what is at hand has to do
            events = await actor.engine.journal.events(actor.run_id)
    parent, links = _origin(events, actor.state.epoch)
    span = tracer.start_span(
        f"invoke_agent {actor.agent.id}",
        context.Context() if parent is None else trace.set_span_in_context(trace.NonRecordingSpan(parent)),
        attributes=_attributes(actor, "invoke_agent") | _model(actor) | {"gen_ai.agent.id": actor.agent.id},
        links=links,
    )
    # For the rest of the task, and for the tasks that it starts: their commits name the segment.
    context.attach(trace.set_span_in_context(span))
    try:
        yield
    except Exception as error:  # not for being cancelled: the process stops, and gives the run back
        _failed(span, _name_of(error))
        raise
    finally:
        state = actor.state
        span.set_attribute("bread.segment.end", end_of(state, actor.engine.worker))
        if state.status == "failed":
            _failed(span, state.code or "AGENT_ERROR")
        span.end()


def _origin(events: Sequence[Recorded], epoch: int) -> tuple[SpanContext | None, list[Link]]:
    """The span that began a segment, and a link to the segment before it, from the stream up to the owner's naming."""
    from opentelemetry.trace import Link

    begun_by, before = (_span_context(text) for text in origin(events, epoch))
    return begun_by, [] if before is None or before == begun_by else [Link(before)]


def origin(events: Sequence[Recorded], epoch: int) -> tuple[str | None, str | None]:
    """The traceparents of what began the segment of the owner who was named at `epoch`, and of the segment before."""
    earlier = [recorded for recorded in events if recorded.version <= epoch]
    # What a child's end makes true here was committed in the segment of the child.
    told = {recorded.meta.commit for recorded in earlier if isinstance(recorded.event, _TOLD)}
    performed = {
        recorded.version: recorded.meta.traceparent
        for recorded in earlier
        if isinstance(recorded.event, _PERFORMED)
        and recorded.meta.by.kind == "system"
        and recorded.meta.commit not in told
    }
    before = next((text for text in reversed(performed.values()) if text), None)
    # Who takes a run goes on with what somebody else has begun.
    begun = next((recorded for recorded in reversed(earlier) if not isinstance(recorded.event, RunTaken)), None)
    return (None if begun is None or begun.version in performed else begun.meta.traceparent), before


def end_of(state: RunState, worker: str) -> SegmentEnd:
    """How a segment of `worker` ended; `stopped`: the process let go of the run, and the log does not say so."""
    if state.status in ("completed", "failed", "cancelled"):
        return state.status
    if state.status == "erased":
        return "deleted"
    if state.owner not in (None, worker):
        return "taken"
    if state.has_work:
        return "given_back" if state.owner is None else "stopped"
    return "waiting" if state.activity == "running" else "suspended"


# --- model calls and tools --------------------------------------------------------------------------------------------


def model_call(actor: Actor) -> AbstractContextManager[Span | None]:
    """The span of one model attempt, current while it lasts."""
    tracer = _tracer()
    if tracer is None:
        return nullcontext()
    model = _model(actor)
    return _span(tracer, f"chat {model['gen_ai.request.model']}", "CLIENT", _attributes(actor, "chat") | model)


def answered(span: Span | None, done: TurnDone) -> None:
    """The model has answered: tokens, and why it stopped."""
    if span is None:
        return
    span.set_attribute("gen_ai.response.finish_reasons", [done.finish])
    if done.usage is not None:
        span.set_attribute("gen_ai.usage.input_tokens", done.usage.input_tokens)
        span.set_attribute("gen_ai.usage.output_tokens", done.usage.output_tokens)


def tool_call(actor: Actor, call: Call) -> AbstractContextManager[Span | None]:
    """The span of one execution of a tool, current for what the tool does."""
    tracer = _tracer()
    if tracer is None:
        return nullcontext()
    name = leaf_name(call.tool)
    tool = {"gen_ai.tool.name": name, "gen_ai.tool.call.id": call.id, "gen_ai.tool.type": "function"}
    return _span(tracer, f"execute_tool {name}", "INTERNAL", _attributes(actor, "execute_tool") | tool)


@contextmanager
def _span(
    tracer: Tracer, name: str, kind: Literal["CLIENT", "INTERNAL"], attributes: Mapping[str, Any]
) -> Iterator[Span]:
    from opentelemetry import trace

    span = tracer.start_span(name, kind=trace.SpanKind[kind], attributes=attributes)
    try:
        with trace.use_span(span, record_exception=False, set_status_on_exception=False):
            yield span
    except BaseException as error:
        _failed(span, _name_of(error))
        raise
    finally:
        span.end()


def _failed(span: Span, kind: str) -> None:
    # Without a description: what an error says may be a secret.
    from opentelemetry.trace import StatusCode

    span.set_status(StatusCode.ERROR)
    span.set_attribute("error.type", kind)


def _name_of(error: BaseException) -> str:
    cls = type(error)
    return cls.__qualname__ if cls.__module__ == "builtins" else f"{cls.__module__}.{cls.__qualname__}"


def _attributes(actor: Actor, operation: str) -> dict[str, Any]:
    return {
        "gen_ai.operation.name": operation,
        "gen_ai.agent.name": actor.agent.id,
        "gen_ai.conversation.id": actor.state.session,
        "bread.run.id": actor.run_id,
        "bread.root_run.id": actor.root,
        "bread.session.id": actor.state.session,
    }


def _model(actor: Actor) -> dict[str, Any]:
    """`google:gemini-3-pro` is gemini-3-pro of gcp.gemini; a model without a provider in its name is its own."""
    provider, _, model = actor.agent.model.name.removeprefix("gateway/").partition(":")
    return {"gen_ai.provider.name": PROVIDERS.get(provider, provider), "gen_ai.request.model": model or provider}
