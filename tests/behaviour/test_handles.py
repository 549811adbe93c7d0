"""Handles: lazy, once, and nobody who reads or leaves touches the run."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Callable
from typing import Any

import pytest

from bread import Bread, RunSuspended
from bread.testing import call, pause, text
from scenes import (
    Gate,
    OpenBread,
    Spy,
    agent,
    ask_first,
    asking,
    asks,
    come,
    ended,
    engine_of,
    output_of,
    refused,
    until,
)
from support import read, said, types


async def test_a_handle_begins_when_it_is_read(open_bread: OpenBread) -> None:
    """B61, B2: making it writes nothing; its run_id is known before and is that of the run."""
    async with open_bread(agent([[text("Hi.")]])) as bread:
        handle = bread.run("a", "go")
        run_id = handle.run_id
        assert run_id.startswith("run_")
        await asyncio.sleep(0)
        assert (await bread.list_runs()).items == []
        with refused("RUN_NOT_FOUND"):
            await bread.get_run(run_id)
        await handle
        assert handle.run_id == run_id
        assert (await bread.get_run(run_id)).status == "completed"


async def test_a_handle_begins_once_whoever_reads_it(open_bread: OpenBread) -> None:
    """B2: iterating and awaiting it, one after the other and at the same time, is one run and one start."""
    gate = Gate()
    spy = Spy([[text("Hi "), pause(gate), text("there.")]])
    async with open_bread(agent(spy)) as bread:
        handle = bread.run("a", "go")
        readers = [asyncio.create_task(read(handle)) for _ in range(3)]
        awaiters = [asyncio.create_task(output_of(handle)) for _ in range(3)]
        await gate.reached.wait()
        gate.open()
        streams, outputs = await asyncio.gather(*readers), list(await asyncio.gather(*awaiters))
        assert outputs == ["Hi there."] * 3
        assert [said(crumbs) for crumbs in [*streams, await read(handle)]] == ["Hi there."] * 4
        assert await handle == "Hi there."
        assert len((await bread.list_runs()).items) == 1
    assert len(spy.requests) == 1


async def test_a_resume_is_one_answer_whoever_reads_it(open_bread: OpenBread) -> None:
    """B53, B49: a second look at the same handle is no second answer; its run is known once it has begun."""
    async with open_bread(agent(asks(), asking())) as bread:
        asked = await ask_first(bread)
        handle = bread.resume(asked.checkpoint_id, "yes")
        with refused("NOT_STARTED"):
            _ = handle.run_id
        assert list(await asyncio.gather(output_of(handle), output_of(handle))) == ["Thanks."] * 2
        assert handle.run_id == asked.run_id
        assert types(await read(handle)) == ["human:resumed", "text:delta", "agent:run:end"]


def forget(handle: Any) -> None:
    """The last reference to it goes."""
    del handle
    gc.collect()


@pytest.mark.parametrize(
    "make",
    [
        lambda bread: bread.run("a", "go"),
        lambda bread: bread.resume("cp_x", "yes"),
        lambda bread: bread.retry("run_x"),
        lambda bread: aiter(bread.run("a", "go")),
    ],
    ids=["run", "resume", "retry", "iterator"],
)
async def test_a_handle_that_was_never_begun_warns(open_bread: OpenBread, make: Callable[[Bread], Any]) -> None:
    """B61: whoever forgets to read it is told, since nothing was started."""
    async with open_bread(agent([[text("Hi.")]])) as bread:
        with pytest.warns(RuntimeWarning, match="never awaited or iterated"):
            forget(make(bread))
        assert (await bread.list_runs()).items == []


async def test_a_handle_that_was_begun_does_not_warn(open_bread: OpenBread, recwarn: pytest.WarningsRecorder) -> None:
    """B61: also where it was refused."""
    async with open_bread(agent([[text("Hi.")]])) as bread:
        await bread.run("a", "go")
        with refused("AGENT_NOT_FOUND"):
            await bread.run("nobody", "go")
        gc.collect()
    assert [warning for warning in recwarn if "handle" in str(warning.message)] == []


@pytest.mark.parametrize("how", [read, output_of])
async def test_cancelling_who_reads_does_not_cancel_the_run(open_bread: OpenBread, how: Callable[..., Any]) -> None:
    """B61: not in the middle of it, and not while it is being started."""
    gate = Gate()
    async with open_bread(agent([[text("Hi "), pause(gate), text("there.")]])) as bread:
        handle = bread.run("a", "go")
        reader = asyncio.create_task(how(handle))
        await gate.reached.wait()
        reader.cancel()
        with pytest.raises(asyncio.CancelledError):
            await reader
        assert (await bread.get_run(handle.run_id)).status == "running"
        gate.open()
        assert await handle == "Hi there."

        early = bread.run("a", "go")
        reader = asyncio.create_task(how(early))
        await come(lambda: early._begun is not None)
        reader.cancel()
        with pytest.raises(asyncio.CancelledError):
            await reader
        assert await early == "Hi there."


async def test_cancelling_who_answers_does_not_take_the_answer_back(open_bread: OpenBread) -> None:
    """B61, B50: it was given; the run goes on with it."""
    async with open_bread(agent(asks(), asking())) as bread:
        asked = await ask_first(bread)
        handle = bread.resume(asked.checkpoint_id, "yes")
        reader = asyncio.create_task(read(handle))
        await come(lambda: handle._begun is not None)
        reader.cancel()
        with pytest.raises(asyncio.CancelledError):
            await reader
        assert await handle == "Thanks."
        assert (await bread.get_checkpoint(asked.checkpoint_id)).response == "yes"


async def test_awaiting_what_is_over_gives_what_came_of_it(open_bread: OpenBread) -> None:
    """B2: also from a cursor at or after the end, of runs that completed, failed, were cancelled, or wait."""
    script = [[call("human_ask")], [text("Thanks.")]]
    async with open_bread(agent(script, asking()), agent([], id="broken")) as bread:
        asked = await ask_first(bread)
        for after in (None, asked.cursor):
            waiting = asyncio.create_task(output_of(bread.observe(asked.run_id, after=after)))
            await come(lambda: engine_of(bread).hub._subscriptions)
            waiting.cancel()
        resumed = await read(bread.resume(asked.checkpoint_id, "yes"))
        for after in (None, resumed[0].cursor, resumed[-1].cursor):
            assert await bread.observe(asked.run_id, after=after) == "Thanks."
        failed = await read(bread.run("broken", "go"))
        with refused("MODEL_ERROR"):
            await bread.observe(failed[0].run_id, after=failed[-1].cursor)
        asked = await ask_first(bread)
        await bread.cancel(asked.run_id, reason="enough")
        last = (await ended(bread, asked.run_id))[-1]
        with refused("RUN_CANCELLED"):
            await bread.observe(asked.run_id, after=last.cursor)


async def test_observing_goes_on_over_suspensions_to_the_end(open_bread: OpenBread) -> None:
    """B49, B2: one stream from the start to the end; awaited it gives the output and no RunSuspended."""
    async with open_bread(agent(asks(), asking())) as bread:
        asked = await ask_first(bread)
        output = asyncio.create_task(output_of(bread.observe(asked.run_id)))
        shown = []
        async for crumb in bread.observe(asked.run_id):
            shown.append(crumb)
            if crumb.type == "human:required":
                with pytest.raises(RunSuspended):
                    await bread.observe(asked.run_id, until="rest")
                await read(bread.resume(crumb.checkpoint_id, "yes"))
        assert types(shown) == ["agent:run:start", "human:required", "human:resumed", "text:delta", "agent:run:end"]
        assert await output == "Thanks."


# --- before and after -------------------------------------------------------------------------------------------------

CALLS: list[Callable[[Bread], Any]] = [
    lambda bread: output_of(bread.run("a", "go")),
    lambda bread: bread.start("a", "go"),
    lambda bread: output_of(bread.resume("cp_x", "yes")),
    lambda bread: output_of(bread.retry("run_x")),
    lambda bread: output_of(bread.observe("run_x")),
    lambda bread: bread.cancel("run_x"),
    lambda bread: bread.get_run("run_x"),
    lambda bread: bread.list_runs(),
    lambda bread: bread.list_checkpoints(),
    lambda bread: bread.get_checkpoint("cp_x"),
    lambda bread: anext(bread.audit("run_x")),
    lambda bread: bread.sessions.get("s1"),
    lambda bread: bread.sessions.list(),
    lambda bread: bread.sessions.messages("s1"),
    lambda bread: bread.sessions.delete("s1"),
]


async def test_calls_before_open_and_after_close_say_so(open_bread: OpenBread) -> None:
    """B55: one clear error with a code, and nothing that hangs."""
    bread = open_bread(agent([[text("Hi.")]]))
    for one in CALLS:
        with refused("NOT_OPEN"):
            await one(bread)
    async with bread:
        assert await bread.run("a", "go") == "Hi."
        handle = bread.run("a", "too late")
    for one in CALLS:
        with refused("NOT_OPEN"):
            await one(bread)
    with refused("NOT_OPEN"):
        await handle
    await bread.close()  # a second time is fine


@pytest.mark.parametrize("how", [read, output_of])
async def test_streams_that_are_open_at_the_close_end_with_an_error(
    open_bread: OpenBread, how: Callable[..., Any]
) -> None:
    """B55, B61: nobody waits for ever for a bread that was closed."""
    gate = Gate()
    quick = agent([[text("Hi "), pause(gate), text("there.")]], id="slow")
    async with open_bread(agent(asks(), asking()), quick) as bread:
        asked = await ask_first(bread)
        parked = asyncio.create_task(how(bread.observe(asked.run_id, after=asked.cursor)))
        running = asyncio.create_task(how(bread.run("slow", "go")))
        await gate.reached.wait()
        await come(lambda: len(engine_of(bread).hub._subscriptions) == 2)
    done, left = await asyncio.wait({parked, running}, timeout=5)
    for task in left:
        task.cancel()
    assert left == set()
    assert [getattr(task.exception(), "code", None) for task in done] == ["NOT_OPEN"] * 2


async def test_a_stream_that_is_left_leaves_nothing_behind(open_bread: OpenBread) -> None:
    """B61: no subscription and no task of an observer that went away."""
    async with open_bread(agent(asks(), asking())) as bread:
        asked = await ask_first(bread)
        tasks = asyncio.all_tasks()
        stream = aiter(bread.observe(asked.run_id))
        assert (await anext(stream)).type == "agent:run:start"
        await stream.aclose()
        await until(bread.observe(asked.run_id), "human:required")
        gc.collect()
        await come(lambda: not engine_of(bread).hub._subscriptions)
        assert asyncio.all_tasks() <= tasks
