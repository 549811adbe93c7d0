"""Tools: functions that a model may call, and questions to people that look like tools to the model."""

from __future__ import annotations

import inspect
import re
import typing
import warnings
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Literal, overload

from pydantic import BaseModel, ConfigDict, ValidationError, create_model

from ..domain.errors import InvalidInput
from ..domain.events import JsonValue
from ..domain.names import check_name, model_name
from .schema import problems, schema_of, to_json


@dataclass(frozen=True, slots=True)
class ToolContext:
    """What a tool is told about its call.

    `idempotency_key` is the same each time this very call is executed, also after a crash: hand it to whatever the tool
    changes. `approved_by` is who approved the call, where a person had to.
    """

    run_id: str
    session_id: str
    agent_id: str
    tool_call_id: str
    idempotency_key: str
    approved_by: str | None = None


class _Args(BaseModel):
    model_config = ConfigDict(extra="forbid", arbitrary_types_allowed=False)


@dataclass(frozen=True, slots=True)
class Tool:
    """A function as a tool. `kind` says how it is run: on the loop, in a thread, or item by item.

    A tool of a skill is there for a run that has loaded the skill.
    """

    name: str
    description: str
    schema: JsonValue
    function: Callable[..., Any]
    kind: Literal["async", "sync", "stream"]
    idempotent: bool
    args_model: type[BaseModel]
    context_parameter: str | None
    scope: Literal["tool", "core"] = "tool"
    skill: str | None = None
    composes: bool = False

    @property
    def model_name(self) -> str:
        return model_name("skill", self.name, self.skill) if self.skill else model_name(self.scope, self.name)

    @property
    def selector(self) -> str:
        """What permission lists call it."""
        return f"skill:{self.skill}/{self.name}" if self.skill else f"{self.scope}:{self.name}"

    def problems(self, args: JsonValue) -> list[str]:
        """Where arguments do not fit; none if the tool can be called with them."""
        try:
            self.args_model.model_validate(args)
        except ValidationError as error:
            return [f"{'.'.join(map(str, e['loc'])) or '(args)'}: {e['msg']}" for e in error.errors()]
        return []

    def bind(self, args: JsonValue, context: ToolContext) -> dict[str, Any]:
        """The keyword arguments of one call; the values are those of the model, converted to the annotated types."""
        model = self.args_model.model_validate(args)
        given = {name: getattr(model, name) for name in type(model).model_fields}
        return given | ({self.context_parameter: context} if self.context_parameter else {})

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.function(*args, **kwargs)


@dataclass(frozen=True, slots=True)
class HumanTool:
    """A question to a person. `timeout` is in seconds; `on_timeout` is the answer that then counts (None: an error)."""

    name: str
    description: str
    schema: JsonValue
    response_schema: JsonValue
    prompt: str | None
    timeout: float | None
    on_timeout: JsonValue
    skill: str | None = None

    @property
    def model_name(self) -> str:
        return model_name("human", self.name)

    def question(self, args: JsonValue) -> str:
        """The question as the person reads it: the prompt with `{argument}` filled in."""
        if self.prompt is None:
            return f"{self.name} needs an answer"
        values = args if isinstance(args, dict) else {}
        return re.sub(r"\{(\w+)\}", lambda m: str(values[m[1]]) if m[1] in values else m[0], self.prompt)


@overload
def define_tool(function: Callable[..., Any], /) -> Tool: ...


@overload
def define_tool(
    *, name: str | None = None, description: str | None = None, idempotent: bool = False
) -> Callable[[Callable[..., Any]], Tool]: ...


