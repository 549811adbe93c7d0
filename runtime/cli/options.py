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
from .completion import agent_and_pipeline_ids, checkpoint_ids, run_ids
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
Session = Annotated[
    str | None, typer.Option("--session", "-s", metavar="ID", help="The session: one to go on with, or a new id.")
]
Skill = Annotated[str | None, typer.Option(metavar="ID", help="A skill of the agent that the run has from its start.")]
RunId = Annotated[str, typer.Argument(metavar="RUN", show_default=False, autocompletion=run_ids)]
CheckpointId = Annotated[str, typer.Argument(metavar="CHECKPOINT", show_default=False, autocompletion=checkpoint_ids)]
SessionId = Annotated[str, typer.Argument(metavar="SESSION", show_default=False)]
AgentId = Annotated[str, typer.Argument(metavar="AGENT", show_default=False, autocompletion=agent_and_pipeline_ids)]


def _enter(context: typer.Context, folder: str | None) -> str | None:
    if context.obj is not None:  # else a shell asks what could come next
        context.obj.enter(folder)
    return folder


# A command only has to have it: the place is changed before the command begins.
Cwd = Annotated[
    str | None, typer.Option("--cwd", metavar="DIR", callback=_enter, help="Work in this folder, not where you are.")
]


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


def json_or_text(text: str) -> Any:
    """The value of a JSON text; a text that is none stands for itself."""
    try:
        return json.loads(text, parse_constant=_refuse)
    except (ValueError, RecursionError):
        return text


def _refuse(constant: str) -> Any:
    raise ValueError(f"{constant} is not JSON")


def days_of(days: float | None) -> timedelta | None:
    if days is None:
        return None
    if not math.isfinite(days) or not 0 <= days <= 1_000_000:
        raise InvalidInput("INPUT_INVALID", "--older-than: expected a number of days, at least 0")
    return timedelta(days=days)
