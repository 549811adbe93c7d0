"""The demo without a terminal: real processes, real SIGKILLs, and every promise checked."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterable
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from ...domain.errors import BreadError
from ...projections.crumbs import (
    AnyCrumb,
    Crumb,
    HumanRequired,
    HumanResumed,
    RunEnd,
    TextDelta,
    TextReset,
    ToolResult,
)
from ..observer import HINTS
from .crumbs import CrumbPrinter
from .demo import AGENT, INPUT, publisher
from .demo_checks import Promises, check_run, text_of
from .options import person

if TYPE_CHECKING:
    from ..app import Bread
    from .place import Place

C = TypeVar("C")
PATIENCE_SECONDS = 60.0
# Words come in pieces to who hears them at once, and whole to who comes later: they are compared by what they say.
LIVE: tuple[type[Crumb], ...] = (TextDelta, TextReset, *HINTS.values())


async def play_alone(place: Place, database: Path) -> int:
    """Five acts on one run; 1 if a promise was broken."""
    from ..app import Bread

    await _finish_earlier(place, database)
    promises = Promises()
    async with Bread(agents=[publisher(database)], store=place.store, executes=False) as bread:
        run_id = await bread.start(AGENT, INPUT, tags={"bread": "demo"}, by=person(None))
        print(f"run {run_id}  agent {AGENT}")
        async with Audience(bread.observe(run_id)) as audience:
            play = _Play(place, database, bread, run_id, audience, promises)
            await play.suspend()
            await play.answer()
            await play.go_on()
        print("\nThe promises of this run:")
        promises.check(
            play.killed == 3, "every kill was real, and the run outlived all of them", f"{play.killed} x SIGKILL"
        )
        play.check_race()
        await check_run(bread, database, run_id, promises)
        await check_audience(bread, run_id, audience, promises)
    print(f"\nLook at what was recorded:  {place.command('audit', 'show', run_id)}")
    print(f"In a terminal you answer yourself:  {place.command('demo')}")
    return promises.code()


async def _finish_earlier(place: Place, database: Path) -> None:
    """Let runs go on that a demo left in the middle: they would be taken by this play's processes."""
    from ..app import Bread

    async with Bread(agents=[publisher(database)], store=place.store) as bread:
        for run in (await bread.list_runs(agent=AGENT, status="running", limit=1000)).items:
            print(f"run {run.id} of an earlier demo goes on", flush=True)
            async for _ in bread.observe(run.id, until="rest"):
                pass


class Audience:
    """Watches the run from this process, which performs nothing of it, through the store alone."""

    def __init__(self, stream: AsyncIterable[AnyCrumb]) -> None:
        self.crumbs: list[AnyCrumb] = []
        self._printer, self._news = CrumbPrinter(), asyncio.Event()
        self._watching = asyncio.create_task(self._watch(stream))
        self._watching.add_done_callback(lambda task: self._news.set())

    async def __aenter__(self) -> Audience:
        return self

    async def __aexit__(self, *exc: object) -> None:
        self._watching.cancel()
        await asyncio.gather(self._watching, return_exceptions=True)

    async def _watch(self, stream: AsyncIterable[AnyCrumb]) -> None:
        async for crumb in stream:
            self._printer.show(crumb)
            self.crumbs.append(crumb)
            self._news.set()
        self._printer.rest()

    async def sees(self, kind: type[C], count: int = 1) -> C:
        """Wait for the first crumbs of a kind, unless they have been shown already; gives the last of so many."""
        try:
            async with asyncio.timeout(PATIENCE_SECONDS):
                while True:
                    seen = [crumb for crumb in self.crumbs if isinstance(crumb, kind)]
                    if len(seen) >= count:
                        return seen[count - 1]
                    if self._watching.done():
                        await self._watching
                        raise BreadError("PROMISE_BROKEN", f"the run ended without {kind.__name__}")
                    self._news.clear()
                    await self._news.wait()
        except TimeoutError:
            raise BreadError("PROMISE_BROKEN", f"no {kind.__name__} came within {PATIENCE_SECONDS:.0f} s") from None

    async def sees_the_end(self) -> None:
        async with asyncio.timeout(PATIENCE_SECONDS):
            await asyncio.shield(self._watching)

    def say(self, text: str) -> None:
        self._printer.rest()
        print(f"-- {text}", flush=True)


