"""Trees of runs: what an event of one run makes true of the runs around it, in the same commit.

A run that waits for runs is one mechanism for pipelines, supervisors and loops. A parent hears of a child when the
child's activity changes (running, suspended, ended), and tells its own parent when that changes its own. Siblings may
end or be answered at the same instant: the parent's stream orders them, and the one that completes the set goes on.
"""

from __future__ import annotations

from . import checkpoint as questions
from . import pipelines
from . import run as runs
from .checkpoint import DiscardReason, ParentLink
from .children import Child, ChildKind
from .derived import derived_id
from .errors import BreadError
from .events import Event, JsonValue
from .loops import outcome_of
from .run import Cancel, Retry
from .run_events import (
    ChildResumed,
    ChildReturned,
    ChildStarted,
    ChildSuspended,
    Parked,
    QuestionAsked,
    RunCompleted,
    RunFailed,
    RunKind,
    RunRetried,
    RunStarted,
    StepFinished,
    StepStarted,
)
from .run_state import Activity, RunState, evolve
from .streams import Streams


def append(streams: Streams, run: RunState, *events: Event) -> None:
    if events:
        streams.append(run.id, *events, root=run.root, session=run.session)


# --- upwards ----------------------------------------------------------------------------------------------------------


def spread(streams: Streams, run_id: str, was: Activity) -> None:
    """A run that had the activity `was` was appended to: what follows for its steps, its parents and its root."""
    while True:
        advance(streams, run_id)
        run = streams.run(run_id)
        if run.parent is None:
            rest(streams, run_id)
            return
        if run.activity == was:
            if was == "suspended":
                rest(streams, run.root)
            return
        parent = streams.run(run.parent.run)
        if not _tell(streams, parent, run):
            return
        run_id, was = parent.id, parent.activity


def _tell(streams: Streams, parent: RunState, child: RunState) -> bool:
    """The parent's event of a child's new activity. False where nobody listens: the child ends alone."""
    known = parent.child(child.parent.slot) if child.parent is not None else None
    if parent.status != "active" or known is None or known.run != child.id or known.status == "ended":
        return False
    match child.activity:
        case known.status:
            pass  # it was told in this commit
        case "suspended":
            append(streams, parent, ChildSuspended(slot=known.slot, child=child.id))
        case "running":
            append(streams, parent, ChildResumed(slot=known.slot, child=child.id))
        case "ended":
            append(streams, parent, *_returned(streams, parent, known, child))
    return True


def _returned(streams: Streams, parent: RunState, known: Child, child: RunState) -> list[Event]:
    ended = ChildReturned(
        slot=known.slot,
        child=child.id,
        status=child.status if child.status in ("completed", "failed") else "cancelled",
        code=child.code,
        message=child.message,
    )
    if parent.kind == "pipeline":
        if child.status != "completed":
            return [ended]
        return [ended, StepFinished(path=known.slot, output=child.result, agent=child.agent, child=child.id)]
    call = parent.call(known.slot)
    if call is None or call.status != "waiting":
        return [ended]
    told = outcome_of(parent, call, child)
    after = parent
    for event in (ended, *told):
        after = evolve(after, event)
    # What completes the set makes the model due: whoever commits it performs it, unless somebody owns the run already.
    if after.has_work and parent.owner is None:
        ended = ended.model_copy(update={"owner": streams.performer(parent.agent)})
    return [ended, *told]


# --- pipelines --------------------------------------------------------------------------------------------------------


def advance(streams: Streams, run_id: str) -> None:
    """Begin what is due in a pipeline, and end it when there is nothing left; nothing for any other run."""
    run = streams.run(run_id)
    if run.kind != "pipeline" or run.status != "active":
        return
    due = pipelines.due_steps(run)
    for action in due.actions:
        _perform(streams, run_id, action)
    run = streams.run(run_id)
    match due.outcome:
        case pipelines.Done():
            duration = round(max(0.0, (streams.at - run.started) * 1000), 3)
            of = run.steps.last if run.steps else None
            append(streams, run, RunCompleted(of=of, duration_ms=duration))
        case pipelines.Failed() as failed:
            # Everything has settled: what still asks people is given up with the pipeline.
            for child in run.children:
                if child.status == "suspended":
                    _give_up(streams, run_id, child)
            code, message = pipelines.failure_of(failed)
            append(streams, streams.run(run_id), RunFailed(code=code, message=message))


def _give_up(streams: Streams, run_id: str, child: Child) -> None:
    end(streams, child.run, "a sibling failed", "failed")
    run = streams.run(run_id)
    append(streams, run, *_returned(streams, run, child, streams.run(child.run)))


