"""What a store costs that several machines share: PostgreSQL, beside the floor of its own durable transactions."""

from __future__ import annotations

import asyncio
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg

from bread import Bread, define_agent, define_tool
from bread.runtime.servers import PostgresServer
from bread.testing import ScriptedModel, call, text

from .asking import asker, cycle

CYCLES = 200
CONCURRENT = 32
PROCESSES = 3
OBSERVERS = 1000
OBSERVED = 20
STEPS = 6
PACE = 0.5  # seconds between two steps of a run that is observed


@define_tool
async def step(number: int) -> int:
    await asyncio.sleep(PACE)
    return number


walker = define_agent(
    "walker",
    model=ScriptedModel([*([call("tool_step", {"number": n})] for n in range(STEPS)), [text("Done.")]]),
    tools=[step],
    max_steps=100,
)


def floor(url: str) -> float:
    """The median time of 4 durable transactions: nothing that commits 4 times can be faster there."""
    times = []
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("CREATE TABLE IF NOT EXISTS floor (id BIGSERIAL PRIMARY KEY, body BYTEA)")
        for _ in range(CYCLES):
            begun = time.perf_counter()
            for _ in range(4):
                connection.execute("BEGIN")
                connection.execute("INSERT INTO floor (body) VALUES (%s)", (os.urandom(1000),))
                connection.execute("COMMIT")
            times.append(time.perf_counter() - begun)
    return statistics.median(times)


async def alone(store: str) -> list[float]:
    async with Bread(agents=[asker], store=store) as bread:
        times = []
        for turn in range(CYCLES + 50):
            begun = time.perf_counter()
            await cycle(bread)
            if turn >= 50:
                times.append(time.perf_counter() - begun)
        return sorted(times)


async def many(store: str, concurrent: int, each: int) -> tuple[float, float]:
    """Seconds that all of it took, and the CPU seconds of this process."""
    async with Bread(agents=[asker], store=store, takes=False) as bread:
        await cycle(bread)

        async def some() -> None:
            for _ in range(each):
                await cycle(bread)

        begun, cpu = time.perf_counter(), time.process_time()
        await asyncio.gather(*(some() for _ in range(concurrent)))
        return time.perf_counter() - begun, time.process_time() - cpu


def child(work: str, *words: str, module: str = "shared") -> subprocess.Popen[str]:
    script = f"import sys, asyncio, benchmarks.{module} as b; asyncio.run(b.{work}(*sys.argv[1:]))"
    return subprocess.Popen(
        [sys.executable, "-c", script, *words], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )


def told(process: subprocess.Popen[str]) -> Any:
    if process.stdout is None:
        raise RuntimeError("the process has no output")
    return json.loads(process.stdout.readline())


def tell(process: subprocess.Popen[str]) -> None:
    """It waits for a line."""
    if process.stdin is None:
        raise RuntimeError("the process has no input")
    process.stdin.write("\n")
    process.stdin.flush()


async def report_many(store: str, concurrent: str, each: str) -> None:
    print(json.dumps(await many(store, int(concurrent), int(each))), flush=True)


def committed(bread: Bread) -> list[tuple[str, int, str, float]]:
    """What this process commits from now on, and when: (tree, number, name of the event, unix time)."""
    engine, found = bread._running(), list[tuple[str, int, str, float]]()
    on_events = engine.on_events

    def hear(entries: Any) -> None:
        now = time.time()
        found.extend((e.recorded.meta.root, e.recorded.meta.seq, e.recorded.event.NAME, now) for e in entries)
        on_events(entries)

    engine.on_events = hear
    return found


async def walk(store: str, runs: str, nats: str = "") -> None:
    """Begin runs when told to; say when each of their events was committed here."""
    ids = runs.split(",")
    async with Bread(agents=[walker], store=store, nats=nats or None, takes=False) as bread:
        print(json.dumps("ready"), flush=True)
        await asyncio.to_thread(sys.stdin.readline)
        at = committed(bread)
        found = [await bread.start("walker", "go", session=name) for name in ids]
        print(json.dumps(found), flush=True)
        for run_id in found:
            await bread.observe(run_id)
        print(json.dumps(at), flush=True)


async def latencies(store: str, runs: int, observers: int, nats: str = "") -> list[float]:
    """Seconds from a commit in another process to each observer here that was shown its crumb."""
    process = child("walk", store, ",".join(f"s{time.time_ns()}-{n}" for n in range(runs)), nats)
    seen: list[tuple[str, int, float]] = []
    async with Bread(store=store, nats=nats or None, executes=False) as bread:
        told(process)
        tell(process)
        ids = await asyncio.to_thread(told, process)

        async def observe(run_id: str) -> None:
            async for crumb in bread.observe(run_id):
                seen.append((run_id, crumb.seq, time.time()))

        begun = time.time()
        await asyncio.gather(*(observe(ids[n % len(ids)]) for n in range(observers)))
        told_at = {(root, seq): at for root, seq, _, at in await asyncio.to_thread(told, process)}
    process.wait()
    # What was committed before they came is a replay, not news.
    late = [at - told_at[run, seq] for run, seq, at in seen if told_at.get((run, seq), 0.0) > begun]
    return sorted(late)


def at(values: list[float], share: float) -> str:
    return f"{values[min(len(values) - 1, int(len(values) * share))] * 1000:.2f} ms" if values else "none"


def measure(folder: Path) -> Iterator[tuple[str, str, str]]:
    """Lines of the report: what, value, remark."""
    server = PostgresServer()
    server.start()
    try:
        store = server.url()
        base = floor(store)
        yield "PostgreSQL: 4 durable transactions, p50", f"{base * 1000:.2f} ms", "(the floor)"
        times = asyncio.run(alone(store))
        ratio = statistics.median(times) / base
        yield "PostgreSQL: cycle p50", at(times, 0.5), f"{ratio:.1f} x the floor (goal: at most 4)"
        yield "PostgreSQL: cycle p99", at(times, 0.99), ""
        each = CYCLES // 8
        spent, cpu = asyncio.run(many(store, CONCURRENT, each))
        count = CONCURRENT * each
        remark = f"CPU a cycle {cpu / count * 1000:.2f} ms (goal: at least 600)"
        yield f"PostgreSQL: cycles/s, {CONCURRENT} concurrent", f"{count / spent:.0f}", remark
        begun = time.perf_counter()
        several = [child("report_many", store, str(CONCURRENT), str(each)) for _ in range(PROCESSES)]
        slowest = max(told(process)[0] for process in several)
        for process in several:
            process.wait()
        yield (
            f"PostgreSQL: cycles/s, {PROCESSES} processes",
            f"{PROCESSES * count / slowest:.0f}",
            f"{os.cpu_count()} cores for them and the server; {time.perf_counter() - begun:.1f} s with their start",
        )
        few = asyncio.run(latencies(store, 4, 4))
        yield "PostgreSQL: commit to an observer elsewhere, p50", at(few, 0.5), "(goal: under 5 ms)"
        yield "PostgreSQL: commit to an observer elsewhere, p99", at(few, 0.99), ""
        crowd = asyncio.run(latencies(store, OBSERVED, OBSERVERS))
        yield f"PostgreSQL: the same with {OBSERVERS:,} observers, p50", at(crowd, 0.5), f"{len(crowd):,} deliveries"
        yield f"PostgreSQL: the same with {OBSERVERS:,} observers, p99", at(crowd, 0.99), ""
    finally:
        server.stop()
