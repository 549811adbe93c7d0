"""A real NATS server for a test: its own port and store, killed and started again at will, ended by its pid."""

from __future__ import annotations

import atexit
import json
import os
import shutil
import signal
import subprocess
import sysconfig
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import nats
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.js import JetStreamContext, api

BINARY = Path(sysconfig.get_path("scripts"), "nats-server")
PATIENCE = 20.0


class NatsServer:
    """`more` are lines of its configuration. The first start takes a free port, later ones take the same."""

    def __init__(
        self, folder: Path, more: str = "", *, jetstream: bool = True, env: dict[str, str] | None = None
    ) -> None:
        self.folder, self._more, self._jetstream = folder, more, jetstream
        self._env = os.environ | (env or {})
        self.port = -1
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"nats://127.0.0.1:{self.port}"

    def start(self) -> None:
        """Start it, and wait until it answers."""
        self.folder.mkdir(parents=True, exist_ok=True)
        store = f'jetstream {{ store_dir: "{self.folder}/store" }}\n' if self._jetstream else ""
        lines = f'listen: "127.0.0.1:{self.port}"\nports_file_dir: "{self.folder}"\n{store}{self._more}\n'
        (self.folder / "nats.conf").write_text(lines)
        with (self.folder / "nats.log").open("ab") as log:
            command: list[str | Path] = [BINARY, "-c", self.folder / "nats.conf"]
            self._process = subprocess.Popen(command, stdout=log, stderr=log, env=self._env, cwd=self.folder)
        ports = self.folder / f"nats-server_{self._process.pid}.ports"
        until = time.monotonic() + PATIENCE
        while not ports.exists() or not ports.read_text().strip():  # the server writes it once it listens
            assert self._process.poll() is None, (self.folder / "nats.log").read_text()
            assert time.monotonic() < until, "the server did not start"
            time.sleep(0.005)
        self.port = int(json.loads(ports.read_text())["nats"][0].rpartition(":")[2])

    def kill(self, number: signal.Signals = signal.SIGKILL) -> None:
        assert self._process is not None
        os.kill(self._process.pid, number)
        self._process.wait()

    def stop(self) -> None:
        if self._process is not None and self._process.poll() is None:
            self.kill()

    def restart(self) -> None:
        """On the same store and port, after it was killed."""
        self.start()


@contextmanager
def running(folder: Path, more: str = "", **options: Any) -> Iterator[NatsServer]:
    server = NatsServer(folder, more, **options)
    server.start()
    try:
        yield server
    finally:
        server.stop()


@cache
def _shared() -> NatsServer:
    server = NatsServer(Path(tempfile.mkdtemp(prefix="bread-nats-")))
    atexit.register(shutil.rmtree, server.folder, ignore_errors=True)
    atexit.register(server.stop)
    return server


def emptied() -> NatsServer:
    """One server a test process, which has never heard of anything: runs of different tests have the same names."""
    server = _shared()
    server.stop()
    shutil.rmtree(server.folder / "store", ignore_errors=True)
    server.start()
    return server


async def outside(server: NatsServer, **options: Any) -> Client:
    """A client that has nothing of bread."""
    return await nats.connect(server.url, **options)


async def kept(server: NatsServer, subjects: str = "bread.v1.*.crumbs.>") -> list[Msg]:
    """Everything that the stream keeps of some subjects, in its order."""
    client = await outside(server)
    try:
        return await kept_of(client.jetstream(), subjects)
    finally:
        await client.close()


async def kept_of(js: JetStreamContext, subjects: str) -> list[Msg]:
    # Without acknowledgements: a thousand that are not acknowledged would be all that comes.
    reading = api.ConsumerConfig(ack_policy=api.AckPolicy.NONE)
    stored = await js.pull_subscribe(subjects, stream="BREAD_CRUMBS", config=reading)
    found: list[Msg] = []
    while (await stored.consumer_info()).num_pending:
        found += await stored.fetch(500, timeout=5)
    return found
