"""What is printed: for people through Rich, for programs as JSON."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from rich.cells import cell_len, set_cell_size
from rich.console import Console
from rich.text import Text

from ...projections.lists import Page, View
from .words import as_json, one_line, plain


def console(*, stderr: bool = False) -> Console:
    """The terminal. Text is printed as it is: no markup, no guesses at what it means."""
    return Console(markup=False, emoji=False, highlight=False, soft_wrap=True, stderr=stderr)


def print_json(value: Any, *, stderr: bool = False) -> None:
    print(as_json(value), flush=True, file=sys.stderr if stderr else sys.stdout)


def print_output(value: Any) -> None:
    """What a run gave: text as it is, anything else as JSON. A terminal gets it laid out, and is not steered by it."""
    at_terminal = sys.stdout.isatty()
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, indent=2 if at_terminal else None)
    print(plain(text) if at_terminal else text, flush=True)


def record(view: View) -> dict[str, Any]:
    """A record as JSON data, camelCase."""
    return view.wire()


def print_page(page: Page[Any]) -> None:
    """A page of a list as one JSON object."""
    print_json({"items": [record(item) for item in page.items], "next": page.next})


def print_table(columns: Sequence[str], rows: Iterable[Sequence[str]], empty: str, following: str | None) -> None:
    """Rows under their columns, whole on every screen; what to say when there are none, or more."""
    table = [tuple(one_line(cell) for cell in row) for row in rows]
    screen = console()
    if not table:
        screen.print(empty)
        return
    widths = [max(map(cell_len, column)) for column in zip(columns, *table, strict=True)]
    for number, row in enumerate((columns, *table)):
        cells = (set_cell_size(cell, width) for cell, width in zip(row, widths, strict=True))
        screen.print(Text("  ".join(cells).rstrip(), style="" if number else "bold"))
    if following is not None:
        screen.print(f"more: --cursor {following}")


def print_fields(fields: Mapping[str, str | None]) -> None:
    """One field a line; those that are None are left out."""
    screen, width = console(), max(len(name) for name in fields)
    for name, value in fields.items():
        if value is not None:
            text = plain(value).replace("\n", "\n" + " " * (width + 2))
            screen.print(Text.assemble((f"{name:<{width}}  ", "bold"), text))


def lenient_streams() -> None:
    """A terminal that cannot show a character gets its escape, never a traceback."""
    # Who has closed a stream wants to see nothing of it.
    sys.stdout = sys.stdout or open(os.devnull, "w")  # noqa: SIM115
    sys.stderr = sys.stderr or open(os.devnull, "w")  # noqa: SIM115
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]
