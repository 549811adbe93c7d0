"""`bread loops`: the loops that agents have composed, read from the log."""

from __future__ import annotations

from typing import Annotated

import typer

from ...projections.lists import LoopView
from . import exits
from .options import After, AsJson, Limit
from .output import print_fields, print_json, print_page, print_table, record
from .place import Place
from .words import moment, shown, steps

app = typer.Typer(no_args_is_help=True, help="Loops that agents have composed: list them, look into them.")


@app.command("list")
def list_loops(
    context: typer.Context,
    agent: Annotated[str | None, typer.Option(help="Only of this agent.")] = None,
    session: Annotated[str | None, typer.Option(help="Only of this session.")] = None,
    status: Annotated[str | None, typer.Option(help="Only running, completed, exhausted or failed ones.")] = None,
    limit: Limit = 50,
    cursor: After = None,
    json: AsJson = False,
) -> None:
    """Loops, oldest first."""
    place: Place = context.obj

    async def work() -> int:
        if not json:
            place.announce()
        async with place.open() as bread:
            page = await bread.list_loops(agent=agent, session=session, status=status, limit=limit, cursor=cursor)
        if json:
            print_page(page)
            return exits.DONE
        rows = [
            (one.id, one.status, _count(one), one.agent_id, moment(one.created_at), one.run_id) for one in page.items
        ]
        print_table(("loop", "status", "iterations", "agent", "begun", "run"), rows, "There are no loops.", page.next)
        return exits.DONE

    place.perform(work)


def _count(found: LoopView) -> str:
    return f"{len(found.iterations)} of {found.max_iterations}"


@app.command("show")
def show(
    context: typer.Context,
    loop_id: Annotated[str, typer.Argument(metavar="LOOP", show_default=False)],
    json: AsJson = False,
) -> None:
    """A loop with its steps, its iterations and their outputs."""
    place: Place = context.obj

    async def work() -> int:
        if not json:
            place.announce()
        async with place.open() as bread:
            found = await bread.get_loop(loop_id)
        if json:
            print_json(record(found))
            return exits.DONE
        iterations = [f"{one.iteration}  {shown(one.output)}  {one.child_run_id}" for one in found.iterations]
        print_fields(
            {
                "loop": found.id,
                "status": found.status,
                "agent": found.agent_id,
                "run": found.run_id,
                "session": found.session_id,
                "begun": moment(found.created_at),
                "steps": steps(found.steps),
                "input": shown(found.input, None),
                "iterations": "\n".join(iterations) or None,
                "result": shown(found.result, None) if found.status != "running" else None,
            }
        )
        return exits.DONE

    place.perform(work)