def _perform(streams: Streams, run_id: str, action: pipelines.Action) -> None:
    run = streams.run(run_id)
    match action:
        case pipelines.Open(path=path, kind=kind):
            append(streams, run, StepStarted(path=path, agent=kind))
        case pipelines.Close(path=path, kind=kind, output=output):
            append(streams, run, StepFinished(path=path, output=output, agent=kind))
        case pipelines.Begin():
            child_id = derived_id("run", streams.at, run.id, action.path, run.version)
            started = ChildStarted(slot=action.path, child=child_id, agent=action.agent, kind="pipeline")
            append(streams, run, StepStarted(path=action.path, agent=action.agent, child=child_id), started)
            begin(streams, run_id, started, action.input, max_steps=action.max_steps, skill=action.skill)


# --- downwards --------------------------------------------------------------------------------------------------------


def begin(
    streams: Streams,
    parent_id: str,
    started: ChildStarted,
    input: JsonValue,
    *,
    max_steps: int = 20,
    skill: str | None = None,
    steps: JsonValue = None,
) -> None:
    """RunStarted of a child whose ChildStarted stands on its parent's stream. With `steps` it is a pipeline."""
    parent = streams.run(parent_id)
    kind: RunKind = "agent" if steps is None else "pipeline"
    run = streams.run(started.child)
    if run.status != "new":
        raise BreadError("INTERNAL_ERROR", f"run {started.child} is there already")
    link: ChildKind = started.kind
    streams.append(
        started.child,
        RunStarted(
            kind=kind,
            agent=started.agent,
            input=input,
            session=parent.session,
            root=parent.root,
            started=streams.at,
            owner=streams.performer(started.agent) if kind == "agent" else None,
            max_steps=max_steps,
            parent=ParentLink(run=parent_id, slot=started.slot, kind=link),
            skill=skill,
            steps=steps,
        ),
        root=parent.root,
        session=parent.session,
    )
    if kind == "pipeline":
        spread(streams, started.child, "running")


def end(streams: Streams, run_id: str, reason: str, discard: DiscardReason) -> None:
    """RunCancelled on a run and on everything below it, children first, with their questions discarded.

    Their parents are not told: this is for runs whose parent ends with them, or says so itself.
    """
    for one in reversed(_subtree(streams, run_id)):
        run = streams.run(one)
        for checkpoint_id in run.questions:
            discard_question(streams, run, checkpoint_id, discard)
        append(streams, streams.run(one), *runs.decide(streams.run(one), Cancel(reason)))


def end_children(streams: Streams, run_id: str, reason: str, discard: DiscardReason) -> None:
    """What a run that is about to end leaves behind ends with it."""
    for child in streams.run(run_id).children:
        if child.status != "ended":
            end(streams, child.run, reason, discard)


def _subtree(streams: Streams, run_id: str) -> list[str]:
    """A run and what runs or rests below it, parents before their children."""
    found = [run_id]
    for one in found:
        found += [child.run for child in streams.run(one).children if child.status != "ended"]
    return found


def retry_steps(streams: Streams, run_id: str, command: Retry) -> None:
    """RunRetried on every leaf of a pipeline that failed; the finished ones keep their outputs."""
    run = streams.run(run_id)
    for child in run.children if run.kind == "pipeline" else ():
        failed = streams.run(child.run)
        if child.outcome == "failed" and failed.status == "failed":
            worker = streams.performer(child.agent)
            append(streams, failed, RunRetried(owner=worker, max_steps=command.max_steps))
            append(streams, streams.run(run_id), ChildResumed(slot=child.slot, child=child.run))


# --- questions --------------------------------------------------------------------------------------------------------


def rest(streams: Streams, root_id: str) -> None:
    """When the whole tree rests: QuestionAsked for what has not surfaced, then Parked, on the root's stream.

    Whatever was appended to a tree that rests, Parked comes last: there every stream of it ends.
    """
    root, latest = streams.run(root_id), streams.latest(root_id)
    if root.activity != "suspended" or latest is None or isinstance(latest, Parked):
        return
    pending = pending_of(streams, root)
    asked = [
        QuestionAsked(checkpoint=one, run=None if run == root_id else run)
        for one, run in pending
        if one not in root.surfaced
    ]
    append(streams, root, *asked, Parked(pending=len(pending)))


def pending_of(streams: Streams, root: RunState) -> list[tuple[str, str]]:
    """The open questions of a tree and the runs that ask them."""
    if root.children:
        return list(streams.pending(root.id))
    return [(checkpoint_id, root.id) for checkpoint_id in root.questions]


def surface(streams: Streams, run: RunState, checkpoint_id: str) -> None:
    """A question that is answered, expired or discarded before the tree rests surfaces just ahead of that."""
    root = streams.run(run.root)
    if checkpoint_id not in root.surfaced:
        asked = None if run.is_root else run.id
        append(streams, root, QuestionAsked(checkpoint=checkpoint_id, run=asked))


def discard_question(streams: Streams, run: RunState, checkpoint_id: str, reason: DiscardReason) -> None:
    events = questions.decide(streams.checkpoint(checkpoint_id), questions.Discard(reason))
    if events:
        surface(streams, run, checkpoint_id)
        streams.append(checkpoint_id, *events, root=run.root, session=run.session)
