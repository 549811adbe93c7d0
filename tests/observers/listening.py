"""What the tests of listeners share."""

from __future__ import annotations

from typing import Any

import pytest

from bread import (
    Agent,
    Bread,
    BreadError,
    RunHandle,
    define_agent,
)
from bread.testing import ScriptedModel, call, fail, text
from support import read

from .agents import fetch, sign
from .clients import Client, durable


def agent(*turns: list[Any]) -> Agent:
    return define_agent("worker", model=ScriptedModel(list(turns)), tools=[sign, fetch], permissions={"ask": []})


def everything() -> Agent:
    """Text, a failed attempt after some of it, a tool beside two questions, an answer each, and an end."""
    return agent(
        [text("Well, "), fail("overloaded", times=1), text("I shall \U0001f680 fetch. "), call("tool_fetch")],
        [text("Now sign. "), call("human_sign"), call("tool_fetch"), call("human_sign")],
        [text("Signed twice, done.")],
    )


async def live_through(bread: Bread, run: RunHandle) -> str:
    """Read a run to its end, with an answer to each of its questions; gives its id."""
    questions = [c.checkpoint_id for c in await read(run) if c.type == "human:required"]
    while questions:
        more = await read(bread.resume(questions.pop(), {"yes": True}, author="ann"))
        questions += [c.checkpoint_id for c in more if c.type == "human:required"]
    return run.run_id


async def expect_whole(bread: Bread, run_id: str, *clients: Client) -> None:
    """What each client has is what an observer is shown from the start, which is what the log says."""
    observer = Client()
    for crumb in await read(bread.observe(run_id)):
        observer.take(crumb.wire())
    for client in (observer, *clients):
        assert not getattr(client, "wrong", None)
        assert durable(client.crumbs) == durable(observer.crumbs)
        assert client.texts == observer.texts


async def live_to_rest(run: Any) -> None:
    with pytest.raises(BreadError, match="RUN_SUSPENDED"):
        await run
