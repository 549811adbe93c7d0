"""Options that several commands share, and the readers of their values."""

from __future__ import annotations

import getpass
import json
import math
import sys
from datetime import timedelta
from typing import Annotated, Any

import typer

from ...domain.envelope import Principal
from ...domain.errors import InvalidInput
from .exits import note

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON for programs.")]
Limit = Annotated[int, typer.Option(help="Rows of one page, 1 to 1000.")]
After = Annotated[str | None, typer.Option("--cursor", help="Go on after a page: its `next`.")]
Tag = Annotated[list[str] | None, typer.Option("--tag", metavar="K=V", help="Only sessions with this tag; repeatable.")]
Author = Annotated[str | None, typer.Option(help="Who does it, for the log; else the name of your login.")]
Comment = Annotated[str | None, typer.Option(help="A remark that is kept with the answer.")]
Reason = Annotated[str | None, typer.Option(help="Why; the model is told.")]
Key = Annotated[str | None, typer.Option("--idempotency-key", help="The same key again gets the same continuation.")]
Detach = Annotated[bool, typer.Option("--detach", help="Do not perform the run here: leave it to other processes.")]
RunId = Annotated[str, typer.Argument(metavar="RUN", show_default=False)]
CheckpointId = Annotated[str, typer.Argument(metavar="CHECKPOINT", show_default=False)]
SessionId = Annotated[str, typer.Argument(metavar="SESSION", show_default=False)]


def person(author: str | None) -> Principal:
    """Who is at the keyboard: the name given, else that of the login."""
    if author is None:
        try:
            author = getpass.getuser()
        except (KeyError, OSError):
            author = "unknown"
    if not author.strip():
        raise InvalidInput("INPUT_INVALID", "--author: expected a name")
    return Principal(kind="user", id=author)


def tags_of(given: list[str] | None) -> dict[str, str]:
    """The tags among `--tag key=value` options; what has another shape is reported and ignored."""
    tags = {}
    for text in given or ():
        key, equals, value = text.partition("=")
        if not (key and equals and value):
            note(f"--tag {text!r} is ignored: expected key=value")
            continue
        tags[key] = value
    return tags


def json_of(text: str, what: str) -> Any:
    """The value of a JSON text, `-` being what stands on stdin; INPUT_INVALID if it is none."""
    if text == "-":
        text = sys.stdin.read()
    try:
        return json.loads(text, parse_constant=_refuse)
    except (ValueError, RecursionError) as error:
        hint = "; a plain text needs its quotes: '\"yes\"'" if text[:1].isalpha() else ""
        raise InvalidInput("INPUT_INVALID", f"{what}: not JSON: {error}{hint}") from error


def _refuse(constant: str) -> Any:
    raise ValueError(f"{constant} is not JSON")


def days_of(days: float | None) -> timedelta | None:
    if days is None:
        return None
    if not math.isfinite(days) or not 0 <= days <= 1_000_000:
        raise InvalidInput("INPUT_INVALID", "--older-than: expected a number of days, at least 0")
    return timedelta(days=days)
