"""`make bench`: what a cycle costs, beside the floor of the disk that was measured in the same run.

A cycle is start, ask, answer, finish: 4 commits. Everything is on SQLite with synchronous=FULL and the scripted model.
"""

from __future__ import annotations

import asyncio
import gc
import os
import platform
import resource
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

from bread import Bread, define_agent, define_tool
from bread.testing import ScriptedModel, call, text

from . import compositions, providers, relayed, served, shared
from .asking import approve, ask, asker, cycle

CYCLES = 300
CONCURRENT = 32
PARKED = 10_000


def percentile(values: list[float], share: float) -> float:
    return sorted(values)[min(len(values) - 1, int(len(values) * share))]


def line(what: str, value: str, goal: str = "") -> None:
    print(f"  {what:<48} {value:>14}   {goal}", flush=True)


def milliseconds(seconds: float) -> str:
    return f"{seconds * 1000:.2f} ms"


# --- agents -----------------------------------------------------------------------------------------------------------


@define_tool
async def fetch(number: int) -> str:
    """A tool whose result has 1,000 characters."""
    return f"{number:04}" + "x" * 996


worker = define_agent(
    "worker",
    model=ScriptedModel(
        [*([call("tool_fetch", {"number": n})] for n in range(50)), [call("human_approve", {})], [text("Done.")]]
    ),
    tools=[approve, fetch],
    max_steps=100,
)


# --- what is measured -------------------------------------------------------------------------------------------------


def floor(folder: Path) -> float:
    """The median time of 4 durable transactions of plain SQLite: nothing that commits 4 times can be faster here."""
    connection = sqlite3.connect(folder / "floor.db", isolation_level=None)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = FULL")
    connection.execute("CREATE TABLE t (id INTEGER PRIMARY KEY AUTOINCREMENT, body BLOB)")
    times = []
    for _ in range(CYCLES):
        begun = time.perf_counter()
        for _ in range(4):
            connection.execute("BEGIN IMMEDIATE")
            connection.execute("INSERT INTO t (body) VALUES (?)", (os.urandom(1000),))
            connection.execute("COMMIT")
        times.append(time.perf_counter() - begun)
    connection.close()
    return statistics.median(times)


async def timed(count: int, work: Callable[[], Awaitable[None]]) -> tuple[list[float], float]:
    """Wall times of `count` runs of `work`, one after the other, and the CPU time of one."""
    times, cpu = [], time.process_time()
    for _ in range(count):
        begun = time.perf_counter()
        await work()
        times.append(time.perf_counter() - begun)
    return times, (time.process_time() - cpu) / count


