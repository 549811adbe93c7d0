"""`bread new`: a small app that works as it is: an agent that asks a person, its tools, a skill, a test."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from . import exits
from .options import AsJson, Cwd
from .output import console, print_json
from .words import one_line

if TYPE_CHECKING:
    from .place import Place


def new(
    context: typer.Context,
    name: Annotated[str, typer.Argument(metavar="NAME", show_default=False, help="The folder of the app, to be made.")],
    cwd: Cwd = None,
    json: AsJson = False,
) -> None:
    """Write a small app into a new folder. It needs no key: its model is scripted until you name another."""
    place: Place = context.obj

    async def work() -> int:
        from ..scaffold import write_app

        folder = Path(name)
        written = write_app(folder)
        if json:
            print_json({"folder": str(folder), "files": written})
            return exits.DONE
        for file in written:
            console().print(one_line(f"  {folder / file}"))
        console().print(one_line(f"It works as it is; {folder / 'README.md'} says how to go on. Begin with:"))
        console().print(f"  {place.inside(name, 'build')}")
        return exits.DONE

    place.perform(work)
