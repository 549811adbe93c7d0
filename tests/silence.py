"""A way to a server that can fall silent: it takes what it is sent, and hands nothing on."""

from __future__ import annotations

import socket
import threading
from types import TracebackType
from typing import Self

SIZE = 65536


class Way:
    """A TCP proxy. `silence` stops it in the middle: both kernels still acknowledge, and nobody is told anything."""

    def __init__(self, port: int) -> None:
        self._target = port
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listening.getsockname()[1])
        self._open = threading.Event()
        self._open.set()
        self._sockets: list[socket.socket] = []
        threading.Thread(target=self._accept, daemon=True).start()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._listening.close()
        self._open.set()
        for one in self._sockets:
            one.close()

    def silence(self) -> None:
        self._open.clear()

    def speak(self) -> None:
        self._open.set()

    def _accept(self) -> None:
        while True:
            try:
                near, _ = self._listening.accept()
            except OSError:
                return  # closed
            far = socket.create_connection(("127.0.0.1", self._target))
            self._sockets += [near, far]
            for one, other in ((near, far), (far, near)):
                threading.Thread(target=self._hand_on, args=(one, other), daemon=True).start()

    def _hand_on(self, one: socket.socket, other: socket.socket) -> None:
        try:
            while data := one.recv(SIZE):
                self._open.wait()
                other.sendall(data)
            other.shutdown(socket.SHUT_WR)
        except OSError:
            one.close()  # either side is gone: so is the other
            other.close()
