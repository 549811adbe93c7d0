"""A question to a person at a terminal: how it is shown, and what the line that was typed means as an answer."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from ...domain.errors import response_invalid
from ...domain.events import JsonValue
from ...projections.crumbs import HumanRequired
from .options import json_or_text
from .output import print_fields
from .shapes import described, flat_fields
from .words import as_json, moment, one_line, span

PROMPTS = {"approval": "approve? y/n> ", "in_doubt": "what happened?> "}
APPROVAL = 'y, or n and why, or JSON: {"approved": true, "args": {...}} with other arguments'
IN_DOUBT = "retry (call it again), failed and why, happened and its result; or JSON"
INPUT = "JSON, or text as it is"


def show_question(question: HumanRequired, which: str = "") -> None:
    """All that a person needs to decide, whole."""
    fields = " (or /fields asks for them one by one)" if has_fields(question) else ""
    hint = {"approval": APPROVAL, "in_doubt": IN_DOUBT}.get(question.kind, INPUT + fields)
    print_fields(
        {
            "QUESTION": f"{question.prompt}{which}",
            "tool": f"{question.tool_name} ({question.kind})",
            "args": _args(question.args),
            # What may be said of a call in doubt is in the hint whole.
            "answer": None if question.kind == "in_doubt" else "\n".join(described(question.response_schema)),
            "type": f"{hint}\n/later leaves it, /cancel stops the run, /help says more",
            "deadline": _deadline(question.deadline),
            "checkpoint": question.checkpoint_id,
        }
    )


def has_fields(question: HumanRequired) -> bool:
    """Whether the answer is an object whose fields can be asked for one by one."""
    return question.kind == "input" and bool(flat_fields(question.response_schema))


def prompt_of(question: HumanRequired) -> str:
    return PROMPTS.get(question.kind, "answer> ")


def answer_of(question: HumanRequired, line: str) -> JsonValue:
    """The answer that a line is: JSON if it can be read as JSON, else the text. RESPONSE_INVALID if it is unclear.

    Nothing is taken for a yes but `y` and `yes` alone, or an object that says so.
    """
    value: JsonValue = json_or_text(line)
    if question.kind == "approval":
        return _approval(line, value)
    if question.kind == "in_doubt":
        return _doubt(line, value)
    return value


def _approval(line: str, value: Any) -> JsonValue:
    if isinstance(value, dict):
        # Any other object would count as a no, also one that was meant to edit the arguments.
        if "approved" not in value:
            raise response_invalid('say "approved": true or "approved": false in the object')
        return value
    word, _, rest = line.strip().partition(" ")
    word, rest = word.lower(), rest.strip()
    if word in ("y", "yes") and not rest:
        return {"approved": True}
    if word in ("n", "no"):
        return {"approved": False, "reason": rest} if rest else {"approved": False}
    raise response_invalid(f"that is neither a yes nor a no: type {APPROVAL}")


def _doubt(line: str, value: Any) -> JsonValue:
    if isinstance(value, dict):
        return value
    word, _, rest = line.strip().partition(" ")
    word, rest = word.lower(), rest.strip()
    if word == "retry" and not rest:
        return {"outcome": "retry"}
    if word == "failed":
        return {"outcome": "failed", "error": rest or "it was cut off"}
    if word == "happened":
        return {"outcome": "happened", "result": json_or_text(rest) if rest else None}
    raise response_invalid(f"expected {IN_DOUBT}")


def _args(args: JsonValue) -> str:
    # As they are, blanks included: this is what a yes lets happen.
    if not isinstance(args, dict) or not args:
        return as_json(args)
    return "\n".join(f"{one_line(name)}: {as_json(value)}" for name, value in args.items())


def _deadline(deadline: datetime | None) -> str | None:
    if deadline is None:
        return None
    return f"{moment(deadline)} (in {span(deadline - datetime.now(UTC))})"
