"""Parameters that routes share, and what they answer with."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Annotated, Any

from fastapi import Header, Path, Query
from fastapi.responses import JSONResponse
from starlette.responses import Response

from ...domain.errors import NotFound
from ...projections.lists import Page
from ..agents import Agent
from ..app import Bread
from .auth import Auth, Caller
from .bodies import AcceptedBody, ErrorBody

Id = Annotated[str, Path()]
Filter = Annotated[str | None, Query()]
Tag = Annotated[str, Query(pattern=r"^[^:]{1,200}:[\s\S]{1,200}$", description="key:value")]
Limit = Annotated[int, Query(ge=1, le=1000)]
Key = Annotated[str | None, Header(alias="Idempotency-Key")]
Prefer = Annotated[str, Header()]
READS = 100  # who may see next to nothing of a long list gets it in several requests
MEANINGS = {
    400: "A cursor that is none.",
    401: "Nobody known.",
    403: "Not for this caller.",
    404: "There is no such thing, or not any more.",
    409: "Not now.",
    413: "The body is too large.",
    422: "What was sent does not fit.",
    429: "As many runs as may run are running.",
    500: "What went wrong is in the log of the server.",
    503: "Not reachable now: repeat it later, with the same idempotency key.",
}


def errors(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """What the document says of these statuses: all have the one shape."""
    return {status: {"model": ErrorBody, "description": MEANINGS[status]} for status in statuses}


ALWAYS = errors(401, 403, 422, 500, 503)
BEGUN = errors(404, 409, 413, 429)  # of what makes a run go on
_RUN_ID = {"X-Run-Id": {"description": "The run whose stream this is.", "schema": {"type": "string"}}}
STREAM: dict[int | str, dict[str, Any]] = {
    200: {
        "description": "A stream of crumbs, as server-sent events or as JSON lines.",
        "content": {"text/event-stream": {}, "application/x-ndjson": {}},
        "headers": _RUN_ID,
    },
    202: {"description": "It was begun (`Prefer: respond-async`).", "model": AcceptedBody, "headers": _RUN_ID},
}

WATCHED = errors(400, 404) | {200: STREAM[200]}


async def page_for(
    auth: Auth, caller: Caller, read: Callable[..., Awaitable[Page[Any]]], limit: int, cursor: str | None
) -> dict[str, Any]:
    """A page of what the caller may see: it reads on until the page is full, or for `READS` pages."""
    found: list[Any] = []
    for _ in range(READS):
        page = await read(limit=limit - len(found), cursor=cursor or None)
        found += await auth.seen_by(caller, page.items)
        cursor = page.next
        if cursor is None or len(found) == limit:
            break
    return {"items": [item.wire() for item in found], "next": cursor}


def wants_no_stream(prefer: str) -> bool:
    return "respond-async" in (one.partition(";")[0].strip().lower() for one in prefer.split(","))


def accepted(run_id: str) -> Response:
    return JSONResponse({"runId": run_id}, 202, {"X-Run-Id": run_id, "Location": f"/runs/{run_id}"})


async def agent_of(bread: Bread, agent_id: str) -> Agent:
    """An agent of this process; AGENT_NOT_FOUND."""
    if agent_id not in bread.agents:
        raise NotFound("AGENT_NOT_FOUND", f"no agent {agent_id!r}", agent_id=agent_id)
    return bread.agents[agent_id]
