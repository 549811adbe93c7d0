"""Routes that begin runs, show them, answer them and stop them."""

from __future__ import annotations

from functools import partial
from typing import Annotated, Literal

from fastapi import APIRouter, Header, Request
from starlette.responses import Response

from ...domain.envelope import Principal
from ...domain.errors import InvalidInput, NotFound
from ...transport.cursor import parse_cursor
from ..app import Bread
from ..composing import Pipeline
from ..handles import RunHandle
from .auth import Auth, Caller
from .bodies import AnswerBody, CancelBody, PipelineBody, RetryBody, RunBody
from .params import ALWAYS, BEGUN, STREAM, WATCHED, Filter, Id, Key, Prefer, accepted, agent_of, errors, wants_no_stream
from .streams import stream_of


def run_routes(bread: Bread, auth: Auth, keep_alive: float) -> APIRouter:
    routes = APIRouter(tags=["runs"], responses=ALWAYS)

    async def told(request: Request, handle: RunHandle, prefer: str = "") -> Response:
        """What a client gets of a run, by the same beginning: its stream, or its id alone."""
        if wants_no_stream(prefer):
            return accepted(await handle.begin())
        return await stream_of(request, handle, keep_alive)

    async def pipeline_of(pipeline_id: str) -> Pipeline:
        if pipeline_id not in bread.pipelines:
            raise NotFound("PIPELINE_NOT_FOUND", f"no pipeline {pipeline_id!r}")
        return bread.pipelines[pipeline_id]

    @routes.post("/agents/{agent_id}/run", responses=STREAM | BEGUN)
    async def run_agent(
        request: Request, agent_id: Id, body: RunBody, key: Key = None, prefer: Prefer = ""
    ) -> Response:
        """Run an agent; the stream goes to its next rest or its end. Leaving it does not touch the run."""
        caller = await auth.admit(request, "run", partial(agent_of, bread, agent_id))
        await auth.check_session(caller, "run", bread, body.session.id)
        handle = bread.run(
            agent_id,
            body.input,
            session=body.session.id,
            tags=body.session.tags,
            skill=body.skill,
            max_steps=body.max_steps,
            idempotency_key=key or body.idempotency_key,
            by=caller.principal,
        )
        return await told(request, handle, prefer)

    @routes.post("/pipelines/{pipeline_id}/run", responses=STREAM | BEGUN)
    async def run_pipeline(
        request: Request, pipeline_id: Id, body: PipelineBody, key: Key = None, prefer: Prefer = ""
    ) -> Response:
        """Run a pipeline, as an agent is run."""
        caller = await auth.admit(request, "run", partial(pipeline_of, pipeline_id))
        await auth.check_session(caller, "run", bread, body.session.id)
        handle = bread.run_pipeline(
            pipeline_id,
            body.input,
            session=body.session.id,
            tags=body.session.tags,
            idempotency_key=key or body.idempotency_key,
            by=caller.principal,
        )
        return await told(request, handle, prefer)

    @routes.post("/resume/{checkpoint_id}", responses=STREAM | BEGUN)
    async def resume(
        request: Request, checkpoint_id: Id, body: AnswerBody, key: Key = None, prefer: Prefer = ""
    ) -> Response:
        """Answer a question; exactly one answer wins. The stream is the continuation, to the next rest or the end."""
        caller = await auth.admit(request, "answer", partial(bread.get_checkpoint, checkpoint_id))
        handle = bread.resume(
            checkpoint_id,
            body.response,
            comment=body.comment,
            idempotency_key=key or body.idempotency_key,
            by=_author(auth, caller, body.author),
        )
        return await told(request, handle, prefer)

    @routes.get("/runs/{run_id}/stream", responses=WATCHED)
    async def watch(
        request: Request,
        run_id: Id,
        after: Filter = None,
        until: Literal["end", "rest"] = "end",
        last_event_id: Annotated[str | None, Header(alias="Last-Event-ID")] = None,
    ) -> Response:
        """Everything that a run shows, once and in order, to its end; after a cursor, or from the start."""
        await auth.admit(request, "observe", partial(bread.get_run, run_id))
        cursor = last_event_id or after or None
        try:
            parse_cursor(cursor)
        except InvalidInput as error:
            raise InvalidInput("PROTOCOL_DECODE_ERROR", error.message) from None
        return await told(request, bread.observe(run_id, after=cursor, until=until))

    @routes.post("/runs/{run_id}/cancel", responses=errors(404, 409, 413))
    async def cancel(request: Request, run_id: Id, body: CancelBody | None = None) -> dict[str, str]:
        """Stop a run and all that is below it. One that has ended stays as it is."""
        caller = await auth.admit(request, "run", partial(bread.get_run, run_id))
        reason = (body or CancelBody()).reason
        return {"runId": run_id, "status": await bread.cancel(run_id, reason=reason, by=caller.principal)}

    @routes.post("/runs/{run_id}/retry", responses=STREAM | BEGUN)
    async def retry(request: Request, run_id: Id, body: RetryBody | None = None, prefer: Prefer = "") -> Response:
        """Let a failed run go on from where it failed."""
        caller = await auth.admit(request, "run", partial(bread.get_run, run_id))
        max_steps = body.max_steps if body else None
        return await told(request, bread.retry(run_id, max_steps=max_steps, by=caller.principal), prefer)

    return routes


def _author(auth: Auth, caller: Caller, author: str | None) -> Principal:
    """Who answers: the caller. Who may say it of others is nobody who had to say who they are."""
    if author is None or auth.asks:
        return caller.principal
    return Principal(kind="user", id=author)
