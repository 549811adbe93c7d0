"""The API of a Bread: its routes, its errors, its limits. Each route is a door of the library, which decides."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from functools import cache, partial

from fastapi import APIRouter, FastAPI, Request
from starlette.middleware.cors import CORSMiddleware
from starlette.responses import PlainTextResponse, Response

from ..app import Bread
from ..origins import check_origins
from .auth import Auth
from .docs_page import add_docs_page
from .errors import BodyLimit, Unexpected, add_handlers
from .list_routes import list_routes
from .metrics import CONTENT_TYPE, Metrics
from .openapi import describe
from .params import errors
from .run_routes import run_routes
from .streams import KEEP_ALIVE
from .trace import CallersTrace

BODY_LIMIT = 1_000_000
SENT_BY_PAGES = ("Authorization", "X-API-Key", "Content-Type", "Idempotency-Key", "Last-Event-ID", "Prefer")


def create_api(
    bread: Bread,
    *,
    auth: Auth | None = None,
    cors: Iterable[str] = (),
    body_limit: int = BODY_LIMIT,
    keep_alive: float = KEEP_ALIVE,
    only_health: bool = False,
) -> FastAPI:
    """The API of a Bread, for any ASGI server that keeps the lifespan protocol: it opens the Bread and closes it.

    Without `auth` nobody is asked who they are. `cors` are the origins whose pages may call from a browser, `*` all of
    them; without one it is none, and none ever calls with cookies: callers say who they are by a header. `body_limit`
    is in bytes, `keep_alive` in seconds: streams that are silent for so long say that they are still there.
    `only_health` is for a process that nobody calls: health and metrics, no other route. Raises INPUT_INVALID for an
    origin that is none.
    """
    origins = check_origins(cors)

    @asynccontextmanager
    async def life(app: FastAPI) -> AsyncIterator[None]:
        async with bread:
            yield

    app = FastAPI(title="bread", lifespan=life, docs_url=None, redoc_url=None)
    app.add_middleware(BodyLimit, limit=body_limit)
    app.add_middleware(Unexpected)
    if origins:
        app.add_middleware(
            CORSMiddleware,
            allow_origins=origins,
            allow_methods=("GET", "POST", "DELETE"),
            allow_headers=SENT_BY_PAGES,
            expose_headers=("X-Run-Id", "Location"),
        )
    app.add_middleware(CallersTrace)
    add_handlers(app)
    asked = auth or Auth()
    calls = () if only_health else (run_routes(bread, asked, keep_alive), list_routes(bread, asked))
    for routes in (*calls, _health(bread, asked)):
        app.include_router(routes)
    add_docs_page(app)
    app.openapi = describe(app, asks=asked.asks)  # type: ignore[method-assign]
    return app


def _health(bread: Bread, auth: Auth) -> APIRouter:
    routes = APIRouter(tags=["health"])
    measured = cache(partial(Metrics, bread))  # made when they are first asked for, of a Bread that is open by then

    @routes.get("/metrics", response_class=PlainTextResponse, responses=errors(401, 403, 500, 503))
    async def metrics(request: Request) -> Response:
        """Runs by state, pending questions, commits and their latency, observers, how long people take."""
        await auth.admit(request, "observe")
        return Response(await measured().text(), media_type=CONTENT_TYPE)

    @routes.get("/healthz")
    async def alive() -> dict[str, bool]:
        """Whether the process answers."""
        return {"ok": True}

    @routes.get("/readyz", responses=errors(503))
    async def ready() -> dict[str, bool]:
        """Whether the store answers."""
        await bread.list_runs(limit=1)
        return {"ok": True}

    return routes
