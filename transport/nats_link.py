"""One connection to NATS that never gives up: made in the background, watched, and made again.

Nobody waits for it. While it is down it is down; whoever uses it is told when it comes and when it goes.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress
from importlib.util import find_spec
from typing import Any

import nats.errors
from nats.aio.client import Client

from ..domain.errors import BreadError
from .nats_settings import Address

logger = logging.getLogger("bread")
OPEN_SECONDS = 3.0
RETRY_SECONDS = 0.5
AGAIN_SECONDS = 2.0
DRAIN_SECONDS = 2.0
FAILURES = (nats.errors.Error, OSError, TimeoutError, asyncio.TimeoutError)
NO_BUFFER = -1  # what could not be sent is sent again by us, or is not worth it: an old copy must not come later


async def barrier(client: Client) -> None:
    """What was subscribed is subscribed: the first ping may overtake it, the second does not."""
    await client.flush(5)
    await client.flush(5)


class Link:
    """`prepare` is awaited with each new connection; what it raises as a BreadError at the first one ends `open`.

    `missed` is called where messages may have been: a connection is lost, or ready again, or was too slow.
    """

    def __init__(
        self,
        address: Address,
        *,
        name: str,
        creds: str | None,
        tls: Any,
        prepare: Callable[[Client], Awaitable[None]],
        missed: Callable[[], None],
    ) -> None:
        self.address, self._prepare, self._missed = address, prepare, missed
        user = address.user or "bread"
        self.options: dict[str, Any] = {
            "servers": list(address.servers),
            "name": name,
            "user": address.user,
            "password": address.password,
            "token": address.token,
            "user_credentials": creds,
            "max_reconnect_attempts": -1,
            "reconnect_time_wait": RETRY_SECONDS,
            "connect_timeout": 2,
            "ping_interval": 10,
            "max_outstanding_pings": 2,
            "drain_timeout": DRAIN_SECONDS,
            "pending_size": NO_BUFFER,
            "no_echo": True,
            "inbox_prefix": f"_INBOX.{user}",
            "error_cb": self._on_error,
            "disconnected_cb": self._on_down,
            "reconnected_cb": self._on_up_again,
            "closed_cb": self._on_closed,
        }
        if tls is not None:
            self.options["tls"] = tls
        self.client: Client | None = None
        self.up = asyncio.Event()
        self._closed = asyncio.Event()
        self._closing = False
        self._complained: set[bool] = set()
        self._denied: set[str] = set()
        self._first: asyncio.Future[None] | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    async def open(self) -> None:
        """Connect, or go on trying in the background. TRANSPORT_UNAVAILABLE, TRANSPORT_TOO_OLD where trying is vain."""
        self.check_credentials()
        self._closing = False
        self._first = asyncio.get_running_loop().create_future()
        self._spawn(self._hold())
        done, _ = await asyncio.wait([self._first], timeout=OPEN_SECONDS)
        if not done:
            self._complain("no answer")
            self._first.set_result(None)
        try:
            self._first.result()
        except BreadError:
            await self.close()
            raise

    def check_credentials(self) -> None:
        """TRANSPORT_UNAVAILABLE for a file that cannot be used, which the library finds out in the background."""
        file = self.options["user_credentials"]
        if file is None:
            return
        try:
            with open(file, "rb"):
                pass
        except OSError as error:
            words = f"BREAD_NATS_CREDS: {file}: {error.strerror}"
            raise BreadError("TRANSPORT_UNAVAILABLE", words) from error
        if find_spec("nkeys") is None:
            words = "BREAD_NATS_CREDS needs a package: pip install 'nats-py[nkeys]'"
            raise BreadError("TRANSPORT_UNAVAILABLE", words)

    async def close(self) -> None:
        self._closing = True
        self.up.clear()
        client = self.client
        if client is not None and client.is_connected:
            with suppress(*FAILURES):
                await asyncio.wait_for(client.drain(), DRAIN_SECONDS + 1)
        for task in tuple(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if client is not None and not client.is_closed:
            with suppress(*FAILURES):
                await client.close()

    def _spawn(self, work: Any) -> None:
        task = asyncio.create_task(work, name="bread nats")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _hold(self) -> None:
        """A connection, and another one where the library has closed it for good: after a refusal, for example."""
        while not self._closing:
            self._closed.clear()
            client = self.client = Client()
            try:
                await client.connect(**self.options)
                if await self._ready(client):
                    await self._closed.wait()
            except FAILURES as error:
                self._complain(words_of(error))
            self.up.clear()
            with suppress(*FAILURES):
                await client.close()
            await asyncio.sleep(AGAIN_SECONDS)

    async def _ready(self, client: Client) -> bool:
        """Make a new connection fit for use. False where it cannot be made so now."""
        while client.is_connected:
            try:
                await self._prepare(client)
            except BreadError as error:
                if self._first is not None and not self._first.done():
                    self._first.set_exception(error)
                    return False
                self._complain(str(error))
            except FAILURES as error:
                self._complain(words_of(error))
            else:
                self._complained.clear()
                self.up.set()
                if self._first is not None and not self._first.done():
                    self._first.set_result(None)
                self._missed()
                return True
            await asyncio.sleep(AGAIN_SECONDS)
        return client.is_reconnecting

    # --- what the library tells

    async def _on_error(self, error: Exception) -> None:
        words = words_of(error)
        if isinstance(error, nats.errors.SlowConsumerError):
            self._missed()
        elif "permissions violation" in words.lower():
            if words not in self._denied and len(self._denied) < 100:
                self._denied.add(words)
                logger.warning("NATS does not permit: %s", words)
        elif not self.up.is_set():
            self._not_connected(words)
        elif not isinstance(error, nats.errors.UnexpectedEOF | nats.errors.StaleConnectionError | OSError):
            logger.warning("NATS: %s", words)  # a connection that ends is told of once, when it has

    def _not_connected(self, words: str) -> None:
        first = self._first
        if first is None or first.done():
            self._complain(words)
        elif is_refusal(words):
            first.set_exception(self.refused())
        else:
            self._complain(words)
            first.set_result(None)

    def refused(self) -> BreadError:
        return BreadError(
            "TRANSPORT_UNAVAILABLE",
            f"NATS at {self.address.shown} does not accept who we are: check the user and the password of --nats"
            " (BREAD_NATS, BREAD_NATS_PASSWORD) or the file of BREAD_NATS_CREDS",
        )

    def _complain(self, words: str) -> None:
        refused = is_refusal(words)
        if refused not in self._complained and not self._closing:
            why = self.refused().message if refused else f"NATS at {self.address.shown} cannot be used now: {words}"
            logger.warning("%s; runs go on, and it is tried again", why)
        self._complained.add(refused)

    async def _on_down(self) -> None:
        was_up = self.up.is_set()
        self.up.clear()
        if was_up:
            self._complain("the connection was lost")
            self._missed()

    async def _on_up_again(self) -> None:
        if self.client is not None:
            self._spawn(self._again(self.client))

    async def _again(self, client: Client) -> None:
        if await self._ready(client):
            logger.info("NATS at %s is back", self.address.shown)

    async def _on_closed(self) -> None:
        self._closed.set()


def is_refusal(words: str) -> bool:
    """Whether the server does not know us: trying again is vain until somebody changes something."""
    return any(sign in words.lower() for sign in ("authorization", "authentication"))


def words_of(error: BaseException) -> str:
    return str(error).removeprefix("nats: ").strip("'") or type(error).__name__
