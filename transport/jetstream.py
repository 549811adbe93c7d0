"""NATS JetStream as the bus: crumbs are kept in a stream, and processes hear each other at once.

Between processes everything goes over core NATS, at most once: what is lost there is in the store. What is kept is
acknowledged, one message at a time for each run; its id lets the stream know what it has already.
"""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from typing import Any

import nats.errors
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.js import api
from nats.js.client import JetStreamContext
from nats.js.errors import APIError, BadRequestError, NoStreamResponseError, NotFoundError, ServiceUnavailableError

from ..domain.errors import BreadError, StoreUnreadable
from ..domain.ports import Logged
from .frames import LIMIT, Batches, Heard, Mark, Message, pack_batch, size_of, unpack_batch
from .local import Frame
from .nats_link import FAILURES, Link, barrier
from .nats_settings import address_of
from .port import NeverKept, NotKept
from .subjects import EVENTS, KEPT, STREAM, Kind, events_subject, pattern, root_of_events
from .work import JetStreamWork

logger = logging.getLogger("bread")
OLDEST = (2, 11)
ACK_SECONDS = 2.0
PACE_SECONDS = 0.015
DUPLICATE_WINDOW = 120.0
HEADERS = 8_000
PENDING = 4 << 20  # bytes on their way to the server; live frames above it are not worth waiting for
TENANTS = 10_000
NO_MESSAGE = 10043
KEPT_KINDS: tuple[Kind, ...] = ("crumbs", "human")


