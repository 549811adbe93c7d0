"""The bus of an app, of what its settings say. The client library is loaded only where there is one."""

from __future__ import annotations

from ..transport.nats_settings import address_of
from ..transport.port import Transport


def bus_of(url: str | None, password: str | None = None, creds: str | None = None) -> Transport | None:
    """What `nats` names; None where it names nothing. INPUT_INVALID for what is no URL of NATS."""
    if not url:
        return None
    address_of(url, password)
    from ..transport.jetstream import JetStream

    return JetStream(url, password=password, creds=creds)
