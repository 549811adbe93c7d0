"""Writes the parts of the pages that can be read off the code: commands, settings, events, crumbs.

    make docs        # or: .venv/bin/python -m docs.generate

A part stands between two comments of its page; what is around them is written by hand. The same code gives the same
bytes on every machine, and tests/test_docs.py compares them.
"""

from __future__ import annotations

import json
import sys
import types
from collections.abc import Callable, Iterable, Iterator
from datetime import datetime
from inspect import cleandoc
from pathlib import Path
from textwrap import fill
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from pydantic import BaseModel, JsonValue, SecretStr
from pydantic.fields import FieldInfo
from typer.main import get_command

from bread import AuditEvent, Checkpoint, Config, Crumb, Principal, Run, Session, Step
from bread.domain.envelope import Meta
from bread.domain.events import Event, known_events
from bread.projections.crumbs import AnyCrumb, ParentView
from bread.projections.lists import Delegation, Iteration, LoopView
from bread.runtime.cli.root import app
from bread.runtime.config import PREFIX

from . import asyncapi

HERE = Path(__file__).parent
COMMAND = "make docs"


def main() -> None:
    for name, text in pages().items():
        if (HERE / name).read_text(encoding="utf-8") != text:
            (HERE / name).write_text(text, encoding="utf-8")
            sys.stdout.write(f"docs/{name} is new\n")


def pages() -> dict[str, str]:
    """The pages that have generated parts, by their file names, as they should be."""
    parts: dict[str, dict[str, Callable[[], str]]] = {
        "cli.md": {"exit codes": exit_codes, "global options": global_options, "commands": all_commands},
        "configuration.md": {"settings": settings},
        "events.md": {"audit event": audit_event, "envelope": envelope, "events": all_events, "values": values},
        "observing.md": {"common fields": common_fields, "crumbs": all_crumbs},
        "python.md": {"records": records},
    }
    found = {}
    for name, makers in parts.items():
        found[name] = (HERE / name).read_text(encoding="utf-8")
        for part, make in makers.items():
            found[name] = replaced(found[name], part, make())
    found["asyncapi.yaml"] = asyncapi.text()
    return found


def replaced(page: str, name: str, part: str) -> str:
    """A page with what stands between the comments of a part replaced."""
    begin, end = f"<!-- {name}: written by docs/generate.py -->\n", f"<!-- end of {name} -->\n"
    before, _, rest = page.partition(begin)
    _, found, after = rest.partition(end)
    if not found:
        raise SystemExit(f"a page lacks the lines\n{begin}{end}")
    return f"{before}{begin}\n{part.strip()}\n\n{end}{after}"


# --- words ------------------------------------------------------------------------------------------------------------

PLAIN = {
    Step: "step",
    str: "text",
    int: "integer",
    float: "number",
    bool: "boolean",
    SecretStr: "text",
    datetime: "time",
    type(None): "null",
}


def type_words(annotation: Any) -> str:
    """A type as a reader of JSON would say it."""
    if annotation is JsonValue or annotation is Any:
        return "any JSON"
    if annotation in PLAIN:
        return PLAIN[annotation]
    origin, args = get_origin(annotation), get_args(annotation)
    if origin in (Literal, Union, types.UnionType):
        *others, last = alternatives(annotation)
        return f"{', '.join(others)} or {last}" if others else last
    if origin in (tuple, list):
        return f"list of {type_words(args[0])}"
    if origin is dict:
        return f"object of {type_words(args[1])}"
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        page = "python.md" if annotation in RECORDS else "events.md"
        return f"[{annotation.__name__}]({page}#{annotation.__name__.lower()})"
    raise TypeError(f"no words for {annotation!r}")


def alternatives(annotation: Any) -> list[str]:
    origin, args = get_origin(annotation), get_args(annotation)
    if origin is Literal:
        return [f"`{json.dumps(value)}`" for value in args]
    if origin in (Union, types.UnionType):
        return [words for arg in args for words in alternatives(arg)]
    return [type_words(annotation)]


def default_words(field: FieldInfo) -> str:
    if field.is_required():
        return "required"
    return f"`{json.dumps(field.get_default(call_default_factory=True, validated_data={}))}`"


def table(head: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    lines = [[*head], *([*row] for row in rows)]
    lines.insert(1, ["---"] * len(lines[0]))
    return "\n".join(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in line)} |" for line in lines)


def fields_table(model: type[BaseModel]) -> str:
    if not model.model_fields:
        return "No fields."
    rows = ((f"`{n}`", type_words(f.annotation), default_words(f)) for n, f in model.model_fields.items())
    return table(("field", "type", "default"), rows)


def prose(text: str) -> str:
    """Paragraphs, each laid out anew."""
    return "\n\n".join(fill(" ".join(part.split()), 120, break_on_hyphens=False) for part in text.split("\n\n"))


def doc_of(cls: type, otherwise: str | None) -> str:
    """What a class says of itself (never what its base says), or what stands here."""
    own = vars(cls).get("__doc__") or otherwise
    if not own:
        raise SystemExit(f"{cls.__qualname__} says nothing of itself")
    return prose(cleandoc(own))


