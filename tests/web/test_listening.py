"""How a server listens."""

from __future__ import annotations

import socket

import pytest

from bread.runtime.http.serve import listen


@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
def test_answers_do_not_wait_for_acknowledgements(host: str) -> None:
    """B139: a connection sends what it has at once: else each answer on a kept one takes 40 ms."""
    with (
        listen(host, 0) as listening,
        socket.create_connection(listening.getsockname()[:2]),
        listening.accept()[0] as accepted,
    ):
        assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY) == 1
