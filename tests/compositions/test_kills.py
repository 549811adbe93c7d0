"""Processes that are killed in the middle of compositions: others take over, and what has finished is not run again."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict
from random import Random
from typing import Any

import pytest

from compositions.test_simultaneous import ASKS, NESTED, SAYS, TWICE, check_log, team, together
from compositions.trees import Shape, answer_to, numbered, output_of
from crash.processes import Child, Died, Processes, Refusal
from support import trials

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
        kill = [self.chance.choice(POINTS), self.chance.randint(1, 12)] if dies else None
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
            assert {*child.call("answers", given=given)} == {"won"}


@pytest.mark.timeout(1800)
def test_compositions_survive_kills(processes: Processes) -> None:
    """B67, B68, B88, B108, B121, C12, C47: at any commit and inside tools; the output is that of an undisturbed run, no
    tool ran twice, each run ended once, and each answer was used once."""
    deaths = 0
    for trial in range(trials(4, 100)):
        shape = SHAPES[trial % len(SHAPES)]
        killed = Killed(processes, shape, trial)
        found = killed.play()
        assert (found["status"], found["output"]) == ("completed", output_of(shape, "go"))
        deaths += killed.deaths
    assert deaths > trials(4, 100)
    done = Counter(effect["what"] for effect in processes.effects(tool="count"))
    assert {*done.values()} == {1}
    check_log(processes.log)
