"""What a provider's model costs beside the scripted one: imports, memory, and a cycle against a stub over HTTP."""

from __future__ import annotations

import asyncio
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from bread import Bread, define_agent, define_model
from bread.testing import ScriptedModel, text

from .asking import ASKS, approve

CYCLES = 200
STUB = Path(__file__).parent.parent / "tests" / "models" / "stub.py"
IMPORTS = {
    "import bread, all of it": "import bread; [getattr(bread, name) for name in bread.__all__]",
    "bread --help": "import sys; sys.argv = ['bread', '--help']; from bread.runtime.cli import main; main()",
    "the model layer, with OpenAI's client": "import bread.runtime.model_layer, pydantic_ai.models.openai",
}
SCRIPT: list[Any] = [ASKS, [text("word " * 20)]]


@contextmanager
def stub() -> Iterator[str]:
    """The address of a stub in a process of its own, which asks first and then says 20 words."""
    words = ["--words", "20", "--call", "human_approve", "--args", '{"url": "https://x.test"}']
    with subprocess.Popen([sys.executable, str(STUB), *words], stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            yield process.stdout.readline().strip()
        finally:
            process.kill()


async def cycles(store: str, base_url: str | None, count: int) -> float:
    """The median of a cycle in seconds; with an address through the adapter, else with the scripted model."""
    provider = None if base_url is None else define_model("openai:stub", base_url=base_url, api_key="none")
    agent = define_agent("asker", model=provider or ScriptedModel(SCRIPT), tools=[approve])
    times = []
    async with Bread(agents=[agent], store=store) as bread:
        for _ in range(count):
            begun = time.perf_counter()
            async for crumb in bread.run("asker", "go"):
                if crumb.type == "human:required":
                    await bread.resume(crumb.checkpoint_id, {"yes": True}, author="bench")
            times.append(time.perf_counter() - begun)
    return statistics.median(times)


def seconds_of(code: str) -> float:
    """The best of five fresh processes, less that of an empty one."""

    def best(code: str) -> float:
        found = []
        for _ in range(5):
            begun = time.perf_counter()
            subprocess.run([sys.executable, "-c", code], check=True, stdout=subprocess.DEVNULL)
            found.append(time.perf_counter() - begun)
        return min(found)

    return best(code) - best("pass")


def megabytes_of(store: str, base_url: str | None) -> float:
    """The memory of a fresh process after ten cycles."""
    code = f"import benchmarks.providers as b; b.report_memory({store!r}, {base_url!r})"
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    return float(done.stdout)


def report_memory(store: str, base_url: str | None) -> None:
    asyncio.run(cycles(store, base_url, 10))
    # The peak that the kernel keeps would be that of the parent, which was here before this program was loaded.
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    print(pages * resource.getpagesize() / 2**20)


def measure(folder: Path) -> Iterator[tuple[str, str, str]]:
    """Lines of the report: what, value, remark."""
    for what, code in IMPORTS.items():
        yield (
            f"imports: {what}",
            f"{seconds_of(code) * 1000:.0f} ms",
            "(goal of help: 300 ms)" if "help" in what else "",
        )
    with stub() as base_url:
        scripted = asyncio.run(cycles(f"sqlite:///{folder}/scripted.db", None, CYCLES))
        provider = asyncio.run(cycles(f"sqlite:///{folder}/provider.db", base_url, CYCLES))
        yield "cycle, scripted model, p50", f"{scripted * 1000:.2f} ms", ""
        yield "cycle, provider's model over HTTP, p50", f"{provider * 1000:.2f} ms", "(2 requests, 20 words each)"
        small = megabytes_of(f"sqlite:///{folder}/small.db", None)
        large = megabytes_of(f"sqlite:///{folder}/large.db", base_url)
        yield "memory, scripted model", f"{small:.0f} MB", ""
        yield "memory, provider's model", f"{large:.0f} MB", ""
