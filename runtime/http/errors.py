"""Errors as HTTP tells them: one shape, and one table of statuses."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping
from http import HTTPStatus
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException
from starlette.routing import Match
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ...domain.errors import BreadError
from .statuses import status_of

logger = logging.getLogger("bread")

MORE_HEADERS = {
    401: {"WWW-Authenticate": "Bearer"},
    429: {"Retry-After": "1"},
    503: {"Retry-After": "1"},
}
METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE")
# Codes of what HTTP itself refuses.
OF_STATUS = {404: "NOT_FOUND", 405: "METHOD_NOT_ALLOWED", 413: "BODY_TOO_LARGE"}


def told(
    status: int, code: str, message: str, details: Any = None, headers: Mapping[str, str] | None = None
) -> JSONResponse:
    error = {"code": code, "message": message} | ({"details": details} if details else {})
    headers = {**(headers or {}), **MORE_HEADERS.get(status, {})}
    return JSONResponse({"error": error}, status, headers)


def add_handlers(app: FastAPI) -> None:
    """Every error of a route leaves it in the one shape."""

    @app.exception_handler(BreadError)
    async def of_bread(request: Request, error: BreadError) -> JSONResponse:
        status = status_of(error)
        if status == 500:
            return unexpected(request, error)
        return told(status, error.code, error.message, dict(error.details))

    @app.exception_handler(RequestValidationError)
    async def invalid(request: Request, error: RequestValidationError) -> JSONResponse:
        problems = [f"{'.'.join(str(part) for part in one['loc'])}: {one['msg']}" for one in error.errors()]
        return told(422, "INPUT_INVALID", "; ".join(problems), {"problems": problems})

    @app.exception_handler(HTTPException)
    async def of_http(request: Request, error: HTTPException) -> JSONResponse:
        if error.status_code == 400:  # a body that is no JSON at all is none that does not fit
            return told(422, "INPUT_INVALID", str(error.detail))
        code = OF_STATUS.get(error.status_code, "INPUT_INVALID")
        headers = {"Allow": ", ".join(_allowed(app, request))} if error.status_code == 405 else error.headers
        return told(error.status_code, code, str(error.detail), headers=headers)


def unexpected(request: Request, error: Exception) -> JSONResponse:
    logger.error("%s %s failed", request.method, request.url.path, exc_info=error)
    return told(500, "INTERNAL_ERROR", HTTPStatus.INTERNAL_SERVER_ERROR.phrase)


def _allowed(app: FastAPI, request: Request) -> list[str]:
    """What any route of a path takes; the framework names only the methods of the first one."""
    scope = {"type": "http", "path": request.scope["path"], "root_path": request.scope.get("root_path", "")}
    return [
        method
        for method in METHODS
        if any(route.matches({**scope, "method": method})[0] is Match.FULL for route in app.routes)
    ]


class Unexpected:
    """Answers where a route raises what nobody expects. The framework would do that outside of every middleware, and a
    page of another origin could not read the answer."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        has_begun = False

        async def begin(message: Message) -> None:
            nonlocal has_begun
            has_begun = True
            await send(message)

        try:
            await self.app(scope, receive, begin)
        except Exception as error:
            if has_begun or scope["type"] != "http":
                raise
            await unexpected(Request(scope), error)(scope, receive, send)


class BodyLimit:
    """Refuses a body above `limit` bytes, whether its length was said before or not."""

    def __init__(self, app: ASGIApp, limit: int) -> None:
        self.app, self.limit = app, limit
        self._why = f"a body has at most {limit} bytes"

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        lengths = [value for name, value in scope["headers"] if name == b"content-length"]
        if any(int(value) > self.limit for value in lengths if value.isdigit()):
            await told(413, "BODY_TOO_LARGE", self._why)(scope, receive, send)
            return
        await self.app(scope, self._counted(receive), send)

    def _counted(self, receive: Receive) -> Callable[[], Awaitable[Message]]:
        size = 0

        async def counted() -> Message:
            nonlocal size
            message = await receive()
            size += len(message.get("body", b""))
            if size > self.limit:
                raise HTTPException(413, self._why)  # who reads the body lets it through to the handlers
            return message

        return counted
