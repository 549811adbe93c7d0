"""From streams to states: the same functions for live states, reloads, views and audits."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeVar

from ..domain import checkpoint as questions
from ..domain import run_state as runs
from ..domain import session as sessions
from ..domain.checkpoint import CheckpointState
from ..domain.envelope import Recorded
from ..domain.errors import StoreUnreadable
from ..domain.records import changed
from ..domain.run_state import RunState
from ..domain.session import SessionState


def fold_run(run_id: str, events: Iterable[Recorded]) -> RunState:
    """A run's state from its stream. It is the same function for live states, reloads and audits."""
    state = RunState(id=run_id)
    for recorded in events:
        state = runs.evolve(_at(state, recorded), recorded.event)
    return state


def fold_checkpoint(checkpoint_id: str, events: Iterable[Recorded]) -> CheckpointState:
    state = CheckpointState(id=checkpoint_id)
    for recorded in events:
        state = questions.evolve(_at(state, recorded), recorded.event)
    return state


def fold_session(session_id: str, events: Iterable[Recorded]) -> SessionState:
    state = SessionState(id=session_id)
    for recorded in events:
        state = sessions.evolve(_at(state, recorded), recorded.event)
    return state


S = TypeVar("S", RunState, CheckpointState, SessionState)


def _at(state: S, recorded: Recorded) -> S:
    # A stream whose beginning was erased starts at its tombstone; any other gap is damage.
    if recorded.version == state.version + 1:
        return state
    if state.version == 0 and recorded.event.NAME in ("bread.erased", "checkpoint.discarded", "session.deleted"):
        return changed(state, version=recorded.version - 1)
    raise StoreUnreadable(
        "STORE_INVALID",
        f"stream {recorded.stream} lacks version {state.version + 1}: found {recorded.version}",
        stream=recorded.stream,
    )
