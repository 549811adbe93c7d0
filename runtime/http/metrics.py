"""What operators watch, in Prometheus' format."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry, Gauge, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily
from prometheus_client.registry import Collector

from ...domain.errors import NotFound
from .. import tree_reads
from ..app import Bread

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ...projections.crumbs import AnyCrumb

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
COMMIT_SECONDS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.5, 1.0, 5.0)
WAIT_SECONDS = (1, 10, 60, 600, 3_600, 21_600, 86_400, 604_800, 2_592_000)


class Metrics:
    """The metrics of one open Bread. Counts of what stands in the store are read when they are asked for."""

    def __init__(self, bread: Bread) -> None:
        self._bread, self._registry = bread, CollectorRegistry()
        self._runs = Gauge("bread_runs", "Runs that have not ended.", ["status"], registry=self._registry)
        self._pending = Gauge("bread_checkpoints_pending", "Questions that wait for people.", registry=self._registry)
        self._observers = Gauge("bread_observers", "Streams that are open in this process.", registry=self._registry)
        commits = "Seconds of a transaction that writes, in this process."
        self._commits = Histogram("bread_commit_seconds", commits, registry=self._registry, buckets=COMMIT_SECONDS)
        waits = "Seconds from a question to its answer, of answers that this process has seen."
        self._waits = Histogram("bread_human_wait_seconds", waits, registry=self._registry, buckets=WAIT_SECONDS)
        self._tasks: set[asyncio.Task[None]] = set()
        bread._running().journal.writer.on_write = self._commits.observe
        self._registry.register(_Decisions(bread))
        bread.on("crumb", self._heard)

    def _heard(self, crumb: AnyCrumb) -> None:
        if crumb.type == "human:resumed":
            task = asyncio.ensure_future(self._waited(crumb.checkpoint_id, crumb.timestamp.timestamp()))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _waited(self, checkpoint_id: str, until: float) -> None:
        try:
            question = await self._bread.get_checkpoint(checkpoint_id)
        except NotFound:
            return  # deleted with its session meanwhile: nobody can say any more when it was asked
        self._waits.observe(max(0.0, until - question.created_at.timestamp()))

    async def text(self) -> bytes:
        """The metrics as they are now."""
        runtime = self._bread._running()
        runs, pending = await runtime.journal.ask(tree_reads.open_counts)
        for status in ("running", "suspended"):
            self._runs.labels(status).set(runs.get(status, 0))
        self._pending.set(pending)
        self._observers.set(runtime.hub.count)
        return generate_latest(self._registry)


class _Decisions(Collector):
    """Counters that the journal keeps itself."""

    def __init__(self, bread: Bread) -> None:
        self._bread = bread

    def collect(self) -> Iterator[CounterMetricFamily]:
        writer = self._bread._running().journal.writer
        commits, tried = writer.commits, writer.attempts
        yield CounterMetricFamily("bread_commits", "Decisions that were committed in this process.", commits)
        yield CounterMetricFamily("bread_commit_attempts", "How often decisions were taken.", tried)
