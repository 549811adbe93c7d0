"""Sessions: their lists, their messages, their end."""

from __future__ import annotations

import builtins
from collections.abc import Awaitable, Callable, Mapping
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from ..domain.commands import DeleteSession
from ..domain.commits import Spare
from ..domain.envelope import APP, Principal
from ..domain.errors import InvalidInput, NotFound
from ..domain.events import JsonValue
from ..domain.messages import AnyMessage, AssistantMessage, ToolMessage
from ..domain.names import check_tags
from ..projections.history import messages_of
from ..projections.lists import Page, Session
from . import reads
from .door import Door, checked

if TYPE_CHECKING:
    from .engine import Engine


class Sessions:
    """`bread.sessions`: what conversations there are."""

    def __init__(self, engine: Callable[[], Engine]) -> None:
        self._engine = engine

    async def get(self, session_id: str) -> Session:
        """A session; SESSION_NOT_FOUND if it never was or was deleted."""
        return await self._engine().journal.ask(reads.get_session, session_id)

    async def list(
        self, *, tags: Mapping[str, str] | None = None, limit: int = 50, cursor: str | None = None
    ) -> Page[Session]:
        """Sessions that have all of `tags`, by id."""
        return await self._engine().journal.ask(
            reads.list_sessions,
            tenant="default",
            tags=check_tags(tags),
            limit=reads.check_limit(limit),
            after=cursor,
        )

    async def messages(self, session_id: str) -> builtins.list[dict[str, JsonValue]]:
        """The conversation of a session's root runs: role, text, calls and results, in order.

        `author` is "bread" where the model was told that its answer does not fit.
        """
        runs = await self._engine().journal.ask(reads.session_events, session_id)
        return [_plain(message) for events in runs for message in messages_of(events)]

    async def delete(self, session_id: str, *, by: Principal = APP) -> bool:
        """Erase a session and all it owns. False if there was nothing to delete."""
        return await Door(self._engine()).delete_session(checked(DeleteSession, session=session_id, by=by))

    async def cleanup(
        self,
        *,
        older_than: timedelta | None = None,
        tags: Mapping[str, str] | None = None,
        keep_pending: bool = False,
        only: Callable[[Session], Awaitable[bool]] | None = None,
        by: Principal = APP,
    ) -> int:
        """Delete sessions that nothing has happened in for `older_than`, and that have all of `tags`.

        Without an age nothing is deleted, running runs are spared, and `keep_pending` spares pending questions too.
        `only` is asked about each session before it is deleted. Gives the number of deleted sessions.
        """
        if older_than is None:
            return 0
        if not isinstance(older_than, timedelta) or older_than < timedelta(0):
            raise InvalidInput("INPUT_INVALID", "older_than: expected a timedelta of at least 0")
        engine, deleted = self._engine(), 0
        idle_before = engine.clock() - older_than.total_seconds()
        found = await engine.journal.ask(
            reads.idle_sessions,
            tenant="default",
            idle_before=idle_before,
            tags=check_tags(tags),
            keep_pending=keep_pending,
        )
        for session_id in found:
            if only is not None and not await self._is_for(only, session_id):
                continue
            command = DeleteSession(session=session_id, by=by, reason="cleanup")
            deleted += await Door(engine).delete_session(command, Spare(idle_before, keep_pending))
        return deleted

    async def _is_for(self, only: Callable[[Session], Awaitable[bool]], session_id: str) -> bool:
        try:
            found = await self.get(session_id)
        except NotFound:
            return False  # somebody else deleted it meanwhile
        return await only(found)


def _plain(message: AnyMessage) -> dict[str, Any]:
    match message:
        case AssistantMessage():
            calls = [
                {"toolCallId": call_id, "tool": use.tool, "args": use.args}
                for use, call_id in zip(message.calls, message.call_ids, strict=True)
            ]
            return {"role": "assistant", "text": message.text, "calls": calls}
        case ToolMessage():
            return {
                "role": "tool",
                "toolCallId": message.call_id,
                "tool": message.tool,
                "content": message.content,
                "outcome": message.outcome,
            }
    author = {"author": message.author} if message.author != "caller" else {}
    return {"role": message.role, "text": message.text, **author}
