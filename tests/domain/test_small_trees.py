"""Every interleaving of two workers and the people who answer on small compositions.

The order of siblings' turns, answers, failures, takes and cancels is the whole of what may differ; each state that can
be reached is looked at, and each commit that leads from one to another.
"""

from __future__ import annotations

from collections import Counter, deque
from typing import Any

import pytest

from bread.domain.checkpoint import CheckpointClaimed, CheckpointDiscarded
from bread.domain.errors import NotFound
from bread.domain.run_events import (
    ChildResumed,
    ChildReturned,
    ChildStarted,
    ChildSuspended,
    ModelResponded,
    Parked,
    QuestionAsked,
    Resumed,
    RunCancelled,
    RunCompleted,
    RunFailed,
    RunStarted,
    StepFinished,
)
from bread.domain.run_state import RunState
from compositions.trees import Shape, nodes, numbered

from .support import B, World, soaking
from .trees_kit import ROOT, WORKERS, SmallTree, Way, fingerprint, questions_of, surfaced, tree_of, was_retried

ENDS = (RunCompleted, RunFailed, RunCancelled)
ONCE, TWICE, SAYS = Shape("leaf", asks=1), Shape("leaf", asks=2), Shape("leaf")


def parallel(*parts: Shape) -> Shape:
    return Shape("parallel", parts)


def sequence(*parts: Shape) -> Shape:
    return Shape("sequence", parts)


def team(*parts: Shape, asks: int = 0, rounds: int = 1) -> Shape:
    return Shape("team", parts, asks=asks, rounds=rounds)


def small(shape: Shape, *, fails: bool = False, **more: Any) -> SmallTree:
    """`fails`: any leaf may, as it happens."""
    shape = numbered(shape)
    leaves = frozenset(one.id for one in nodes(shape) if one.kind == "leaf")
    return SmallTree(shape, may_fail=leaves if fails else frozenset(), **more)


# A parallel in a parallel, a team of a team, and what is between them. `least`: as many states are expected.
TREES = {
    "branches": small(parallel(TWICE, parallel(TWICE, ONCE)), fails=True, least=900),
    "branches-any": small(parallel(ONCE, parallel(ONCE, ONCE)), fails=True, cancels="any", least=500),
    "retried": small(parallel(ONCE, parallel(ONCE, ONCE)), fails=True, retries=True, least=1_400),
    "teams": small(team(TWICE, team(TWICE, ONCE)), fails=True, least=900),
    "team-in-branch": small(parallel(ONCE, team(ONCE, ONCE, asks=1)), fails=True, least=1_000),
    "map": small(sequence(parallel(ONCE, ONCE, ONCE), Shape("map", (ONCE,), rounds=1)), least=450),
    "loop-in-branch": small(parallel(ONCE, Shape("host", (parallel(ONCE, ONCE),), rounds=2)), least=600),
}
if soaking():
    TREES |= {
        "branches-twice": small(parallel(TWICE, parallel(TWICE, TWICE)), fails=True, cancels="any", least=3_500),
        "branches-with-tools": small(parallel(TWICE, parallel(TWICE, TWICE)), tools=True, fails=True, least=2_700),
        "more-branches": small(parallel(TWICE, parallel(TWICE, ONCE), TWICE), fails=True, cancels="any", least=36_000),
        "branches-retried": small(parallel(TWICE, parallel(ONCE, TWICE)), fails=True, retries=True, least=4_900),
        "teams-with-tools": small(team(ONCE, team(ONCE, ONCE, asks=1), asks=1), tools=True, fails=True, least=4_700),
        "teams-any": small(team(ONCE, team(ONCE, ONCE, asks=1)), fails=True, cancels="any", least=3_800),
        "chain": small(team(team(team(TWICE, asks=1), ONCE, asks=1)), fails=True, cancels="any", least=2_500),
        "team-in-branch-any": small(
            parallel(ONCE, team(ONCE, ONCE, asks=1)), fails=True, cancels="any", tools=True, least=5_400
        ),
        "team-twice": small(parallel(ONCE, team(ONCE, ONCE, asks=1, rounds=2)), tools=True, least=2_400),
        "map-of-two-at-once": small(
            sequence(parallel(ONCE, ONCE, ONCE), Shape("map", (sequence(ONCE, ONCE),), rounds=2)), least=2_100
        ),
        "loops": small(parallel(TWICE, Shape("host", (parallel(TWICE, ONCE), ONCE), rounds=3)), least=2_500),
    }


