"""From events to crumbs: what each event shows, and that nothing else shows anything."""

from __future__ import annotations

from typing import Any

import jsonschema
import pytest

from bread.domain.checkpoint import (
    CheckpointClaimed,
    CheckpointDiscarded,
    CheckpointExpired,
    CheckpointOpened,
    ParentLink,
)
from bread.domain.envelope import Principal
from bread.domain.errors import StoreUnreadable
from bread.domain.events import Erased, known_events
from bread.domain.messages import Message, ToolUse, native_message
from bread.domain.ports import Logged
from bread.domain.run_events import (
    ChildResumed,
    ChildSuspended,
    ModelFailed,
    ModelResponded,
    OutputRejected,
    Parked,
    QuestionAsked,
    Resumed,
    RunCancelled,
    RunCompleted,
    RunFailed,
    RunRetried,
    RunStarted,
    RunTaken,
    Suspended,
    ToolCalled,
    ToolFailed,
    ToolReturned,
)
from bread.domain.session import SessionDeleted, SessionOpened, SessionTagged
from bread.projections.render import RunInfo, crumb_of, leaf_name, run_of, subject_of
from observers.entries import ASKED, CHILD, COMMON, COMPOSED, COMPOSED_SILENT, ROOT, held, logged

INFO = RunInfo(ROOT, ROOT, "s1", "publisher")
ANN = Principal(kind="user", id="ann")
TURN = ModelResponded(
    turn=0,
    base=1,
    message=native_message(
        "Hi \U0001f680.", (ToolUse("tool_fetch", {"url": "a"}), ToolUse("tool_fetch", {"url": "b"}))
    ),
    model="scripted",
    finish="tool_calls",
)
QUESTION = CheckpointOpened(
    kind="input",
    run=ROOT,
    root=ROOT,
    session="s1",
    agent="publisher",
    call="1.0",
    tool="sign",
    tool_call_id="call_1",
    args={"url": "x"},
    args_schema={"type": "object"},
    response_schema={"type": "boolean"},
    prompt="Sign x?",
    skill="law",
    parent=ParentLink(run="run_p", slot="2/0", kind="pipeline"),
    deadline=1_000_000.5,
)
CALLED: dict[str, Any] = {"call": "1.1", "tool": "tool_fetch", "tool_call_id": "call_2"}
RESUMED: dict[str, Any] = {
    "call": "1.0",
    "tool": "human_sign",
    "tool_call_id": "call_1",
    "checkpoint": ASKED,
    "kind": "input",
    "verdict": "answered",
}
SHOWN: list[tuple[Logged, dict[str, Any]]] = [
    (
        logged(RunStarted(agent="publisher", input={"topic": None}, session="s1", root=ROOT, started=1.0, skill="law")),
        {"type": "agent:run:start", "input": {"topic": None}, "skill": "law"},
    ),
    (logged(TURN), {"type": "text:delta", "text": "Hi \U0001f680.", "base": 1, "offset": 0}),
    (
        logged(ModelFailed(turn=0, base=1, attempt=2, code="MODEL_ERROR", message="busy", retry_at=1060.25)),
        {
            "type": "model:retry",
            "attempt": 2,
            "code": "MODEL_ERROR",
            "message": "busy",
            "retryAt": "1970-01-01T00:17:40.250000Z",
        },
    ),
    (
        logged(OutputRejected(turn=0, attempt=1, message="(answer): not JSON")),
        {
            "type": "model:retry",
            "attempt": 1,
            "code": "OUTPUT_INVALID",
            "message": "(answer): not JSON",
            "retryAt": "1970-01-01T00:16:40Z",
        },
    ),
    (
        logged(ToolCalled(**CALLED, args_at=2), subject=held(TURN)),
        {"type": "tool:call", "toolCallId": "call_2", "toolName": "fetch", "args": {"url": "b"}},
    ),
    (
        logged(
            ToolCalled(**CALLED, args_at=4),
            subject=held(Resumed(**RESUMED | {"response": {"approved": True, "args": {"url": "edited"}}}), version=4),
        ),
        {"type": "tool:call", "toolCallId": "call_2", "toolName": "fetch", "args": {"url": "edited"}},
    ),
    (
        logged(ToolReturned(**CALLED, result=[1, "\U0001f680"], duration_ms=1.5)),
        {
            "type": "tool:result",
            "toolCallId": "call_2",
            "toolName": "fetch",
            "result": [1, "\U0001f680"],
            "durationMs": 1.5,
        },
    ),
    (
        logged(ToolFailed(**CALLED, code="TOOL_ERROR", message="ValueError: no", duration_ms=2.5)),
        {
            "type": "tool:error",
            "toolCallId": "call_2",
            "toolName": "fetch",
            "code": "TOOL_ERROR",
            "message": "ValueError: no",
            "durationMs": 2.5,
        },
    ),
    (
        logged(ToolFailed(**CALLED, code="FORBIDDEN", message="no")),
        {"type": "tool:error", "toolCallId": "call_2", "toolName": "fetch", "code": "FORBIDDEN", "message": "no"},
    ),
    (
        logged(QuestionAsked(checkpoint=ASKED), subject=held(QUESTION, ASKED, 1)),
        {
            "type": "human:required",
            "checkpointId": ASKED,
            "kind": "input",
            "toolName": "sign",
            "toolCallId": "call_1",
            "args": {"url": "x"},
            "schema": {"type": "object"},
            "responseSchema": {"type": "boolean"},
            "prompt": "Sign x?",
            "deadline": "1970-01-12T13:46:40.500000Z",
            "skill": "law",
            "parent": {"runId": "run_p", "rootRunId": ROOT, "slot": "2/0", "kind": "pipeline"},
        },
    ),
    (
        logged(Resumed(**RESUMED, response={"ok": 1}), by=ANN),
        {
            "type": "human:resumed",
            "checkpointId": ASKED,
            "kind": "input",
            "toolName": "sign",
            "toolCallId": "call_1",
            "verdict": "answered",
            "response": {"ok": 1},
            "author": "ann",
        },
    ),
    (
        logged(Resumed(**RESUMED | {"kind": "approval", "tool": "tool_fetch", "verdict": "rejected"}, response={})),
        {
            "type": "human:resumed",
            "checkpointId": ASKED,
            "kind": "approval",
            "toolName": "fetch",
            "toolCallId": "call_1",
            "verdict": "rejected",
            "response": {},
        },
    ),
    (
        logged(CheckpointDiscarded(reason="cancelled"), ASKED, subject=held(QUESTION, ASKED, 1)),
        {"type": "human:discarded", "checkpointId": ASKED, "reason": "cancelled"},
    ),
    (logged(RunRetried(owner="w")), {"type": "agent:run:retry"}),
    (
        logged(RunCompleted(of=2, duration_ms=3.5), subject=held(TURN)),
        {"type": "agent:run:end", "output": "Hi \U0001f680.", "durationMs": 3.5},
    ),
    (logged(RunCompleted(output={"a": [1]})), {"type": "agent:run:end", "output": {"a": [1]}, "durationMs": 0.0}),
    (
        logged(RunFailed(code="STEPS_EXCEEDED", message="too many")),
        {"type": "agent:error", "code": "STEPS_EXCEEDED", "message": "too many"},
    ),
    (
        logged(RunCancelled(reason="enough")),
        {"type": "agent:error", "code": "RUN_CANCELLED", "message": "enough"},
    ),
    (
        logged(Erased()),
        {"type": "agent:error", "code": "SESSION_DELETED", "message": "the session was deleted"},
    ),
    *COMPOSED,
]

