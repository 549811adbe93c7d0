"""JSON Schema: checked when it is defined, and again when somebody answers, from what was stored."""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel
from pydantic_core import PydanticSerializationError, to_jsonable_python

from ..domain.errors import InvalidInput
from ..domain.events import JsonValue, finite

if TYPE_CHECKING:
    from jsonschema.protocols import Validator

MAX_PROBLEMS = 20


def schema_of(shape: Any, what: str) -> JsonValue:
    """The JSON Schema of a pydantic model class or of a schema dict; INPUT_INVALID for anything else."""
    if isinstance(shape, type) and issubclass(shape, BaseModel):
        return shape.model_json_schema()
    if isinstance(shape, dict):
        from jsonschema import Draft202012Validator
        from jsonschema.exceptions import SchemaError

        try:
            Draft202012Validator.check_schema(shape)
        except SchemaError as error:
            raise InvalidInput("INPUT_INVALID", f"{what}: not a JSON Schema: {error.message}") from error
        _check_refs(shape, what)
        return shape
    raise InvalidInput("INPUT_INVALID", f"{what}: expected a pydantic model class or a JSON Schema dict")


def _check_refs(shape: dict[str, Any], what: str) -> None:
    from referencing import Registry
    from referencing.exceptions import Unresolvable
    from referencing.jsonschema import DRAFT202012

    resolver = Registry().resolver_with_root(DRAFT202012.create_resource(shape))
    for ref in _refs(shape):
        try:
            resolver.lookup(ref)
        except Unresolvable as error:
            raise InvalidInput("INPUT_INVALID", f"{what}: nothing is found at its $ref {ref!r}") from error


def _refs(part: Any) -> Iterator[str]:
    """Every `$ref` below; of parts with an `$id` of their own none, since theirs are relative to that."""
    if isinstance(part, dict):
        if isinstance(ref := part.get("$ref"), str):
            yield ref
        for name, value in part.items():
            if name not in ("const", "default", "enum", "examples") and not (
                isinstance(value, dict) and "$id" in value
            ):
                yield from _refs(value)
    elif isinstance(part, list):
        for value in part:
            yield from _refs(value)


def problems(value: JsonValue, schema: JsonValue, what: str = "answer") -> list[str]:
    """The places where a value does not fit a schema, as `path: what is wrong`; none if it fits."""
    if not isinstance(schema, dict):
        return []
    found = []
    try:
        for error in _validator(json.dumps(schema)).iter_errors(value):
            place = ".".join(str(part) for part in error.absolute_path) or f"({what})"
            found.append(f"{place}: {error.message[:300]}")
            if len(found) == MAX_PROBLEMS:
                break
    except Exception as error:
        # A schema that cannot be followed (a `$ref` to nowhere, or to itself) lets nothing through.
        found.append(f"(schema): it cannot be checked: {type(error).__name__}: {str(error)[:300]}")
    return found


@lru_cache(maxsize=256)
def _validator(schema: str) -> Validator:
    # Imported when first needed: lists and `--help` do not pay for it.
    from jsonschema import Draft202012Validator, FormatChecker
    from referencing import Registry

    # With a registry of its own nothing is fetched from where a `$ref` points to.
    return Draft202012Validator(json.loads(schema), format_checker=FormatChecker(), registry=Registry())


def to_json(value: Any, what: str) -> JsonValue:
    """A value as JSON data (also models, dataclasses, datetimes and the like); INPUT_INVALID if it has no JSON form."""
    try:
        plain: JsonValue = finite(to_jsonable_python(value))
        json.dumps(plain, allow_nan=False)  # what cannot be stored or sent is refused here, not in the commit
    except (PydanticSerializationError, ValueError, RecursionError) as error:
        raise InvalidInput("INPUT_INVALID", f"{what}: {type(value).__name__} has no JSON form: {error}") from error
    return plain
