"""`bread audit`: what was recorded, by whom and when; and whether all of it is whole."""

from __future__ import annotations

from typing import Annotated

import typer

from ...domain.messages import Message, read_turn
from ...projections.audit import AuditEvent
from . import exits
from .completion import run_ids
from .exits import report
from .options import AsJson, RunId
from .output import console, print_json, print_table, record
from .place import Place
from .words import as_json, moment, one_line, shorten, shown

app = typer.Typer(no_args_is_help=True, help="The log: read it, export it, check it.")
DETAIL = 120
# What leads from event to event, and what is shown whole by --json and by `bread checkpoints show`.
POINTERS = {
    "args_at",
    "args_schema",
    "base",
    "call",
    "claim",
    "key",
    "max_steps",
    "of",
    "response_schema",
    "resumed",
    "root",
    "started",
    "tool_call_id",
}


@app.command("show")
def show(context: typer.Context, run_id: RunId, json: AsJson = False) -> None:
    """The timeline of a run's tree: every recorded event, with who and when."""
    place: Place = context.obj

    async def work() -> int:
        if not json:
            place.announce()
        async with place.open() as bread:
            events = [event async for event in bread.audit(run_id)]
        if json:
            print_json({"items": [record(event) for event in events], "next": None})
            return exits.DONE
        rows = [(f"#{e.seq}", moment(e.at), f"{e.by.kind} {e.by.id}", e.name, _detail(e, run_id)) for e in events]
        print_table(("seq", "at", "by", "event", "what"), rows, "Nothing was recorded.", None)
        return exits.DONE

    place.perform(work)


def _detail(event: AuditEvent, run_id: str) -> str:
    whose = "" if event.stream == run_id else f"{event.stream} "
    if event.name == "run.model_responded":
        turn = read_turn(Message.model_validate(event.data["message"]))
        said = [turn.text.strip()] if turn.text.strip() else []
        return whose + shorten(
            " ".join([*said, *(f"-> {call.tool} {shown(call.args)}" for call in turn.calls)]), DETAIL
        )
    told = {name: value for name, value in event.data.items() if name not in POINTERS}
    words = (f"{name}={value if isinstance(value, str) else shown(value)}" for name, value in told.items())
    return whose + shorten(one_line(" ".join(words)), DETAIL)


@app.command("export")
def export(
    context: typer.Context,
    run_id: Annotated[
        str | None,
        typer.Argument(metavar="[RUN]", show_default=False, help="Only the tree of this run.", autocompletion=run_ids),
    ] = None,
) -> None:
    """All recorded events in the order of the log, one JSON object a line."""
    place: Place = context.obj

    async def work() -> int:
        async with place.open() as bread:
            async for event in bread.audit(run_id):
                print(as_json(record(event)))
        return exits.DONE

    place.perform(work)


@app.command("verify")
def verify(
    context: typer.Context,
    rebuild: Annotated[bool, typer.Option("--rebuild", help="First replace the views by what the log gives.")] = False,
    json: AsJson = False,
) -> None:
    """Every stream loads, versions and seqs are contiguous, and the lists are what the log gives."""
    place: Place = context.obj

    async def work() -> int:
        if not json:
            place.announce()
        async with place.open() as bread:
            if rebuild:
                rebuilt = await bread.rebuild()
            found = await bread.check()
        if json:
            print_json(
                {"ok": found.ok, "streams": found.streams, "events": found.events, "problems": found.problems}
                | ({"rebuilt": rebuilt} if rebuild else {})
            )
        else:
            for problem in found.problems:
                console().print(problem)
            if rebuild:
                console().print(f"the views of {rebuilt} streams were written anew")
            console().print(f"{found.streams} streams, {found.events} events: {'sound' if found.ok else 'DAMAGED'}")
        if not found.ok:
            report("LOG_DAMAGED", f"{len(found.problems)} problems, the first: {found.problems[0]}")
        return exits.DONE if found.ok else exits.DAMAGED

    place.perform(work)
