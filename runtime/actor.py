"""The actor: one task for each run that this process owns, around the one loop.

It asks what is due, starts what it has not started, and waits for a change: an outcome of its own, or a fact that
somebody else appended. Starting, resuming, recovering and continuing are the same loop from another state. When nothing
is due and nothing in flight it is gone; what matters is in the log.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING

from ..domain import commits
from ..domain.envelope import Recorded
from ..domain.errors import BreadError, StoreUnavailable, StoreUnreadable
from ..domain.messages import AnyMessage
from ..domain.run import Fail
from ..domain.run_events import Resumed
from ..domain.run_state import AskDoubt, CallModel, CallTool, Effect, RunState, StartCalls, due, evolve
from ..projections.history import Conversation, messages_of
from . import reads
from .agents import Agent
from .effects import Lapsed, ask_doubt, call_model, call_tool, start_calls

if TYPE_CHECKING:
    from .engine import Engine

logger = logging.getLogger("bread")
Key = tuple[str | int, ...]


class Actor:
    """Performs the effects of one run, as long as this process owns it.

    `events` is the whole stream up to `state`, if it is at hand; `fresh` says that its session has no earlier runs.
    """

    def __init__(
        self, engine: Engine, agent: Agent, state: RunState, events: Sequence[Recorded], *, fresh: bool
    ) -> None:
        self.engine, self.agent, self.state = engine, agent, state
        self.run_id, self.root = state.id, state.root
        self.approvers: dict[str, str] = {}
        self._conversation = Conversation() if events and events[0].version == 1 else None
        self._earlier: list[AnyMessage] | None = [] if fresh else None
        self._seen = 0
        self._seqs: dict[int, int] = {}
        self._in_flight: dict[Key, asyncio.Task[None]] = {}
        self._begun: set[Key] = set()
        self._held = False
        self._news = asyncio.Event()
        self.update(state, events)

    # --- what happened

    def update(self, state: RunState, events: Sequence[Recorded]) -> None:
        """A commit of this process changed the run. `events` also has what others wrote before, if it was read."""
        for recorded in events:
            self._see(recorded)
        self.state = state
        self._news.set()

    async def catch_up(self) -> None:
        """Another process changed the run."""
        for recorded in await self.engine.journal.events(self.run_id, self.state.version):
            if recorded.version == self.state.version + 1:
                self._see(recorded)
                self.state = evolve(self.state, recorded.event)
        self._news.set()

    def go_on(self) -> None:
        """This process counts as living again: what was held back may begin."""
        self._held = False
        self._news.set()

    def _see(self, recorded: Recorded) -> None:
        if recorded.version <= self._seen:
            return
        self._seen = recorded.version
        self._note(recorded)
        if self._conversation is not None:
            self._conversation.add(recorded.event)

    def _note(self, recorded: Recorded) -> None:
        # Each event is where a model attempt may start from; the fold says which one it is.
        self._seqs[recorded.version] = recorded.meta.seq
        if isinstance(recorded.event, Resumed) and recorded.meta.by.kind == "user":
            self.approvers[recorded.event.call] = recorded.meta.by.id

    # --- the loop

    async def run(self) -> None:
        try:
            while self._owns() or self._awaits_tool():
                # What is not begun by now is begun by whoever owns the run next.
                begins = self._owns() and not self.engine.closing and not self._held
                for effect in due(self.state) if begins else ():
                    # Nothing is begun twice, not even where no outcome could be committed: that is for the next owner.
                    if effect.key not in self._begun:
                        self._start(effect)
                if not self._in_flight and not self._held:
                    break
                self._news.clear()
                await self._news.wait()
        finally:
            for task in self._in_flight.values():
                task.cancel()

    def _owns(self) -> bool:
        return self.state.owner == self.engine.worker

    def _awaits_tool(self) -> bool:
        """Replaced while a tool executes: its outcome may still settle the call."""
        return self.state.status == "active" and any(key[0] == "tool" for key in self._in_flight)

    def outcomes(self) -> list[asyncio.Task[None]]:
        """What is in flight and not to be cut off: everything but model calls, which lose nothing by it."""
        return [task for key, task in self._in_flight.items() if key[0] != "model"]

    def _start(self, effect: Effect) -> None:
        self._begun.add(effect.key)
        task = asyncio.create_task(self._perform(effect), name=f"bread {self.run_id} {effect.key}")
        self._in_flight[effect.key] = task
        task.add_done_callback(lambda done: self._finished(effect, done))

    def _finished(self, effect: Effect, task: asyncio.Task[None]) -> None:
        self._in_flight.pop(effect.key, None)
        if not task.cancelled() and isinstance(task.exception(), Lapsed):
            self._begun.discard(effect.key)
            self._held = True
        elif not task.cancelled() and (error := task.exception()) is not None:
            logger.error("run %s: %s failed", self.run_id, effect.key, exc_info=error)
        self._news.set()

    async def _perform(self, effect: Effect) -> None:
        try:
            await self._effect(effect)
        except Lapsed:
            raise
        except StoreUnavailable:
            raise  # only while closing: whoever owns the run next looks at it again
        except StoreUnreadable as error:
            self.engine.sweep.leave_alone(self.run_id, error)
        except BreadError as error:
            if error.code == "RUN_NOT_FOUND":
                return  # its session was deleted meanwhile
            await self._give_up(error)
        except Exception as error:
            await self._give_up(error)

    async def _give_up(self, error: Exception) -> None:
        """An effect failed in a way that no outcome stands for: end the run, with everything kept, and be loud."""
        logger.error("run %s cannot go on", self.run_id, exc_info=error)
        command = Fail(self.engine.worker, f"{type(error).__name__}: {error}"[:2000])
        await self.engine.persist(lambda streams: commits.fail(streams, self.run_id, command))

    async def _effect(self, effect: Effect) -> None:
        match effect:
            case CallModel():
                await call_model(self, effect)
            case StartCalls():
                await start_calls(self)
            case CallTool():
                await call_tool(self, effect.call)
            case AskDoubt():
                await ask_doubt(self, effect.call)

    # --- what effects need

    async def messages(self) -> list[AnyMessage]:
        """The prompt: the messages of the session's earlier root runs and of this one, in order."""
        if self._conversation is None or self.engine.always_replay:
            self._conversation = await self._reread()
        if self._earlier is None or self.engine.always_replay:
            ask, session = self.engine.journal.ask, self.state.session
            runs = await ask(reads.earlier_runs, session, self.run_id) if self.state.is_root else []
            self._earlier = [message for events in runs for message in messages_of(events)]
        return [*self._earlier, *self._conversation.messages]

    async def _reread(self) -> Conversation:
        while True:
            events = await self.engine.journal.events(self.run_id)
            if events[-1].version >= self._seen:  # else a commit came in between
                break
        conversation = Conversation()
        for recorded in events:
            conversation.add(recorded.event)
            self._note(recorded)
        self._seen = events[-1].version
        return conversation

    def seq_of_base(self) -> int:
        """The seq of the event from which the present model attempt starts."""
        seq = self._seqs.get(self.state.base)
        if seq is None:
            raise BreadError("INTERNAL_ERROR", f"run {self.run_id} has not seen its version {self.state.base}")
        return seq