async def measure_cycles(store: str, base: float) -> None:
    async with Bread(agents=[asker, worker], store=store) as bread:
        await timed(50, lambda: cycle(bread))
        times, cpu = await timed(CYCLES, lambda: cycle(bread))
        p50 = statistics.median(times)
        line("cycle p50", milliseconds(p50), f"{p50 / base:.1f} x the floor (goal: at most 4)")
        line("cycle p99", milliseconds(percentile(times, 0.99)))
        line("cycle CPU", milliseconds(cpu))

        async def many() -> None:
            for _ in range(CYCLES // 8):
                await cycle(bread)

        begun, cpu_begun = time.perf_counter(), time.process_time()
        await asyncio.gather(*(many() for _ in range(CONCURRENT)))
        spent, count = time.perf_counter() - begun, CONCURRENT * (CYCLES // 8)
        line(f"cycles/s, {CONCURRENT} concurrent", f"{count / spent:.0f}", "(goal: at least 1,000)")
        line("  CPU a cycle", milliseconds((time.process_time() - cpu_begun) / count))

        suspends, resumes = [], []
        for _ in range(10):
            begun = time.perf_counter()
            checkpoint = await ask(bread, "worker")
            suspends.append(time.perf_counter() - begun)
            begun = time.perf_counter()
            await bread.resume(checkpoint, {"yes": True})
            resumes.append(time.perf_counter() - begun)
        line("50 tool calls of 1 kB, to the question", milliseconds(statistics.median(suspends)))
        line("resume after 50 tool calls, to the end", milliseconds(statistics.median(resumes)))


def bytes_of(store: Path) -> int:
    connection = sqlite3.connect(store)
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    connection.close()
    return store.stat().st_size


async def measure_bytes(folder: Path) -> None:
    measured = (("asker", 200, "bytes a cycle", "5,000"), ("worker", 5, "bytes, 50 tool calls of 1 kB", "150,000"))
    for agent, count, what, goal in measured:
        path = folder / f"bytes-{agent}.db"
        async with Bread(agents=[asker, worker], store=f"sqlite:///{path}"):
            pass
        empty = bytes_of(path)
        async with Bread(agents=[asker, worker], store=f"sqlite:///{path}") as bread:
            for _ in range(count):
                await cycle(bread, agent)
        line(what, f"{(bytes_of(path) - empty) / count:,.0f}", f"(goal: under {goal})")


async def park(store: str, count: int) -> None:
    async with Bread(agents=[asker], store=store) as bread:

        async def some(share: int) -> None:
            for _ in range(share):
                await ask(bread, "asker")

        await asyncio.gather(*(some(count // 50) for _ in range(50)))


async def measure_pages(store: str) -> None:
    async with Bread(agents=[asker], store=store) as bread:
        times, _ = await timed(50, lambda: _page(bread))
        line(f"first page of {PARKED:,} pending, p50", milliseconds(statistics.median(times)), "(goal: under 5 ms)")


async def _page(bread: Bread) -> None:
    page = await bread.list_checkpoints(agent="asker", limit=50)
    if len(page.items) != 50:
        raise RuntimeError("the page is not full")


def measure_start(store: str) -> tuple[float, float]:
    """Seconds to open a store in a fresh process, and its memory then, in MB."""
    script = "import asyncio, benchmarks.__main__ as b; asyncio.run(b.report_start(__import__('sys').argv[1]))"
    done = subprocess.run([sys.executable, "-c", script, store], check=True, capture_output=True, text=True)
    seconds, megabytes = done.stdout.split()
    return float(seconds), float(megabytes)


async def report_start(store: str) -> None:
    begun = time.perf_counter()
    async with Bread(agents=[asker], store=store):
        seconds = time.perf_counter() - begun
        print(seconds, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)


def main() -> None:
    # As a long-lived service does (README): the objects of the imports are not looked at again by every collection.
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 10, 10)
    with tempfile.TemporaryDirectory(prefix="bread-bench-") as name:
        folder = Path(name)
        print(f"bread benchmark: Python {platform.python_version()}, {os.cpu_count()} cores, synchronous=FULL")
        base = floor(folder)
        line("floor: 4 durable transactions, p50", milliseconds(base))
        asyncio.run(measure_cycles(f"sqlite:///{folder}/cycles.db", base))
        line("floor again", milliseconds(floor(Path(tempfile.mkdtemp(dir=folder)))))
        asyncio.run(measure_bytes(folder))
        empty, parked = f"sqlite:///{folder}/empty.db", f"sqlite:///{folder}/parked.db"
        asyncio.run(park(empty, 0))
        asyncio.run(park(parked, PARKED))
        asyncio.run(measure_pages(parked))
        without, _ = measure_start(empty), measure_start(empty)
        seconds, megabytes = measure_start(parked)
        line(f"start-up with {PARKED:,} parked", milliseconds(seconds), "(goal: under 1 s)")
        line("memory that they add", f"{megabytes - without[1]:.1f} MB", "(goal: under 10 MB)")
        for report in (compositions, providers, served, shared, relayed):
            for what, value, remark in report.measure(folder):
                line(what, value, remark)


if __name__ == "__main__":
    main()
