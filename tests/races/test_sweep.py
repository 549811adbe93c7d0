"""The sweep looks at the store while commits of its own process are on their way to their actors."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from bread import Bread, define_agent, define_tool
from bread.testing import ScriptedModel, call, text
from scenes import SHARED


@SHARED
async def test_a_run_is_not_taken_from_its_own_process(open_bread: Callable[..., Bread]) -> None:
    """B48, C35: the store names this process as owner before the actor has heard of it; that is no orphan."""
    done: list[str] = []

    @define_tool
    async def work() -> str:
        done.append("")
        return "done"

    model = ScriptedModel([[call("tool_work")], [text("Done.")]])
    async with open_bread(define_agent("clerk", model=model, tools=[work])) as bread:
        engine = bread._running()
        writer, arrived, held = engine.journal.writer, asyncio.Semaphore(0), list[Any]()
        deliver = writer._deliver

        def hold(jobs: Any) -> None:
            held.append(jobs)
            arrived.release()

        writer._deliver = hold  # type: ignore[method-assign]
        starting = asyncio.create_task(bread.start("clerk", "go"))
        await arrived.acquire()
        sweeping = asyncio.create_task(engine.sweep.once())
        await arrived.acquire()  # the sweep has seen the run, and commits something
        writer._deliver = deliver  # type: ignore[method-assign]
        for jobs in held:
            deliver(jobs)
        await sweeping
        run_id = await starting
        assert await bread.observe(run_id) == "Done."
        assert "run.taken" not in [event.name async for event in bread.audit(run_id)]
        assert done == [""]
