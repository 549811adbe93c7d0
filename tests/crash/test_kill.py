"""Real processes, killed at every point where it could matter, and started again until their run has ended.

The run calls a plain tool and an idempotent one, then asks a person and wants an approval in a turn with a third tool,
and ends with text. A person answers whatever is asked, knows what the world has seen, and repeats an answer that was
not acknowledged.
"""

from __future__ import annotations

import random
import signal
from typing import Any

import pytest

from bread.domain.run_events import ModelResponded, Resumed, ToolCalled, ToolReturned
from bread.domain.run_state import RunState
from crash.processes import Child, Died, Log, Processes
from crash.stores import AT_LEISURE, WITH_NATS
from support import trials

RUN, SESSION = "run_shop", "s1"
SCRIPT = {
    "turns": [
        [{"say": "One moment. "}, {"call": "tool_note", "args": {"what": "a"}}],
        [{"call": "tool_ship", "args": {"what": "b"}}],
        [
            {"say": "May I? "},
            {"call": "human_question", "args": {"what": "c"}},
            {"call": "tool_refund", "args": {"what": "d"}},
            {"call": "tool_note", "args": {"what": "e"}},
        ],
        [{"say": "All of it is done."}],
    ]
}
# How often an unharmed run passes each point. A test below counts them.
HITS = {
    "appended": 11,
    "committed": 11,
    "model_text": 9,
    "model_done": 4,
    "tool_start": 4,
    "in_tool": 4,
    "tool_done": 4,
}
POINTS = [(point, n) for point, count in HITS.items() for n in range(1, count + 1)]
# Each kind of point, and each kind of moment: start, intent, plain and idempotent tool, suspension, answers, end.
QUICK = [
    *(("appended", n) for n in (2, 6, 8, 11)),
    *(("committed", n) for n in (1, 5, 6, 9)),
    ("model_text", 7),
    *(("model_done", n) for n in (3, 4)),
    *(("tool_start", n) for n in (1, 2)),
    *(("in_tool", n) for n in (2, 4)),
    *(("tool_done", n) for n in (1, 2, 3)),
]
# On PostgreSQL: around commits, and one point of each other kind.
QUICK_TOO = [*QUICK[:1], ("appended", 8), ("committed", 1), ("committed", 6), ("model_done", 3), ("in_tool", 2)]
# With NATS: around the commit that asks.
WHERE = dict(zip(WITH_NATS, (QUICK, QUICK_TOO, QUICK_TOO[1:4:2]), strict=True))
ALL = trials(1, 20) > 1


