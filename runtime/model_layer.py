"""The model layer: pydantic-ai's direct requests behind bread's model port. Imported when a provider's model is used.

Everything that a client would do on its own is off or said: no retries inside, no answer of half a stream.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import AsyncGenerator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, cast

from pydantic_ai.direct import model_request_stream
from pydantic_ai.exceptions import (
    ContentFilterError,
    ModelAPIError,
    ModelHTTPError,
    ModelQuotaExceededError,
    ModelRequestRejectedError,
    UnexpectedModelBehavior,
    UserError,
)
from pydantic_ai.messages import (
    ModelResponse,
    ModelResponseStreamEvent,
    PartDeltaEvent,
    PartStartEvent,
    TextPart,
    TextPartDelta,
    ThinkingPart,
    ThinkingPartDelta,
    ToolCallPart,
    ToolCallPartDelta,
)
from pydantic_ai.models import Model as LayerModel
from pydantic_ai.models import ModelRequestParameters, infer_model
from pydantic_ai.output import OutputObjectDefinition
from pydantic_ai.providers import Provider, infer_provider_class
from pydantic_ai.providers.gateway import gateway_provider
from pydantic_ai.settings import ModelSettings
from pydantic_ai.tools import ToolDefinition

from ..domain.errors import InvalidInput
from ..domain.messages import read_turn
from ..domain.ports import (
    ModelError,
    ModelEvent,
    ModelRequest,
    ReasoningDelta,
    TextDelta,
    ToolInputDelta,
    ToolSpec,
    TurnDone,
)
from ..domain.run_events import Usage
from .layer_messages import CallIds, from_layer, to_layer

# Seconds that a provider may be silent. Reasoning models think for minutes before they say anything.
SILENCE_SECONDS = 300.0
RETRYABLE_STATUSES = frozenset({408, 409, 425, 429})
_VARIABLE = re.compile(r"\b[A-Z][A-Z0-9]*(?:_[A-Z0-9]+)+\b")


@dataclass
class Client:
    """One model of the layer, with the connections of its provider."""

    name: str
    model: LayerModel
    provider: Provider[Any]
    secrets: tuple[str, ...] = field(default=(), repr=False)

    @classmethod
    def of(cls, name: str, base_url: str | None, api_key: str | None) -> Client:
        """Find provider, package and key. Raises ImportError or MODEL_NOT_READY."""
        made: list[Provider[Any]] = []

        def provide(provider_name: str) -> Provider[Any]:
            made.append(_provider(provider_name, base_url, api_key))
            return made[0]

        kind, _, model_name = name.partition(":")
        # What serves OpenAI's protocol elsewhere serves its chat part.
        elsewhere = base_url is not None and kind == "openai"
        try:
            model = infer_model(f"openai-chat:{model_name}" if elsewhere else name, provide)
        except ImportError:
            raise
        except Exception as error:
            raise InvalidInput("MODEL_NOT_READY", _what_to_do(name, error), model=name) from error
        return cls(name, _strict(model, made[0]), made[0], _secrets(made[0], api_key))

    async def open(self) -> None:
        await self.provider.__aenter__()

    async def close(self) -> None:
        await self.provider.__aexit__(None, None, None)

    def check(self, settings: Mapping[str, Any]) -> None:
        """MODEL_NOT_READY for a setting that this model does not know or ignores: nobody would notice."""
        for setting in settings:
            if setting not in self._known_settings:
                known = ", ".join(sorted(ModelSettings.__annotations__))
                why = f"{self.name} has no setting {setting!r}; there are: {known}"
                raise InvalidInput("MODEL_NOT_READY", why, model=self.name)
            if setting in self.model.unsupported_settings:
                raise InvalidInput("MODEL_NOT_READY", f"{self.name} ignores the setting {setting!r}", model=self.name)

    @cached_property
    def _known_settings(self) -> frozenset[str]:
        """What stands in the settings classes beside the model's class and its bases."""
        modules = [sys.modules[cls.__module__] for cls in type(self.model).__mro__]
        classes = (cls for module in modules for name, cls in vars(module).items() if name.endswith("ModelSettings"))
        return frozenset(setting for cls in classes for setting in getattr(cls, "__annotations__", ()))

    # --- one attempt

    async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelEvent]:
        """Perform one attempt. Raises ModelError, which says whether another attempt makes sense."""
        settings = self._settings(request)
        prompt, parameters = self._ask(request, settings)
        ids = CallIds(self.provider.name, self.model.profile.get("tool_call_id_length"))
        messages = to_layer(request.messages, prompt, ids)
        turn, begun = _Turn(), False
        try:
            async with model_request_stream(
                self.model, messages, model_settings=settings, model_request_parameters=parameters
            ) as stream:
                begun = True
                async for event in stream:
                    for told in turn.tell(event):
                        yield told
                response = stream.get()
        except Exception as error:
            # The cause has all that the provider sent: not for a traceback if the key is in it.
            raise self._failed(error, begun) from (None if self._masked(str(error)) != str(error) else error)
        finish = _finish(response)
        message = from_layer(response)
        for told in turn.end(read_turn(message).text):
            yield told
        yield TurnDone(message, finish, _usage(response))

    def _settings(self, request: ModelRequest) -> ModelSettings:
        settings = {"timeout": SILENCE_SECONDS, **request.settings, "max_retries": 0}
        # Of what a model ignores the layer warns; what the caller gave was checked.
        ignored: set[str] = {*self.model.unsupported_settings}
        if hasattr(self.provider.client, "max_retries"):
            ignored.add("max_retries")  # it was told already; by the setting it would be copied for each request
        return cast(ModelSettings, {name: value for name, value in settings.items() if name not in ignored})

    def _ask(self, request: ModelRequest, settings: ModelSettings) -> tuple[str, ModelRequestParameters]:
        """The prompt and the parameters: a final answer is held to its schema by the provider where that can be."""
        plain = ModelRequestParameters(function_tools=[_tool(spec) for spec in request.tools])
        schema = request.output
        if schema is None:
            return request.prompt, plain
        if not isinstance(schema, dict) or schema.get("type") != "object":
            # The layer asks for JSON objects only.
            asked = f"Answer with nothing but JSON that fits this schema:\n\n{json.dumps(schema, ensure_ascii=False)}"
            return f"{request.prompt}\n\n{asked}".strip(), plain
        answer = OutputObjectDefinition(_with_open(schema), name="answer")
        native = replace(plain, output_mode="native", output_object=answer)
        prompted = replace(native, output_mode="prompted")
        profile = self.model.profile
        if "google" in self.model.system and request.tools and not profile.get("google_supports_tool_combination"):
            return request.prompt, prompted
        try:
            self.model.prepare_request(settings, native)
        except UserError:
            return request.prompt, prompted
        # Providers close every object of a schema that they enforce.
        return request.prompt, prompted if _has_open(answer.json_schema) else native

    def _failed(self, error: Exception, begun: bool) -> ModelError:
        if isinstance(error, ModelError):
            return error
        retry_after = error.retry_after if isinstance(error, ModelAPIError) else None
        retryable = _is_retryable(error, begun)
        return ModelError(self._masked(_explain(error)), retryable=retryable, retry_after=retry_after)

    def _masked(self, text: str) -> str:
        for secret in self.secrets:
            text = text.replace(secret, "***")
        return text


