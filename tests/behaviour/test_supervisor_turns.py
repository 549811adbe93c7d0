"""Turns of supervisors that ask in several ways at once, and turns one after the other."""

from __future__ import annotations

import asyncio
from itertools import permutations
from typing import Any

import pytest

from bread import define_tool
from bread.testing import call, text
from scenes import (
    Counter,
    OpenBread,
    agent,
    asking,
    question,
    questions,
)
from support import read, types
from teams import (
    answer_all,
    asker,
    by_agent,
    delegate,
    hands_on,
    outcomes,
    pending,
    team,
    tells,
    waiting,
    worker,
)


async def test_the_supervisors_own_question(open_bread: OpenBread) -> None:
    """B102: like any agent's."""
    boss = team([[call("human_ask", {"n": 1})], [text("Done.")]], "worker", tools=[asking()])
    async with open_bread(boss, worker()) as bread:
        crumbs = await read(bread.run("boss", "go"))
        assert question(crumbs).agent_id == "boss"
        assert await waiting(bread) == []
        assert await bread.resume(question(crumbs).checkpoint_id, "yes") == "Done."


@pytest.mark.parametrize("order", [*permutations(range(3)), None])
async def test_a_turn_with_all_kinds_of_questions(open_bread: OpenBread, order: tuple[int, ...] | None) -> None:
    """B113: a delegate's, its own, and an approval: all are asked, all are answered, in any order or at once."""
    counter = Counter()

    @define_tool
    async def pay(what: str) -> str:
        counter(what)
        return f"paid {what}"

    def script(request: Any) -> list[Any]:
        if request.turn:
            return tells(request)
        return [delegate("asker"), call("human_ask", {}), call("tool_pay", {"what": "x"})]

    boss = team(script, "asker", tools=[asking(), pay], permissions={"ask": ["tool:pay"]})
    async with open_bread(boss, asker()) as bread:
        handle = bread.run("boss", "go")
        crumbs = await read(handle)
        kinds = {(one.agent_id, one.kind): one for one in crumbs if one.type == "human:required"}
        assert kinds.keys() == {("asker", "input"), ("boss", "input"), ("boss", "approval")}
        answers: list[tuple[Any, Any]] = [
            (kinds["asker", "input"], "A"),
            (kinds["boss", "input"], "B"),
            (kinds["boss", "approval"], {"approved": True}),
        ]
        streams = [read(bread.resume(asked.checkpoint_id, answer)) for asked, answer in answers]
        if order is None:
            await asyncio.gather(*streams)
        left = {0, 1, 2}
        for number in order or ():
            left.remove(number)
            last = (await streams[number])[-1]
            assert bool(await waiting(bread)) == (0 in left)
            assert ((last.type, last.run_id) == ("agent:run:end", handle.run_id)) == (not left)
        assert (await bread.get_run(handle.run_id)).output == '["asker: A", "B", "paid x"]'
    assert counter.of == {"x": 1}


async def test_delegates_that_ask_several_times(open_bread: OpenBread) -> None:
    """B94, B105: the delegation's checkpoint follows what its delegates ask now."""
    async with open_bread(hands_on("a", "b"), asker("a", 2), asker("b")) as bread:
        handle = bread.run("boss", "go")
        asked = by_agent(await read(handle))
        [before] = await waiting(bread)
        crumbs = await read(bread.resume(asked["a"].checkpoint_id, "1"))
        again = question(crumbs)
        [found] = await waiting(bread)
        assert found.id == before.id
        assert pending(found) == {"a": (again.checkpoint_id,), "b": (asked["b"].checkpoint_id,)}
        await answer_all(bread, crumbs)
        last = await read(bread.resume(asked["b"].checkpoint_id, "2"))
        assert last[-1].type == "agent:run:end"
        assert (await bread.get_run(handle.run_id)).output == '["a: 1, yes", "b: 2"]'


async def test_a_delegate_that_asks_several_things_at_once(open_bread: OpenBread) -> None:
    """B29, B106, C7: the stream of an answer that leaves one open ends at once; the last answer continues all."""

    def script(request: Any) -> list[Any]:
        return tells(request) if request.turn else [call("human_ask", {"n": n}) for n in range(2)]

    async with open_bread(hands_on("both"), agent(script, asking(), id="both")) as bread:
        first, second = questions(await read(bread.run("boss", "go")))
        [found] = await waiting(bread)
        assert pending(found) == {"both": (first.checkpoint_id, second.checkpoint_id)}
        assert types(await read(bread.resume(second.checkpoint_id, 2))) == ["human:resumed"]
        [left] = await waiting(bread)
        assert (left.id, pending(left)) == (found.id, {"both": (first.checkpoint_id,)})
        assert await bread.resume(first.checkpoint_id, 1) == '["[1, 2]"]'


async def test_a_supervisor_delegates_in_several_turns(open_bread: OpenBread) -> None:
    """B103, B106: each turn that waits has a checkpoint of its own."""

    def script(request: Any) -> list[Any]:
        return [delegate("asker", request.turn)] if request.turn < 2 else [text(str(outcomes(request)))]

    async with open_bread(team(script, "asker"), asker()) as bread:
        handle = bread.run("boss", "go")
        crumbs = await read(handle)
        [first] = await waiting(bread)
        crumbs = await read(bread.resume(question(crumbs).checkpoint_id, "x"))
        [second] = await waiting(bread)
        assert first.id != second.id
        assert await bread.resume(question(crumbs).checkpoint_id, "y") == "['asker: y']"
