"""Plays a composition to its end, with people who answer as they like, and looks at what is left."""

from __future__ import annotations

import asyncio
from collections import Counter
from random import Random
from typing import Any

from bread import AnyCrumb, Bread, BreadError, RunStopped, RunSuspended, Tool, define_tool
from bread.runtime.scripted import Part
from bread.testing import pause
from compositions.trees import Fails, Shape, agents_of, answer_to, output_of, steps_of
from scenes import Checked, durable
from support import read

ENDED = ("completed", "failed", "cancelled")


class Play:
    """One composition on a bread of its own. The same seed does the same, as far as the event loop does."""

    def __init__(self, shape: Shape, seed: int, **options: Any) -> None:
        self.shape, self.random = shape, Random(seed)
        self.counted: Counter[str] = Counter()
        self.options = options
        self.eager, self.doubled, self.jitter, self.mistaken = (self.random.random() < 0.5 for _ in range(4))
        self.options.setdefault("always_replay", self.random.random() < 0.1)
        self.stops = self.random.choice([None] * 6 + ["root", "part"])
        self.won: Counter[str] = Counter()
        self.stopped: str | None = None

    def bread(self) -> Bread:
        before = self._dawdle if self.jitter else tuple
        agents = agents_of(self.shape, self._count(), before=before)
        pipelines = {"tree": [steps_of(self.shape)]} if not self.shape.is_agent else {}
        return Checked(agents=agents, pipelines=pipelines, **({"store": "memory://"} | self.options))

    def _count(self) -> Tool:
        @define_tool
        async def count(what: str) -> None:
            self.counted[what] += 1

        return count

    def _dawdle(self) -> list[Part]:
        async def wait() -> None:
            for _ in range(self.random.randrange(8)):
                await asyncio.sleep(0)

        return [pause(wait)]

    # --- what happens

    async def play(self) -> None:
        async with self.bread() as bread:
            if self.shape.is_agent:
                run_id = await bread.start(self.shape.id, "go")
            else:
                run_id = await bread.start_pipeline("tree", "go")
            watching = asyncio.create_task(read(bread.observe(run_id)))
            async with asyncio.TaskGroup() as people:
                while (run := await bread.get_run(run_id)).status not in ENDED:
                    if not self.eager or not run.checkpoints:
                        await self._rest(bread, run_id)
                    await self._go_on(bread, run_id, people)
            await self._check(bread, run_id, await watching)

    async def _rest(self, bread: Bread, run_id: str) -> None:
        async for _ in bread.observe(run_id, until="rest"):
            if self.eager and (await bread.get_run(run_id)).checkpoints:
                return

    async def _go_on(self, bread: Bread, run_id: str, people: asyncio.TaskGroup) -> None:
        """Some of the open questions are answered at the same instant, or somebody stops the whole or a part of it."""
        pending = (await bread.list_checkpoints(answerable=True, limit=1000)).items
        if not pending:
            return
        if self.stops is not None and self.random.random() < 0.3:
            runs = (await bread.list_runs(root=run_id, limit=1000)).items
            parts = [run.id for run in runs if run.id != run_id and run.status not in ENDED]
            target = run_id if self.stops == "root" or not parts else self.random.choice(parts)
            self.stops = None
            if await bread.cancel(target, reason="enough") == "cancelled":
                self.stopped = "root" if target == run_id else "part"
            return
        chosen = self.random.sample(pending, self.random.randint(1, len(pending)))
        if self.doubled:
            chosen += self.random.sample(chosen, self.random.randint(0, len(chosen)))
        answers = [self._answer(bread, one.id, answer_to(one.args)) for one in chosen]
        if self.mistaken:
            answers.insert(self.random.randint(0, len(answers)), self._answer(bread, chosen[0].id, None))
        if self.eager:
            for answer in answers:
                people.create_task(answer)
            await asyncio.sleep(0)
        else:
            await asyncio.gather(*answers)

    async def _answer(self, bread: Bread, checkpoint_id: str, response: Any) -> None:
        try:
            await bread.resume(checkpoint_id, response)
        except (RunSuspended, RunStopped):
            pass
        except BreadError as error:
            if error.code != "CHECKPOINT_NOT_FOUND" and (error.code, response) != ("RESPONSE_INVALID", None):
                raise
            return
        assert response is not None
        self.won[checkpoint_id] += 1

    # --- what is left

    async def _check(self, bread: Bread, run_id: str, seen: list[AnyCrumb]) -> None:
        run = await bread.get_run(run_id)
        try:
            wanted = ("completed", output_of(self.shape, "go"))
        except Fails:
            wanted = ("failed", None)
        match self.stopped:
            case None:
                assert (run.status, run.output) == wanted
            case "root":
                assert run.status == "cancelled"
        assert (await bread.list_checkpoints(limit=1000)).items == []
        runs = (await bread.list_runs(root=run_id, limit=1000)).items
        assert {one.status for one in runs} <= {*ENDED}
        events = [event async for event in bread.audit(run_id)]
        assert [event.seq for event in events] == [*range(1, len(events) + 1)]
        replayed = await read(bread.observe(run_id))
        assert shown(seen) == shown(replayed)
        self._questions(replayed, [event.stream for event in events if event.name == "checkpoint.opened"])
        assert all(count == 1 for count in self.counted.values()), self.counted
        returned = [
            event for event in events if event.name == "run.tool_returned" and event.data["tool"] == "tool_count"
        ]
        begun = [event for event in events if event.name == "run.tool_called" and event.data["tool"] == "tool_count"]
        assert len(returned) <= len(self.counted) <= len(begun)
        assert self.stopped or len(returned) == len(begun)
        # Every run begins once and ends once; every turn of a model came once: nobody went on twice.
        for name in ("run.started", "run.completed", "run.failed", "run.cancelled"):
            assert max(Counter(event.stream for event in events if event.name == name).values(), default=1) == 1
        ends = Counter(event.stream for event in events if event.name in [f"run.{status}" for status in ENDED])
        assert ends == Counter(one.id for one in runs)
        turns = Counter((event.stream, event.data["turn"]) for event in events if event.name == "run.model_responded")
        assert all(count == 1 for count in turns.values())

    def _questions(self, crumbs: list[AnyCrumb], opened: list[str]) -> None:
        """Each surfaced once, ahead of the one thing that became of it; each answer was used once."""
        surfaced: list[str] = []
        settled: list[str] = []
        answered: list[str] = []
        for crumb in crumbs:
            if crumb.type == "human:required":
                surfaced.append(crumb.checkpoint_id)
            elif crumb.type in ("human:resumed", "human:discarded"):
                assert crumb.checkpoint_id in surfaced
                settled.append(crumb.checkpoint_id)
                if crumb.type == "human:resumed":
                    answered.append(crumb.checkpoint_id)
        assert sorted(surfaced) == sorted(settled) == sorted(opened)
        assert len({*surfaced}) == len(surfaced)
        assert self.won == Counter(answered)


def shown(crumbs: list[AnyCrumb]) -> list[dict[str, Any]]:
    """What every reader sees the same of. A cursor also says how far the texts are that others are saying meanwhile."""
    return [wire | {"cursor": ""} for wire in durable(crumbs)]


async def play(shape: Shape, seed: int, **options: Any) -> None:
    async with asyncio.timeout(60):
        await Play(shape, seed, **options).play()
