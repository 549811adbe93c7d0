"""JSON Schema: checked when it is defined, and again when somebody answers, from what was stored."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel
from pydantic_core import PydanticSerializationError, to_jsonable_python

from ..domain.errors import InvalidInput
from ..domain.events import JsonValue

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
        return shape
    raise InvalidInput("INPUT_INVALID", f"{what}: expected a pydantic model class or a JSON Schema dict")


def problems(value: JsonValue, schema: JsonValue) -> list[str]:
    """The places where a value does not fit a schema, as `path: what is wrong`; none if it fits."""
    # Imported when first needed: lists and `--help` do not pay for it.
    from jsonschema import Draft202012Validator, FormatChecker

    if not isinstance(schema, dict):
        return []
    validator = Draft202012Validator(schema, format_checker=FormatChecker())
    found = []
    for error in validator.iter_errors(value):
        place = ".".join(str(part) for part in error.absolute_path) or "(answer)"
        found.append(f"{place}: {error.message[:300]}")
        if len(found) == MAX_PROBLEMS:
            break
    return found


def to_json(value: Any, what: str) -> JsonValue:
    """A value as JSON data (also models, dataclasses, datetimes and the like); INPUT_INVALID if it has no JSON form."""
    try:
        plain: JsonValue = to_jsonable_python(value, inf_nan_mode="strings")
    except (PydanticSerializationError, ValueError, RecursionError) as error:
        raise InvalidInput("INPUT_INVALID", f"{what}: {type(value).__name__} has no JSON form: {error}") from error
    return plain
