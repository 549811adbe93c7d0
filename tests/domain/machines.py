"""What the machines share: how they are played, and what always holds."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import TypeVar

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    run_state_machine_as_test,
)

from bread.domain.checkpoint import (
    CheckpointClaimed,
    CheckpointDiscarded,
    CheckpointExpired,
    CheckpointKind,
)
from bread.domain.errors import BreadError
from bread.domain.events import Event, JsonValue
from bread.domain.messages import read_turn
from bread.domain.run_events import (
    ModelResponded,
    Parked,
    QuestionAsked,
    Resumed,
    RunCancelled,
    RunCompleted,
    RunFailed,
    ToolCalled,
    ToolFailed,
    ToolReturned,
    Verdict,
)
from bread.domain.run_state import RunState, evolve

from .support import A, B, World, soaking, trials

T = TypeVar("T")
pick = st.integers(0, 5)
door = st.sampled_from([A, B, None])

RESPONSES: dict[CheckpointKind, list[tuple[JsonValue, Verdict]]] = {
    "input": [("yes", "answered"), ({"no": 1}, "answered")],
    "approval": [
        ({"approved": True}, "approved"),
        ({"approved": True, "args": {"edited": 1}}, "approved"),
        ({"approved": False}, "rejected"),
    ],
    "in_doubt": [
        ({"outcome": "happened", "result": 1}, "happened"),
        ({"outcome": "retry"}, "retry"),
        ({"outcome": "failed", "error": "gone"}, "failed"),
    ],
}


def play(machine: type[RuleBasedStateMachine], *, steps: int, examples: int) -> None:
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=trials(examples),
            stateful_step_count=steps,
            derandomize=not soaking(),
            database=None,
            deadline=None,
        ),
    )


def chosen(items: list[T], number: int) -> T:
    return items[number % len(items)]


def code_of(act: Callable[[], object]) -> str | None:
    """The code of the error that an act ends in; None if it does not."""
    try:
        act()
    except BreadError as error:
        return error.code
    return None


# --- what always holds ------------------------------------------------------------------------------------------------


def is_final(event: Event) -> bool:
    """Whether the event is the outcome of its call, as the model will be told."""
    match event:
        case ToolReturned() | ToolFailed():
            return True
        case Resumed(verdict="expired"):
            return event.kind == "input" and event.response is not None
        case Resumed():
            return event.verdict in ("answered", "happened")
    return False


def check_calls(events: list[Event]) -> None:
    """No call dangles or has two outcomes, none is executed that nobody allowed, and ids differ."""
    calls: list[str] = []
    outcomes: Counter[str] = Counter()
    ids: dict[str, str] = {}
    waiting: set[str] = set()
    state = RunState("r")
    for event in events:
        if isinstance(event, ModelResponded | RunCompleted | RunFailed | RunCancelled):
            assert all(outcomes[call] == 1 for call in calls), "a call was left without its outcome"
        state = evolve(state, event)
        match event:
            case ModelResponded():
                calls = [f"{event.base}.{index}" for index, _ in enumerate(read_turn(event.message).calls)]
                waiting = set()
                for call in state.calls:
                    assert ids.setdefault(call.id, call.key) == call.key, "two calls have one id"
            case ToolCalled():
                assert event.call not in waiting, "a call was executed before a person allowed it"
                assert state.owner is not None, "nobody is there who would perform it"
            case Resumed():
                waiting.discard(event.call)
        if is_final(event):
            outcomes[event.call] += 1  # type: ignore[attr-defined]
        waiting |= {call.key for call in state.calls if call.status == "asked"}
    assert all(count == 1 for count in outcomes.values()), "a call has two outcomes"


def check_questions(world: World, root: str) -> None:
    """Each question surfaces at most once and before it is over, is over at most once, and has its answer beside it."""
    surfaced: set[str] = set()
    over: set[str] = set()
    for recorded in world.log(root):
        match recorded.event:
            case QuestionAsked():
                assert recorded.event.checkpoint not in surfaced | over
                surfaced.add(recorded.event.checkpoint)
            case CheckpointClaimed() | CheckpointExpired():
                assert recorded.stream in surfaced - over
                over.add(recorded.stream)
                asked = world.checkpoint(recorded.stream).asked
                answer = world.recorded(asked.run)[recorded.event.resumed - 1]
                assert isinstance(answer.event, Resumed)
                assert answer.event.checkpoint == recorded.stream
                assert answer.meta.commit == recorded.meta.commit
            case CheckpointDiscarded():
                assert recorded.stream in surfaced - over
                over.add(recorded.stream)


def check_rest(world: World, run_id: str) -> None:
    """A run that rests says so with its last event and has no owner; its questions are those that are pending."""
    run = world.run(run_id)
    assert run.has_work or run.owner is None
    if run.status == "active" and not run.has_work:
        assert isinstance(world.events(run_id)[-1], Parked)
        assert run.questions
    _, asked = world.owned(run.session)
    pending = [one for one in asked if world.checkpoint(one).status == "pending"]
    assert sorted(run.questions) == sorted(one for one in pending if world.checkpoint(one).asked.run == run_id)


# --- run --------------------------------------------------------------------------------------------------------------

plan_kinds = st.sampled_from(["run", "run again", "input", "input", "approval", "approval", "timed", "refuse"])
calls = st.lists(st.tuples(plan_kinds, st.sampled_from(["", "x", "x", "y"])), min_size=1, max_size=4)
