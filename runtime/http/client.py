"""A client of the HTTP API. A stream that breaks is taken up again behind the last crumb, and misses nothing."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing, asynccontextmanager
from types import TracebackType
from typing import Any, Literal, Self

import httpx2
from pydantic import TypeAdapter

from ...domain.errors import BreadError, RunStopped, StoreUnavailable, rebuild
from ...domain.events import JsonValue
from ...projections.crumbs import AnyCrumb
from ...projections.lists import Checkpoint, Page, Run
from .statuses import class_of

_CRUMB: TypeAdapter[AnyCrumb] = TypeAdapter(AnyCrumb)
WAITS = (0.1, 0.5, 1.0, 3.0)
COMES_BACK = ("STORE_UNAVAILABLE", "NOT_OPEN")  # a server that is busy, or about to stop
FROM_PROXIES = (502, 503, 504)


class Client:
    """Speaks with a server of bread: `async with Client("http://127.0.0.1:7331", key=...) as client:`.

    Errors of the server are raised as what they are in the library, with the same codes. Where nobody answers it is
    STORE_UNAVAILABLE: what was asked for may have happened, so ask again with the same idempotency key. Streams wait
    for the server to come back, and go on.
    """

    def __init__(self, url: str, *, key: str | None = None, timeout: float = 30.0) -> None:
        headers = {"Authorization": f"Bearer {key}"} if key else {}
        # A stream is silent while a person thinks; the server says something every 15 seconds.
        limits = httpx2.Timeout(timeout, read=max(timeout, 60.0))
        self._http = httpx2.AsyncClient(base_url=url, headers=headers, timeout=limits)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._http.aclose()

    # --- runs

    async def start(self, agent: str, input: JsonValue, **more: Any) -> str:
        """Begin a run and leave it to run; gives its id. `more` are fields of the body: `session={"id": "s"}`."""
        return await self._begin(f"/agents/{agent}/run", {"input": input} | more)

    async def start_pipeline(self, pipeline: str, input: JsonValue, **more: Any) -> str:
        """Begin a run of a pipeline; gives its id."""
        return await self._begin(f"/pipelines/{pipeline}/run", {"input": input} | more)

    async def answer(self, checkpoint: str, response: JsonValue, **more: Any) -> str:
        """Answer a question; gives the id of the root run, which goes on."""
        return await self._begin(f"/resume/{checkpoint}", {"response": response} | more)

    async def run(self, agent: str, input: JsonValue, **more: Any) -> AsyncGenerator[AnyCrumb]:
        """Begin a run, and give its crumbs to its next rest or its end, over whatever breaks meanwhile."""
        run_id = await self.start(agent, input, **more)
        async with aclosing(self.observe(run_id, until="rest")) as crumbs:
            async for crumb in crumbs:
                yield crumb

    async def output(self, run_id: str) -> JsonValue:
        """Wait for the end of a run, over its questions; its output, or RunStopped."""
        async with aclosing(self.observe(run_id)) as crumbs:
            async for crumb in crumbs:
                if crumb.run_id == run_id and crumb.type == "agent:error":
                    raise RunStopped(crumb.code, crumb.message, run_id=run_id)
        return (await self.get_run(run_id)).output

    async def observe(
        self, run_id: str, *, after: str | None = None, until: Literal["end", "rest"] = "end"
    ) -> AsyncGenerator[AnyCrumb]:
        """The crumbs of a run, each once and in order, to its end or its next rest, over restarts of the server."""
        cursor, failed = after, 0
        goes_on = ("running",) if until == "rest" else ("running", "suspended")
        while True:
            try:
                async with self._stream(run_id, cursor, until) as lines:
                    async for crumb in _crumbs(lines):
                        cursor, failed = crumb.cursor, 0
                        yield crumb
                # A server that stops ends its streams.
                if (await self.get_run(run_id)).status not in goes_on:
                    return
            except (httpx2.TransportError, BreadError) as error:
                if isinstance(error, BreadError) and error.code not in COMES_BACK:
                    raise
                await asyncio.sleep(WAITS[min(failed, len(WAITS) - 1)])
                failed += 1

    async def cancel(self, run_id: str, reason: str = "cancelled") -> str:
        """Stop a run; gives its status then."""
        return str((await self._send("POST", f"/runs/{run_id}/cancel", json={"reason": reason}))["status"])

    # --- records

    async def get_run(self, run_id: str) -> Run:
        """A run; RUN_NOT_FOUND."""
        return Run.model_validate(await self._send("GET", f"/runs/{run_id}"))

    async def get_checkpoint(self, checkpoint: str) -> Checkpoint:
        """A question; CHECKPOINT_NOT_FOUND."""
        return Checkpoint.model_validate(await self._send("GET", f"/checkpoints/{checkpoint}"))

    async def list_checkpoints(self, **filters: Any) -> Page[Checkpoint]:
        """Pending questions; filters, `limit` and `cursor` as of the route."""
        found = await self._send("GET", "/checkpoints", params=filters)
        return Page([Checkpoint.model_validate(item) for item in found["items"]], found["next"])

    # --- HTTP

    async def _begin(self, path: str, body: dict[str, Any]) -> str:
        return str((await self._send("POST", path, json=body, headers={"Prefer": "respond-async"}))["runId"])

    async def _send(self, method: str, path: str, **more: Any) -> Any:
        try:
            response = await self._http.request(method, path, **more)
        except httpx2.TransportError as error:
            raise StoreUnavailable(f"the server does not answer: {type(error).__name__}: {error}") from error
        check(response)
        return response.json()

    @asynccontextmanager
    async def _stream(self, run_id: str, cursor: str | None, until: str) -> AsyncIterator[AsyncIterator[str]]:
        headers = {"Accept": "application/x-ndjson"} | ({"Last-Event-ID": cursor} if cursor else {})
        async with self._http.stream(
            "GET", f"/runs/{run_id}/stream", headers=headers, params={"until": until}
        ) as response:
            if response.is_error:
                await response.aread()
            check(response)
            yield response.aiter_lines()


async def _crumbs(lines: AsyncIterator[str]) -> AsyncIterator[AnyCrumb]:
    async for line in lines:
        if line:  # an empty one says only that the server is there
            yield _CRUMB.validate_python(json.loads(line)["crumb"])


def check(response: httpx2.Response) -> None:
    """Raise the error that a response tells, as what it is in the library."""
    if not response.is_error:
        return
    try:
        error = response.json()["error"]
        code, message, details = str(error["code"]), str(error["message"]), error.get("details") or {}
    except (ValueError, KeyError, TypeError):
        said = f"the server answered {response.status_code}"
        if response.status_code in FROM_PROXIES:
            raise StoreUnavailable(said) from None
        raise BreadError("INTERNAL_ERROR", said) from None
    raise rebuild(class_of(code, response.status_code), code, message, details)
