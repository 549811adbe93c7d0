"""What an answer means, by the stored kind of its question. Nothing but the boolean true approves."""

from __future__ import annotations

from .checkpoint import CheckpointKind, CheckpointOpened
from .errors import response_invalid
from .events import JsonValue
from .run_events import Verdict

APPROVAL_KEYS = frozenset({"approved", "args", "reason", "comment"})


def verdict_of(kind: CheckpointKind, response: JsonValue) -> Verdict:
    """The verdict of an answer; RESPONSE_INVALID if it does not fit the kind, whatever schema the question has."""
    if response is None:
        raise response_invalid("an answer is missing: null is not one")
    if kind == "approval":
        return _approval(response)
    if kind == "in_doubt":
        return _doubt(response)
    return "answered"


def _approval(response: JsonValue) -> Verdict:
    if not isinstance(response, dict) or not response:
        raise response_invalid('expected an object: {"approved": true} or {"approved": false, "reason": "..."}')
    for key in ("reason", "comment"):
        if key in response and not isinstance(response[key], str | None):
            raise response_invalid(f"{key}: expected text", [key])
    if response.get("approved") is not True:
        return "rejected"
    extra = sorted(set(response) - APPROVAL_KEYS)
    if extra:
        raise response_invalid(f"unknown beside approved: {', '.join(extra)}", extra)
    return "approved"


def _doubt(response: JsonValue) -> Verdict:
    expected = '{"outcome": "happened", "result": ...}, {"outcome": "retry"} or {"outcome": "failed", "error": "..."}'
    if not isinstance(response, dict):
        raise response_invalid(f"expected {expected}")
    keys, outcome = set(response), response.get("outcome")
    if outcome == "happened" and keys == {"outcome", "result"}:
        return "happened"
    if outcome == "retry" and keys == {"outcome"}:
        return "retry"
    if outcome == "failed" and keys == {"outcome", "error"} and isinstance(response["error"], str):
        return "failed"
    raise response_invalid(f"expected {expected}", ["outcome"])


IN_DOUBT_SCHEMA: JsonValue = {
    "oneOf": [
        {
            "type": "object",
            "properties": {"outcome": {"const": "happened"}, "result": {}},
            "required": ["outcome", "result"],
            "additionalProperties": False,
        },
        {
            "type": "object",
            "properties": {"outcome": {"const": "retry"}},
            "required": ["outcome"],
            "additionalProperties": False,
        },
        {
            "type": "object",
            "properties": {"outcome": {"const": "failed"}, "error": {"type": "string"}},
            "required": ["outcome", "error"],
            "additionalProperties": False,
        },
    ]
}


def approval_schema(args_schema: JsonValue) -> JsonValue:
    """The schema of an answer to an approval: approve, approve with edited arguments, or reject."""
    return {
        "type": "object",
        "properties": {
            "approved": {"type": "boolean"},
            "args": args_schema,
            "reason": {"type": "string"},
            "comment": {"type": "string"},
        },
        "required": ["approved"],
    }


def response_schema_of(question: CheckpointOpened) -> JsonValue:
    """The schema of an answer: the stored one, or for kinds of bread's own what their kind says."""
    if question.kind == "approval":
        return approval_schema(question.args_schema)
    return IN_DOUBT_SCHEMA if question.kind == "in_doubt" else question.response_schema
