"""`bread sessions`: conversations, and their end."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from . import exits
from .options import After, AsJson, Author, Limit, SessionId, Tag, days_of, person, tags_of
from .output import console, print_fields, print_json, print_page, print_table, record
from .place import Place
from .words import moment, one_line, pairs, shown

app = typer.Typer(no_args_is_help=True, help="Sessions: list them, read them, delete them.")


@app.command("list")
def list_sessions(
    context: typer.Context, tag: Tag = None, limit: Limit = 50, cursor: After = None, json: AsJson = False
) -> None:
    """Sessions, by their ids."""
    place: Place = context.obj
    tags = tags_of(tag)

    async def work() -> int:
        if not json:
            place.announce()
        async with place.open() as bread:
            page = await bread.sessions.list(tags=tags, limit=limit, cursor=cursor)
        if json:
            print_page(page)
            return exits.DONE
        rows = [(s.id, moment(s.created_at), moment(s.updated_at), pairs(s.tags)) for s in page.items]
        print_table(("session", "opened", "changed", "tags"), rows, "There are no sessions.", page.next)
        return exits.DONE

    place.perform(work)


@app.command("show")
def show(context: typer.Context, session_id: SessionId, json: AsJson = False) -> None:
    """A session and its conversation."""
    place: Place = context.obj

    async def work() -> int:
        if not json:
            place.announce()
        async with place.open() as bread:
            found = await bread.sessions.get(session_id)
            messages = await bread.sessions.messages(session_id)
        if json:
            print_json(record(found) | {"messages": messages})
            return exits.DONE
        print_fields(
            {
                "session": found.id,
                "tags": pairs(found.tags) or None,
                "opened": moment(found.created_at),
                "changed": moment(found.updated_at),
            }
        )
        for message in messages:
            for line in _lines(message):
                console().print(one_line(line))
        return exits.DONE

    place.perform(work)


def _lines(message: dict[str, Any]) -> list[str]:
    role = message.get("author", message["role"])
    if role == "tool":
        outcome = "" if message["outcome"] == "ok" else f" ({message['outcome']})"
        return [f"tool: {message['tool']}{outcome} -> {shown(message['content'], None)}"]
    said = [f"{role}: {message['text']}"] if message["text"] else []
    return said + [f"{role}: calls {call['tool']} {shown(call['args'], None)}" for call in message.get("calls", ())]


@app.command("delete")
def delete(context: typer.Context, session_id: SessionId, author: Author = None, json: AsJson = False) -> None:
    """Erase a session and all it owns. An unknown id is deleted already."""
    place: Place = context.obj
    by = person(author)

    async def work() -> int:
        if not json:
            place.announce()
        async with place.open(tells=True) as bread:
            deleted = await bread.sessions.delete(session_id, by=by)
        if json:
            print_json({"session": session_id, "deleted": deleted})
        else:
            console().print(
                one_line(f"session {session_id}: {'deleted' if deleted else 'there was nothing to delete'}")
            )
        return exits.DONE

    place.perform(work)


@app.command("cleanup")
def cleanup(
    context: typer.Context,
    older_than: Annotated[
        float | None, typer.Option(metavar="DAYS", help="Nothing happened in them for so many days.")
    ] = None,
    tag: Tag = None,
    keep_pending: Annotated[
        bool, typer.Option("--keep-pending", help="Spare sessions with pending questions.")
    ] = False,
    author: Author = None,
    json: AsJson = False,
) -> None:
    """Delete old sessions. Without --older-than nothing is deleted; running runs are spared."""
    place: Place = context.obj
    tags, age, by = tags_of(tag), days_of(older_than), person(author)

    async def work() -> int:
        if not json:
            place.announce()
        async with place.open(tells=True) as bread:
            deleted = await bread.sessions.cleanup(older_than=age, tags=tags, keep_pending=keep_pending, by=by)
        if json:
            print_json({"deleted": deleted})
        else:
            hint = "; --older-than says from which age on" if age is None else ""
            console().print(f"deleted {deleted} sessions{hint}")
        return exits.DONE

    place.perform(work)
