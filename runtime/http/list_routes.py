"""Routes that list and look up, and those that delete sessions."""

from __future__ import annotations

from datetime import timedelta
from functools import partial
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request

from ...domain.checkpoint import CheckpointKind
from ...domain.errors import InvalidInput
from ...projections.lists import Checkpoint, LoopStatus, LoopView, Run, RunStatus, Session
from ..agents import Agent
from ..app import Bread
from .auth import Auth
from .bodies import AgentBody, CleanupBody, PageBody
from .params import ALWAYS, Filter, Id, Limit, Tag, agent_of, errors, page_for


def list_routes(bread: Bread, auth: Auth) -> APIRouter:
    routes = APIRouter(tags=["lists"], responses=ALWAYS)

    @routes.get("/agents", response_model=list[AgentBody])
    async def list_agents(request: Request) -> list[dict[str, Any]]:
        """The agents of this process."""
        caller = await auth.admit(request, "observe")
        return [_described(agent) for agent in await auth.seen_by(caller, bread.agents.values())]

    @routes.get("/agents/{agent_id}", response_model=AgentBody, responses=errors(404))
    async def get_agent(request: Request, agent_id: Id) -> dict[str, Any]:
        """An agent of this process."""
        await auth.admit(request, "observe", partial(agent_of, bread, agent_id))
        return _described(await agent_of(bread, agent_id))

    @routes.get("/runs", response_model=PageBody[Run])
    async def list_runs(
        request: Request,
        agent: Filter = None,
        status: RunStatus | None = None,
        session: Filter = None,
        root: Filter = None,
        limit: Limit = 50,
        cursor: Filter = None,
    ) -> dict[str, Any]:
        """Runs, newest first; with `root` those of one tree."""
        caller = await auth.admit(request, "observe")
        read = partial(bread.list_runs, agent=agent, status=status, session=session, root=root)
        return await page_for(auth, caller, read, limit, cursor)

    @routes.get("/runs/{run_id}", response_model=Run, responses=errors(404))
    async def get_run(request: Request, run_id: Id) -> dict[str, Any]:
        """A run with its input, its output or error, and its pending questions."""
        await auth.admit(request, "observe", partial(bread.get_run, run_id))
        return (await bread.get_run(run_id)).wire()

    @routes.get("/runs/{run_id}/events", responses=errors(404))
    async def events(request: Request, run_id: Id) -> dict[str, Any]:
        """The recorded events of a run's tree, for auditors."""
        await auth.admit(request, "observe", partial(bread.get_run, run_id))
        return {"items": [event.wire() async for event in bread.audit(run_id)]}

    @routes.get("/checkpoints", response_model=PageBody[Checkpoint])
    async def list_checkpoints(
        request: Request,
        agent: Filter = None,
        tool: Filter = None,
        session: Filter = None,
        kind: CheckpointKind | None = None,
        answerable: bool | None = None,
        limit: Limit = 50,
        cursor: Filter = None,
    ) -> dict[str, Any]:
        """Pending questions, oldest first."""
        caller = await auth.admit(request, "observe")
        read = partial(
            bread.list_checkpoints, agent=agent, tool=tool, session=session, kind=kind, answerable=answerable
        )
        return await page_for(auth, caller, read, limit, cursor)

    @routes.get("/checkpoints/{checkpoint_id}", response_model=Checkpoint, responses=errors(404))
    async def get_checkpoint(request: Request, checkpoint_id: Id) -> dict[str, Any]:
        """A question, pending or settled."""
        await auth.admit(request, "observe", partial(bread.get_checkpoint, checkpoint_id))
        return (await bread.get_checkpoint(checkpoint_id)).wire()

    @routes.get("/sessions", response_model=PageBody[Session])
    async def list_sessions(
        request: Request,
        tag: Annotated[list[Tag], Query()] = [],  # noqa: B006  # FastAPI copies it
        limit: Limit = 50,
        cursor: Filter = None,
    ) -> dict[str, Any]:
        """Sessions with all of the tags, `key:value` each."""
        caller = await auth.admit(request, "observe")
        tags = dict(one.split(":", 1) for one in tag)
        if len(tags) < len({*tag}):
            raise InvalidInput("INPUT_INVALID", "tag: a session has one value of each")
        return await page_for(auth, caller, partial(bread.sessions.list, tags=tags), limit, cursor)

    @routes.get("/sessions/{session_id}", response_model=Session, responses=errors(404))
    async def get_session(request: Request, session_id: Id) -> dict[str, Any]:
        """A session."""
        await auth.admit(request, "observe", partial(bread.sessions.get, session_id))
        return (await bread.sessions.get(session_id)).wire()

    @routes.delete("/sessions/{session_id}")
    async def delete_session(request: Request, session_id: Id) -> dict[str, bool]:
        """Erase a session and all that it owns; also one that is not there."""
        caller = await auth.admit(request, "admin")
        await auth.check_session(caller, "admin", bread, session_id)
        await bread.sessions.delete(session_id, by=caller.principal)
        return {"ok": True}

    @routes.post("/sessions/cleanup", responses=errors(413))
    async def cleanup(request: Request, body: CleanupBody) -> dict[str, int]:
        """Delete idle sessions; those that the caller may not delete stay."""
        caller = await auth.admit(request, "admin")
        age = None if body.older_than_days is None else timedelta(days=body.older_than_days)
        may = partial(auth.allows, caller, "admin") if auth.authorize else None
        deleted = await bread.sessions.cleanup(older_than=age, tags=body.tags, only=may, by=caller.principal)
        return {"deleted": deleted}

    @routes.get("/loops", response_model=PageBody[LoopView])
    async def list_loops(
        request: Request,
        agent: Filter = None,
        session: Filter = None,
        status: LoopStatus | None = None,
        limit: Limit = 50,
        cursor: Filter = None,
    ) -> dict[str, Any]:
        """Loops that agents have composed, oldest first."""
        caller = await auth.admit(request, "observe")
        read = partial(bread.list_loops, agent=agent, session=session, status=status)
        return await page_for(auth, caller, read, limit, cursor)

    @routes.get("/loops/{loop_id}", response_model=LoopView, responses=errors(404))
    async def get_loop(request: Request, loop_id: Id) -> dict[str, Any]:
        """A loop with its iterations."""
        await auth.admit(request, "observe", partial(bread.get_loop, loop_id))
        return (await bread.get_loop(loop_id)).wire()

    return routes


def _described(agent: Agent) -> dict[str, Any]:
    return {
        "id": agent.id,
        "model": agent.model.name,
        "outputFormat": "text" if agent.output is None else agent.output.schema,
        "tools": sorted(agent.tools),
    }