def define_tool(
    function: Callable[..., Any] | None = None,
    /,
    *,
    name: str | None = None,
    description: str | None = None,
    idempotent: bool = False,
) -> Tool | Callable[[Callable[..., Any]], Tool]:
    """Make a tool of a function: its name, docstring and annotations are what the model sees.

    The function may be sync (it runs in a thread), async, or an async generator, whose items are partial results and
    the last one the result. A parameter annotated `ToolContext` is filled in by bread. With `idempotent=True` a call
    that a crash cut off is made again under the same `ctx.idempotency_key`; otherwise a person is asked what happened.
    Raises INVALID_NAME or INPUT_INVALID.
    """

    def make(function: Callable[..., Any]) -> Tool:
        tool_name = check_name(name or str(getattr(function, "__name__", "")), "tool")
        model, schema, context_parameter = _args_model(tool_name, function)
        schema.pop("title", None)
        kind: Literal["async", "sync", "stream"] = "sync"
        if inspect.isasyncgenfunction(function):
            kind = "stream"
        elif inspect.iscoroutinefunction(function):
            kind = "async"
        text = description or inspect.getdoc(function) or tool_name.replace("_", " ")
        return Tool(tool_name, text, schema, function, kind, idempotent, model, context_parameter)

    return make if function is None else make(function)


def _args_model(name: str, function: Callable[..., Any]) -> tuple[type[BaseModel], dict[str, Any], str | None]:
    try:
        hints = typing.get_type_hints(function, include_extras=True)
    except Exception as error:
        raise InvalidInput("INPUT_INVALID", f"tool {name}: cannot read its annotations: {error}") from error
    fields: dict[str, Any] = {}
    context_parameter = None
    for parameter in inspect.signature(function).parameters.values():
        annotation = hints.get(parameter.name, Any)
        if annotation is ToolContext or ToolContext in typing.get_args(annotation):
            context_parameter = parameter.name
            continue
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD, parameter.POSITIONAL_ONLY):
            raise InvalidInput("INPUT_INVALID", f"tool {name}: parameter {parameter.name!r} must take a keyword")
        if parameter.name.startswith("_"):
            raise InvalidInput("INPUT_INVALID", f"tool {name}: parameter {parameter.name!r} must begin with a letter")
        default = ... if parameter.default is parameter.empty else parameter.default
        fields[parameter.name] = (annotation, default)
    try:
        with warnings.catch_warnings():
            # An argument may be called as a method of pydantic's, `json` or `copy`: the model is ours and uses none.
            warnings.filterwarnings("ignore", "Field name .* shadows", UserWarning)
            model = create_model(f"{name}_args", __base__=_Args, **fields)
        return model, model.model_json_schema(), context_parameter
    except Exception as error:
        raise InvalidInput("INPUT_INVALID", f"tool {name}: its parameters have no schema: {error}") from error


def define_human_tool(
    name: str,
    schema: Any,
    *,
    response: Any = None,
    prompt: str | None = None,
    description: str | None = None,
    timeout: timedelta | float | None = None,
    on_timeout: Any = None,
) -> HumanTool:
    """Make a question to a person. `schema` is the shape of its arguments and `response` that of the answer.

    Both are pydantic model classes or JSON Schema dicts; without `response` any JSON value but null is an answer.
    `prompt` is what the person reads, with `{argument}` filled in. After `timeout` (seconds) nobody can answer any
    more: the model gets `on_timeout`, or an error. Raises INVALID_NAME or INPUT_INVALID.
    """
    seconds = timeout.total_seconds() if isinstance(timeout, timedelta) else timeout
    if seconds is not None and not seconds > 0:
        raise InvalidInput("INPUT_INVALID", f"human tool {name}: timeout must be more than 0 seconds")
    response_schema = None if response is None else schema_of(response, f"human tool {name}: response")
    fallback = to_json(on_timeout, f"human tool {name}: on_timeout")
    if fallback is not None and response_schema is not None and (wrong := problems(fallback, response_schema)):
        raise InvalidInput("INPUT_INVALID", f"human tool {name}: on_timeout does not fit response: {wrong[0]}")
    return HumanTool(
        name=check_name(name, "human tool"),
        description=description or f"Ask a person: {name.replace('_', ' ')}. The run waits until somebody answers.",
        schema=schema_of(schema, f"human tool {name}: schema"),
        response_schema=response_schema,
        prompt=prompt,
        timeout=seconds,
        on_timeout=fallback,
    )


async def collect(stream: AsyncIterator[Any], partial: Callable[[Any], None]) -> Any:
    """Run a streaming tool: every item but the last goes to `partial` as it comes; the last one is the result."""
    last: list[Any] = []
    async for item in stream:
        partial(item)
        last = [item]
    return last[0] if last else None