def slug(heading: str) -> str:
    """The anchor of a heading, as GitHub makes it."""
    kept = "".join(char for char in heading.lower() if char.isalnum() or char in " -_")
    return kept.replace(" ", "-")


# --- events -----------------------------------------------------------------------------------------------------------

# What a class does not say of itself.
EVENT_WORDS = {
    "run.tool_returned": "A call has its result.",
    "run.child_started": "A run of this run begins: a step, a delegation, an iteration. `slot` is its place.",
    "run.child_suspended": "A child waits for people.",
    "run.child_resumed": "A child goes on.",
    "run.child_returned": "A child has ended; its output is in its own log.",
    "run.step_started": "A step of a pipeline begins; `path` is its place, such as `2/0`.",
    "run.loop_started": "The host of a loop begins one.",
    "run.iteration_finished": "An iteration of a loop has its output.",
    "run.loop_finished": "A loop has ended.",
    "run.retried": "A failed run goes on from where it failed.",
    "run.failed": "The run ended without an output; everything up to here is kept.",
    "run.cancelled": "Somebody stopped the run.",
    "checkpoint.expired": "The deadline passed and nobody had answered; what then counts is in the run's Resumed.",
    "session.opened": "A session exists: the first run in it begins.",
}

# Which crumb an observer gets for an event; the others show nothing.
SHOWN = {
    "run.started": "agent:run:start",
    "run.model_responded": "text:delta",
    "run.model_failed": "model:retry",
    "run.output_rejected": "model:retry",
    "run.tool_called": "tool:call",
    "run.tool_returned": "tool:result",
    "run.tool_failed": "tool:error",
    "run.step_started": "pipeline:step:start",
    "run.step_finished": "pipeline:step:end",
    "run.child_started": "subagent:run:start",
    "run.child_returned": "subagent:run:end",
    "run.loop_started": "loop:start",
    "run.iteration_started": "loop:iteration:start",
    "run.iteration_finished": "loop:iteration:end",
    "run.loop_finished": "loop:end",
    "run.question_asked": "human:required",
    "run.resumed": "human:resumed",
    "run.retried": "agent:run:retry",
    "run.completed": "agent:run:end",
    "run.failed": "agent:error",
    "run.cancelled": "agent:error",
    "checkpoint.discarded": "human:discarded",
    "bread.erased": "agent:error",
}
STREAMS = {
    "run": "## Events of a run",
    "checkpoint": "## Events of a checkpoint",
    "session": "## Events of a session",
    "bread": "## Events of any stream",
}
META = {
    "at": "when it was committed, in unix seconds, by the clock of the process that wrote it",
    "by": "who wanted it: the kind and the id of a [Principal](#principal)",
    "commit": "the id of the commit: events with the same one were written together or not at all",
    "seq": "the number of the event in the tree of its root run, from 1 without gaps; absent on sessions",
    "root": "the root run; absent where the stream is the root itself, and on sessions",
    "session": "the session that it belongs to",
    "cause": "the `command_id` of the command that brought it about, if the caller gave one",
    "worker": "the process that wrote it",
    "tenant": "whose it is; absent for `default`",
    "traceparent": "the trace context (W3C) in which it came about, if there is one",
}


def events() -> dict[str, type[Event]]:
    """The event classes of bread itself, in the order in which they were written down."""
    return {name: cls for name, cls in known_events().items() if cls.__module__.startswith("bread.")}


def all_events() -> str:
    parts = []
    for stream, heading in STREAMS.items():
        parts.append(heading)
        parts += [event_section(name, cls) for name, cls in events().items() if name.partition(".")[0] == stream]
    return "\n\n".join(parts)


def event_section(name: str, cls: type[Event]) -> str:
    parts = [f"### {name}@{cls.VERSION}", doc_of(cls, EVENT_WORDS.get(name))]
    if name in SHOWN:
        parts.append(f"Observers see it as [`{SHOWN[name]}`](observing.md#{slug(SHOWN[name])}).")
    return "\n\n".join([*parts, fields_table(cls)])


def audit_event() -> str:
    return f"{doc_of(AuditEvent, None)}\n\n{fields_table(AuditEvent)}"


def envelope() -> str:
    hints = get_type_hints(Meta)
    words = {name: "list of text" if hints[name] is Principal else type_words(hints[name]) for name in Meta._fields}
    rows = ((f"`{name}`", words[name].removesuffix(" or null"), META[name]) for name in Meta._fields)
    return table(("meta", "type", ""), rows)


def values() -> str:
    """The models that fields of events are made of, each once."""
    found: dict[type[BaseModel], None] = {}
    models: list[type[BaseModel]] = [*events().values(), AuditEvent]
    for model in models:
        for field in model.model_fields.values():
            for part in (field.annotation, *get_args(field.annotation)):
                if isinstance(part, type) and issubclass(part, BaseModel):
                    found[part] = None
    return "\n\n".join(f"### {one.__name__}\n\n{doc_of(one, None)}\n\n{fields_table(one)}" for one in found)


