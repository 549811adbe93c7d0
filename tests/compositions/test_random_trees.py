"""Compositions that nobody thought of, with people who answer as they like."""

from __future__ import annotations

import asyncio
from itertools import count
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, seed, settings
from hypothesis import given as for_all
from hypothesis import strategies as st

from compositions.play import play
from compositions.trees import Shape, numbered
from postgres import store_at
from support import soaking, trials

leaves = st.builds(
    Shape, st.just("leaf"), asks=st.integers(0, 2), fails=st.sampled_from([False, False, False, False, False, True])
)


def some(parts: st.SearchStrategy[Shape], most: int = 3) -> st.SearchStrategy[tuple[Shape, ...]]:
    return st.lists(parts, min_size=1, max_size=most).map(tuple)


def agents(parts: st.SearchStrategy[Shape]) -> st.SearchStrategy[Shape]:
    """A leaf, or an agent above others: a team of agents, or the host of a loop over any steps."""
    below = parts.filter(lambda part: part.is_agent)
    team = st.builds(Shape, st.just("team"), some(below), asks=st.integers(0, 1), rounds=st.integers(1, 2))
    host = st.builds(Shape, st.just("host"), some(parts, 2), rounds=st.integers(1, 2))
    return st.one_of(leaves, team, host)


def grown(parts: st.SearchStrategy[Shape]) -> st.SearchStrategy[Shape]:
    parallel = st.builds(Shape, st.just("parallel"), some(parts))
    sequence = st.builds(Shape, st.just("sequence"), some(parts))
    mapped = st.builds(Shape, st.just("map"), st.tuples(parts), rounds=st.integers(1, 3))
    return st.one_of(parallel, sequence, mapped, agents(parts))


shapes = st.recursive(leaves, grown, max_leaves=6).map(numbered)


# In several parts, so that all cores have something to do.
@pytest.mark.parametrize("part", range(8))
def test_any_composition_holds(part: int) -> None:
    """B83, B89, B93, B94, B95, B98, B105, B111, B112, B113, B120, C6, C9, C10, C12, C13, C47: the output is what its
    shape says; each question surfaced once and used one answer; each tool ran once; all has ended; what is seen is what
    is replayed."""

    @settings(
        max_examples=trials(20, 6_250),
        database=None,
        deadline=None,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much, HealthCheck.data_too_large],
    )
    @for_all(shapes, st.integers(0, 2**32))
    def holds(shape: Shape, chance: int) -> None:
        asyncio.run(play(shape, chance))

    (holds if soaking() else seed(part)(holds))()


def test_any_composition_holds_on_postgres(tmp_path: Path) -> None:
    """B83, B93, B94, B95, B105, B111, B113, C6, C47: the same, each on a store of its own; no commit is in memory."""
    trial = count()

    @settings(
        max_examples=trials(5, 500),
        database=None,
        deadline=None,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much, HealthCheck.data_too_large],
        phases=[Phase.generate],
    )
    @for_all(shapes.filter(lambda shape: bool(shape.parts)), st.integers(0, 2**32))
    def holds(shape: Shape, chance: int) -> None:
        asyncio.run(play(shape, chance, store=store_at(tmp_path / str(next(trial)))))

    (holds if soaking() else seed(1)(holds))()
