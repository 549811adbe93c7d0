"""For tests, ours and those of users: the domain's streams in memory, and given / when / then for its Deciders.

    given(run_decider("r1"), RunStarted(...)).when(Cancel("enough")).then(RunCancelled(reason="enough"))

    streams = MemoryStreams(at=100.0)
    streams.commit(lambda streams: commits.cancel(streams, "r1", "enough"))

Every event goes through its stored form on the way, so that a value that does not survive is found here.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from typing import Any, Generic, Protocol, Self, TypeVar

from ..domain import checkpoint as questions
from ..domain import run as runs
from ..domain import run_state
from ..domain import session as sessions
from ..domain.checkpoint import CheckpointCommand, CheckpointOpened, CheckpointState
from ..domain.envelope import APP, Meta, Principal, Recorded
from ..domain.errors import BreadError
from ..domain.events import Event, restore, topic_of
from ..domain.records import changed
from ..domain.run import RunCommand
from ..domain.run_events import RunStarted
from ..domain.run_state import RunState
from ..domain.session import SessionCommand, SessionState, session_stream
from ..domain.streams import Streams


class ManualClock:
    """A clock that is set by hand, for `Bread(clock=...)`; `now` is unix seconds."""

    def __init__(self, now: float = 1_000_000.0) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now

    def pass_by(self, **time: float) -> None:
        """Let time pass: `pass_by(days=31)`, with the words of timedelta."""
        self.now += timedelta(**time).total_seconds()


class _Versioned(Protocol):
    @property
    def version(self) -> int: ...


T = TypeVar("T")
S = TypeVar("S")
C = TypeVar("C")
V = TypeVar("V", bound=_Versioned)


def stored(event: Event) -> Event:
    """The event as it comes back from a store; AssertionError if it is another one then."""
    try:
        back = restore(topic_of(event), json.loads(json.dumps(event.model_dump(mode="json"), allow_nan=False)))
    except (BreadError, ValueError) as error:
        raise AssertionError(f"{event!r} cannot be stored: {error}") from error
    if back != event:
        raise AssertionError(f"{event!r} comes back from the store as {back!r}")
    return back


# --- given, when, then ------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Decider(Generic[S, C]):
    """An aggregate as its three parts: where it begins, how it folds, what it decides."""

    initial: S
    evolve: Callable[[S, Event], S]
    decide: Callable[[S, C], Sequence[Event]]


def run_decider(run_id: str = "r1") -> Decider[RunState, RunCommand]:
    """The Decider of a run, for `given`."""
    return Decider(RunState(run_id), run_state.evolve, runs.decide)


def checkpoint_decider(checkpoint_id: str = "c1") -> Decider[CheckpointState, CheckpointCommand]:
    """The Decider of a checkpoint, for `given`."""
    return Decider(CheckpointState(checkpoint_id), questions.evolve, questions.decide)


def session_decider(session_id: str = "s1") -> Decider[SessionState, SessionCommand]:
    """The Decider of a session, for `given`."""
    return Decider(SessionState(session_id), sessions.evolve, sessions.decide)


@dataclass(frozen=True)
class Given(Generic[S, C]):
    """A history; `state` is its fold."""

    decider: Decider[S, C]
    events: tuple[Event, ...]

    @property
    def state(self) -> S:
        state = self.decider.initial
        for event in self.events:
            state = self.decider.evolve(state, stored(event))
        return state

    def when(self, command: C) -> When[S, C]:
        """Decide a command on this history; `then` or `raises` says what is expected of it."""
        try:
            return When(self, tuple(stored(event) for event in self.decider.decide(self.state, command)), None)
        except BreadError as error:
            return When(self, (), error)


@dataclass(frozen=True)
class When(Generic[S, C]):
    """What a command brought about: events, or an error."""

    history: Given[S, C]
    events: tuple[Event, ...]
    error: BreadError | None

    def then(self, *events: Event) -> Given[S, C]:
        """Expect exactly these events; gives the history with them, to go on from."""
        if self.error is not None:
            raise AssertionError(f"expected {list(events)}, but it was refused") from self.error
        if self.events != events:
            raise AssertionError(f"expected {list(events)}, got {list(self.events)}")
        return self.after

    def raises(self, code: str) -> BreadError:
        """Expect an error with this code; gives it."""
        if self.error is None:
            raise AssertionError(f"expected {code}, got {list(self.events)}")
        if self.error.code != code:
            raise AssertionError(f"expected {code}, got {self.error.code}") from self.error
        return self.error

    @property
    def after(self) -> Given[S, C]:
        """The history with whatever came about."""
        return Given(self.history.decider, (*self.history.events, *self.events))


def given(decider: Decider[S, C], *events: Event) -> Given[S, C]:
    """A history to decide commands on."""
    return Given(decider, events)


# --- streams ----------------------------------------------------------------------------------------------------------


class MemoryStreams:
    """`Streams` over dicts, for one thread. `at` is the clock: set it. A decision that raises leaves no trace."""

    def __init__(self, at: float = 0.0) -> None:
        self.at = at
        self._by: Principal = APP
        self._commits = 0
        self._position = 0
        self._streams: dict[str, tuple[Recorded, ...]] = {}
        self._seqs: dict[str, int] = {}
        self._erased: dict[str, int] = {}
        self._runs: dict[str, RunState] = {}
        self._checkpoints: dict[str, CheckpointState] = {}
        self._sessions: dict[str, SessionState] = {}
        self._latest: dict[str, Event] = {}
        self.worker: str | None = None

    # What a decision sees.

    def run(self, run_id: str) -> RunState:
        return self._fold(self._runs, run_id, partial(RunState, run_id), run_state.evolve)

    def checkpoint(self, checkpoint_id: str) -> CheckpointState:
        return self._fold(self._checkpoints, checkpoint_id, partial(CheckpointState, checkpoint_id), questions.evolve)

    def session(self, session_id: str) -> SessionState:
        return self._fold(
            self._sessions, session_stream(session_id), partial(SessionState, session_id), sessions.evolve
        )

    def append(self, stream: str, *events: Event, root: str | None, session: str) -> None:
        recorded = self._streams.get(stream, ())
        version = recorded[-1].version if recorded else 0
        for event in events:
            version += 1
            self._position += 1
            seq = 0
            if root is not None:
                seq = self._seqs[root] = self._seqs.get(root, 0) + 1
                self._latest[root] = event
            meta = Meta(self.at, self._by, f"commit-{self._commits}", seq, root, session)
            recorded = (*recorded, Recorded(stream, version, stored(event), meta, self._position))
        if events:
            self._streams[stream] = recorded

    def erase(self, stream: str, keep: int) -> None:
        recorded = self._streams.get(stream, ())
        gone, self._streams[stream] = recorded[: len(recorded) - keep], recorded[len(recorded) - keep :]
        for root in (one.meta.root for one in gone if one.meta.root is not None):
            self._erased[root] = self._erased.get(root, 0) + 1
        for states in (self._runs, self._checkpoints, self._sessions):
            states.pop(stream, None)

    def latest(self, root: str) -> Event | None:
        return self._latest.get(root)

    def performer(self, agent: str) -> str | None:
        """`worker`, whatever the agent."""
        return self.worker

    def pending(self, root: str) -> list[tuple[str, str]]:
        opened = (
            (stream, first.event)
            for stream, first in self._firsts()
            if isinstance(first.event, CheckpointOpened) and first.event.root == root
        )
        return [(stream, event.run) for stream, event in opened if self.checkpoint(stream).status == "pending"]

    def run_of_key(self, key: str) -> str | None:
        keys = ((run_id, event.key) for run_id, event in self._started() if event.parent is None)
        return next((run_id for run_id, known in keys if known is not None and known.key == key), None)

    def active_roots(self, session_id: str) -> list[str]:
        roots = (run_id for run_id, event in self._started() if event.session == session_id and event.parent is None)
        return [run_id for run_id in roots if not self.run(run_id).has_ended]

    def last_activity(self, session_id: str) -> float:
        events = (one for stream in self._streams.values() for one in stream if one.meta.session == session_id)
        return max((one.meta.at for one in events), default=0.0)

    def owned(self, session_id: str) -> tuple[list[str], list[str]]:
        opened = ((stream, first.event) for stream, first in self._firsts())
        asked = [s for s, event in opened if isinstance(event, CheckpointOpened) and event.session == session_id]
        return [run_id for run_id, event in self._started() if event.session == session_id], asked

    # What a test does.

    def commit(self, decide: Callable[[Streams], T], *, by: Principal = APP) -> T:
        """Run a decision, all or nothing."""
        with self.transaction(by=by):
            return decide(self)

    @contextmanager
    def transaction(self, *, by: Principal = APP) -> Iterator[None]:
        """Everything that is appended inside becomes true together, or, when the block raises, not at all."""
        before = self._content()
        self._by, self._commits, self._latest = by, self._commits + 1, {}
        try:
            yield
        except BaseException:
            self.__dict__.update(before)
            raise

    def copy(self) -> Self:
        """Streams that begin like these and go their own way."""
        copy = type(self)()
        copy.__dict__.update(self._content())
        return copy

    def recorded(self, stream: str) -> tuple[Recorded, ...]:
        """A stream as it is stored."""
        return self._streams.get(stream, ())

    def events(self, stream: str) -> list[Event]:
        """The events of a stream, in order."""
        return [recorded.event for recorded in self.recorded(stream)]

    def everything(self) -> list[Recorded]:
        """All events of all streams, in the order in which they were appended."""
        recorded = (one for stream in self._streams.values() for one in stream)
        return sorted(recorded, key=lambda one: one.position)

    def log(self, root: str) -> list[Recorded]:
        """The events of a root's tree by `seq`; erased ones are missing."""
        return [one for one in self.everything() if one.meta.root == root]

    def streams(self) -> list[str]:
        """The ids of all streams, in the order in which they began."""
        return list(self._streams)

    def last_seq(self, root: str) -> int:
        """The number of the newest event of a root's tree; 0 if there is none."""
        return self._seqs.get(root, 0)

    def verify(self) -> None:
        """AssertionError unless each state is the fold of its stream, and versions and numbers have no gap."""
        for stream, recorded in self._streams.items():
            versions = [one.version for one in recorded]
            if versions != list(range(versions[0], versions[0] + len(versions))):
                raise AssertionError(f"versions of {stream}: {versions}")
        for root, last in self._seqs.items():
            seqs = [one.meta.seq for one in self.log(root)]
            # Numbers differ, none is above the last one: with the erased ones there are as many as that.
            if len(set(seqs)) + self._erased.get(root, 0) != last or seqs[-1] != last:
                raise AssertionError(f"numbers of {root}: {seqs}, the last one given is {last}")
        self._compare(self._runs, RunState, run_state.evolve)
        self._compare(self._checkpoints, CheckpointState, questions.evolve)
        self._compare(self._sessions, SessionState, sessions.evolve)

    def _compare(self, states: dict[str, V], new: Callable[[str], V], evolve: Callable[[V, Event], V]) -> None:
        for stream in list(states):
            start = partial(new, stream.removeprefix(session_stream("")))
            live, replayed = self._fold(states, stream, start, evolve), self._fold({}, stream, start, evolve)
            if live != replayed:
                raise AssertionError(f"the state of {stream} is {live!r}, its stream folds to {replayed!r}")

    def _fold(self, states: dict[str, V], stream: str, new: Callable[[], V], evolve: Callable[[V, Event], V]) -> V:
        recorded = self._streams.get(stream)
        if recorded is None:
            return new()
        state = states.get(stream)
        if state is None:
            # An erased stream begins with its tombstone, whose version is not 1.
            state = changed(new(), version=recorded[0].version - 1)
        missing = recorded[-1].version - state.version
        if missing:
            for one in recorded[len(recorded) - missing :]:
                state = evolve(state, one.event)
            states[stream] = state
        return state

    def _firsts(self) -> Iterator[tuple[str, Recorded]]:
        return ((stream, recorded[0]) for stream, recorded in self._streams.items())

    def _started(self) -> Iterator[tuple[str, RunStarted]]:
        return ((stream, first.event) for stream, first in self._firsts() if isinstance(first.event, RunStarted))

    def _content(self) -> dict[str, Any]:
        return {name: dict(value) if isinstance(value, dict) else value for name, value in self.__dict__.items()}
