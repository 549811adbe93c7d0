"""Runs as streams: server-sent events, or a JSON object a line. A stream that is left does not touch its run."""

from __future__ import annotations

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
PING_SECONDS = 15


async def stream_of(request: Request, handle: RunHandle) -> Response:
    """The stream of a handle. What goes wrong before the run begins is an error with a status, not a stream."""
    run_id = await handle.begin()
    headers = {"X-Run-Id": run_id, "Cache-Control": "no-store"}
    if NDJSON in request.headers.get("accept", ""):
        return StreamingResponse(_lines(handle), media_type=NDJSON, headers=headers)
    return EventSourceResponse(
        _events(handle),
        ping=PING_SECONDS,
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


async def _lines(handle: RunHandle) -> AsyncIterator[str]:
    async for crumb in handle:
        line = {"v": 1, "type": "crumb", "runId": crumb.run_id, "seq": crumb.seq, "crumb": crumb.wire()}
        yield json.dumps(line, ensure_ascii=False) + "\n"
