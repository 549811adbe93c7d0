"""`bread migrate`: brings the tables of a store to this release."""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer

from . import exits
from .options import AsJson, Cwd
from .output import console, print_json

if TYPE_CHECKING:
    from .place import Place


def migrate(context: typer.Context, cwd: Cwd = None, json: AsJson = False) -> None:
    """Bring the tables of the store to this release, or make them. What is up to date stays as it is.

    Any number of processes may do so at once. Whoever opens a store does it, too, if the database lets them: run this
    ahead of a release, as a user who may make tables, where the others may not.
    """
    from ..stores import migrate_store

    place: Place = context.obj
    if not json:
        place.announce()
    found, now = migrate_store(place.store)
    if json:
        print_json({"data": place.where, "found": found, "schema": now})
    elif now is None:
        console().print("nothing to migrate")
    elif found is None:
        console().print(f"there were no tables; now there are those of schema {now}")
    elif found == now:
        console().print(f"schema {now}: up to date")
    else:
        console().print(f"schema {found} was there; it is {now} now")
    raise typer.Exit(exits.DONE)
