"""What compositions cost beside a plain cycle: branches that are asked and answered at once, and a delegation."""

from __future__ import annotations

import asyncio
import statistics
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import suppress
from pathlib import Path

from bread import Bread, RunSuspended, Supervisor, define_agent, parallel
from bread.testing import ScriptedModel, call, pause, text

from .asking import asker

CYCLES = 200
SIBLINGS = 100
BRANCHES = (2, 8, 32)

boss = define_agent(
    "boss",
    model=ScriptedModel([[call("core_delegate", {"agentId": "asker", "input": "go"})], [text("Done.")]]),
    supervisor=Supervisor(agents=["asker"]),
)


async def asked(bread: Bread, name: str) -> list[str]:
    """Run an agent or a pipeline until it asks; gives its checkpoints."""
    stream = bread.run(name, "go") if name in bread.agents else bread.run_pipeline(name, "go")
    return [crumb.checkpoint_id async for crumb in stream if crumb.type == "human:required"]


async def cycle(bread: Bread, name: str) -> None:
    """Run to the questions, and answer all of them at the same instant."""

    async def answer(checkpoint_id: str) -> None:
        with suppress(RunSuspended):
            await bread.resume(checkpoint_id, {"yes": True}, author="bench")

    await asyncio.gather(*map(answer, await asked(bread, name)))


async def timed(count: int, work: Callable[[], Awaitable[None]]) -> list[float]:
    """Seconds of `count` runs of `work`, sorted."""
    for _ in range(count // 10):
        await work()
    times = []
    for _ in range(count):
        begun = time.perf_counter()
        await work()
        times.append(time.perf_counter() - begun)
    return sorted(times)


async def attempts_a_sibling(store: str) -> float:
    """Commit attempts a sibling of a parallel step whose branches all end at the same instant, less the start's."""
    ends = asyncio.Barrier(SIBLINGS)
    slow = define_agent("slow", model=ScriptedModel(lambda request: [pause(ends.wait), text("Done.")]))
    siblings = {"siblings": [parallel(*["slow"] * SIBLINGS)]}
    async with Bread(agents=[slow], pipelines=siblings, store=store) as bread:
        writer = bread._running().journal.writer
        before = writer.attempts
        await bread.run_pipeline("siblings", "go")
        return (writer.attempts - before - 1) / SIBLINGS


async def times_of(store: str) -> dict[str, list[float]]:
    """Sorted seconds of each kind of cycle, on one store."""
    pipelines = {f"of_{count}": [parallel(*["asker"] * count)] for count in BRANCHES}
    counts = {"asker": CYCLES, "boss": CYCLES} | {f"of_{count}": CYCLES // count + 10 for count in BRANCHES}
    found = {}
    async with Bread(agents=[asker, boss], pipelines=pipelines, store=store) as bread:
        for name, count in counts.items():
            found[name] = await timed(count, lambda name=name: cycle(bread, name))  # type: ignore[misc]
    return found


def measure(folder: Path) -> Iterator[tuple[str, str, str]]:
    """Lines of the report: what, value, remark."""
    attempts = asyncio.run(attempts_a_sibling(f"sqlite:///{folder}/siblings.db"))
    yield f"{SIBLINGS} siblings end at once, attempts each", f"{attempts:.2f}", "(goal: at most 1.2)"
    times = asyncio.run(times_of(f"sqlite:///{folder}/compositions.db"))
    plain = statistics.median(times["asker"])
    yield from _lines("plain cycle", times["asker"], "")
    beside = f"{statistics.median(times['boss']) / plain:.1f} x the plain cycle (6 commits, not 4)"
    yield from _lines("delegation cycle", times["boss"], beside)
    for count in BRANCHES:
        found = times[f"of_{count}"]
        yield from _lines(
            f"{count} branches answered at once", found, f"{count * len(found) / sum(found):.0f} cycles/s"
        )


def _lines(what: str, times: list[float], remark: str) -> Iterator[tuple[str, str, str]]:
    yield f"{what}, p50", f"{statistics.median(times) * 1000:.2f} ms", remark
    yield f"{what}, p99", f"{times[int(len(times) * 0.99)] * 1000:.2f} ms", ""
