"""Parameters that routes share, and what they answer with."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import Header, Path, Query
from fastapi.responses import JSONResponse
from starlette.responses import Response

from ...domain.errors import NotFound
from ...projections.lists import Page
from ..agents import Agent
from ..app import Bread
from .auth import Auth, Caller
from .bodies import AcceptedBody

Id = Annotated[str, Path()]
Filter = Annotated[str | None, Query()]
Tag = Annotated[str, Query(pattern=r"^[^:]{1,200}:[\s\S]{1,200}$", description="key:value")]
Limit = Annotated[int, Query(ge=1, le=1000)]
Key = Annotated[str | None, Header(alias="Idempotency-Key")]
Prefer = Annotated[str, Header()]
_RUN_ID = {"X-Run-Id": {"description": "The run whose stream this is.", "schema": {"type": "string"}}}
STREAM: dict[int | str, dict[str, Any]] = {
    200: {
        "description": "A stream of crumbs, as server-sent events or as JSON lines.",
        "content": {"text/event-stream": {}, "application/x-ndjson": {}},
        "headers": _RUN_ID,
    },
    202: {"description": "It was begun (`Prefer: respond-async`).", "model": AcceptedBody, "headers": _RUN_ID},
}


async def page_for(auth: Auth, caller: Caller, page: Page[Any]) -> dict[str, Any]:
    """A page, without what the caller may not see."""
    return {"items": [item.wire() for item in await auth.seen_by(caller, page.items)], "next": page.next}


def wants_no_stream(prefer: str) -> bool:
    return "respond-async" in (one.partition(";")[0].strip().lower() for one in prefer.split(","))


def accepted(run_id: str) -> Response:
    return JSONResponse({"runId": run_id}, 202, {"X-Run-Id": run_id, "Location": f"/runs/{run_id}"})


async def agent_of(bread: Bread, agent_id: str) -> Agent:
    """An agent of this process; AGENT_NOT_FOUND."""
    if agent_id not in bread.agents:
        raise NotFound("AGENT_NOT_FOUND", f"no agent {agent_id!r}", agent_id=agent_id)
    return bread.agents[agent_id]
