"""`bread doctor`: looks at what bread needs here, and says what to do about what is wrong."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer
from rich.text import Text

from . import exits
from .exits import report
from .options import AsJson, Cwd
from .output import console, print_json
from .words import one_line

if TYPE_CHECKING:
    from .checks import Finding
    from .place import Place

STYLES = {"ok": "green", "warn": "yellow", "fail": "bold red"}


def doctor(
    context: typer.Context,
    deep: Annotated[
        bool, typer.Option("--deep", help="Also read the whole store, as `bread audit verify` does.")
    ] = False,
    cwd: Cwd = None,
    json: AsJson = False,
) -> None:
    """Check the installation, the app, its models, store and NATS. Changes nothing. Exit code 1 if something fails."""
    place: Place = context.obj

    async def work() -> int:
        from .checks import examine

        found = []
        async for finding in examine(place, deep=deep):
            found.append(finding)
            if not json:
                _show(finding)
        failed = [finding for finding in found if finding.state == "fail"]
        if json:
            print_json({"ok": not failed, "checks": [finding.as_data() for finding in found]})
        if not failed:
            return exits.DONE
        report(failed[0].code, f"{failed[0].what}: {failed[0].detail}")
        return exits.ERROR

    place.perform(work)


def _show(finding: Finding) -> None:
    to_do = f"  -> {finding.to_do}" if finding.to_do else ""
    line = one_line(f"{finding.what}: {finding.detail}{to_do}")
    console().print(Text.assemble((f"{finding.state:<4}", STYLES[finding.state]), f"  {line}"))
