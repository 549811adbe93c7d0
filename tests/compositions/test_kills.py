"""Processes that are killed in the middle of compositions: others take over, and what has finished is not run again."""

from __future__ import annotations

import signal
from collections import Counter
from collections.abc import Callable
from dataclasses import asdict
from functools import partial
from itertools import count
from pathlib import Path
from random import Random
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, seed, settings
from hypothesis import given as for_all
from hypothesis import strategies as st

from bread.domain.run_events import ToolCalled
from compositions.test_random_trees import shapes
from compositions.test_simultaneous import ASKS, NESTED, SAYS, TWICE, check_log, team, together
from compositions.trees import Fails, Shape, answer_to, nodes, numbered, output_of
from crash.processes import Child, Died, Log, Processes, Refusal, processes_on
from crash.stores import ALSO_WITH_NATS, KINDS, shared_at, trials_on
from support import soaking, trials

SHAPES = [
    numbered(shape, first=100 * number)
    for number, shape in enumerate(
        [
            *NESTED,
            Shape("sequence", (SAYS, together(ASKS, SAYS, TWICE), Shape("host", (ASKS, SAYS), rounds=2))),
            Shape("map", (team(SAYS, ASKS),)),
        ]
    )
]
POINTS = ("appended", "committed", "model_done", "tool_start", "in_tool", "tool_done")
HAPPENED = {"outcome": "happened", "result": None}


class Killed:
    """A composition that is played by one process after the other, each of which dies at some point of its work."""

    def __init__(self, processes: Processes, shape: Shape, seed: int) -> None:
        self.processes, self.shape, self.chance = processes, shape, Random(seed)
        self.run, self.deaths = f"run_{seed:06}", 0

    def play(self) -> dict[str, Any]:
        """Gives what came out."""
        while True:
            child = self._child(self.deaths < 4)
            try:
                found = self._go_on(child)
                child.close()
                return found
            except Died:
                child.gone()
                self.deaths += 1

    def _child(self, dies: bool) -> Child:
        kill = [self.chance.choice(POINTS), self.chance.randint(1, 6)] if dies else None
        while True:
            child = self.processes.child(open=False, trees=[asdict(self.shape)], kill=kill)
            try:
                child.open()
                return child
            except Died:  # what it found at its start was enough work to reach the point
                child.gone()
                self.deaths += 1
                kill = None

    def _go_on(self, child: Child) -> dict[str, Any]:
        try:
            child.call("get", run=self.run)
        except Refusal as error:
            if error.code != "RUN_NOT_FOUND":
                raise
            child.call("plant", tree=self.shape.id, run=self.run)
        while True:
            found: dict[str, Any] = child.call("settled", run=self.run)
            if not (questions := found["questions"]):
                return found
            chosen = self.chance.sample(questions, self.chance.randint(1, len(questions)))
            given = [[one["id"], HAPPENED if one["kind"] == "in_doubt" else answer_to(one["args"])] for one in chosen]
            assert {*child.call("answers", given=given)} <= self.outcomes

    @property
    def outcomes(self) -> set[str]:
        """What may become of answers: the questions beside a failure are given up."""
        return {"won"} | ({"CHECKPOINT_NOT_FOUND"} if any(one.fails for one in nodes(self.shape)) else set())


@pytest.mark.timeout(1800)
def test_compositions_survive_kills(processes: Processes) -> None:
    """B67, B68, B88, B108, B121, C12, C47: at any commit and inside tools; the output is that of an undisturbed run, no
    tool ran twice, each run ended once, and each answer was used once."""
    deaths = 0
    for trial in range(wanted := trials_on(processes.shared, 2, 100)):
        shape = SHAPES[trial % len(SHAPES)]
        killed = Killed(processes, shape, trial)
        found = killed.play()
        assert (found["status"], found["output"]) == ("completed", output_of(shape, "go"))
        deaths += killed.deaths
    assert deaths >= wanted
    done = Counter(effect["what"] for effect in processes.effects(tool="count"))
    assert {*done.values()} == {1}
    check_log(processes.log)


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("store", KINDS)
def test_any_composition_survives_kills(tmp_path: Path, store: str) -> None:
    """B67, B68, B83, B88, B108, B121: of whatever shape, with leaves that fail: as if nobody had been killed."""
    trial = count()

    @settings(
        max_examples=trials(3 if store == "sqlite" else 1, 100),
        database=None,
        deadline=None,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much, HealthCheck.data_too_large],
        phases=[Phase.generate],
    )
    @for_all(shapes.filter(lambda shape: any(one.asks for one in nodes(shape))), st.integers(0, 999_999))
    def holds(shape: Shape, chance: int) -> None:
        folder = tmp_path / str(next(trial))
        folder.mkdir()
        with processes_on(shared_at(store, folder), folder) as processes:
            found = Killed(processes, shape, chance).play()
            try:
                wanted = ("completed", output_of(shape, "go"))
            except Fails:
                wanted = ("failed", None)
            assert (found["status"], found["output"]) == wanted
            done = Counter(effect["what"] for effect in processes.effects(tool="count"))
            assert {*done.values()} <= {1}
            check_log(processes.log)

    (holds if soaking() else seed(1)(holds))()


