"""Bread: the application object. Every door sends a command; the commands are the only way in."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Literal

from ..domain.commands import AnswerCheckpoint, AnyCommand, CancelRun, RetryRun, StartPipeline, StartRun
from ..domain.envelope import APP, Principal
from ..domain.errors import (
    BreadError,
    InvalidInput,
)
from ..domain.names import check_tags
from ..projections.audit import AuditEvent, audit_event
from ..projections.lists import Checkpoint, LoopView, Page, Run
from ..transport.cursor import parse_cursor
from ..transport.port import Transport
from . import audit, loop_reads, reads, tree_reads
from .agents import Agent
from .buses import bus_of
from .composing import Step, define_pipeline
from .door import Accepted, Door, checked
from .effects import BACKOFF_SECONDS
from .engine import Engine
from .handles import Begun, RunHandle
from .ids import new_id, short_id
from .listeners import Listener, Listeners
from .parts import by_id, given, in_folder
from .rebuild import Report
from .schema import to_json
from .sessions import Sessions
from .stores import DEFAULT_STORE, HEARTBEAT, check_store, open_store

GRACE_SECONDS = 5.0


class Bread:
    """Agents on a store. Use it as an async context manager.

    `agents_dir` is a folder with a folder for each agent, whose agents come beside those of `agents`; `pipelines` are
    lists of steps by their ids. `store` is `sqlite:///path` (relative to the working folder), `postgresql://...` (as
    libpq takes it) or `memory://`. With `executes=False` it reads and answers, but performs no run: those are left to
    processes that do; with `takes=False` it performs what is begun or answered here, and takes no other run that is
    ready or orphaned. `concurrency` caps the root runs that run here. `nats` is the URL of a server by which processes
    hear each other at once, and programs outside hear everything; `transport` is a Transport of one's own. `heartbeat`
    is for PostgreSQL: seconds between two beats, and until a worker that is silent counts as dead.
    """

    def __init__(
        self,
        *,
        agents: Iterable[Agent] = (),
        agents_dir: str | Path | None = None,
        pipelines: Mapping[str, Sequence[Step | str]] | None = None,
        store: str = DEFAULT_STORE,
        concurrency: int | None = None,
        executes: bool = True,
        takes: bool = True,
        grace: float = GRACE_SECONDS,
        backoff: tuple[float, ...] = BACKOFF_SECONDS,
        nats: str | None = None,
        transport: Transport | None = None,
        heartbeat: tuple[float, float] = HEARTBEAT,
        clock: Callable[[], float] = time.time,
        fault: Callable[[str], None] | None = None,
        always_replay: bool = False,
    ) -> None:
        self.agents = by_id([*agents, *in_folder(agents_dir)])
        self.pipelines = {name: define_pipeline(name, steps, self.agents) for name, steps in (pipelines or {}).items()}
        self.store, self.nats, self.worker = store, nats, short_id("w")
        check_store(store)
        self._heartbeat = heartbeat
        if concurrency is not None and concurrency < 1:
            raise InvalidInput("INPUT_INVALID", "concurrency: expected at least 1")
        self._options: dict[str, Any] = {
            "executes": executes,
            "takes": takes,
            "max_running": concurrency,
            "backoff": backoff,
            "transport": transport or bus_of(nats),
            "fault": fault,
            "always_replay": always_replay,
        }
        self._clock, self._grace = clock, grace
        self._engine: Engine | None = None
        self._listeners = Listeners()
        self.sessions = Sessions(self._running)

    @classmethod
    def from_config(cls, folder: str | Path = ".", **options: Any) -> Bread:
        """The app of a folder: its agents, on what `bread.config.py` says; `options` as of Bread beat that."""
        from .config import app_options

        return cls(**(app_options(folder) | options))

    # --- life

    async def __aenter__(self) -> Bread:
        await self.open()
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.close()

    async def open(self) -> None:
        """Open the store and, if this process executes, take what is ready or orphaned."""
        options = {"clock": self._clock, **{name: self._options[name] for name in ("fault", "always_replay")}}
        journal, liveness = await asyncio.to_thread(open_store, self.store, self.worker, self._heartbeat, options)
        engine = Engine(journal, liveness, self.agents, self.pipelines, **self._options)
        engine.on_events = partial(self._listeners.hear, engine)
        engine.on_given_back = self._listeners.drain
        self._engine = engine
        await engine.open()

    async def close(self) -> None:
        """Give the runs back as ready and close the store."""
        if self._engine is not None and not self._engine.closing:
            await self._listeners.drain(self._grace)
            await self._engine.close(self._grace)

    def _running(self) -> Engine:
        if self._engine is None or self._engine.closing:
            raise BreadError("NOT_OPEN", "bread is not open: use `async with Bread(...) as bread`")
        return self._engine

    # --- runs

    def run(
        self,
        agent: str,
        input: Any,
        *,
        session: str | None = None,
        tags: Mapping[str, str] | None = None,
        skill: str | None = None,
        max_steps: int | None = None,
        idempotency_key: str | None = None,
        on_busy: Literal["fail", "wait"] = "fail",
        on_pending: Literal["fail", "cancel"] = "fail",
        by: Principal = APP,
    ) -> RunHandle:
        """A run of an agent, as a stream of crumbs or as its output. Begins when it is first iterated or awaited."""
        run_id = new_id("run")

        async def begin() -> Begun:
            command = checked(
                StartRun,
                agent=agent,
                input=to_json(input, "input"),
                run_id=run_id,
                session=session,
                tags=check_tags(tags),
                skill=skill,
                max_steps=max_steps,
                idempotency_key=idempotency_key,
                on_busy=on_busy,
                on_pending=on_pending,
                by=by,
            )
            return await self._begin(await self.send(command))

        return RunHandle(self._running(), begin, run_id=run_id)

    def run_pipeline(
        self,
        pipeline: str,
        input: Any,
        *,
        session: str | None = None,
        tags: Mapping[str, str] | None = None,
        idempotency_key: str | None = None,
        on_busy: Literal["fail", "wait"] = "fail",
        on_pending: Literal["fail", "cancel"] = "fail",
        by: Principal = APP,
    ) -> RunHandle:
        """A run of a pipeline, as a stream of crumbs or as the output of its last step; PIPELINE_NOT_FOUND."""
        run_id = new_id("run")

        async def begin() -> Begun:
            command = checked(
                StartPipeline,
                pipeline=pipeline,
                input=to_json(input, "input"),
                run_id=run_id,
                session=session,
                tags=check_tags(tags),
                idempotency_key=idempotency_key,
                on_busy=on_busy,
                on_pending=on_pending,
                by=by,
            )
            return await self._begin(await self.send(command))

        return RunHandle(self._running(), begin, run_id=run_id)

    async def start(self, agent: str, input: Any, **options: Any) -> str:
        """Commit the start of a run and leave it to run; options as of `run`. Gives the run id."""
        handle = self.run(agent, input, **options)
        return await handle.begin()

    async def start_pipeline(self, pipeline: str, input: Any, **options: Any) -> str:
        """Commit the start of a pipeline's run and leave it to run; options as of `run_pipeline`. Gives the run id."""
        handle = self.run_pipeline(pipeline, input, **options)
        return await handle.begin()

    def resume(
        self,
        checkpoint_id: str,
        response: Any = None,
        *,
        author: str | None = None,
        comment: str | None = None,
        idempotency_key: str | None = None,
        by: Principal | None = None,
    ) -> RunHandle:
        """Answer a question; the handle is the continuation. Exactly one answer wins."""

        async def begin() -> Begun:
            principal = by or (checked(Principal, kind="user", id=author) if author else APP)
            command = checked(
                AnswerCheckpoint,
                checkpoint_id=checkpoint_id,
                response=to_json(response, "response"),
                comment=comment,
                idempotency_key=idempotency_key,
                by=principal,
            )
            return await self._begin(await self.send(command))

        return RunHandle(self._running(), begin, run_id=None)

    def retry(self, run_id: str, *, max_steps: int | None = None, by: Principal = APP) -> RunHandle:
        """Go on with a failed root run; the handle is the continuation."""

        async def begin() -> Begun:
            return await self._begin(await self.send(checked(RetryRun, run_id=run_id, max_steps=max_steps, by=by)))

        return RunHandle(self._running(), begin, run_id=run_id)

    def observe(self, run_id: str, after: str | None = None, *, until: Literal["end", "rest"] = "end") -> RunHandle:
        """Everything that a run shows after a cursor, across its suspensions, to its end. Changes nothing.

        `until="rest"` ends the stream where the tree rests on questions now, too.
        """

        async def begin() -> Begun:
            cursor = parse_cursor(after)
            info = await self._running().journal.ask(tree_reads.run_info, run_id)
            root = info if info.root == run_id else await self._running().journal.ask(tree_reads.run_info, info.root)
            return Begun(run_id, root, cursor, view=run_id)

        return RunHandle(self._running(), begin, run_id=run_id, at_rest=until == "rest", past_rests=True)

    async def cancel(self, run_id: str, *, reason: str = "cancelled", by: Principal = APP) -> str:
        """Stop a run, discard its questions, leave no call open. Gives its status, which may be one it had before."""
        accepted = await self.send(checked(CancelRun, run_id=run_id, reason=reason, by=by))
        return accepted.status or "cancelled"

    async def get_run(self, run_id: str) -> Run:
        """A run with its input, its output or error, and its pending questions; RUN_NOT_FOUND."""
        [run] = await self._with_owners([await self._running().journal.ask(reads.get_run, run_id)])
        return run

    async def list_runs(
        self,
        *,
        agent: str | None = None,
        status: str | None = None,
        session: str | None = None,
        root: str | None = None,
        limit: int = 50,
        cursor: str | None = None,
    ) -> Page[Run]:
        """Root runs, newest first, without their inputs and outputs; with `root` all runs of that tree."""
        page = await self._running().journal.ask(
            reads.list_runs,
            tenant="default",
            filters=given(agent=agent, status=status, session=session, root=root),
            limit=reads.check_limit(limit),
            before=cursor,
        )
        return Page(await self._with_owners(page.items), page.next)

    async def get_loop(self, loop_id: str) -> LoopView:
        """A loop that an agent composed, with its iterations; LOOP_NOT_FOUND."""
        return await self._running().journal.ask(loop_reads.get_loop, loop_id)

    async def list_loops(
        self,
        *,
        agent: str | None = None,
        session: str | None = None,
        status: str | None = None,
        limit: int = 50,
        cursor: str | None = None,
    ) -> Page[LoopView]:
        """Loops in the order in which they were begun."""
        return await self._running().journal.ask(
            loop_reads.list_loops,
            tenant="default",
            filters=given(agent=agent, session=session, status=status),
            limit=reads.check_limit(limit),
            after=reads.page_start(cursor),
        )

    async def _with_owners(self, found: Sequence[Run]) -> list[Run]:
        owners = {run.owner for run in found if run.owner is not None}
        dead = await asyncio.to_thread(self._running().liveness.dead_among, owners) if owners else set[str]()
        return [run.model_copy(update={"orphaned": True}) if run.owner in dead else run for run in found]

    # --- checkpoints

    async def list_checkpoints(
        self,
        *,
        agent: str | None = None,
        tool: str | None = None,
        session: str | None = None,
        tags: Mapping[str, str] | None = None,
        kind: str | None = None,
        answerable: bool | None = None,
        limit: int = 50,
        cursor: str | None = None,
    ) -> Page[Checkpoint]:
        """Pending questions, oldest first."""
        return await self._running().journal.ask(
            reads.list_checkpoints,
            tenant="default",
            filters=given(agent=agent, tool=tool, session=session, kind=kind),
            tags=check_tags(tags),
            answerable=answerable,
            limit=reads.check_limit(limit),
            after=cursor,
        )

    async def get_checkpoint(self, checkpoint_id: str) -> Checkpoint:
        """A question, pending or settled: with who answered what and when."""
        return await self._running().journal.ask(reads.get_checkpoint, checkpoint_id)

    # --- audit and listeners

    async def audit(self, run_id: str | None = None) -> AsyncIterator[AuditEvent]:
        """The recorded events of a run's tree in order, as they stand in the log. Of a deleted run: its tombstone.

        Without a run: those of the whole store. What this release cannot read is named at the end: EVENT_UNKNOWN.
        """
        async for recorded in audit.events(self._running().journal, run_id):
            yield audit_event(recorded)

    async def check(self) -> Report:
        """Whether every stream loads, versions and seqs are contiguous, and the views are what the log gives."""
        return await self._running().journal.check()

    async def rebuild(self) -> int:
        """Replace the views by what the log gives; gives the number of streams."""
        return await self._running().journal.rebuild()

    def on(self, event: Literal["crumb", "human:required"], listener: Listener) -> Callable[[], None]:
        """Call `listener` with every crumb (or every question) of the runs on this store, whoever performs them.

        Every process that listens is told: let one of them notify people. Gives a function that ends it.
        """
        return self._listeners.add(event, listener)

    # --- commands

    async def send(self, command: AnyCommand) -> Accepted:
        """Carry out a command: the path that everything else takes."""
        return await Door(self._running()).send(command)

    async def _begin(self, accepted: Accepted) -> Begun:
        if accepted.root_run_id is None:
            raise BreadError("INTERNAL_ERROR", "a command that begins a stream named no run")
        self._running().sweep.asked_for(accepted.root_run_id, again=accepted.repeated)
        info = accepted.info
        if info is None:
            info = await self._running().journal.ask(tree_reads.run_info, accepted.root_run_id)
        # The stream is that of the whole tree, also where a child asked.
        return Begun(accepted.root_run_id, info, parse_cursor(accepted.cursor))


__all__ = ["Bread"]
