"""`bread runs`: what runs there are, what they do, and how to stop them or let them go on."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Annotated

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

if TYPE_CHECKING:
    from ..app import Bread

app = typer.Typer(no_args_is_help=True, help="Runs of agents: list them, watch them, stop them, let them go on.")


@app.command("list")
def list_runs(
    context: typer.Context,
    agent: Annotated[str | None, typer.Option(help="Only of this agent.")] = None,
    status: Annotated[
        str | None, typer.Option(help="Only running, suspended, completed, failed or cancelled ones.")
    ] = None,
    session: Annotated[str | None, typer.Option(help="Only of this session.")] = None,
    root: Annotated[str | None, typer.Option(metavar="RUN", help="All runs of the tree of this root run.")] = None,
    limit: Limit = 50,
    cursor: After = None,
    json: AsJson = False,
) -> None:
    """Root runs, newest first; with --root the runs of a tree."""
    place: Place = context.obj

    async def work() -> int:
        if not json:
            place.announce()
        async with place.open() as bread:
            page = await bread.list_runs(
                agent=agent, status=status, session=session, root=root, limit=limit, cursor=cursor
            )
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
    """A run with its input, its output or error, and its pending questions; the tree below it, and where it stands."""
    place: Place = context.obj

    async def work() -> int:
        if not json:
            place.announce()
        async with place.open() as bread:
            found = await bread.get_run(run_id)
            below = await _below(bread, found)
            tree = [] if json else await _drawn(bread, found, below)
        if json:
            print_json(record(found) | ({"runs": [record(run) for run in below]} if below else {}))
        else:
            print_fields(_fields(found))
            for line in ("", *tree) if tree else ():
                console().print(line)
        return exits.DONE

    place.perform(work)


async def tree_of(bread: Bread, run_id: str) -> list[str]:
    """A run and what is below it as a tree, a line each; nothing for a run alone."""
    found = await bread.get_run(run_id)
    return await _drawn(bread, found, await _below(bread, found))


async def _below(bread: Bread, found: Run) -> list[Run]:
    """Every run below a run: parents before their children, which are in the order of their slots."""
    runs: list[Run] = []
    cursor = None
    while True:
        page = await bread.list_runs(root=found.root_run_id, limit=1000, cursor=cursor)
        runs += page.items
        cursor = page.next
        if cursor is None:
            break
    children, below = _by_parent(runs), [found]
    for run in below:
        below += children.get(run.id, [])
    return below[1:]


def _by_parent(runs: list[Run]) -> dict[str, list[Run]]:
    children: dict[str, list[Run]] = {}
    for run in sorted(runs, key=_in_order):
        if run.parent is not None:
            children.setdefault(run.parent.run_id, []).append(run)
    return children


async def _drawn(bread: Bread, root: Run, below: list[Run]) -> list[str]:
    """The lines of a tree: place, agent, status, and the questions that are asked."""
    if not below:
        return []
    asked = {one: (await bread.get_checkpoint(one)).run_id for one in root.checkpoints}
    children = _by_parent(below)
    lines: list[str] = []
    waiting: list[tuple[Run, str, str]] = [(root, "", "")]
    iterations: Counter[str] = Counter()
    while waiting:
        run, first, indent = waiting.pop()
        asks = [one for one, asking in asked.items() if asking == run.id]
        place = ""
        if run.parent is not None and run.id != root.id and run.parent.kind != "supervisor":
            place = f"{run.parent.slot} "
            if run.parent.kind == "loop":
                iterations[run.agent_id] += 1
                place = f"iteration {iterations[run.agent_id]} of "
        why = f"  {run.code}" if run.code else ""
        waits = f"  waits for {', '.join(asks)}" if asks else ""
        lines.append(f"{first}{place}{run.agent_id}  {_status(run)}{why}{waits}  {run.id}")
        inner = children.get(run.id, [])
        for index, child in reversed(list(enumerate(inner))):
            last = index == len(inner) - 1
            waiting.append((child, indent + ("└─ " if last else "├─ "), indent + ("   " if last else "│  ")))
    return lines


def _in_order(run: Run) -> list[int]:
    slot = run.parent.slot if run.parent is not None else ""
    return [int(part) for part in slot.replace(".", "/").split("/") if part.isdigit()]


def _fields(found: Run) -> dict[str, str | None]:
    return {
        "run": found.id,
        "status": _status(found),
        "agent": found.agent_id,
        "session": found.session_id,
        "root": found.root_run_id if found.root_run_id != found.id else None,
        "part of": f"{found.parent.kind} {found.parent.run_id} at {found.parent.slot}" if found.parent else None,
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
        async with place.open(executes=execute, tells=True) as bread:
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
        async with place.open(executes=not detach, tells=True) as bread:
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
        async with place.open(tells=True) as bread:
            status = await bread.cancel(run_id, reason=reason, by=by)
        if json:
            print_json({"runId": run_id, "status": status})
        else:
            console().print(f"run {run_id} is {status}")
        return exits.DONE

    place.perform(work)
