"""The work queue on NATS JetStream: a stream of jobs, and one durable consumer for each agent that has workers.

Nothing here is truth: jobs are small, go after an hour, and may be lost. Who owns a run stands in the log.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable
from contextlib import suppress
from dataclasses import dataclass
from typing import TypeVar

import msgpack
import nats.errors
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.js import JetStreamContext, api
from nats.js.errors import NotFoundError

from .nats_link import FAILURES, Link, words_of
from .port import Delivery, Job, NotKept
from .subjects import WORK, WORK_STREAM, token, work_subject

T = TypeVar("T")
logger = logging.getLogger("bread")
VERSION = 1
ACK_SECONDS = 2.0
AGAIN_SECONDS = 30.0  # a job that nobody has said to be at work on is given to another
FETCH_SECONDS = 5.0  # a fetch that was lost with the server is made again after that
KEPT_SECONDS = 3600.0
STREAM = api.StreamConfig(
    name=WORK_STREAM,
    description="Runs that are ready, for the workers of bread",
    subjects=[WORK],
    storage=api.StorageType.FILE,
    retention=api.RetentionPolicy.WORK_QUEUE,
    discard=api.DiscardPolicy.OLD,
    max_age=KEPT_SECONDS,
    max_bytes=64 << 20,
    duplicate_window=120,
)


@dataclass(frozen=True, slots=True)
class Delivered:
    """Implements Delivery."""

    job: Job
    message: Msg

    async def done(self) -> None:
        await careful(self.message.ack())

    async def again(self, seconds: float) -> None:
        await careful(self.message.nak(delay=seconds or None))

    async def working(self) -> None:
        await careful(self.message.in_progress())


class JetStreamWork:
    """Implements WorkQueue on the connection of a bus."""

    def __init__(self, link: Link) -> None:
        self._link = link
        self._client: Client | None = None
        self._js: JetStreamContext | None = None
        self._consumers: dict[str, JetStreamContext.PullSubscription] = {}
        self._has_queue = True

    @property
    def is_up(self) -> bool:
        return self._has_queue and self._link.up.is_set()

    async def until_up(self) -> None:
        await self._link.up.wait()

    async def offer(self, job: Job) -> None:
        js = await self._stream()
        data = msgpack.packb({"v": VERSION, "root": job.root, "run": job.run_id})
        headers = {"Nats-Msg-Id": f"{job.run_id}:{job.version}"}
        subject = work_subject(job.tenant, job.agent)
        await self._careful(js.publish(subject, data, timeout=ACK_SECONDS, stream=WORK_STREAM, headers=headers))

    async def fetch(self, agent: str) -> Delivery | None:
        consumer, began = await self._consumer(agent), time.monotonic()
        try:
            # One at a time: the client waits until the last of several has come.
            [message] = await consumer.fetch(1, timeout=FETCH_SECONDS)
        except nats.errors.TimeoutError as error:
            if time.monotonic() - began < FETCH_SECONDS / 10:
                raise NotKept("the server takes no more requests") from error
            return None
        except FAILURES as error:
            self._forget()
            raise NotKept(words_of(error)) from error
        try:
            job = _job_of(agent, message)
        except Exception as error:
            # It would come again and again, to everybody.
            logger.error("a job of agent %s cannot be read, and is removed: %s", agent, error)
            await careful(message.term())
            return None
        return Delivered(job, message)

    async def withdraw(self) -> None:
        # The library has no other way to end a request that is under way.
        asked = [consumer._sub.drain() for consumer in self._consumers.values()]  # type: ignore[no-untyped-call]
        with suppress(*FAILURES):
            await asyncio.wait_for(asyncio.gather(*asked, return_exceptions=True), ACK_SECONDS)

    # --- what must be there

    async def _careful(self, work: Awaitable[T]) -> T:
        try:
            return await careful(work)
        except NotKept:
            self._forget()
            raise

    def _forget(self) -> None:
        """What is there is looked at again."""
        self._js = None
        self._consumers.clear()

    async def _stream(self) -> JetStreamContext:
        client = self._link.client
        if client is None or not self._link.up.is_set():
            raise NotKept("NATS is down")
        if self._js is None or self._client is not client:
            self._forget()
            js = client.jetstream(timeout=ACK_SECONDS)
            try:
                await _make(js)
            except FAILURES as error:
                self._complain(words_of(error))
                raise NotKept(words_of(error)) from error
            self._js, self._client, self._has_queue = js, client, True
        return self._js

    def _complain(self, words: str) -> None:
        if self._has_queue and self._link.up.is_set():
            logger.warning("there is no work queue: ready runs are found in the store, a little later: %s", words)
            self._has_queue = False

    async def _consumer(self, agent: str) -> JetStreamContext.PullSubscription:
        js = await self._stream()
        if agent not in self._consumers:
            self._consumers[agent] = await self._careful(_bind(js, token(agent), work_subject(None, agent)))
        return self._consumers[agent]


async def careful(work: Awaitable[T]) -> T:
    """A failure of NATS in the words of the port."""
    try:
        return await work
    except FAILURES as error:
        raise NotKept(words_of(error)) from error


async def _make(js: JetStreamContext) -> None:
    try:
        await js.stream_info(WORK_STREAM)
    except NotFoundError:
        await js.add_stream(STREAM)


async def _bind(js: JetStreamContext, name: str, subjects: str) -> JetStreamContext.PullSubscription:
    """Every process makes the consumer of an agent in the same way; it goes an hour after the last of them."""
    config = api.ConsumerConfig(
        name=name,  # with it the client asks by the subject that has the filter, which a user may be held to
        durable_name=name,
        filter_subject=subjects,
        ack_policy=api.AckPolicy.EXPLICIT,
        ack_wait=AGAIN_SECONDS,
        max_deliver=-1,
        max_ack_pending=10_000,
        inactive_threshold=KEPT_SECONDS,
    )
    await js.add_consumer(WORK_STREAM, config)
    return await js.pull_subscribe_bind(durable=name, stream=WORK_STREAM)


def _job_of(agent: str, message: Msg) -> Job:
    said = msgpack.unpackb(message.data)
    if said["v"] != VERSION:
        raise ValueError(f"version {said['v']!r}")
    return Job(agent=agent, root=str(said["root"]), run_id=str(said["run"]))
