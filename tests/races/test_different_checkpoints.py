"""Answers to different checkpoints of one run at the same instant, while another tool of it executes: all win."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from bread import Bread, ModelRequest, define_agent, define_human_tool, define_tool
from bread.domain.messages import ToolMessage
from bread.domain.run_events import ModelResponded, Resumed, RunTaken, ToolCalled, ToolReturned
from bread.testing import ScriptedModel, call, text
from crash.processes import Processes
from crash.stores import ALSO_WITH_NATS, trials_on
from races.door import WON, Door
from support import trials

COUNT = 4  # questions, and as many approvals


def results_of(request: ModelRequest) -> dict[str, Any]:
    return {message.call_id: message.content for message in request.messages if isinstance(message, ToolMessage)}


@pytest.mark.parametrize("ends", ["after", "between"])
async def test_in_one_process_all_win(open_bread: Callable[..., Bread], ends: str) -> None:
    """B29, B62: four answers and four approvals at once while a tool executes that ends after them, or among them."""
    ask = define_human_tool("question", {"type": "object"})
    refunds: list[str] = []
    requests: list[ModelRequest] = []
    inside, let = asyncio.Event(), asyncio.Event()

    @define_tool
    async def slow() -> str:
        inside.set()
        await let.wait()
        return "slowly"

    @define_tool
    async def refund(order: str) -> str:
        refunds.append(order)
        return f"refunded {order}"

    turns = [
        [
            call("tool_slow", id="slow"),
            *(call("human_question", {"n": n}, id=f"q{n}") for n in range(COUNT)),
            *(call("tool_refund", {"order": str(n)}, id=f"r{n}") for n in range(COUNT)),
        ],
        [text("Done.")],
    ]

    def script(request: ModelRequest) -> Any:
        requests.append(request)
        return turns[request.turn]

    permissions = {"ask": ["tool:refund"]}
    clerk = define_agent("clerk", model=ScriptedModel(script), tools=[ask, slow, refund], permissions=permissions)
    async with open_bread(clerk) as bread:
        for _ in range(trials(3, 20)):
            for what in (inside, let, refunds, requests):
                what.clear()
            run_id = await bread.start("clerk", "go")
            await inside.wait()
            page = await bread.list_checkpoints()
            answers = [
                bread.resume(c.id, {"approved": True} if c.kind == "approval" else f"answer {c.args}")
                for c in page.items
            ]
            assert len(answers) == 2 * COUNT
            door = Door(bread, len(answers))
            begun = asyncio.gather(*(answer._start() for answer in answers))
            if ends == "between":
                await door.opened.wait()
                let.set()
            await begun
            door.remove()
            let.set()
            assert await bread.observe(run_id) == "Done."
            assert [request.turn for request in requests] == [0, 1]
            assert results_of(requests[1]) == {
                "slow": "slowly",
                **{f"q{n}": f"answer {{'n': {n}}}" for n in range(COUNT)},
                **{f"r{n}": f"refunded {n}" for n in range(COUNT)},
            }
            assert sorted(refunds) == [str(n) for n in range(COUNT)]
            events = [event.name async for event in bread.audit(run_id)]
            assert (events.count("checkpoint.claimed"), events.count("run.resumed")) == (2 * COUNT, 2 * COUNT)
            assert events.count("run.model_responded") == 2
            assert (await bread.list_checkpoints()).items == []


@ALSO_WITH_NATS
@pytest.mark.parametrize("ends", ["after", "between", "before"])
def test_from_several_processes_all_win(processes: Processes, ends: str) -> None:
    """B29, B62, B64: the owner executes a tool, three other processes answer; the owner performs what was approved.

    The tool ends when all is answered, while it is being answered, or before: then the last answer finds no owner.
    """
    owner, *others = processes.several(4)
    asks = [{"call": "human_question", "args": {"what": f"q{n}"}} for n in range(6)]
    approvals = [{"call": "tool_refund", "args": {"what": f"r{n}"}} for n in range(6)]
    count = trials_on(processes.shared, 3, 20)
    for trial in range(count):
        run, door = f"run_{trial}", f"door {trial}"
        slow = {"call": "tool_slow", "args": {"what": "s", "door": door}}
        script = {"turns": [[slow, *asks, *approvals], [{"say": "Done."}]]}
        owner.call("start", script=script, run=run, session=run)
        owner.wait_for("at_gate", run=run)
        if ends == "before":
            owner.call("let", gate=door)
            assert owner.call("rest", run=run)["status"] == "suspended"
        questions = others[0].call("questions", session=run)
        assert len(questions) == 12
        answers = [
            [q["id"], {"approved": True} if q["kind"] == "approval" else f"answer {q['args']['what']}"]
            for q in questions
        ]
        for child in others:
            child.call("door", count=4)
        sent = [child.send("answers", given=answers[n::3]) for n, child in enumerate(others)]
        for child in others:
            child.wait_for("at_door")
        for child in others:
            child.send("go")
        if ends == "between":
            owner.send("let", gate=door)
        for child, number in zip(others, sent, strict=True):
            assert child.reply(number) == [WON] * 4
        if ends == "after":
            assert owner.call("get", run=run)["status"] == "running"
            owner.call("let", gate=door)
        for child in (owner, *others):
            assert child.call("rest", run=run)["status"] == "completed"
    log = processes.log
    log.assert_sound()
    for trial in range(count):
        run = f"run_{trial}"
        assert len(log.answered(run)) == len(log.events(run, Resumed)) == 12
        assert len(log.events(run, ToolCalled)) == len(log.events(run, ToolReturned)) == 7
        assert [event.turn for event in log.events(run, ModelResponded)] == [0, 1]
        assert log.events(run, RunTaken) == []
        for n in range(6):
            assert len(processes.effects(run=run, tool="refund", what=f"r{n}")) == 1
        [last] = processes.effects(run=run, model=1)
        assert sorted(last["results"].values()) == sorted(
            ["slowly s", *(f"answer q{n}" for n in range(6)), *(f"refunded r{n}" for n in range(6))]
        )
        if ends == "after":
            assert {effect["worker"] for effect in processes.effects(run=run)} == {owner.worker}
    for child in (owner, *others):
        child.close()
    processes.assert_quiet()