class Story:
    """One run from its start to its end, however often its process dies, and the person who follows it."""

    def __init__(self, processes: Processes, *, stubborn: bool) -> None:
        self.processes = processes
        self.stubborn = stubborn
        self.deaths = 0
        self.given: dict[str, Any] = {}
        self.acknowledged: set[str] = set()
        self.in_doubt: set[tuple[str, int]] = set()
        self.repeated = 0
        self.final: dict[str, int] = {}

    def life(self, kill: tuple[str, int] | None = None, kill_after: str | None = None) -> dict[str, Any] | None:
        """A process that goes on until it dies (None) or the run has ended. Its clock is a day behind the last one."""
        before = self.state()
        child = self.processes.child(open=False, kill=kill, clock=2_000_000_000 - 86_400 * self.deaths)
        try:
            child.open()
            return self._live(child, before, kill_after)
        except Died:
            assert child.gone() == -signal.SIGKILL
            self._died()
            return None

    def state(self) -> RunState:
        return self.processes.log.state(RUN) if self.processes.shared.exists() else RunState(RUN)

    def _live(self, child: Child, before: RunState, kill_after: str | None) -> dict[str, Any]:
        def acknowledged(what: str) -> None:
            if what == kill_after:
                child.kill()
                raise Died

        # What was being done when its process died is taken at once, without any waiting for clocks.
        assert self.processes.log.takers(RUN).count(child.worker) == (1 if before.has_work else 0)
        child.call("start", script=SCRIPT, run=RUN, session=SESSION, idempotency_key="order-17")
        acknowledged("start")
        for checkpoint in [*self.given]:
            if checkpoint not in self.acknowledged:
                self._answer(child, checkpoint)
        while (found := child.call("rest", run=RUN))["status"] == "suspended":
            acknowledged("question")
            for question in found["questions"]:
                self.given.setdefault(question["id"], self._decide(question))
                self._answer(child, question["id"])
                acknowledged(question["kind"])
        story: dict[str, Any] = found
        story["crumbs"] = child.call("seen", run=RUN)
        story["hits"] = child.call("hits")
        child.close()
        return story

    def _decide(self, question: dict[str, Any]) -> Any:
        if question["kind"] == "input":
            return "yes"
        if question["kind"] == "approval":
            return {"approved": True}
        what = question["args"]["what"]
        if self.processes.effects(tool=question["tool"], what=what):
            return {"outcome": "happened", "result": f"I saw {what}"}
        return {"outcome": "retry"} if self.stubborn else {"outcome": "failed", "error": f"{what} did not happen"}

    def _answer(self, child: Child, checkpoint: str) -> None:
        options = {"idempotency_key": f"answer-{checkpoint}", "by": {"kind": "user", "id": "ann"}}
        assert child.call("answer", checkpoint=checkpoint, response=self.given[checkpoint], **options) == ["won"]
        self.acknowledged.add(checkpoint)

    def executions(self, call: str) -> int:
        return len(self.processes.effects(key=f"{RUN}/{call}"))

    def _died(self) -> None:
        """Look at the log as the dead process left it."""
        self.deaths += 1
        log = self.processes.log
        log.assert_sound()
        self.in_doubt |= set(log.unsettled(RUN))
        for event in log.events(RUN, ToolReturned):
            self.final.setdefault(event.call, self.executions(event.call))
            assert self.executions(event.call) == self.final[event.call]
        for call in log.state(RUN).calls:
            if call.status == "called" and call.idempotent:
                self.repeated += self.executions(call.key) > 0

    def ended(self, story: dict[str, Any]) -> None:
        """What must be true at the end, whatever happened on the way."""
        log = self.processes.log
        log.assert_sound()
        assert (story["status"], story["output"]) == ("completed", "All of it is done.")
        # No answer is lost, none is taken twice.
        assert self.acknowledged == self.given.keys()
        assert log.answered(RUN) == self.given
        assert len(log.events(RUN, Resumed)) == len(self.given)
        # A person is asked about exactly those executions whose outcome nobody could know, once each.
        assert sorted(log.doubts(RUN)) == sorted(self.in_doubt)
        # What had an outcome is not done again; what is not idempotent, only if the person said so.
        assert {call: self.executions(call) for call in self.final} == self.final
        for called in log.events(RUN, ToolCalled):
            if not called.idempotent:
                assert self.executions(called.call) == (0 if self._gave_up(log, called.call) else 1), called.tool
        shipped = self.processes.effects(tool="ship")
        assert len(shipped) == 1 + self.repeated
        assert len({effect["key"] for effect in shipped}) == 1
        assert {effect["approved_by"] for effect in self.processes.effects(tool="refund")} <= {"ann"}
        # The model hears every outcome, and answers each turn once.
        assert None not in self.processes.effects(model=3)[-1]["results"].values()
        assert [event.turn for event in log.events(RUN, ModelResponded)] == [0, 1, 2, 3]
        self._replays(log, story["crumbs"])

    def _gave_up(self, log: Log, call: str) -> bool:
        return any(event.call == call and event.verdict == "failed" for event in log.events(RUN, Resumed))

    def _replays(self, log: Log, crumbs: list[dict[str, Any]]) -> None:
        types = [crumb["type"] for crumb in crumbs]
        assert (types[0], types[-1]) == ("agent:run:start", "agent:run:end")
        assert types.count("agent:run:end") == 1
        seqs = [crumb["seq"] for crumb in crumbs]
        assert seqs == sorted(set(seqs))
        asked = [crumb["checkpointId"] for crumb in crumbs if crumb["type"] == "human:required"]
        assert sorted(asked) == sorted(log.checkpoints)
        said = "".join(crumb["text"] for crumb in crumbs if crumb["type"] == "text:delta")
        assert said == "One moment. May I? All of it is done."


def test_an_unharmed_run_passes_each_point_as_often_as_is_killed_there(processes: Processes) -> None:
    """B44, C18: what the kills below are counted from; and 11 commits for 4 turns, 4 tools, 2 answers and a start."""
    story = Story(processes, stubborn=True)
    ended = story.life()
    assert ended is not None
    assert ended["hits"] == HITS
    story.ended(ended)
    assert processes.log.takers(RUN) == []
    processes.assert_quiet()