class Taken:
    """A composition of two processes that live at the same time. One dies at some point of its work, or at whatever
    moment the signal reaches it; the other answers as well, and goes on with all of it."""

    def __init__(self, processes: Processes, shape: Shape, seed: int, survivor: Child) -> None:
        self.processes, self.shape, self.chance = processes, shape, Random(seed)
        self.run, self.survivor = f"run_taken_{seed:06}", survivor
        self.at_once = self.chance.random() < 0.5
        kill = None if self.at_once else [self.chance.choice(POINTS), self.chance.randint(1, 8)]
        self.mortal: Child | None = processes.child(trees=[asdict(one) for one in SHAPES], kill=kill)
        self.died = False

    def play(self) -> dict[str, Any]:
        """Gives what came out."""
        self._by_mortal(lambda child: child.call("plant", tree=self.shape.id, run=self.run))
        try:
            self.survivor.call("get", run=self.run)
        except Refusal as error:
            if error.code != "RUN_NOT_FOUND" or not self.died:
                raise
            self.survivor.call("plant", tree=self.shape.id, run=self.run)
        while True:
            found: dict[str, Any] = self.survivor.call("settled", run=self.run)
            if not (questions := found["questions"]):
                self._by_mortal(Child.kill)
                return found
            given = [[one["id"], self._answer(one)] for one in questions]
            self.chance.shuffle(given)
            cut = self.chance.randint(0, len(given)) if self.mortal else 0
            self._by_mortal(partial(self._answered, given=given[:cut]))
            assert {*self.survivor.call("answers", given=given[cut:])} <= {"won"}

    def _answered(self, child: Child, given: list[list[Any]]) -> None:
        number = child.send("answers", given=given)
        if self.at_once and self.chance.random() < 0.5:
            child.signal(signal.SIGKILL)
        assert {*child.reply(number)} <= {"won"}

    def _answer(self, question: dict[str, Any]) -> Any:
        """A person knows what the world has seen."""
        if question["kind"] != "in_doubt":
            return answer_to(question["args"])
        seen = self.processes.effects(tool="count", what=question["args"]["what"])
        return HAPPENED if seen else {"outcome": "retry"}

    def _by_mortal(self, act: Callable[[Child], object]) -> None:
        if self.mortal is not None:
            try:
                act(self.mortal)
            except Died:
                self.mortal.gone()
                self.mortal, self.died = None, True


@ALSO_WITH_NATS
@pytest.mark.timeout(1800)
def test_another_process_takes_over(processes: Processes) -> None:
    """B67, B68, C35, C47, C56: each tool ran once, a person is asked only about what a dead process had begun."""
    survivor = processes.child(trees=[asdict(one) for one in SHAPES])
    died = 0
    for trial in range(count := trials_on(processes.shared, 4, 100)):
        shape = SHAPES[trial % len(SHAPES)]
        taken = Taken(processes, shape, trial, survivor)
        found = taken.play()
        assert (found["status"], found["output"]) == ("completed", output_of(shape, "go"))
        died += taken.died
    assert died > count // 4, "hardly any of them died"
    survivor.close()
    processes.assert_quiet(*processes.children[1:])
    log = processes.log
    check_log(log)
    check_tools(processes, log, survivor)


def check_tools(processes: Processes, log: Log, survivor: Child) -> None:
    done = Counter(effect["what"] for effect in processes.effects(tool="count"))
    called = {
        (run, event.call) for run in log.runs for event in log.events(run, ToolCalled) if event.tool[:4] == "tool"
    }
    assert {*done.values()} == {1}
    assert len(done) == len(called)
    for run in log.runs:
        begun = {one.version: one.meta.worker for one in log.recorded(run, ToolCalled)}
        assert all(begun[version] != survivor.worker for _, version in log.doubts(run))