# --- providers --------------------------------------------------------------------------------------------------------


def _provider(name: str, base_url: str | None, api_key: str | None) -> Provider[Any]:
    options = {key: value for key, value in (("base_url", base_url), ("api_key", api_key)) if value is not None}
    if base_url is not None and name in ("openai", "openai-chat"):
        from pydantic_ai.providers.openai_compatible import OpenAICompatibleProvider

        # OpenAI's own provider would send OPENAI_API_KEY to whatever address it is given.
        provider: Provider[Any] = OpenAICompatibleProvider("openai-compatible", base_url=base_url, api_key=api_key)
    elif base_url is not None and api_key is None:
        raise UserError("give api_key along with base_url: no key of the environment is sent to another address")
    elif name.startswith("gateway/"):
        provider = gateway_provider(name.removeprefix("gateway/"), **options)
    else:
        try:
            provider = infer_provider_class(name)(**options)
        except TypeError as error:
            unknown = re.search(r"unexpected keyword argument '(\w+)'", str(error))
            raise UserError(f"it takes no {unknown[1]}" if unknown else str(error)) from error
    client: Any = provider.client
    if hasattr(client, "max_retries"):
        client.max_retries = 0
    if base_url is not None and hasattr(client, "_custom_headers"):
        # What the environment would have the clients tell their own provider.
        client._custom_headers = {}
        client.organization = client.project = None
    return provider


def _secrets(provider: Provider[Any], api_key: str | None) -> tuple[str, ...]:
    """What must not be said, wherever it came from."""
    client: Any = provider.client
    holders = (client, getattr(client, "_api_client", None))  # the second one is Google's
    found = [api_key, *(getattr(one, name, None) for one in holders for name in ("api_key", "auth_token"))]
    return tuple({key for key in found if isinstance(key, str) and len(key) >= 8})


def _strict(model: LayerModel, provider: Provider[Any]) -> LayerModel:
    """The model, such that a chat stream that ends without a finish reason is no answer."""
    if not any(base.__name__ == "OpenAIChatModel" for base in type(model).__mro__):
        return model
    make: Any = type(model)
    made: LayerModel = make(
        model.model_name, provider=provider, profile={"openai_chat_streaming_requires_finish_reason": True}
    )
    return made


def _what_to_do(name: str, error: Exception) -> str:
    message = " ".join(str(error).split())
    variable = _VARIABLE.search(message)
    if variable is None or "environment variable" not in message:
        return f"{name}: {message[:500]}"
    if variable[0].endswith(("_KEY", "_TOKEN")):
        return f"{name} needs a key: set {variable[0]}, or give api_key to define_model"
    return f"{name} needs to know more: set {variable[0]}"


# --- errors -----------------------------------------------------------------------------------------------------------


