"""What is read of loops: from the log of the run that composed them, found by a small index."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, get_args

from ..domain.envelope import Recorded
from ..domain.errors import NotFound
from ..domain.run_events import IterationFinished, IterationStarted, LoopFinished, LoopStarted, RunStarted
from ..projections.lists import Iteration, LoopStatus, LoopView, Page
from ..projections.render import moment
from .reads import check_choice
from .sql import Cursor, select_events

_LOOPS = "topic = 'run.loop_started@1'"


def get_loop(cursor: Cursor, loop_id: str) -> LoopView:
    """A loop with its iterations; LOOP_NOT_FOUND. Its id names the run that composed it."""
    run_id = f"run_{loop_id.removeprefix('loop_').rpartition('_')[0]}"
    events = select_events(cursor, "originator_id = ?", (run_id,))
    for view in _loops_of(events):
        if view.id == loop_id:
            return view
    raise NotFound("LOOP_NOT_FOUND", f"no loop {loop_id!r}", loop_id=loop_id)


def list_loops(cursor: Cursor, *, tenant: str, filters: dict[str, str], limit: int, after: int) -> Page[LoopView]:
    """Loops in the order in which they were begun. `filters`: agent, session, status."""
    check_choice("status", filters.get("status"), get_args(LoopStatus))
    found: list[LoopView] = []
    position = last = after
    while len(found) <= limit:
        page = select_events(cursor, f"{_LOOPS} AND rowid > ?", (position,), limit + 1)
        for recorded in page:
            position = recorded.position
            view = _listed(cursor, recorded)
            if recorded.meta.tenant == tenant and view is not None and _fits(view, filters):
                found.append(view)
                if len(found) > limit:
                    return Page(found[:limit], str(last))
                last = position
        if len(page) <= limit:
            break
    return Page(found)


def _listed(cursor: Cursor, recorded: Recorded) -> LoopView | None:
    events = select_events(cursor, "originator_id = ?", (recorded.stream,))
    opened = recorded.event
    wanted = opened.loop if isinstance(opened, LoopStarted) else None
    return next((view for view in _loops_of(events) if view.id == wanted), None)


def _fits(view: LoopView, filters: dict[str, str]) -> bool:
    given = {"agent": view.agent_id, "session": view.session_id, "status": view.status}
    return all(given[name] == value for name, value in filters.items())


def _loops_of(events: list[Recorded]) -> Iterator[LoopView]:
    if not events or not isinstance(started := events[0].event, RunStarted):
        return
    common = {"run_id": events[0].stream, "root_run_id": started.root, "session_id": started.session}
    loops: dict[str, dict[str, Any]] = {}
    for recorded in events:
        match recorded.event:
            case LoopStarted() as event:
                loops[event.loop] = common | {
                    "id": event.loop,
                    "agent_id": started.agent,
                    "status": "running",
                    "max_iterations": event.max_iterations,
                    "steps": event.steps,
                    "input": event.input,
                    "created_at": moment(recorded.meta.at),
                    "iterations": {},
                }
            case IterationStarted() as event if event.loop in loops:
                begun = Iteration(iteration=event.iteration, child_run_id=event.child)
                loops[event.loop]["iterations"][event.iteration] = begun
            case IterationFinished() as event if event.loop in loops:
                iterations = loops[event.loop]["iterations"]
                done = iterations.get(event.iteration) or Iteration(iteration=event.iteration, child_run_id="")
                iterations[event.iteration] = done.model_copy(update={"output": event.output})
            case LoopFinished() as event if event.loop in loops:
                loops[event.loop] |= {"status": event.status, "result": event.result}
    for fields in loops.values():
        yield LoopView(**fields | {"iterations": tuple(fields["iterations"].values())})
