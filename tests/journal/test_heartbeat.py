"""Who is alive on PostgreSQL: beats by the database's clock, and a worker that knows when it may count as dead."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest

from bread.domain.errors import BreadError
from bread.runtime.heartbeat import Heartbeats
from bread.runtime.postgres_open import migrate
from bread.runtime.postgres_url import Address
from postgres import store_at

from .desk import PATIENCE

EVERY, STALE = 0.05, 2.0


class Heart(Heartbeats):
    """Tells of each beat, and may be held before one."""

    def __init__(self, place: Path, worker: str, *, stale: float = STALE) -> None:
        super().__init__(Address(store_at(place), worker), worker, every=EVERY, stale=stale)
        self.beats = threading.Semaphore(0)
        self.may_beat = threading.Event()
        self.may_beat.set()

    def _beat(self, connection: psycopg.Connection[Any], began: float) -> None:
        self.may_beat.wait(PATIENCE)
        super()._beat(connection, began)
        self.beats.release()

    def await_beats(self, count: int = 2) -> None:
        """The next whole beat, and so what the database said after this was called."""
        while self.beats.acquire(blocking=False):
            pass
        for _ in range(count):
            assert self.beats.acquire(timeout=PATIENCE)


@pytest.fixture
def place(tmp_path: Path) -> Path:
    migrate(Address(store_at(tmp_path), "w_first"))
    return tmp_path


@contextmanager
def beating(*hearts: Heart) -> Iterator[None]:
    try:
        for heart in hearts:
            heart.join()
        yield
    finally:
        for heart in hearts:
            heart.may_beat.set()
            heart.leave()


def age(place: Path, worker: str, by: str = "1 hour") -> None:
    with psycopg.connect(store_at(place), autocommit=True) as connection:
        connection.execute("UPDATE bread_workers SET beat = beat - %s::interval WHERE worker = %s", (by, worker))


def until(heart: Heart, holds: Callable[[], bool]) -> None:
    while not holds():
        heart.await_beats(1)


def test_those_who_beat_are_alive_for_each_other(place: Path) -> None:
    """B67: and for those who only look; whoever leaves is gone at once."""
    one, two, looking = Heart(place, "w_1"), Heart(place, "w_2"), Heart(place, "w_3")
    with beating(one):
        with beating(two):
            one.await_beats()
            assert (one.is_alive("w_1"), one.is_alive("w_2"), two.is_alive("w_1")) == (True, True, True)
            assert one.may_act()
            assert looking.is_alive("w_1")
        until(one, lambda: not one.is_alive("w_2"))
        assert one.is_alive("w_1")
    looking.leave()


def test_whoever_is_silent_for_too_long_is_dead(place: Path) -> None:
    """B67: by the database's clock, whatever the clocks of the machines say."""
    one, two = Heart(place, "w_1"), Heart(place, "w_2")
    with beating(one, two):
        two.may_beat.clear()
        age(place, "w_2", f"{STALE} seconds")
        until(one, lambda: not one.is_alive("w_2"))
        two.may_beat.set()
        until(one, lambda: one.is_alive("w_2"))


def test_a_worker_that_nobody_knows_is_dead_when_somebody_has_looked(place: Path) -> None:
    """B67: not before, since it may have joined a moment ago."""
    one = Heart(place, "w_1")
    with beating(one):
        one.may_beat.clear()
        assert one.is_alive("w_nobody")
        one.may_beat.set()
        until(one, lambda: not one.is_alive("w_nobody"))


def test_who_is_shown_is_looked_for_at_once(place: Path) -> None:
    """B48: without a beat in between: who has joined since the last one lives, who has no row or an old one is dead."""
    one, two, old = Heart(place, "w_1"), Heart(place, "w_2"), Heart(place, "w_3")
    with beating(one):
        one.await_beats()
        one.may_beat.clear()
        with beating(two, old):
            old.may_beat.clear()
            age(place, "w_3")
            assert one.dead_among(["w_1", "w_2", "w_3", "w_nobody"]) == {"w_3", "w_nobody"}


def test_a_worker_whose_beats_do_not_arrive_holds_back(place: Path) -> None:
    """C56: by its own clock, before others count it as dead; and until it has looked at what became of its runs."""
    revived = threading.Event()
    one = Heart(place, "w_1", stale=0.3)
    one.on_revived(revived.set)
    with beating(one):
        one.await_beats()
        one.may_beat.clear()
        while one.may_act():
            assert not revived.wait(0.01)
        assert not one.is_alive("w_1")
        one.may_beat.set()
        assert revived.wait(PATIENCE)
        assert not one.may_act()
        one.revived()
        until(one, one.may_act)


@pytest.mark.parametrize(("every", "stale"), [(0.0, 1.0), (1.0, 1.0), (2.0, 1.0)])
def test_a_rhythm_that_cannot_be_kept_is_refused(tmp_path: Path, every: float, stale: float) -> None:
    with pytest.raises(BreadError, match="heartbeat: expected"):
        Heartbeats(Address(store_at(tmp_path), "w_1"), "w_1", every=every, stale=stale)
