"""`bread runs`: what runs there are, what they do, and how to stop them or let them go on."""

from __future__ import annotations

from typing import Annotated

import typer

from ...domain.commands import RetryRun
from ...projections.lists import Run
from . import exits
from .crumbs import CrumbPrinter
from .drive import drive, watch
from .options import After, AsJson, Author, Detach, Limit, RunId, person
from .output import console, print_fields, print_json, print_page, print_table, record
from .place import Place
from .words import moment, one_line, shown

app = typer.Typer(no_args_is_help=True, help="Runs of agents: list them, watch them, stop them, let them go on.")


@app.command("list")
def list_runs(
    context: typer.Context,
    agent: Annotated[str | None, typer.Option(help="Only of this agent.")] = None,
    status: Annotated[
        str | None, typer.Option(help="Only running, suspended, completed, failed or cancelled ones.")
    ] = None,
    session: Annotated[str | None, typer.Option(help="Only of this session.")] = None,
    limit: Limit = 50,
    cursor: After = None,
    json: AsJson = False,
) -> None:
    """Runs, newest first."""
    place: Place = context.obj

    async def work() -> int:
        if not json:
            place.announce()
        async with place.open() as bread:
            page = await bread.list_runs(agent=agent, status=status, session=session, limit=limit, cursor=cursor)
        if json:
            print_page(page)
            return exits.DONE
        rows = [(r.id, _status(r), r.code or "", r.agent_id, moment(r.created_at), r.session_id) for r in page.items]
        print_table(("run", "status", "code", "agent", "started", "session"), rows, "There are no runs.", page.next)
        return exits.DONE

    place.perform(work)


def _status(run: Run) -> str:
    return f"{run.status} (orphaned)" if run.orphaned else run.status


@app.command("show")
def show(context: typer.Context, run_id: RunId, json: AsJson = False) -> None:
    """A run with its input, its output or error, and its pending questions."""
    place: Place = context.obj

    async def work() -> int:
        if not json:
            place.announce()
        async with place.open() as bread:
            found = await bread.get_run(run_id)
        if json:
            print_json(record(found))
        else:
            print_fields(_fields(found))
        return exits.DONE

    place.perform(work)


def _fields(found: Run) -> dict[str, str | None]:
    return {
        "run": found.id,
        "status": _status(found),
        "agent": found.agent_id,
        "session": found.session_id,
        "root": found.root_run_id if found.root_run_id != found.id else None,
        "started": moment(found.created_at),
        "changed": moment(found.updated_at),
        "performed by": found.owner,
        "input": shown(found.input, None),
        "output": shown(found.output, None) if found.status == "completed" else None,
        "waits for": "\n".join(found.checkpoints) or None,
        "error": f"{found.code}: {one_line(found.message or '')}" if found.code else None,
    }


@app.command("watch")
def watch_run(
    context: typer.Context,
    run_id: RunId,
    after: Annotated[str | None, typer.Option(metavar="CURSOR", help="Only what comes after this cursor.")] = None,
    execute: Annotated[
        bool, typer.Option("--execute", help="Also perform it here if nobody else does, until it rests or ends.")
    ] = False,
    json: AsJson = False,
) -> None:
    """Show a run from its beginning, or after a cursor, to its end, over its suspensions. Changes nothing."""
    place: Place = context.obj

    async def work() -> int:
        if not json:
            place.announce()
        go_on = place.command("runs", "watch", run_id, *(("--execute",) if execute else ()))
        place.if_interrupted = f"The run is kept; go on with: {go_on}"
        async with place.open(executes=execute) as bread:
            handle = bread.observe(run_id, after=after, until="rest" if execute else "end")
            return await (drive if execute else watch)(place, bread, handle, CrumbPrinter(as_json=json))

    place.perform(work)


@app.command("retry")
def retry(
    context: typer.Context,
    run_id: RunId,
    max_steps: Annotated[
        int | None, typer.Option(min=1, max=10_000, help="Allow so many model turns with tools.")
    ] = None,
    author: Author = None,
    detach: Detach = False,
    json: AsJson = False,
) -> None:
    """Let a failed run go on from where it failed, here, until it rests or ends."""
    place: Place = context.obj
    by = person(author)
    place.if_interrupted = f"Whether the run goes on is seen with: {place.command('runs', 'show', run_id)}"

    async def work() -> int:
        if not json:
            place.announce()
        async with place.open(executes=not detach) as bread:
            if not detach:
                handle = bread.retry(run_id, max_steps=max_steps, by=by)
                return await drive(place, bread, handle, CrumbPrinter(as_json=json))
            await bread.send(RetryRun(run_id=run_id, max_steps=max_steps, by=by))
        if json:
            print_json({"rootRunId": run_id})
        else:
            console().print(f"run {run_id} goes on in a process that has its agent")
        return exits.DONE

    place.perform(work)


@app.command("cancel")
def cancel(
    context: typer.Context,
    run_id: RunId,
    reason: Annotated[str, typer.Option(help="Why; kept in the log.")] = "cancelled",
    author: Author = None,
    json: AsJson = False,
) -> None:
    """Stop a run, discard its questions, leave no call open. A run that has ended stays as it is."""
    place: Place = context.obj
    by = person(author)

    async def work() -> int:
        if not json:
            place.announce()
        async with place.open() as bread:
            status = await bread.cancel(run_id, reason=reason, by=by)
        if json:
            print_json({"runId": run_id, "status": status})
        else:
            console().print(f"run {run_id} is {status}")
        return exits.DONE

    place.perform(work)
