"""Many answers to one checkpoint at the same instant: one of them wins, and what it allows happens once."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Any, Literal

import pytest

from bread import AnswerCheckpoint, Bread, NotFound, StartRun, define_agent, define_human_tool, define_tool
from bread.domain.events import JsonValue
from bread.domain.run_events import RunTaken
from bread.testing import ScriptedModel, call, text
from crash.processes import Child, Processes
from crash.stores import ALSO_WITH_NATS, trials_on
from races.door import LOST, WON, Door, outcome
from support import Mode, read, trials

Kind = Literal["input", "approval"]
KINDS: tuple[Kind, ...] = ("input", "approval")
ANSWERS: dict[Kind, Any] = {"input": "yes", "approval": {"approved": True}}


@pytest.mark.parametrize("kind", KINDS)
async def test_of_fifty_answers_in_one_process_one_wins(open_bread: Callable[..., Bread], kind: Kind) -> None:
    """B62, C1, C2: by three doors at once, on every store; the approved tool runs once, 49 get CHECKPOINT_NOT_FOUND."""
    refunds: list[str] = []

    @define_tool
    async def refund(order: str) -> str:
        refunds.append(order)
        return "done"

    ask = define_human_tool("question", {"type": "object"})
    tool = "human_question" if kind == "input" else "tool_refund"
    args: JsonValue = {"order": "17"} if kind == "approval" else {}
    model = ScriptedModel([[call(tool, args)], [text("Done.")]])
    clerk = define_agent("clerk", model=model, tools=[ask, refund], permissions={"ask": ["tool:refund"]})

    async with open_bread(clerk) as bread:

        def answer(n: int, checkpoint: str) -> Awaitable[Any]:
            match n % 3:
                case 0:
                    return read(bread.resume(checkpoint, ANSWERS[kind]))
                case 1:
                    return bread.send(AnswerCheckpoint(checkpoint_id=checkpoint, response=ANSWERS[kind]))
            return bread.resume(checkpoint, ANSWERS[kind])

        for trial in range(trials(3, 20)):
            question = (await read(bread.run("clerk", "go")))[-1]
            assert question.type == "human:required"
            before = bread._running().journal.writer.commits
            door = Door(bread, 50)
            outcomes = await asyncio.gather(*(outcome(answer(n, question.checkpoint_id)) for n in range(50)))
            door.remove()
            assert Counter(outcomes) == {WON: 1, LOST: 49}
            assert [c.type async for c in bread.observe(question.run_id)][-1] == "agent:run:end"
            events = [event.name async for event in bread.audit(question.run_id)]
            assert (events.count("checkpoint.claimed"), events.count("run.resumed")) == (1, 1)
            assert len(refunds) == (trial + 1 if kind == "approval" else 0)
            assert bread._running().journal.writer.commits - before == (3 if kind == "approval" else 2)


@pytest.mark.parametrize("kind", KINDS)
async def test_without_a_door_one_of_fifty_wins(open_bread: Callable[..., Bread], kind: Kind) -> None:
    """B62, C4: the same as it comes, yes and no in turn: what happens is what the one winner said."""
    refunds: list[str] = []

    @define_tool
    async def refund() -> str:
        refunds.append("")
        return "done"

    ask = define_human_tool("question", {"type": "object"})
    model = ScriptedModel([[call("human_question" if kind == "input" else "tool_refund")], [text("Done.")]])
    clerk = define_agent("clerk", model=model, tools=[ask, refund], permissions={"ask": ["tool:refund"]})
    async with open_bread(clerk) as bread:
        for _ in range(trials(3, 20)):
            refunds.clear()
            question = (await read(bread.run("clerk", "go")))[-1]
            assert question.type == "human:required"
            responses = [{"approved": n % 2 == 0, "comment": str(n)} for n in range(50)]
            outcomes = await asyncio.gather(*(outcome(bread.resume(question.checkpoint_id, r)) for r in responses))
            assert Counter(outcomes) == {WON: 1, LOST: 49}
            winner = responses[outcomes.index(WON)]
            settled = await bread.get_checkpoint(question.checkpoint_id)
            assert settled.response == winner
            assert len(refunds) == (1 if kind == "approval" and winner["approved"] else 0)
            with pytest.raises(NotFound, match=LOST):
                await bread.resume(question.checkpoint_id, {"approved": True})


@pytest.mark.parametrize("mode", ["sqlite", "replay", "postgres"])
async def test_the_same_answer_with_one_key_is_one_answer(open_bread: Callable[..., Bread], mode: Mode) -> None:
    """B56, C2: fifty repetitions of one request with one idempotency key get the same continuation."""
    ask = define_human_tool("question", {"type": "object"})
    clerk = define_agent("clerk", model=ScriptedModel([[call("human_question")], [text("Done.")]]), tools=[ask])
    async with open_bread(clerk) as bread:
        question = (await read(bread.run("clerk", "go")))[-1]
        assert question.type == "human:required"
        door = Door(bread, 50)
        outputs = await asyncio.gather(
            *(bread.resume(question.checkpoint_id, "yes", idempotency_key="k") for _ in range(50))
        )
        door.remove()
        assert outputs == ["Done."] * 50
        other = await outcome(bread.resume(question.checkpoint_id, "no", idempotency_key="k"))
        assert other == "IDEMPOTENCY_CONFLICT"
        events = [event.name async for event in bread.audit(question.run_id)]
        assert (events.count("checkpoint.claimed"), events.count("run.resumed")) == (1, 1)


@pytest.mark.parametrize("kind", KINDS)
def test_of_four_processes_with_thirteen_answers_each_one_wins(processes: Processes, kind: Kind) -> None:
    """B62, B64, C1, C2, C21: all 52 look, find it pending, and claim at once; nobody hears of a lock."""
    children = processes.several(4)
    script = {
        "turns": [
            [{"call": "human_question"} if kind == "input" else {"call": "tool_refund", "args": {"what": "x"}}],
            [{"say": "Done."}],
        ]
    }
    count = trials_on(processes.shared, 5, 20)
    for trial in range(count):
        run, asker = f"run_{trial}", children[trial % 4]
        asker.call("start", script=script, run=run, session=run)
        [question] = asker.call("rest", run=run)["questions"]
        outcomes = race(children, question["id"], ANSWERS[kind], door=trial % 2 == 0)
        assert Counter(outcomes) == {WON: 1, LOST: 51}
        for child in children:
            assert child.call("rest", run=run)["status"] == "completed"
    log = processes.log
    log.assert_sound()
    for trial in range(count):
        run = f"run_{trial}"
        # Nobody took it from its owner; only a detached answer leaves it to whoever comes first.
        assert [event.reason for event in log.events(run, RunTaken)] in ([], ["queued"])
        assert len(processes.effects(run=run, tool="refund")) == (1 if kind == "approval" else 0)
        assert len(processes.effects(run=run, model=1)) == 1
    for child in children:
        child.close()
    processes.assert_quiet()


@ALSO_WITH_NATS
def test_doors_of_every_kind_lead_to_one_claim(processes: Processes) -> None:
    """C2, B62, B64: three shells with `bread checkpoints answer` and two processes of the library, at the same time.

    The log is locked by somebody else until all of them have come that far.
    """
    children = processes.several(2)
    script = {"turns": [[{"call": "tool_refund", "args": {"what": "x"}}], [{"say": "Done."}]]}
    for trial in range(trials(1, 20)):
        run = f"run_{trial}"
        children[0].call("start", script=script, run=run, session=run)
        [question] = children[0].call("rest", run=run)["questions"]
        with processes.shared.write():
            words = ["checkpoints", "answer", question["id"], json.dumps(ANSWERS["approval"]), "--detach"]
            shells = [processes.shell(*words) for _ in range(3)]
            for shell in shells:
                assert shell.stdout is not None
                assert shell.stdout.readline().startswith("bread ")
            for child in children:
                child.call("door", count=13)
            answer = {"checkpoint": question["id"], "response": ANSWERS["approval"], "times": 13}
            sent = [child.send("answer", **answer) for child in children]
            for child in children:
                child.wait_for("at_door")
            for child in children:
                child.call("go")
        outcomes = [code for child, number in zip(children, sent, strict=True) for code in child.reply(number)]
        for shell in shells:
            _, errors = shell.communicate()
            outcomes.append(WON if shell.returncode == 0 else errors.partition(":")[0])
        assert Counter(outcomes) == {WON: 1, LOST: 28}
        assert children[1].call("rest", run=run)["status"] == "completed"
        assert len(processes.effects(run=run, tool="refund")) == 1
    processes.log.assert_sound()
    processes.assert_quiet()


async def test_blank_names_are_refused(open_bread: Callable[..., Bread]) -> None:
    """C35: nothing is started or answered under an id that is none."""
    async with open_bread(define_agent("clerk", model=ScriptedModel([[text("Done.")]]))) as bread:
        refused: list[Awaitable[Any]] = [
            bread.send(StartRun(agent="clerk", input="go", run_id="")),
            bread.send(StartRun(agent="clerk", input="go", run_id="run_")),
            bread.start("clerk", "go", session=""),
            bread.start("clerk", "go", session=" "),
            bread.start("clerk", "go", idempotency_key=""),
            bread.resume("cp_1", "yes", idempotency_key=""),
        ]
        assert [await outcome(one) for one in refused] == ["INPUT_INVALID"] * 6
        assert await outcome(bread.resume("", "yes")) == LOST
        assert (await bread.list_runs()).items == []


def race(children: list[Child], checkpoint: str, response: Any, *, door: bool, times: int = 13) -> list[str]:
    """`times` answers in each process; with `door` they all wait where the claim would be committed."""
    if door:
        for child in children:
            child.call("door", count=times)
    hows = ["send", "iterate", "await", "detach"]
    sent = [
        child.send("answer", checkpoint=checkpoint, response=response, times=times, hows=hows) for child in children
    ]
    if door:
        for child in children:
            child.wait_for("at_door")
        for child in children:
            child.send("go")
    return [code for child, number in zip(children, sent, strict=True) for code in child.reply(number)]


def test_four_processes_run_128_runs_at_once_on_one_store(processes: Processes) -> None:
    """C21, B64: 4 processes x 32 whole runs: no lock error, no run taken from its owner, nothing done twice."""
    children = processes.several(4)
    sent = [child.send("cycles", count=32) for child in children]
    for child, number in zip(children, sent, strict=True):
        assert Counter(child.reply(number)) == {WON: 32}
    log = processes.log
    log.assert_sound()
    assert len(log.runs) == 128
    for run in log.runs:
        assert log.takers(run) == []
        assert [effect["model"] for effect in processes.effects(run=run) if "model" in effect] == [0, 1, 2]
        assert len(processes.effects(run=run, tool="note")) == 1
        assert log.state(run).status == "completed"
    for child in children:
        child.close()
    processes.assert_quiet()