SILENT: list[Logged] = [
    logged(Suspended(call="1.0", checkpoint=ASKED, kind="input")),
    logged(Parked(pending=1)),
    logged(RunTaken(owner="w", reason="queued")),
    logged(QUESTION, ASKED),
    logged(CheckpointClaimed(claim="c", resumed=3), ASKED),
    logged(CheckpointExpired(resumed=3), ASKED),
    logged(SessionOpened(session="s1"), "session:s1"),
    logged(SessionTagged(tags={"a": "b"}), "session:s1"),
    logged(SessionDeleted(), "session:s1"),
    logged(ChildSuspended(slot="0", child=CHILD)),
    logged(ChildResumed(slot="0", child=CHILD)),
]

SOMETIMES_SILENT: list[Logged] = [
    logged(TURN.model_copy(update={"message": native_message("", (ToolUse("tool_fetch", {}),))})),
    logged(ModelFailed(turn=0, base=1, attempt=4, code="MODEL_ERROR", message="busy")),  # RunFailed follows
    logged(OutputRejected(turn=0, attempt=3, message="(answer): not JSON", last=True)),  # RunFailed follows
    logged(Erased(), ASKED),  # the tombstone of a question: its CheckpointDiscarded shows what there is to show
]


def event_id(value: Any) -> str:
    return type(value.recorded.event).__name__ if isinstance(value, Logged) else ""


@pytest.mark.parametrize(("entry", "expected"), SHOWN, ids=[f"{n}-{event_id(e)}" for n, (e, _) in enumerate(SHOWN)])
def test_b122_an_event_that_shows_something_is_this_crumb(entry: Logged, expected: dict[str, Any]) -> None:
    crumb = crumb_of(entry, INFO, "9~1:3")
    assert crumb is not None
    assert crumb.wire() == COMMON | expected
    assert run_of(entry) == ROOT


