"""A JSON Schema in words, for a person who has to answer: fields, types, what is required, what may be chosen."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ...domain.events import JsonValue
from .words import one_line, shown

ANY = "any JSON value but null"
MAX_DEPTH = 3
MAX_REFS = 20
TYPES = {"string": "text", "integer": "whole number", "boolean": "true or false", "array": "list"}
LIMITS = {
    "minimum": "at least {}",
    "maximum": "at most {}",
    "exclusiveMinimum": "more than {}",
    "exclusiveMaximum": "less than {}",
    "minLength": "at least {} characters",
    "maxLength": "at most {} characters",
    "minItems": "at least {} of them",
    "maxItems": "at most {} of them",
    "pattern": "like {}",
    "format": "{}",
}
Part = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Field:
    """A field of a flat object. `text` says that what is typed for it is text, even where it could be read as JSON."""

    name: str
    words: str
    required: bool
    text: bool


def described(schema: JsonValue) -> list[str]:
    """What fits a schema, one line a field below its object."""
    root = schema if isinstance(schema, dict) else {}
    part = _resolved(root, root)
    return [_words(part, root) + _remark(part), *_fields(part, root, 1)]


def flat_fields(schema: JsonValue) -> list[Field]:
    """The fields of an object that has only simple ones, so that they can be asked for one by one; else none."""
    root = schema if isinstance(schema, dict) else {}
    part = _resolved(root, root)
    found = []
    for name, value in _properties(part).items():
        field = _resolved(value, root)
        options = [_resolved(option, root) for option in _options(field)] or [field]
        if any(_kinds(option) & {"object", "array"} or not _is_known(option) for option in options):
            return []
        text = all(_kinds(option) == {"string"} for option in options)
        found.append(Field(name, _words(field, root) + _remark(field), name in _required(part), text))
    return found


def _fields(part: Part, root: Part, depth: int) -> list[str]:
    lines = []
    for name, value in _properties(part).items():
        field = _resolved(value, root)
        required = ", required" if name in _required(part) else ""
        lines.append(f"{'  ' * depth}{one_line(name)}: {_words(field, root)}{required}{_remark(field)}")
        if depth < MAX_DEPTH:
            lines += _fields(field, root, depth + 1)
            lines += _fields(_resolved(field.get("items"), root), root, depth + 1)
    return lines


def _words(part: Part, root: Part, depth: int = 0) -> str:
    """What fits, in a few words, without the fields of objects."""
    if "const" in part:
        return shown(part["const"])
    if isinstance(choices := part.get("enum"), list):
        return f"one of {', '.join(map(shown, choices))}"
    if options := _options(part):
        if depth == MAX_DEPTH:
            return "JSON"
        words = [_words(_resolved(option, root), root, depth + 1) for option in options]
        return " or ".join(dict.fromkeys(words))
    if not _is_known(part):
        return ANY if not part.keys() - {"title", "description", "default", "$schema", "$defs"} else shown(dict(part))
    limits = [words.format(one_line(str(part[key]))) for key, words in LIMITS.items() if key in part]
    if "array" in _kinds(part) and isinstance(part.get("items"), dict) and depth < MAX_DEPTH:
        limits.insert(0, f"each: {_words(_resolved(part['items'], root), root, depth + 1)}")
    if depth and "object" in _kinds(part) and _properties(part):
        limits.insert(0, ", ".join(f"{one_line(n)}{'' if n in _required(part) else '?'}" for n in _properties(part)))
    kinds = " or ".join(TYPES.get(kind, kind) for kind in sorted(_kinds(part)))
    return f"{kinds} ({'; '.join(limits)})" if limits else kinds


def _remark(part: Part) -> str:
    default = f" (default {shown(part['default'])})" if part.get("default") is not None else ""
    text = part.get("description")
    return default + (f" - {one_line(text)}" if isinstance(text, str) and text.strip() else "")


def _resolved(part: Any, root: Part) -> Part:
    """The part itself, or what its `$ref` or its only `allOf` points to, with what stands beside that."""
    for _ in range(MAX_REFS):
        if not isinstance(part, dict):
            return {}
        beside = {key: value for key, value in part.items() if key not in ("$ref", "allOf")}
        if isinstance(ref := part.get("$ref"), str):
            part = {**_at(ref, root), **beside}
        elif isinstance(all_of := part.get("allOf"), list) and len(all_of) == 1 and isinstance(all_of[0], dict):
            part = {**all_of[0], **beside}
        else:
            return part
    return {}


def _at(ref: str, root: Part) -> Part:
    found: Any = root
    for name in ref.removeprefix("#").split("/")[1:]:
        found = found.get(name.replace("~1", "/").replace("~0", "~")) if isinstance(found, dict) else None
    return found if isinstance(found, dict) else {}


def _options(part: Part) -> list[Any]:
    options = part.get("anyOf", part.get("oneOf"))
    return options if isinstance(options, list) else []


def _kinds(part: Part) -> set[str]:
    kinds = part.get("type", "object" if _properties(part) else [])
    return {kinds} if isinstance(kinds, str) else {kind for kind in kinds if isinstance(kind, str)}


def _is_known(part: Part) -> bool:
    return bool(_kinds(part)) or "const" in part or isinstance(part.get("enum"), list)


def _properties(part: Part) -> Part:
    properties = part.get("properties")
    return properties if isinstance(properties, dict) else {}


def _required(part: Part) -> list[Any]:
    required = part.get("required")
    return required if isinstance(required, list) else []
