"""Handles: what `run`, `resume`, `retry` and `observe` give. To be iterated for crumbs, or awaited for the output."""

from __future__ import annotations

import asyncio
import warnings
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator
from contextlib import aclosing
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..domain.errors import BreadError, RunStopped, RunSuspended
from ..domain.events import JsonValue
from ..projections.crumbs import AgentError, AnyCrumb, RunEnd
from ..projections.render import RunInfo
from ..transport.cursor import Cursor
from . import reads
from .observer import Observer

if TYPE_CHECKING:
    from .engine import Engine


@dataclass(frozen=True, slots=True)
class Begun:
    """Where a stream begins: after `cursor` in the log of `root`. It shows the run `view` and what is below it."""

    run_id: str
    root: RunInfo
    cursor: Cursor
    view: str | None = None


class RunHandle:
    """A stream of a run. It begins lazily and once, whoever iterates or awaits it first.

    Iterating gives crumbs until the tree rests or ends; awaiting gives the output, or raises RunSuspended with the
    questions that are left, or the error that ended the run. What goes wrong before the run begins is raised at the
    first `await` or iteration. Leaving a stream, or cancelling who reads it, does not touch the run.
    """

    def __init__(
        self,
        engine: Engine,
        begin: Callable[[], Awaitable[Begun]],
        *,
        run_id: str | None,
        at_rest: bool = True,
        past_rests: bool = False,
    ) -> None:
        self._engine, self._begin, self._run_id = engine, begin, run_id
        self._at_rest, self._past_rests = at_rest, past_rests
        self._begun: asyncio.Task[Begun] | None = None

    @property
    def run_id(self) -> str:
        """The id of the run; that of a resume is known once it has begun: the root of the tree that goes on."""
        if self._run_id is None:
            raise BreadError("NOT_STARTED", "the run id is known once the stream has begun: await or iterate it first")
        return self._run_id

    async def begin(self) -> str:
        """Begin it now: what goes wrong before it begins is raised here. Gives the id of the run."""
        return (await self._start()).run_id

    async def _start(self) -> Begun:
        if self._begun is None:
            self._begun = self._engine.spawn(self._begin_once(), "begin")
        return await asyncio.shield(self._begun)

    async def _begin_once(self) -> Begun:
        begun = await self._begin()
        self._run_id = begun.run_id
        return begun

    def _observer(self, begun: Begun) -> Observer:
        return Observer(
            self._engine,
            begun.root,
            begun.cursor,
            at_rest=self._at_rest,
            past_rests=self._past_rests,
            view=begun.view,
        )

    async def _crumbs(self) -> AsyncGenerator[AnyCrumb, None]:
        begun = await self._start()
        async with aclosing(self._observer(begun).crumbs()) as crumbs:
            async for crumb in crumbs:
                yield crumb  # type: ignore[misc]  # every crumb class is in the union; a test holds them together

    def __aiter__(self) -> AsyncGenerator[AnyCrumb, None]:
        return self._crumbs()

    def __await__(self) -> Generator[object, None, JsonValue]:
        return self._output().__await__()

    async def _output(self) -> JsonValue:
        begun = await self._start()
        observer, last, view = self._observer(begun), None, begun.view or begun.root.run_id
        async for crumb in observer.crumbs():
            if crumb.run_id == view and isinstance(crumb, RunEnd | AgentError):
                last = crumb
        if isinstance(last, RunEnd):
            return last.output
        if isinstance(last, AgentError):
            raise RunStopped(last.code, last.message, run_id=view)
        run = await self._engine.journal.ask(reads.get_run, view)
        if run.status == "suspended":
            raise RunSuspended(run.id, run.checkpoints)
        if run.status == "completed":
            return run.output
        if run.status != "running":
            raise RunStopped(run.code or "AGENT_ERROR", run.message or run.status, run_id=run.id)
        # It went on while the stream was being read to its rest.
        return await RunHandle(self._engine, self._begin_here(begun, observer.seq), run_id=run.id)

    def _begin_here(self, begun: Begun, seq: int) -> Callable[[], Awaitable[Begun]]:
        async def begin() -> Begun:
            return Begun(begun.run_id, begun.root, Cursor(seq), begun.view)

        return begin

    def __del__(self) -> None:
        if self._begun is None and not self._engine.closing:
            warnings.warn("a run handle was never awaited or iterated: nothing was started", RuntimeWarning, 2)