def _is_retryable(error: Exception, begun: bool) -> bool:
    if isinstance(error, ModelQuotaExceededError | ModelRequestRejectedError | ContentFilterError | UserError):
        return False
    if isinstance(error, ModelHTTPError):
        return error.status_code in RETRYABLE_STATUSES or error.status_code >= 500
    if isinstance(error, ModelAPIError | UnexpectedModelBehavior | OSError):
        return True
    # A stream that makes no sense; and what the clients' HTTP libraries raise and the layer lets through.
    return (
        begun or isinstance(error, ValueError) or any(base.__name__ == "TransportError" for base in type(error).__mro__)
    )


def _explain(error: Exception) -> str:
    """One line: the status and the provider's own sentence, without the rest of what it sent."""
    if isinstance(error, ModelHTTPError):
        said = _said(error.body) or type(error).__name__
        return f"{error.status_code} from {error.model_name}: {said[:500]}"
    return f"{type(error).__name__}: {' '.join(str(error).split())[:500]}"


def _said(body: object) -> str:
    while isinstance(body, dict):
        body = body.get("message") or body.get("error") or ""
    return " ".join(str(body).split()) if body else ""


def _finish(response: ModelResponse) -> str:
    """Why the turn ended; ModelError where it did not, or where it is no answer."""
    details = response.provider_details or {}
    reason = response.finish_reason or details.get("finish_reason")
    if response.state != "complete" or reason is None:
        raise ModelError("the model's stream was cut short")
    if reason == "error":
        raise ModelError("the provider ended the answer with an error")
    if reason == "content_filter" and not any(isinstance(part, TextPart | ToolCallPart) for part in response.parts):
        refusal = details.get("refusal") or "its content filter stopped the answer"
        raise ModelError(f"the provider refused: {refusal}"[:500], retryable=False)
    return str(reason)


# --- the stream -------------------------------------------------------------------------------------------------------


class _Turn:
    """What was told of a turn so far."""

    def __init__(self) -> None:
        self._said: list[str] = []
        self._calls: dict[int, ToolCallPart] = {}
        self._order: dict[int, int] = {}

    def tell(self, event: ModelResponseStreamEvent) -> list[ModelEvent]:
        """The first piece of a part comes with its start, the others as deltas; the rest of the events is silent."""
        match event:
            case PartStartEvent(part=TextPart(content=text)) | PartDeltaEvent(delta=TextPartDelta(content_delta=text)):
                self._said.append(text)
                return [TextDelta(text)] if text else []
            case PartStartEvent(part=ThinkingPart(content=text)):
                return [ReasoningDelta(text)] if text else []
            case PartDeltaEvent(delta=ThinkingPartDelta(content_delta=text)):
                return [ReasoningDelta(text)] if text else []
            case PartStartEvent(index=index, part=ToolCallPart() as part):
                self._calls[index] = part
                self._order.setdefault(index, len(self._order))
                return [self._input(index, _fragment(part.args))]
            case PartDeltaEvent(index=index, delta=ToolCallPartDelta(args_delta=args)) if index in self._calls:
                return [self._input(index, _fragment(args))] if args else []
        return []

    def end(self, whole: str) -> list[ModelEvent]:
        """What was not told of the text, and that every call is complete: pieces of several may have come in turn.

        The layer may replace a part that it has streamed: then nothing counts.
        """
        said = "".join(self._said)
        if not whole.startswith(said):
            raise ModelError("the model layer's text is not what it streamed")
        rest: list[ModelEvent] = [TextDelta(whole[len(said) :])] if len(whole) > len(said) else []
        return [*rest, *(self._input(index, "", done=True) for index in self._calls)]

    def _input(self, index: int, text: str, *, done: bool = False) -> ToolInputDelta:
        part = self._calls[index]
        return ToolInputDelta(self._order[index], part.tool_name, part.tool_call_id, text, done=done)


def _fragment(args: str | dict[str, Any] | None) -> str:
    return args if isinstance(args, str) else json.dumps(args, ensure_ascii=False) if args else ""


def _usage(response: ModelResponse) -> Usage:
    used = response.usage
    more = {name: value for name in ("cache_read_tokens", "cache_write_tokens") if (value := getattr(used, name, 0))}
    return Usage(input_tokens=used.input_tokens, output_tokens=used.output_tokens, **more)


# --- schemas ----------------------------------------------------------------------------------------------------------


def _tool(spec: ToolSpec) -> ToolDefinition:
    schema = _with_open(spec.schema) if isinstance(spec.schema, dict) else {"type": "object"}
    return ToolDefinition(name=spec.name, description=spec.description, parameters_json_schema=schema)


def _with_open(schema: Any) -> Any:
    """The schema, in which objects that take any property say so: some providers' clients close the others."""
    if isinstance(schema, list):
        return [_with_open(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    literal = ("const", "default", "enum", "examples")
    found = {key: value if key in literal else _with_open(value) for key, value in schema.items()}
    if found.get("type") == "object" and not found.get("properties"):
        found.setdefault("additionalProperties", True)
    return found


def _has_open(schema: Any) -> bool:
    if isinstance(schema, list):
        return any(_has_open(one) for one in schema)
    if not isinstance(schema, dict):
        return False
    return bool(schema.get("additionalProperties")) or any(_has_open(one) for one in schema.values())
