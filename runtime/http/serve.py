"""A server for the API: uvicorn, which ends in seconds also while streams are open."""

from __future__ import annotations

import asyncio
import ipaddress
import signal
import socket
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager

import uvicorn

from ...domain.errors import InvalidInput
from ..app import Bread
from .api import BODY_LIMIT, create_api
from .auth import Auth
from .streams import KEEP_ALIVE

STOP_SECONDS = 2
BACKLOG = 2048


def serve(
    bread: Bread,
    host: str,
    port: int,
    *,
    auth: Auth | None = None,
    cors: Iterable[str] = (),
    open_to_all: bool = False,
    ready: Callable[[str], None] = lambda address: None,
    body_limit: int = BODY_LIMIT,
    keep_alive: float = KEEP_ALIVE,
    only_health: bool = False,
) -> None:
    """Serve until SIGINT or SIGTERM. Open streams are ended, outcomes under way are committed, runs are given back.

    `port` 0 takes a free one; `ready` is told the address; the rest is as of `create_api`. Raises INPUT_INVALID for an
    address that cannot be listened on, or that others can reach while nobody is asked who they are, unless it is
    `open_to_all`; and what keeps the store from opening.
    """
    if not open_to_all and not is_loopback(host) and not (auth and auth.asks):
        raise InvalidInput(
            "INPUT_INVALID",
            f"{host} can be reached by others, and nobody would be asked who they are: make keys (bread keys add), "
            "or say --open-to-all",
        )
    with listen(host, port) as listening, _quiet_stop():
        config = uvicorn.Config(
            create_api(
                bread, auth=auth, cors=cors, body_limit=body_limit, keep_alive=keep_alive, only_health=only_health
            ),
            lifespan="off",
            timeout_graceful_shutdown=STOP_SECONDS,
            log_level="warning",
            server_header=False,
        )
        asyncio.run(_serve(bread, uvicorn.Server(config), listening, ready))


async def _serve(bread: Bread, server: uvicorn.Server, listening: socket.socket, ready: Callable[[str], None]) -> None:
    host, port = listening.getsockname()[:2]
    async with bread:
        ready(f"http://{f'[{host}]' if ':' in host else host}:{port}")
        await server.serve(sockets=[listening])


@contextmanager
def listen(host: str, port: int) -> Iterator[socket.socket]:
    """A socket that listens; INPUT_INVALID where that is not to be had."""
    # Who connects before the server takes connections waits in the backlog.
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        listening = socket.create_server((host, port), family=family, backlog=BACKLOG)
    except OSError as error:
        why = str(error.strerror).partition(" (while")[0]
        raise InvalidInput("INPUT_INVALID", f"cannot listen on {host} port {port}: {why}") from error
    with listening:
        # Its connections inherit it. asyncio does not see that this is TCP, and would leave each answer on a connection
        # that is kept to wait 40 ms for the client's acknowledgement of its first half.
        listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        yield listening


@contextmanager
def _quiet_stop() -> Iterator[None]:
    """After its own shutdown uvicorn raises the signal once more: a stop that was asked for is no failure."""
    before = {number: signal.signal(number, lambda *_: None) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches an address."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
