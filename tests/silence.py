"""A way to a server that can fall silent: it takes what it is sent, and hands nothing on."""

from __future__ import annotations

import socket
import threading
from contextlib import suppress
from types import TracebackType
from typing import Self

SIZE = 65536


class Way:
    """A TCP proxy. Both kernels still acknowledge while it is silent, and nobody is told anything."""

    def __init__(self, port: int) -> None:
        self._target = port
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listening.getsockname()[1])
        self._speaks = True
        self._opened: list[tuple[socket.socket, socket.socket, int, threading.Event, threading.Event]] = []
        threading.Thread(target=self._accept, daemon=True).start()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        _end(self._listening)
        for near, far, *_ in self._opened:
            _end(near)
            _end(far)
        self.speak()

    def silence(self, *, only_open: bool = False) -> None:
        """Hand nothing on any more: of what is open now, or of everything that comes, too."""
        self._speaks = only_open
        for *_, there, back in self._opened:
            there.clear()
            back.clear()

    def hold_answers(self, port: int) -> None:
        """Hand no answer on to the connection that comes from this port."""
        [back] = [back for _, _, theirs, _, back in self._opened if theirs == port]
        back.clear()

    def speak(self) -> None:
        """Hand on again, first what was held back."""
        self._speaks = True
        for *_, there, back in self._opened:
            there.set()
            back.set()

    def _accept(self) -> None:
        while True:
            try:
                near, (_, port) = self._listening.accept()
            except OSError:
                return  # closed
            far = socket.create_connection(("127.0.0.1", self._target))
            there, back = threading.Event(), threading.Event()
            if self._speaks:
                there.set()
                back.set()
            self._opened.append((near, far, port, there, back))
            for one, other, may in ((near, far, there), (far, near, back)):
                one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                threading.Thread(target=_hand_on, args=(one, other, may), daemon=True).start()


def _hand_on(one: socket.socket, other: socket.socket, may: threading.Event) -> None:
    try:
        while data := one.recv(SIZE):
            may.wait()
            other.sendall(data)
        may.wait()
        other.shutdown(socket.SHUT_WR)
    except OSError:
        _end(one)  # either side is gone: so is the other
        _end(other)


def _end(one: socket.socket) -> None:
    """Close a socket that others may wait on."""
    with suppress(OSError):  # it is not connected any more
        one.shutdown(socket.SHUT_RDWR)
    one.close()