class JetStream:
    """Implements Bus. `url` as nats://user:password@host:4222, several with commas between them.

    `max_age` (seconds) and `max_bytes` are how long and how much the stream keeps: where it is there already, they are
    changed only if they are given. `creds` is the path of a credentials file, `tls` an ssl.SSLContext.
    """

    def __init__(
        self,
        url: str,
        *,
        password: str | None = None,
        creds: str | None = None,
        tls: Any = None,
        max_age: float | None = None,
        max_bytes: int | None = None,
        replicas: int = 1,
        name: str = "bread",
    ) -> None:
        self.on_gap: Callable[[], None] = lambda: None
        self.on_mark: Callable[[str, int], None] = lambda root, seq: None
        self.on_live: Callable[[str, str, Sequence[Heard]], None] = lambda tenant, root, frames: None
        self._max_age, self._max_bytes, self._replicas = max_age, max_bytes, replicas
        self.link = Link(
            address_of(url, password),
            name=name,
            creds=creds,
            tls=tls,
            prepare=self._prepare,
            missed=lambda: self.on_gap(),
        )
        self.work = JetStreamWork(self.link)
        self._heard: Callable[[str, Frame], None] = lambda root, frame: None
        self._js: JetStreamContext | None = None
        self._listening: Client | None = None
        self._batches = Batches()
        self._tenants: OrderedDict[str, str] = OrderedDict()
        self._due = asyncio.Event()
        self._later: asyncio.TimerHandle | None = None
        self._shown: list[Message] = []
        self._sender: asyncio.Task[None] | None = None
        self._unreadable = False

    @property
    def shown(self) -> str:
        """Where it is, without what is secret."""
        return self.link.address.shown

    @property
    def is_up(self) -> bool:
        return self.link.up.is_set()

    @property
    def limit(self) -> int:
        most = self.link.client.max_payload if self.link.client is not None else LIMIT
        return min(LIMIT, most - HEADERS)

    # --- life

    async def open(self, heard: Callable[[str, Frame], None]) -> None:
        self._heard = heard
        self._sender = asyncio.create_task(self._send_forever(), name="bread nats sender")
        try:
            await self.link.open()
        except BreadError:
            await self.close()
            raise

    async def close(self) -> None:
        if self._sender is not None:
            self._sender.cancel()
            await asyncio.gather(self._sender, return_exceptions=True)
            with suppress(*FAILURES):
                await self._send()
        if self._later is not None:
            self._later.cancel()
        await self.link.close()

    async def until_up(self) -> None:
        await self.link.up.wait()

    async def _prepare(self, client: Client) -> None:
        self.check_version(client)
        self._js = client.jetstream(timeout=ACK_SECONDS)
        await self._ensure_stream(self._js)
        if self._listening is not client:
            await client.subscribe(EVENTS, cb=self._on_message)
            self._listening = client
        await barrier(client)

    def check_version(self, client: Client) -> None:
        """TRANSPORT_TOO_OLD for a server that would take settings without knowing them."""
        version = client.connected_server_version
        if (version.major, version.minor) < OLDEST:
            raise BreadError(
                "TRANSPORT_TOO_OLD",
                f"NATS at {self.shown} has version {version.major}.{version.minor}; bread needs 2.11 or newer",
            )

    @property
    def stream(self) -> api.StreamConfig:
        """The stream as it is made where there is none."""
        return api.StreamConfig(
            name=STREAM,
            description="What bread tells of its runs",
            subjects=list(KEPT),
            storage=api.StorageType.FILE,
            retention=api.RetentionPolicy.LIMITS,
            discard=api.DiscardPolicy.OLD,
            max_age=self._max_age or 3600,
            max_bytes=self._max_bytes or 1 << 30,
            duplicate_window=min(DUPLICATE_WINDOW, self._max_age or DUPLICATE_WINDOW),
            allow_direct=True,
            compression=api.StoreCompression.S2,
            max_consumers=10_000,
            num_replicas=self._replicas,
        )

    async def _ensure_stream(self, js: JetStreamContext) -> None:
        """Make the stream, or what it must have; how long and how much it keeps is the administrator's."""
        try:
            try:
                there = (await js.stream_info(STREAM)).config
            except NotFoundError:
                await js.add_stream(self.stream)
                return
            except nats.errors.TimeoutError:
                return  # who may not look at it may well publish to it
            if (changed := self._changed(there)) is not None:
                await self._update(js, changed)
        except (ServiceUnavailableError, NoStreamResponseError, nats.errors.NoRespondersError) as error:
            raise BreadError("TRANSPORT_UNAVAILABLE", f"NATS at {self.shown} has no JetStream: start it with it") from (
                error
            )
        except (APIError, nats.errors.TimeoutError) as error:
            raise BreadError(
                "TRANSPORT_UNAVAILABLE",
                f"NATS at {self.shown} has no stream {STREAM}, and we could not make it: {error}",
            ) from error

    def _changed(self, there: api.StreamConfig) -> api.StreamConfig | None:
        """What the stream has to become; None where it is right as it is."""
        subjects = list(there.subjects or [])
        changes: dict[str, Any] = {}
        if not set(KEPT) <= set(subjects):
            changes["subjects"] = [*subjects, *(one for one in KEPT if one not in subjects)]
        if self._max_age is not None and there.max_age != self._max_age:
            changes["max_age"] = self._max_age
            changes["duplicate_window"] = min(DUPLICATE_WINDOW, self._max_age)
        if self._max_bytes is not None and there.max_bytes != self._max_bytes:
            changes["max_bytes"] = self._max_bytes
        return there.evolve(**changes) if changes else None

    async def _update(self, js: JetStreamContext, config: api.StreamConfig) -> None:
        try:
            await js.update_stream(config)
        except (APIError, nats.errors.TimeoutError) as error:
            logger.warning("the stream %s could not be changed to what was asked for: %s", STREAM, error)

    # --- between processes

    async def _on_message(self, message: Msg) -> None:
        try:
            root = root_of_events(message.subject)
            for frame in unpack_batch(message.data):
                if isinstance(frame, Mark):
                    self.on_mark(root, frame.seq)
                else:
                    self._heard(root, frame)
        except (StoreUnreadable, BreadError) as error:
            if not self._unreadable:  # once: another release is there for as long as it is
                logger.warning("what another process tells cannot be read: %s", error)
            self._unreadable = True

    def tell(self, root: str, frame: Frame) -> None:
        if isinstance(frame, Logged):
            self._tenants[root] = frame.recorded.meta.tenant
            self._tenants.move_to_end(root)
            if len(self._tenants) > TENANTS:
                self._tenants.popitem(last=False)
        self._add(self._tenants.get(root, "default"), root, frame, now=isinstance(frame, Logged))

    def mark(self, tenant: str, root: str, seq: int) -> None:
        self._add(tenant, root, Mark(seq), now=False)

    def show(self, message: Message) -> None:
        if self.is_up:
            self._shown.append(message)
            self._due.set()

    def _add(self, tenant: str, root: str, frame: Heard, *, now: bool) -> None:
        if not self.is_up:
            return
        self._batches.add(tenant, root, frame)
        if now:
            self._due.set()
        elif self._later is None:
            self._later = asyncio.get_running_loop().call_later(PACE_SECONDS, self._due.set)

    async def _send_forever(self) -> None:
        while True:
            await self._due.wait()
            try:
                await self._send()
            except FAILURES as error:
                # Nobody is owed these: who may have missed something looks at the store when the connection is back.
                logger.debug("live frames were lost: %s", error)

    async def _send(self) -> None:
        self._due.clear()
        if self._later is not None:
            self._later.cancel()
            self._later = None
        taken = self._batches.take()
        for tenant, root, frames in taken:
            self.on_live(tenant, root, frames)
        shown, self._shown = self._shown, []
        client = self.link.client
        if client is None or not self.is_up or client.pending_data_size > PENDING:
            return
        for tenant, root, frames in taken:
            for data in _in_pieces(frames, self.limit):
                await client.publish(events_subject(tenant, root), data)
        for message in shown:
            await client.publish(message.subject, message.data, headers=dict(message.headers) or None)

    # --- what is kept

    async def keep(self, message: Message) -> int:
        js = self._ready()
        try:
            ack = await js.publish(
                message.subject, message.data, timeout=ACK_SECONDS, stream=STREAM, headers=dict(message.headers)
            )
        except NoStreamResponseError as error:
            await self._make_again(js)
            raise NotKept("the stream was gone") from error
        except (BadRequestError, nats.errors.MaxPayloadError) as error:
            raise NeverKept(str(error)) from error
        except FAILURES as error:
            raise NotKept(str(error) or type(error).__name__) from error
        return ack.seq

    async def _make_again(self, js: JetStreamContext) -> None:
        try:
            await self._ensure_stream(js)
        except (BreadError, *FAILURES) as error:
            raise NotKept(str(error)) from error

    async def purge(self, tenant: str, session: str, root: str) -> None:
        js = self._ready()
        try:
            for kind in KEPT_KINDS:
                await js.purge_stream(STREAM, subject=pattern(kind, tenant=tenant, session=session, root=root))
        except FAILURES as error:
            raise NotKept(str(error) or type(error).__name__) from error

    async def remove(self, numbers: Iterable[int]) -> None:
        js = self._ready()
        for number in numbers:
            try:
                await js.delete_msg(STREAM, number)
            except APIError as error:
                if error.err_code != NO_MESSAGE:
                    raise NotKept(str(error)) from error
            except FAILURES as error:
                raise NotKept(str(error) or type(error).__name__) from error

    def _ready(self) -> JetStreamContext:
        if self._js is None or not self.is_up:
            raise NotKept("NATS is down")
        return self._js


def _in_pieces(frames: Sequence[Heard], limit: int) -> list[bytes]:
    """A batch as messages that fit. A frame that alone is too large is left out: the store has it."""
    if sum(map(size_of, frames)) < limit // 4 and len(data := pack_batch(frames)) <= limit:
        return [data]
    single = [pack_batch([frame]) for frame in frames]
    return [data for data in single if len(data) <= limit]