class _Play:
    def __init__(
        self, place: Place, database: Path, bread: Bread, run_id: str, audience: Audience, promises: Promises
    ) -> None:
        self._place, self._database, self._bread, self._run_id = place, database, bread, run_id
        self._audience, self._promises = audience, promises
        self._race: list[tuple[str, int, str]] = []
        self._checkpoint = ""
        self.killed = 0

    async def suspend(self) -> None:
        """Two processes die: one inside the transaction that opens the question, one when it has been asked."""
        await self._kill("suspending", "inside the transaction that opens its question", ToolResult)
        run = await self._bread.get_run(self._run_id)
        self._promises.check(
            run.orphaned and not run.checkpoints, "no half of a suspension is left", f"{run.status}, an orphan"
        )
        await self._kill("waiting", "while it waits for the answer", HumanRequired)
        self._checkpoint = (await self._audience.sees(HumanRequired)).checkpoint_id
        run = await self._bread.get_run(self._run_id)
        self._promises.check(
            run.status == "suspended" and run.checkpoints == (self._checkpoint,),
            "the question outlives its process",
            f"{run.status}, {len(run.checkpoints)} question",
        )

    async def answer(self) -> None:
        """Two processes answer at once."""
        self._audience.say("two processes answer the question at the same time")
        self._race = list(await asyncio.gather(*(self._approve(name) for name in ("ann", "bob"))))
        await self._audience.sees(HumanResumed)

    async def go_on(self) -> None:
        """The process that goes on dies in the middle of a sentence; this one ends the run."""
        from ..app import Bread

        await self._kill("speaking", "after the answer, in the middle of a sentence of the model", HumanResumed)
        self._audience.say("this process goes on with the same run")
        async with Bread(agents=[publisher(self._database)], store=self._place.store):
            await self._audience.sees(RunEnd)

    def check_race(self) -> None:
        won = [name for name, code, _ in self._race if code == 0]
        lost = [error for _, code, error in self._race if code == 1]
        self._promises.check(
            len(won) == 1 and len(lost) == 1 and lost[0].startswith("CHECKPOINT_NOT_FOUND:"),
            "of two answers at once one wins, and the other is told",
            f"won: {', '.join(won) or 'nobody'}; other: {'; '.join(lost) or 'nothing'}",
        )

    async def _kill(self, moment: str, words: str, shown: type[AnyCrumb]) -> None:
        """Let a process perform the run until it kills itself; what it had committed is shown first."""
        arguments = ("demo_child", self._place.store, str(self._database), self._run_id, moment)
        code, error, process = await process_of(*arguments)
        await self._audience.sees(shown)
        if code == -signal.SIGKILL:
            self.killed += 1
            self._audience.say(f"process {process} was killed with SIGKILL {words}")
        else:
            self._promises.check(False, f"a process dies {words}", f"exit code {code} {error}")

    async def _approve(self, name: str) -> tuple[str, int, str]:
        words = ("--store", self._place.store, "checkpoints", "approve", self._checkpoint, "--author", name, "--detach")
        code, error, _ = await process_of("__main__", *words)
        return name, code, error


async def process_of(module: str, *arguments: str, **env: str) -> tuple[int, str, int]:
    """Run a module of this package as a process: its exit code, what it said on stderr, and its id.

    Its stdin is a pipe that ends with this process, so that it need not outlive it.
    """
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        f"{__package__}.{module}",
        *arguments,
        env={**os.environ, **env},
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        async with asyncio.timeout(PATIENCE_SECONDS):
            error = await process.stderr.read() if process.stderr else b""
            await process.wait()
    except TimeoutError:
        raise BreadError("PROMISE_BROKEN", f"{module} did not end within {PATIENCE_SECONDS:.0f} s") from None
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
        if process.stdin is not None:
            process.stdin.close()
    return process.returncode or 0, error.decode(errors="replace").strip(), process.pid


async def check_audience(bread: Bread, run_id: str, audience: Audience, promises: Promises) -> None:
    replayed = [crumb async for crumb in bread.observe(run_id)]
    seen, recorded = (
        [(crumb.seq, crumb.type) for crumb in crumbs if not isinstance(crumb, LIVE)]
        for crumbs in (audience.crumbs, replayed)
    )
    promises.check(
        seen == recorded == sorted(set(seen)) and text_of(audience.crumbs) == text_of(replayed),
        "who watched all the time saw every event once and in order",
        f"{len(seen)} seen, {len(recorded)} recorded",
    )
