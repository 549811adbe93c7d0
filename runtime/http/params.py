"""Parameters that routes share, and what they answer with."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from fastapi import Header, Path, Query
from fastapi.responses import JSONResponse
from pydantic import BaseModel
from starlette.responses import Response

from ...projections.lists import Page
from .auth import Auth, Caller
from .bodies import ErrorBody

Id = Annotated[str, Path()]
Filter = Annotated[str | None, Query()]
RunStatus = Literal["running", "suspended", "completed", "failed", "cancelled"]
Tag = Annotated[str, Query(pattern=r"^[^:]{1,200}:[\s\S]{1,200}$", description="key:value")]
Limit = Annotated[int, Query(ge=1, le=1000)]
Key = Annotated[str | None, Header(alias="Idempotency-Key")]
Prefer = Annotated[str, Header()]
STREAM: dict[int | str, dict[str, Any]] = {
    200: {
        "description": "A stream of crumbs, as server-sent events or as JSON lines.",
        "content": {"text/event-stream": {}, "application/x-ndjson": {}},
    },
    202: {"description": "It was begun (`Prefer: respond-async`)."},
    422: {"model": ErrorBody},
}


def record(item: BaseModel) -> dict[str, Any]:
    """A record on the wire."""
    found: dict[str, Any] = item.model_dump(mode="json", by_alias=True)
    return found


async def page_for(auth: Auth, caller: Caller, page: Page[Any]) -> dict[str, Any]:
    """A page, without what the caller may not see."""
    return {"items": [record(item) for item in await auth.seen_by(caller, page.items)], "next": page.next}


def wants_no_stream(prefer: str) -> bool:
    return "respond-async" in prefer


def accepted(run_id: str) -> Response:
    return JSONResponse({"runId": run_id}, 202, {"X-Run-Id": run_id, "Location": f"/runs/{run_id}"})