@pytest.mark.parametrize("entry", [*SILENT, *SOMETIMES_SILENT], ids=event_id)
def test_b122_any_other_event_shows_nothing(entry: Logged) -> None:
    assert crumb_of(entry, INFO, "9") is None


def test_b122_what_has_frames_of_its_own_is_not_framed_again() -> None:
    for entry in COMPOSED_SILENT:
        assert crumb_of(entry, INFO, "9") is None


def test_b122_every_event_has_a_crumb_or_is_silent_on_purpose() -> None:
    ours = {cls for cls in known_events().values() if cls.__module__.startswith("bread.domain.")}
    shown = {type(entry.recorded.event) for entry, _ in SHOWN}
    silent = {type(entry.recorded.event) for entry in SILENT}
    assert shown | silent == ours
    assert not shown & silent


def test_b134_an_event_belongs_to_the_run_that_it_shows_something_of() -> None:
    of_child = QUESTION.model_copy(update={"run": CHILD})
    assert run_of(logged(QuestionAsked(checkpoint=ASKED, run=CHILD))) == CHILD
    assert run_of(logged(CheckpointDiscarded(reason="failed"), ASKED, subject=held(of_child, ASKED, 1))) == CHILD
    assert run_of(logged(CheckpointDiscarded(reason="deleted"), ASKED)) == ROOT  # its question is erased
    assert run_of(logged(ToolReturned(**CALLED, result=1), CHILD)) == CHILD
    for entry in (logged(QUESTION, ASKED), logged(Erased(), ASKED), logged(Erased(), CHILD)):
        assert run_of(entry) is None
    assert run_of(logged(SessionDeleted(), "session:s1")) is None


def test_b122_a_payload_stands_once_and_is_found() -> None:
    """subject_of says where; without it the crumb shows what is left."""
    assert subject_of(logged(QuestionAsked(checkpoint=ASKED)).recorded) == (ASKED, 1)
    assert subject_of(logged(CheckpointDiscarded(reason="failed"), ASKED).recorded) == (ASKED, 1)
    assert subject_of(logged(ToolCalled(**CALLED, args_at=2)).recorded) == (ROOT, 2)
    assert subject_of(logged(RunCompleted(of=2)).recorded) == (ROOT, 2)
    assert subject_of(logged(RunCompleted(output=1)).recorded) is None
    assert subject_of(logged(TURN).recorded) is None
    assert crumb_of(logged(QuestionAsked(checkpoint=ASKED)), INFO, "9") is None
    without = crumb_of(logged(ToolCalled(**CALLED, args_at=2)), INFO, "9")
    assert without is not None
    assert without.wire() == COMMON | {
        "cursor": "9",
        "type": "tool:call",
        "toolCallId": "call_2",
        "toolName": "fetch",
        "args": None,
    }


def test_b38_b47_the_schema_of_an_answer_is_shown_for_every_kind() -> None:
    for kind, answer in (("approval", {"approved": True}), ("in_doubt", {"outcome": "retry"})):
        question = QUESTION.model_copy(update={"kind": kind, "response_schema": None, "deadline": None})
        crumb = crumb_of(logged(QuestionAsked(checkpoint=ASKED), subject=held(question, ASKED, 1)), INFO, "9")
        assert crumb is not None
        wire = crumb.wire()
        jsonschema.validate(answer, wire["responseSchema"])
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate({"outcome": "whatever", "approved": 1}, wire["responseSchema"])
        assert wire["kind"] == kind
        assert "deadline" not in wire


def test_b129_who_did_it_is_shown_of_people_only() -> None:
    for kind in ("app", "system"):
        crumb = crumb_of(logged(Resumed(**RESUMED, response=1), by=Principal(kind=kind, id="x")), INFO, "9")
        assert crumb is not None
        assert "author" not in crumb.wire()


def test_b13_the_scope_of_a_tool_is_not_shown() -> None:
    assert leaf_name("tool_fetch") == "fetch"
    assert leaf_name("tool_fetch_all") == "fetch_all"
    assert leaf_name("human_sign") == "sign"
    assert leaf_name("nonsense") == "nonsense"
    assert leaf_name("x_") == "x_"


def test_a_turn_of_another_model_layer_is_refused_not_guessed() -> None:
    """C43: a codec that this release does not know is a loud error."""
    unknown = TURN.model_copy(update={"message": Message(codec="other/9", data={})})
    with pytest.raises(StoreUnreadable, match="EVENT_UNKNOWN"):
        crumb_of(logged(unknown), INFO, "9")
