"""The trace of a caller: what a request brings about names it in the log, and the run goes on in it."""

from __future__ import annotations

from starlette.types import ASGIApp, Receive, Scope, Send

from ..tracing import request_of


class CallersTrace:
    """Hands on the header `traceparent` (W3C) of a request; a span that is current already counts more."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        found = [value for name, value in scope.get("headers", ()) if name == b"traceparent"]
        if scope["type"] != "http" or len(found) != 1:
            await self.app(scope, receive, send)
            return
        with request_of(found[0].decode("latin-1")):
            await self.app(scope, receive, send)