@pytest.mark.parametrize(
    ("shared", "point", "n"),
    [(kind, *point) for kind in WITH_NATS for point in (POINTS if ALL else WHERE[kind])],
    indirect=["shared"],
)
def test_killed_anywhere_a_run_goes_on_to_its_end(processes: Processes, point: str, n: int) -> None:
    """B44, B48, B67, C18, C35, C56: SIGKILL at each commit, in each tool, in each model call and at the suspension."""
    story = Story(processes, stubborn=n % 2 == 0)
    assert story.life(kill=(point, n)) is None, f"it did not die at {point} {n}"
    ended = story.life()
    assert ended is not None
    story.ended(ended)
    processes.assert_quiet()


@AT_LEISURE
@pytest.mark.parametrize("moment", ["start", "question", "input", "approval"])
def test_what_was_acknowledged_outlives_a_kill_right_then(processes: Processes, moment: str) -> None:
    """B44, B67, C19, C49: killed the moment a caller was told that the run started, asks, or has taken an answer."""
    story = Story(processes, stubborn=True)
    assert story.life(kill_after=moment) is None
    if moment == "question":
        log = processes.log
        assert [event.turn for event in log.events(RUN, ModelResponded)] == [0, 1, 2]
        assert len(log.checkpoints) == 2
    ended = story.life()
    assert ended is not None
    story.ended(ended)


@pytest.mark.parametrize("seed", range(trials(2, 60)))
def test_killed_again_and_again_a_run_still_ends(processes: Processes, seed: int) -> None:
    """B44, B48, B67, C18: recovery itself is killed too, up to five times, at points drawn by chance."""
    chance = random.Random(seed)
    story = Story(processes, stubborn=chance.random() < 0.5)
    ended = story.life(kill=chance.choice(POINTS))
    while ended is None:
        ended = story.life(kill=(chance.choice(list(HITS)), chance.randint(1, 6)) if story.deaths < 5 else None)
    story.ended(ended)
    processes.assert_quiet()


CROWD = [f"run_{n}" for n in range(8)]
ONE_OF_THEM = {
    "turns": [
        [{"say": "Well. "}, {"call": "tool_note", "args": {"what": "a"}}],
        [{"call": "human_question", "args": {"what": "b"}}, {"call": "tool_ship", "args": {"what": "c"}}],
        [{"say": "Done."}],
    ]
}


def follow(processes: Processes, child: Child, given: dict[str, Any]) -> None:
    """Eight runs at once to their ends, as long as the process lives."""
    child.open()
    starts = [child.send("start", script=ONE_OF_THEM, run=run, session=run, idempotency_key=run) for run in CROWD]
    for number in starts:
        child.reply(number)
    open_ = set(CROWD)
    while open_:
        rests = {run: child.send("rest", run=run) for run in sorted(open_)}
        answers = []
        for run, number in rests.items():
            found = child.reply(number)
            if found["status"] != "suspended":
                assert found["status"] == "completed"
                open_.remove(run)
            for question in found["questions"]:
                response: Any = "yes"
                if question["kind"] == "in_doubt":
                    seen = processes.effects(run=run, what=question["args"]["what"])
                    response = {"outcome": "happened", "result": "seen"} if seen else {"outcome": "retry"}
                given.setdefault(question["id"], response)
                answers.append(child.send("answer", checkpoint=question["id"], response=given[question["id"]]))
        for number in answers:
            assert child.reply(number) == ["won"]


@pytest.mark.parametrize("seed", range(trials(2, 40)))
def test_killed_in_a_crowd_of_runs_nothing_is_lost(processes: Processes, seed: int) -> None:
    """B44, B48, B67, C18, C49: commits of several runs share a transaction when the process dies, up to three times."""
    chance = random.Random(seed)
    given: dict[str, Any] = {}
    for life in range(4):
        point = chance.choice(["appended", "committed", "tool_start", "in_tool", "tool_done", "model_done"])
        child = processes.child(open=False, kill=(point, chance.randint(1, 24)) if life < 3 else None)
        try:
            follow(processes, child, given)
            child.close()
            break
        except Died:
            assert child.gone() == -signal.SIGKILL
            processes.log.assert_sound()
    log = processes.log
    log.assert_sound()
    for run in CROWD:
        assert log.state(run).status == "completed"
        assert [event.turn for event in log.events(run, ModelResponded)] == [0, 1, 2]
        assert len(processes.effects(run=run, tool="note")) == 1
        assert len({effect["key"] for effect in processes.effects(run=run, tool="ship")}) == 1
        answered = log.answered(run)
        assert answered == {checkpoint: given[checkpoint] for checkpoint in answered}
    processes.assert_quiet()
