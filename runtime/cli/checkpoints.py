"""`bread checkpoints`: what people are asked, and their answers."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from ...domain.commands import AnswerCheckpoint
from ...domain.errors import BreadError, NotFound
from ...projections.lists import Checkpoint
from . import exits
from .crumbs import CrumbPrinter
from .drive import drive
from .options import (
    After,
    AsJson,
    Author,
    CheckpointId,
    Comment,
    Detach,
    Key,
    Limit,
    Reason,
    Tag,
    json_of,
    person,
    tags_of,
)
from .output import console, print_fields, print_json, print_page, print_table, record
from .place import Place
from .words import SHORT, age, moment, one_line, shorten, shown, steps

app = typer.Typer(no_args_is_help=True, help="Questions to people: list them, look at them, answer them.")


@app.command("list")
def list_checkpoints(
    context: typer.Context,
    agent: Annotated[str | None, typer.Option(help="Only of this agent.")] = None,
    tool: Annotated[str | None, typer.Option(help="Only of this tool.")] = None,
    session: Annotated[str | None, typer.Option(help="Only of this session.")] = None,
    kind: Annotated[str | None, typer.Option(help="Only input, approval, delegation or in_doubt.")] = None,
    tag: Tag = None,
    answerable: Annotated[
        bool | None, typer.Option("--answerable/--unanswerable", help="Only those that can, or cannot, be answered.")
    ] = None,
    limit: Limit = 50,
    cursor: After = None,
    json: AsJson = False,
) -> None:
    """Pending questions, oldest first."""
    place: Place = context.obj
    tags = tags_of(tag)

    async def work() -> int:
        if not json:
            place.announce()
        async with place.open() as bread:
            page = await bread.list_checkpoints(
                agent=agent,
                tool=tool,
                session=session,
                tags=tags,
                kind=kind,
                answerable=answerable,
                limit=limit,
                cursor=cursor,
            )
        if json:
            print_page(page)
            return exits.DONE
        rows = [
            (c.id, age(c.created_at), c.kind, c.agent_id, c.tool_name, shorten(one_line(c.prompt), SHORT), c.session_id)
            for c in page.items
        ]
        columns = ("checkpoint", "age", "kind", "agent", "tool", "question", "session")
        print_table(columns, rows, "Nobody is asked anything.", page.next)
        return exits.DONE

    place.perform(work)


@app.command("show")
def show(context: typer.Context, checkpoint_id: CheckpointId, json: AsJson = False) -> None:
    """A question, pending or settled: with who answered what and when."""
    place: Place = context.obj

    async def work() -> int:
        if not json:
            place.announce()
        async with place.open() as bread:
            found = await bread.get_checkpoint(checkpoint_id)
        if json:
            print_json(record(found))
        else:
            print_fields(_fields(found))
            if found.status == "pending":
                _explain(place, found)
        return exits.DONE

    place.perform(work)


def _fields(found: Checkpoint) -> dict[str, str | None]:
    settled = found.settled_by
    return {
        "checkpoint": found.id,
        "status": found.status,
        "kind": found.kind,
        "question": found.prompt,
        "tool": found.tool_name,
        "args": shown(found.args, None) if found.kind != "delegation" else None,
        "agent": found.agent_id,
        "run": found.run_id,
        "root": found.root_run_id if found.root_run_id != found.run_id else None,
        "part of": f"{found.parent.kind} {found.parent.run_id} at {found.parent.slot}" if found.parent else None,
        "then": steps(found.parent.remaining) if found.parent and found.parent.remaining else None,
        "session": found.session_id,
        "asked": moment(found.created_at),
        "deadline": moment(found.deadline) if found.deadline else None,
        "waits for": "\n".join(f"{one.sub_agent_id}: {', '.join(one.child_checkpoint_ids)}" for one in found.pending)
        or None,
        "answer fits": shown(found.response_schema, None) if _can_be_answered(found) else None,
        "verdict": found.verdict,
        "answer": shown(found.response, None) if found.verdict else None,
        "comment": found.comment,
        "settled": moment(found.settled_at) if found.settled_at else None,
        "by": f"{settled.kind} {settled.id}" if settled else None,
    }


def _can_be_answered(found: Checkpoint) -> bool:
    return found.status == "pending" and found.kind != "delegation"


def _explain(place: Place, found: Checkpoint) -> None:
    from ..schema import problems

    if not _can_be_answered(found):
        for checkpoint_id in (one for waits in found.pending for one in waits.child_checkpoint_ids):
            console().print(f"  {place.command('checkpoints', 'show', checkpoint_id)}")
        return
    # What `approve` and `reject` say is an answer like any other: it has to fit.
    fits = found.kind == "approval" or not problems({"approved": True}, found.response_schema)
    ways = ["approve", "reject", "answer"] if fits and found.kind != "in_doubt" else ["answer"]
    for way in ways:
        words = [found.id, "JSON"] if way == "answer" else [found.id]
        console().print(f"  {place.command('checkpoints', way, *words)}")


@app.command("answer")
def answer(
    context: typer.Context,
    checkpoint_id: CheckpointId,
    response: Annotated[str, typer.Argument(metavar="JSON", help="The answer; `-` reads it from stdin.")],
    author: Author = None,
    comment: Comment = None,
    key: Key = None,
    detach: Detach = False,
    json: AsJson = False,
) -> None:
    """Answer a question with a JSON value, and perform the run here until it rests or ends."""
    _answer(context.obj, checkpoint_id, json_of(response, "the answer"), author, comment, key, detach, json)


@app.command("approve")
def approve(
    context: typer.Context,
    checkpoint_id: CheckpointId,
    args: Annotated[str | None, typer.Option(metavar="JSON", help="Run the tool with these arguments instead.")] = None,
    reason: Reason = None,
    author: Author = None,
    comment: Comment = None,
    key: Key = None,
    detach: Detach = False,
    json: AsJson = False,
) -> None:
    """Say yes, with {"approved": true}, and perform the run here until it rests or ends."""
    response: dict[str, Any] = {"approved": True}
    if args is not None:
        response["args"] = json_of(args, "--args")
    if reason is not None:
        response["reason"] = reason
    _answer(context.obj, checkpoint_id, response, author, comment, key, detach, json)


@app.command("reject")
def reject(
    context: typer.Context,
    checkpoint_id: CheckpointId,
    reason: Reason = None,
    author: Author = None,
    comment: Comment = None,
    key: Key = None,
    detach: Detach = False,
    json: AsJson = False,
) -> None:
    """Say no, with {"approved": false}, and perform the run here until it rests or ends."""
    response = {"approved": False} | ({"reason": reason} if reason is not None else {})
    _answer(context.obj, checkpoint_id, response, author, comment, key, detach, json)


def _answer(
    place: Place,
    checkpoint_id: str,
    response: Any,
    author: str | None,
    comment: str | None,
    key: str | None,
    detach: bool,
    json: bool,
) -> None:
    by = person(author)
    look = place.command("checkpoints", "show", checkpoint_id)
    place.if_interrupted = f"Whether the answer was recorded is seen with: {look}"

    async def work() -> int:
        if not json:
            place.announce()
        async with place.open(executes=not detach, tells=True) as bread:
            try:
                if detach:
                    command = AnswerCheckpoint(
                        checkpoint_id=checkpoint_id,
                        response=response,
                        comment=comment,
                        idempotency_key=key,
                        detach=True,
                        by=by,
                    )
                    _tell_accepted(place, str((await bread.send(command)).root_run_id), json)
                    return exits.DONE
                handle = bread.resume(checkpoint_id, response, comment=comment, idempotency_key=key, by=by)
                return await drive(place, bread, handle, CrumbPrinter(as_json=json))
            except NotFound as error:
                raise _with_hint(error) from error

    place.perform(work)


def _tell_accepted(place: Place, run_id: str, json: bool) -> None:
    if json:
        print_json({"rootRunId": run_id})
        return
    console().print(f"answered. Run {run_id} is left to a process that has its agent:")
    console().print(f"  {place.command('runs', 'watch', run_id)}")


def _with_hint(error: NotFound) -> BreadError:
    if error.code != "AGENT_NOT_FOUND":
        return error
    return NotFound(
        error.code, f"{error.message}. Name it with --app module:attr, or leave the run to others with --detach"
    )
