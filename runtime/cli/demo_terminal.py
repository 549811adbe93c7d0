"""The demo at a terminal: events as they come, and a person who approves, rejects, leaves or kills this process."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...domain.commands import AnswerCheckpoint
from ...domain.errors import BreadError, NotFound
from ...projections.crumbs import AnyCrumb, HumanRequired, HumanResumed
from .crumbs import CrumbPrinter
from .demo import AGENT, INPUT, fetched, publisher
from .demo_checks import Promises, check_run
from .exits import DONE, STOPPED
from .options import person
from .prompting import Keyboard

if TYPE_CHECKING:
    from ..app import Bread
    from .place import Place

ANSWERS: dict[str, dict[str, dict[str, Any]]] = {
    "input": {"a": {"approved": True}, "r": {"approved": False}},
    "in_doubt": {"t": {"outcome": "retry"}, "f": {"outcome": "failed", "error": "it was cut off"}},
}
WORDS = {
    "a": "approve",
    "r": "reject (r and a reason)",
    "t": "try the call again",
    "f": "take it as failed",
    "k": "kill this process with SIGKILL",
    "q": "leave",
}


async def play_here(place: Place, database: Path) -> int:
    """Go on with the newest unfinished run of the demo, or start one, until it has ended or the person leaves."""
    from ..app import Bread

    place.if_interrupted = f"The run is kept: {place.command('demo')} goes on with it."
    async with Bread(agents=[publisher(database)], store=place.store) as bread:
        run_id, earlier = await _unfinished(bread), True
        if run_id is None:
            run_id, earlier = await bread.start(AGENT, INPUT, tags={"bread": "demo"}, by=person(None)), False
        print(f"run {run_id}  agent {AGENT}")
        if earlier:
            count = fetched(database, run_id)
            print(f"It was begun by an earlier process and goes on; fetch_draft was executed {count} x so far.")
        return await _Scene(place, bread, database, run_id).play()


async def _unfinished(bread: Bread) -> str | None:
    found = [(await bread.list_runs(agent=AGENT, status=status, limit=1)).items for status in ("running", "suspended")]
    return max((run.id for runs in found for run in runs), default=None)


class _Scene:
    """One run, its stream, and the keyboard."""

    def __init__(self, place: Place, bread: Bread, database: Path, run_id: str) -> None:
        self._place, self._bread, self._database, self._run_id = place, bread, database, run_id
        self._printer = CrumbPrinter()
        self._question: HumanRequired | None = None

    async def play(self) -> int:
        crumbs, keyboard = aiter(self._bread.observe(self._run_id)), Keyboard()
        next_crumb, next_line = asyncio.ensure_future(anext(crumbs)), asyncio.ensure_future(keyboard.line())
        try:
            while True:
                await asyncio.wait([next_crumb, next_line], return_when=asyncio.FIRST_COMPLETED)
                if next_crumb.done():
                    try:
                        await self._see(next_crumb.result())
                    except StopAsyncIteration:
                        return await self._end()
                    next_crumb = asyncio.ensure_future(anext(crumbs))
                elif await self._do(next_line.result()):
                    return DONE
                else:
                    next_line = asyncio.ensure_future(keyboard.line())
        finally:
            keyboard.close()
            for waiting in (next_crumb, next_line):
                waiting.cancel()
            await asyncio.gather(next_crumb, next_line, return_exceptions=True)

    async def _see(self, crumb: AnyCrumb) -> None:
        self._printer.show(crumb)
        match crumb:
            case HumanRequired():
                if crumb.checkpoint_id in (await self._bread.get_run(self._run_id)).checkpoints:
                    self._question = crumb
                    self._offer(crumb)
            case HumanResumed():
                self._question = None

    def _offer(self, question: HumanRequired) -> None:
        print("\nType a letter and press Enter:")
        for letter in (*ANSWERS.get(question.kind, {}), "k", "q"):
            print(f"  {letter}  {WORDS[letter]}")
        if question.kind == "input":
            print(f"or, in another terminal:  {self._place.command('checkpoints', 'approve', question.checkpoint_id)}")
        print("Try k, then run the same command again: the run goes on, and fetch_draft is not run again.", flush=True)

    async def _do(self, line: str | None) -> bool:
        """Carry out a line of the person. True if they leave."""
        letter, _, rest = (line if line is not None else "q").strip().partition(" ")
        question = self._question
        if letter == "k":
            self._printer.rest()
            print(f"killing process {os.getpid()}; run the same command again", flush=True)
            os.kill(os.getpid(), signal.SIGKILL)
        if letter == "q":
            self._printer.rest()
            print(f"The run is kept. Go on with:  {self._place.command('demo')}")
            return True
        answer = ANSWERS.get(question.kind, {}).get(letter) if question else None
        if question is not None and answer is not None:
            reason = {"reason": rest.strip()} if letter == "r" and rest.strip() else {}
            await self._answer(question, answer | reason)
        elif question is not None and letter:
            self._offer(question)
        return False

    async def _answer(self, question: HumanRequired, answer: dict[str, Any]) -> None:
        command = AnswerCheckpoint(checkpoint_id=question.checkpoint_id, response=answer, by=person(None))
        try:
            await self._bread.send(command)
        except NotFound as error:
            print(f"Somebody was faster: {error}")

    async def _end(self) -> int:
        self._printer.rest()
        run_id, promises = self._run_id, Promises()
        try:
            completed = (await self._bread.get_run(run_id)).status == "completed"
        except BreadError as error:
            if error.code != "RUN_NOT_FOUND":
                raise
            completed = False
        if not completed:
            return STOPPED
        print("\nThe promises of this run:")
        await check_run(self._bread, self._database, run_id, promises)
        print(f"\nLook at what was recorded:  {self._place.command('audit', 'show', run_id)}")
        return promises.code()