# --- crumbs -----------------------------------------------------------------------------------------------------------

CRUMB_WORDS = {
    "agent:run:start": "The run has begun. `skill` is the one that the caller gave it.",
    "agent:run:end": "The run has its output: text, or data where the agent's output has a schema.",
    "tool:input:delta": "Live hint, never replayed.",
    "tool:input:end": "Live hint, never replayed.",
    "tool:call": "A tool is called. Human tools have no such crumb.",
    "tool:result": "A call has its result.",
    "pipeline:step:end": "A step has its output. `agent_id` is the step's, as at its start.",
    "loop:iteration:start": "An iteration begins, as the run `child_run_id`.",
    "loop:iteration:end": "An iteration has its output.",
    "loop:end": "The loop is over; `exhausted` where an iteration more was asked for than it may have.",
}
FIELDS = ("field", "on the wire", "type", "default")


def crumbs() -> dict[str, type[Crumb]]:
    """Every crumb class by its type."""
    union, _ = get_args(AnyCrumb)
    return {cls.model_fields["type"].default: cls for cls in get_args(union)}


def common_fields() -> str:
    return table(FIELDS, wire_rows(Crumb, set()))


def all_crumbs() -> str:
    parts = []
    for name, cls in crumbs().items():
        rows = [*wire_rows(cls, {*Crumb.model_fields, "type"})]
        parts += [f"### {name}", doc_of(cls, CRUMB_WORDS.get(name))]
        parts.append(table(FIELDS, rows) if rows else "No fields of its own.")
    return "\n\n".join(parts)


def wire_rows(cls: type[BaseModel], but: set[str]) -> Iterator[tuple[str, ...]]:
    for name, field in cls.model_fields.items():
        if name not in but:
            yield f"`{name}`", f"`{field.alias or name}`", type_words(field.annotation), default_words(field)


# --- records ---------------------------------------------------------------------------------------------------------

RECORD_WORDS = {"Session": "A conversation. `updated_at` is the time of its last event."}
RECORDS = (Checkpoint, Delegation, Run, ParentView, LoopView, Iteration, Session)


def records() -> str:
    parts = []
    for cls in RECORDS:
        says = doc_of(cls, RECORD_WORDS.get(cls.__name__))
        parts.append(f"### {cls.__name__}\n\n{says}\n\n{table(FIELDS, wire_rows(cls, set()))}")
    return "\n\n".join(parts)


# --- settings ---------------------------------------------------------------------------------------------------------


def settings() -> str:
    rows = (
        (f"[`{name}`](#{name})", f"`{PREFIX}{name.upper()}`", type_words(field.annotation), default_words(field))
        for name, field in Config.model_fields.items()
    )
    return table(("setting", "variable", "type", "default"), rows)


# --- the command line -------------------------------------------------------------------------------------------------


def commands(command: Any, path: tuple[str, ...] = ("bread",)) -> Iterator[tuple[str, Any]]:
    """Every command below a group, with its words, in the order of the help."""
    for name, sub in command.commands.items():
        if hasattr(sub, "commands"):
            yield from commands(sub, (*path, name))
        elif not sub.hidden:
            yield " ".join((*path, name)), sub


def exit_codes() -> str:
    _, _, codes = (get_command(app).epilog or "").partition("\b\n")
    return table(("code", "meaning"), ((f"`{code}`", says) for code, says in map(halves, codes.splitlines())))


def halves(line: str) -> tuple[str, str]:
    first, rest = line.split(None, 1)
    return first, rest


def global_options() -> str:
    return table(("option", ""), option_rows(get_command(app)))


def all_commands() -> str:
    parts = []
    for name, command in commands(get_command(app)):
        words = [argument_words(param) for param in command.params if not is_option(param)]
        usage = " ".join((name, "[OPTIONS]", *words))
        parts += [f"## {name}", f"```\n{usage}\n```", prose(command.help or "")]
        if rows := [*option_rows(command)]:
            parts.append(table(("option", ""), rows))
    return "\n\n".join(parts)


def is_option(param: Any) -> bool:
    return any(name.startswith("-") for name in param.opts)


def argument_words(param: Any) -> str:
    word = (param.metavar or param.name.upper()).strip("[]")
    return word if param.required else f"[{word}]"


def option_rows(command: Any) -> Iterator[tuple[str, str]]:
    for param in command.params:
        says = [" ".join((param.help or "").split())]
        if not is_option(param):
            if says[0]:
                yield f"`{argument_words(param)}`", says[0]
            continue
        if param.hidden or "--help" in param.opts:
            continue
        value = "" if param.is_flag else f" {param.metavar or param.name.upper()}"
        names = sorted((*param.opts, *param.secondary_opts), key=len)
        if param.envvar:
            says.append(f"Or the variable `{param.envvar}`.")
        if param.default is not None and param.default is not False:
            says.append(f"Default: `{param.default}`.")
        yield ", ".join(f"`{name}{value}`" for name in names), " ".join(says)


if __name__ == "__main__":
    main()
