"""Runs as streams: server-sent events, or a JSON object a line. A stream that is left does not touch its run."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

from fastapi import Request
from fastapi.responses import StreamingResponse
from sse_starlette import EventSourceResponse, ServerSentEvent
from starlette.responses import Response

from ...projections.crumbs import AnyCrumb
from ..handles import RunHandle

NDJSON = "application/x-ndjson"
RETRY_MS = 3000
KEEP_ALIVE = 15.0


async def stream_of(request: Request, handle: RunHandle, keep_alive: float) -> Response:
    """The stream of a handle. What goes wrong before the run begins is an error with a status, not a stream.

    `keep_alive`: after so many seconds of silence something is sent that means nothing, so that no proxy hangs up.
    """
    headers = {"X-Run-Id": await handle.begin(), "Cache-Control": "no-store"}
    if NDJSON in request.headers.get("accept", ""):
        return StreamingResponse(_lines(handle, keep_alive), media_type=NDJSON, headers=headers)
    return EventSourceResponse(
        _events(handle),
        ping=keep_alive,
        ping_message_factory=lambda: ServerSentEvent(comment="ping"),
        headers=headers,
    )


async def _events(handle: RunHandle) -> AsyncIterator[ServerSentEvent]:
    yield ServerSentEvent(retry=RETRY_MS)
    async for crumb in handle:
        yield ServerSentEvent(data=json.dumps(_shape(crumb), ensure_ascii=False), id=crumb.cursor)


def _shape(crumb: AnyCrumb) -> dict[str, Any]:
    payload = crumb.wire()
    return {"type": payload.pop("type"), "payload": payload}


async def _lines(handle: RunHandle, keep_alive: float) -> AsyncIterator[str]:
    crumbs, waiting = aiter(handle), None
    try:
        while True:
            waiting = asyncio.ensure_future(anext(crumbs, None))
            while not (await asyncio.wait({waiting}, timeout=keep_alive))[0]:
                yield "\n"
            crumb, waiting = waiting.result(), None
            if crumb is None:
                return
            line = {"v": 1, "type": "crumb", "runId": crumb.run_id, "seq": crumb.seq, "crumb": crumb.wire()}
            yield json.dumps(line, ensure_ascii=False) + "\n"
    finally:
        if waiting is not None:  # who reads has gone: this ends the crumbs, too
            waiting.cancel()
        else:
            await crumbs.aclose()