# --- what holds in every state ----------------------------------------------------------------------------------------


def check(tree: SmallTree, world: World, ways: list[Way]) -> None:
    world.verify()
    family = tree_of(world)
    for role, run in family.items():
        check_run(world, role, run)
    check_questions(world, family)
    check_rest(world, family)
    check_end(tree, world, family)
    check_lateness(world, family)
    if not any(way.kind == "alone" for way in ways):
        assert family[""].has_ended or any(way.kind == "person" for way in ways), "nobody can go on"


def check_run(world: World, role: str, run: RunState) -> None:
    """A parent knows how its children are, and everything happened to a run once."""
    events = world.events(run.id)
    assert run.has_work or run.owner is None
    for child in run.children:
        below = world.run(child.run)
        assert child.status == below.activity, (role, child)
        if child.status == "ended" and run.status != "cancelled":
            assert child.outcome == below.status, (role, child)
    if run.has_ended:
        assert all(child.status == "ended" for child in run.children)
        assert run.questions == ()
    assert sum(isinstance(event, RunStarted) for event in events) == 1
    times = 1 + was_retried(world)
    assert sum(isinstance(event, ENDS) for event in events) <= times
    if run.has_ended:
        assert isinstance(events[-1], ENDS)
    turns = [event.turn for event in events if isinstance(event, ModelResponded)]
    assert turns == [*range(len(turns))]
    counts = Counter(
        (type(event), event.slot) for event in events if isinstance(event, ChildStarted | ChildReturned)
    ) + Counter((StepFinished, event.path) for event in events if isinstance(event, StepFinished))
    assert all(count <= times for count in counts.values()), counts


def check_questions(world: World, family: dict[str, RunState]) -> None:
    """Each is asked for by one run, surfaces once and before it is settled, and is used once."""
    asked: Counter[str] = Counter()
    settled: Counter[str] = Counter()
    for one in world.log(ROOT):
        match one.event:
            case QuestionAsked():
                asked[one.event.checkpoint] += 1
                assert one.event.checkpoint not in settled
                assert world.checkpoint(one.event.checkpoint).asked.run == (one.event.run or ROOT)
            case Resumed():
                assert asked[one.event.checkpoint] == 1
                settled[one.event.checkpoint] += 1
            case CheckpointDiscarded():
                assert asked[one.stream] == 1
                settled[one.stream] += 1
    waiting = {checkpoint for run in family.values() for checkpoint in run.questions}
    for checkpoint in questions_of(world):
        status = world.checkpoint(checkpoint).status
        assert (status == "pending") == (checkpoint in waiting), checkpoint
        assert settled[checkpoint] == (status != "pending")
        assert asked[checkpoint] <= 1
        claims = [event for event in world.events(checkpoint) if isinstance(event, CheckpointClaimed)]
        assert len(claims) == (status == "claimed")


def check_rest(world: World, family: dict[str, RunState]) -> None:
    """Parked is the last event where nothing of the tree has anything to do, and only there; all questions are out."""
    root, latest = family[""], world.log(ROOT)[-1]
    rests = root.status == "active" and not any(run.has_work for run in family.values())
    assert (root.activity == "suspended") == rests
    assert isinstance(latest.event, Parked) == rests
    if rests:
        pending = world.pending(ROOT)
        assert pending
        assert latest.event == Parked(pending=len(pending))
        assert {checkpoint for checkpoint, _ in pending} <= surfaced(world)


