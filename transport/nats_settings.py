"""Where NATS is, and who we are there. What is secret is in no text that anybody is shown."""

from __future__ import annotations

from dataclasses import dataclass, field
from urllib.parse import unquote, urlsplit

from ..domain.errors import InvalidInput

PORT = 4222
EXPECTED = "nats: expected nats://host:4222, or tls://, several with commas between them"


@dataclass(frozen=True, slots=True)
class Address:
    """`servers` are without user and password; `shown` is what a person may read."""

    servers: tuple[str, ...]
    user: str | None = None
    password: str | None = field(default=None, repr=False)
    token: str | None = field(default=None, repr=False)

    @property
    def shown(self) -> str:
        return ", ".join(server.partition("://")[2] for server in self.servers)


def address_of(url: str, password: str | None = None) -> Address:
    """What a URL says, INPUT_INVALID for what is none. A name without a password, there or given, is a token."""
    servers, user, secret = list[str](), None, password
    for part in url.split(","):
        try:
            found = urlsplit(part.strip())
            host, port = found.hostname, found.port or PORT
        except ValueError:
            host = None
        if not host or found.scheme not in ("nats", "tls") or found.path.strip("/") or found.query or found.fragment:
            raise InvalidInput("INPUT_INVALID", EXPECTED)  # it may hold a password
        user = user or (unquote(found.username) if found.username else None)
        secret = secret or (unquote(found.password) if found.password else None)
        servers.append(f"{found.scheme}://{f'[{host}]' if ':' in host else host}:{port}")
    if user and not secret:
        return Address(tuple(servers), token=user)
    return Address(tuple(servers), user, secret)
