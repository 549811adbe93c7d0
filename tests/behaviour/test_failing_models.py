"""Models that fail: what was said and done is kept, and the attempt is made again."""

from __future__ import annotations

from typing import Any

from bread import ModelError, ModelRequest, define_tool
from bread.testing import call, fail, pause, text
from scenes import (
    Counter,
    Gate,
    OpenBread,
    Spy,
    agent,
    ask_first,
    ended,
    refused,
    until,
)
from support import read, said, types, wire


async def test_a_provider_that_fails_is_asked_again_and_the_answer_is_kept(open_bread: OpenBread) -> None:
    """B59, C40, Q MODEL_ERROR: attempts with a crumb each, then agent:error; retry goes on, the tool ran once."""
    ran = Counter()
    broken = True

    @define_tool
    async def delete_file() -> int:
        return ran()

    def turn(request: ModelRequest) -> list[Any]:
        if request.turn == 0:
            return [call("tool_delete_file")]
        return [fail("overloaded", times=99)] if broken else [text("Done.")]

    spy = Spy(turn)
    gated = agent(spy, delete_file, permissions={"ask": ["tool:*"]})
    async with open_bread(gated, backoff=(0.0,)) as bread:
        asked = await ask_first(bread, session="s1")
        crumbs = await read(bread.resume(asked.checkpoint_id, {"approved": True}))
        assert types(crumbs) == [
            *("human:resumed", "tool:call", "tool:result"),
            *["model:retry"] * 3,
            "agent:error",
        ]
        assert [crumb.attempt for crumb in crumbs if crumb.type == "model:retry"] == [1, 2, 3]
        assert wire(crumbs[-1])["code"] == "MODEL_ERROR"
        assert [request.attempt for request in spy.requests[1:]] == [0, 1, 2, 3]
        with refused("CHECKPOINT_NOT_FOUND"):
            await bread.resume(asked.checkpoint_id, {"approved": True})
        with refused("MODEL_ERROR"):
            await bread.observe(asked.run_id)
        assert (await bread.get_run(asked.run_id)).code == "MODEL_ERROR"
        broken = False
        crumbs = await read(bread.retry(asked.run_id))
        assert types(crumbs) == ["agent:run:retry", "text:delta", "agent:run:end"]
        with refused("RUN_NOT_RETRYABLE"):
            await bread.retry(asked.run_id)
    assert ran.total == 1
    assert spy.seen[-1][-1] == ("tool", "tool_delete_file", 1, "ok")


async def test_an_attempt_that_fails_in_mid_text_is_made_again(open_bread: OpenBread) -> None:
    """B59, B124: what was shown of it is reset, the text of the turn is that of the attempt that came through."""
    gate = Gate()
    script = [[text("One "), pause(gate), fail("cut off"), text("two.")]]
    async with open_bread(agent(script), backoff=(0.0,)) as bread:
        handle, live = bread.run("a", "go"), []
        async for crumb in handle:
            live.append(crumb)
            if crumb.type == "text:delta":
                gate.open()
        assert "text:reset" in types(live)
        assert types(live)[-2:] == ["text:delta", "agent:run:end"]
        assert said(live) == said(await ended(bread, handle.run_id)) == "One two."


async def test_what_the_provider_asks_for_is_honoured(open_bread: OpenBread) -> None:
    """B59: the next attempt is not before its retry-after; an error that is not retryable ends the run at once."""
    now = 1000.0
    async with open_bread(agent([[fail("slow down", after=3600.0), text("Hi.")]]), clock=lambda: now) as bread:
        run_id = await bread.start("a", "go")
        retry = await until(bread.observe(run_id), "model:retry")
        assert retry.retry_at.timestamp() == 1000.0 + 3600.0
        await bread.cancel(run_id)
    async with open_bread(agent([[fail("bad key", retryable=False)]])) as bread:
        crumbs = await read(bread.run("a", "go"))
        assert types(crumbs) == ["agent:run:start", "agent:error"]


async def test_a_model_that_breaks_in_another_way_fails_the_run(open_bread: OpenBread) -> None:
    """B59: with its class and text, at once; retry goes on."""
    broken = True

    def turn(request: ModelRequest) -> list[Any]:
        if broken:
            raise KeyError("no such deployment")
        return [text("Hi.")]

    async with open_bread(agent(turn)) as bread:
        crumbs = await read(bread.run("a", "go"))
        assert types(crumbs) == ["agent:run:start", "agent:error"]
        assert wire(crumbs[-1])["message"] == "KeyError: 'no such deployment'"
        broken = False
        assert await bread.retry(crumbs[0].run_id) == "Hi."


async def test_a_stream_that_is_cut_short_is_an_error_not_an_answer(open_bread: OpenBread) -> None:
    """B59: a model that stops without the end of its turn is asked again."""

    class Cut(Spy):
        async def stream(self, request: ModelRequest) -> Any:
            async for event in super().stream(request):
                if request.attempt == 0 and type(event).__name__ == "TurnDone":
                    return
                yield event

    async with open_bread(agent(Cut([[text("Half of it.")]])), backoff=(0.0,)) as bread:
        crumbs = await read(bread.run("a", "go"))
        assert [crumb.type for crumb in crumbs if crumb.type == "model:retry"] == ["model:retry"]
        assert said(crumbs) == "Half of it."


def test_a_model_error_says_whether_it_pays_to_try_again() -> None:
    """B59: what adapters raise."""
    error = ModelError("slow down", retry_after=2.5)
    assert (str(error), error.retryable, error.retry_after) == ("slow down", True, 2.5)
