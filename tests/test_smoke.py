"""One whole cycle, as the README shows it."""

from __future__ import annotations

from collections.abc import Callable

from bread import Bread, define_agent, define_human_tool
from bread.testing import ScriptedModel, call, text
from support import read, said, types


async def test_a_run_suspends_is_answered_and_ends(open_bread: Callable[..., Bread]) -> None:
    """B1, B21, B49: the stream of a run ends at its question, the answer gives the rest."""
    ask = define_human_tool("approve", {"type": "object"}, prompt="Go on?")
    model = ScriptedModel([[text("May I? "), call("human_approve")], [text("Thank you.")]])
    async with open_bread(define_agent("asker", model=model, tools=[ask])) as bread:
        asked = await read(bread.run("asker", "go"))
        assert types(asked) == ["agent:run:start", "text:delta", "human:required"]
        question = asked[-1]
        assert question.type == "human:required"
        answered = await read(bread.resume(question.checkpoint_id, {"yes": True}, author="ann"))
        assert types(answered) == ["human:resumed", "text:delta", "agent:run:end"]
        assert said(answered) == "Thank you."