def check_end(tree: SmallTree, world: World, family: dict[str, RunState]) -> None:
    """What has ended leaves nothing behind, and its output is what its shape says of what has become of its leaves."""
    root = family[""]
    if not root.has_ended:
        return
    assert all(run.has_ended for run in family.values())
    assert world.pending(ROOT) == []
    last = world.log(ROOT)[-1]
    assert last.stream == ROOT
    assert isinstance(last.event, ENDS)
    if root.status != "cancelled":
        lost = {run.agent for run in family.values() if run.status in ("failed", "cancelled")}
        expected = tree.expected(lost)
        assert (root.status, root.result) == (("completed", expected) if expected is not None else ("failed", None))


def check_lateness(world: World, family: dict[str, RunState]) -> None:
    """Who comes too late, or owns nothing, changes nothing anywhere in the tree."""
    late = world.copy()
    for checkpoint in questions_of(world):
        if world.checkpoint(checkpoint).status != "pending":
            with pytest.raises(NotFound):
                late.answer(checkpoint, "late", worker=B, claim="second")
    for run in family.values():
        for worker in WORKERS:
            if run.owner != worker:
                late.respond(run_id=run.id, owner=worker, base=run.base, text="late")
            if not run.has_work:
                assert not late.take(worker, run.owner, run_id=run.id)
        for key in {call.key for call in run.calls if call.status in ("waiting", "settled")}:
            late.returns(key, "late", run_id=run.id)
        if run.has_ended:
            late.cancel(run.id)
    assert len(late.everything()) == len(world.everything())


# --- what holds of every commit ---------------------------------------------------------------------------------------


def check_way(before: World, way: Way) -> None:
    new = way.world.log(ROOT)[len(before.log(ROOT)) :]
    assert new, "a way that leads nowhere"
    check_owners(before, way, {one.stream for one in new})
    rests = isinstance(new[-1].event, Parked)
    settled = {one.event.checkpoint for one in new if isinstance(one.event, Resumed)}
    settled |= {one.stream for one in new if isinstance(one.event, CheckpointDiscarded)}
    for one in new:
        if isinstance(one.event, QuestionAsked):
            assert rests or one.event.checkpoint in settled, "a question surfaced although the tree goes on"
        assert not isinstance(one.event, Parked) or one is new[-1]
    # A level is told of a child at most once in a commit.
    told = Counter((one.stream, one.event.slot) for one in new if isinstance(one.event, ChildSuspended | ChildResumed))
    assert all(count == 1 for count in told.values())


def check_owners(before: World, way: Way, touched: set[str]) -> None:
    """What becomes due is performed by whoever commits it, at once: its actor is there, or begins with this commit."""
    for stream in touched:
        run = way.world.run(stream)
        if run.id != stream or not run.has_work:
            continue
        was = before.run(stream)
        if not was.has_work or run.owner != was.owner:
            assert run.owner == way.worker
            assert run.owner is None or run.epoch > was.version


@pytest.mark.parametrize("name", TREES)
def test_no_order_of_things_breaks_a_small_tree(name: str) -> None:
    """B83, B89, B90, B93, B94, B95, B103, B105, B106, B111, B112, B113; C6, C7, C9, C10, C12, C13, C47, C60."""
    tree = TREES[name]
    begin = tree.begin()
    numbers = {fingerprint(begin): 0}
    queue, before, ended = deque([(0, begin)]), [set[int]()], set[int]()
    while queue:
        number, world = queue.popleft()
        ways = list(tree.ways(world))
        check(tree, world, ways)
        if world.run(ROOT).has_ended:
            ended.add(number)
        for way in ways:
            key = fingerprint(way.world)
            if key not in numbers:
                numbers[key] = len(numbers)
                before.append(set())
                queue.append((numbers[key], way.world))
            check_way(world, way)
            if way.kind != "fault":
                before[numbers[key]].add(number)
    # From everywhere workers and people bring it to its end, whatever was done to it on the way.
    reached, todo = set(ended), list(ended)
    while todo:
        earlier = before[todo.pop()] - reached
        reached |= earlier
        todo += earlier
    assert reached == {*range(len(numbers))}
    assert len(numbers) >= tree.least
