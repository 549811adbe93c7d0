"""Following a run to its rest or its end, and what that means as an exit code."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from ...domain.errors import BreadError
from . import exits
from .crumbs import CrumbPrinter
from .exits import note
from .output import console

if TYPE_CHECKING:
    from ...projections.lists import Run
    from ..app import Bread
    from ..handles import RunHandle
    from .place import Place


async def drive(place: Place, bread: Bread, handle: RunHandle, printer: CrumbPrinter) -> int:
    """Perform or follow a run until its tree rests or ends, showing it as it comes."""
    while True:
        await show_all(place, handle, printer)
        last = printer.last
        root, cursor = (last.root_run_id, last.cursor) if last is not None else (handle.run_id, None)
        run = await final(bread, root)
        if run is None or run.status != "running":
            return outcome(place, run, printer)
        handle = bread.observe(root, after=cursor, until="rest")  # somebody else answered meanwhile


async def show_all(place: Place, handle: RunHandle, printer: CrumbPrinter) -> None:
    """Show a stream to its end. Ctrl-C says how the run goes on."""
    with stopping(printer):
        async for crumb in handle:
            printer.show(crumb)
            place.if_interrupted = going_on(place, crumb.root_run_id, "--after", crumb.cursor)


def going_on(place: Place, run_id: str, *after: str) -> str:
    """How a run that was performed here goes on after an interruption."""
    command = place.command("runs", "watch", run_id, "--execute", *after)
    return f"What was recorded is kept; run {run_id} goes on with: {command}"


@contextmanager
def stopping(printer: CrumbPrinter) -> Iterator[None]:
    """Around the showing of a run that is performed here: its last line is ended, and Ctrl-C takes a moment."""
    try:
        yield
    except asyncio.CancelledError:
        printer.rest()
        note("stopping: calls under way get a moment to end (Ctrl-C again leaves at once)")
        raise
    printer.rest()


async def watch(place: Place, bread: Bread, handle: RunHandle, printer: CrumbPrinter) -> int:
    """Follow a run to its end, over its suspensions, performing nothing."""
    async for crumb in handle:
        printer.show(crumb)
        place.if_interrupted = (
            "The run is not touched; watch on with: "
            f"{place.command('runs', 'watch', handle.run_id, '--after', crumb.cursor)}"
        )
    printer.rest()
    last = printer.last
    return outcome(place, await final(bread, handle.run_id if last is None else last.root_run_id), printer)


async def final(bread: Bread, run_id: str) -> Run | None:
    """The run as it is now; None if its session was deleted."""
    try:
        return await bread.get_run(run_id)
    except BreadError as error:
        if error.code != "RUN_NOT_FOUND":
            raise
        return None


def outcome(place: Place, run: Run | None, printer: CrumbPrinter) -> int:
    """The exit code of a run that rests or has ended; a resting one says who can go on, and how."""
    if run is None:
        return exits.STOPPED
    if run.status == "completed":
        return exits.DONE
    if run.status != "suspended":
        return exits.STOPPED
    lines = [f"run {run.id} rests. To answer:"]
    lines += [f"  {place.command('checkpoints', 'show', checkpoint_id)}" for checkpoint_id in run.checkpoints]
    if printer.as_json:
        note(f"run {run.id} rests on {', '.join(run.checkpoints)}")
    else:
        for line in lines:
            console().print(line)
    return exits.RESTS
