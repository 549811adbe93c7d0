"""What HTTP costs: a cycle over it beside the same cycle in process, and how many observers a core serves."""

from __future__ import annotations

import asyncio
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import httpx2

from bread import Bread, define_agent, define_tool
from bread.testing import ScriptedModel, call, text

from .asking import asker

CYCLES = 150
CONCURRENT = 32
PACE = 0.2  # seconds between two steps; a step is two crumbs
STEPS = 25
OBSERVERS = (100, 400)


@define_tool
async def step(number: int) -> int:
    await asyncio.sleep(PACE)
    return number


AGENTS = [
    asker,
    define_agent(
        "walker",
        model=ScriptedModel([*([call("tool_step", {"number": n})] for n in range(STEPS)), [text("Done.")]]),
        tools=[step],
        max_steps=100,
    ),
]


def server(store: str) -> None:
    """The server's process: it says where it listens, and its CPU seconds for each line that it is sent."""
    import threading

    from bread.runtime.http.serve import serve

    def report() -> None:
        for _ in sys.stdin:
            print(json.dumps(time.process_time()), flush=True)

    def ready(address: str) -> None:
        print(address, flush=True)
        threading.Thread(target=report, daemon=True).start()

    serve(Bread(agents=AGENTS, store=store), "127.0.0.1", 0, ready=ready)


class Server:
    def __init__(self, store: str) -> None:
        script = "import sys, benchmarks.served as b; b.server(sys.argv[1])"
        self._process = subprocess.Popen(
            [sys.executable, "-c", script, store], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self.url = self._line()

    def _line(self) -> str:
        if self._process.stdout is None:
            raise RuntimeError("the server has no output")
        return self._process.stdout.readline().strip()

    def cpu(self) -> float:
        if self._process.stdin is None:
            raise RuntimeError("the server has no input")
        self._process.stdin.write("\n")
        self._process.stdin.flush()
        return float(self._line())

    def stop(self) -> None:
        self._process.terminate()
        self._process.wait()


async def events(client: httpx2.AsyncClient, method: str, path: str, **more: Any) -> AsyncIterator[dict[str, Any]]:
    async with client.stream(method, path, **more) as got:
        got.raise_for_status()
        async for line in got.aiter_lines():
            if line.startswith("data: "):
                yield json.loads(line[6:])


async def served_cycle(client: httpx2.AsyncClient) -> None:
    asked = ""
    async for event in events(client, "POST", "/agents/asker/run", json={"input": "go"}):
        if event["type"] == "human:required":
            asked = event["payload"]["checkpointId"]
    async for _ in events(client, "POST", f"/resume/{asked}", json={"response": {"yes": True}}):
        pass


async def own_cycle(bread: Bread) -> None:
    async for crumb in bread.run("asker", "go"):
        if crumb.type == "human:required":
            asked = crumb.checkpoint_id
    async for _ in bread.resume(asked, {"yes": True}):
        pass


async def timed(cycle: Any, subject: Any) -> tuple[list[float], float]:
    """Seconds of cycles one after the other, sorted, and cycles a second of many at once."""
    times = []
    for turn in range(CYCLES + 20):
        begun = time.perf_counter()
        await cycle(subject)
        if turn >= 20:
            times.append(time.perf_counter() - begun)

    async def some() -> None:
        for _ in range(CYCLES // 8):
            await cycle(subject)

    begun = time.perf_counter()
    await asyncio.gather(*(some() for _ in range(CONCURRENT)))
    return sorted(times), CONCURRENT * (CYCLES // 8) / (time.perf_counter() - begun)


def calling(url: str) -> httpx2.AsyncClient:
    limits = httpx2.Limits(max_connections=None, max_keepalive_connections=None)
    return httpx2.AsyncClient(base_url=url, timeout=60, trust_env=False, limits=limits)


async def alone(store: str) -> tuple[list[float], float]:
    async with Bread(agents=AGENTS, store=store) as bread:
        return await timed(own_cycle, bread)


async def served(url: str) -> tuple[list[float], float]:
    async with calling(url) as client:
        return await timed(served_cycle, client)


async def watched(server: Server, observers: int) -> tuple[float, int, float]:
    """CPU seconds of the server, crumbs that it sent, and how long it took."""
    async with calling(server.url) as client:
        got = await client.post("/agents/walker/run", json={"input": "go"}, headers={"Prefer": "respond-async"})
        run_id, count = got.json()["runId"], 0

        async def observe() -> None:
            nonlocal count
            async for _ in events(client, "GET", f"/runs/{run_id}/stream"):
                count += 1

        cpu, begun = await asyncio.to_thread(server.cpu), time.perf_counter()
        await asyncio.gather(*(observe() for _ in range(observers)))
        return await asyncio.to_thread(server.cpu) - cpu, count, time.perf_counter() - begun


def measure(folder: Path) -> Iterator[tuple[str, str, str]]:
    """Lines of the report: what, value, remark."""
    own, own_rate = asyncio.run(alone(f"sqlite:///{folder}/alone.db"))
    server = Server(f"sqlite:///{folder}/served.db")
    try:
        there, there_rate = asyncio.run(served(server.url))
        ratio = statistics.median(there) / statistics.median(own)
        p99, own_p99 = (times[int(len(times) * 0.99)] for times in (there, own))
        yield "HTTP: cycle p50", f"{statistics.median(there) * 1000:.2f} ms", f"{ratio:.1f} x in process (goal: 2.5)"
        yield "HTTP: cycle p99", f"{p99 * 1000:.2f} ms", f"{p99 / own_p99:.1f} x in process"
        remark = f"in process {own_rate:.0f}: {own_rate / there_rate:.1f} x the time; {os.cpu_count()} cores for both"
        yield f"HTTP: cycles/s, {CONCURRENT} concurrent", f"{there_rate:.0f}", remark
        for observers in OBSERVERS:
            cpu, crumbs, seconds = asyncio.run(watched(server, observers))
            rate = crumbs / observers / seconds
            remark = f"{crumbs:,} crumbs at {rate:.1f}/s each, {cpu / crumbs * 1e6:.0f} us of CPU a crumb"
            yield f"HTTP: observers a core at 10 crumbs/s ({observers})", f"{crumbs / cpu / 10:.0f}", remark
    finally:
        server.stop()
