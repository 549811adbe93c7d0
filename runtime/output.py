"""Structured output: the shape that an agent's answer has to have."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel, ValidationError

from ..domain.events import JsonValue, finite
from .schema import problems, schema_of, to_json

_FENCE = re.compile(r"\s*```[a-zA-Z]*\s*\n(.*)\n\s*```\s*", re.DOTALL)


@dataclass(frozen=True)
class Output:
    """The JSON Schema of the answer, and the class that knows more than a schema can say."""

    schema: JsonValue
    model: type[BaseModel] | None = None

    def read(self, text: str) -> tuple[JsonValue, list[str]]:
        """The value of an answer, and where it does not fit; a fence of Markdown around the JSON is taken off."""
        fenced = _FENCE.fullmatch(text)
        try:
            value = json.loads(fenced[1] if fenced else text, parse_constant=_refuse)
        except (ValueError, RecursionError) as error:
            return None, [f"(answer): not JSON: {error}"]
        if finite(value) != value:
            return None, ["(answer): a number is too large"]
        if wrong := problems(value, self.schema):
            return None, wrong
        if self.model is None:
            return value, []
        try:
            return to_json(self.model.model_validate(value), "output"), []
        except ValidationError as error:
            return None, [f"{'.'.join(map(str, e['loc'])) or '(answer)'}: {e['msg']}" for e in error.errors()]


def output_of(shape: Any, what: str) -> Output:
    """An Output from a pydantic model class or a JSON Schema dict; INPUT_INVALID for anything else."""
    return Output(schema_of(shape, what), shape if isinstance(shape, type) else None)


def _refuse(constant: str) -> Any:
    raise ValueError(f"{constant} is not JSON")
