"""The model layer: pydantic-ai's direct requests behind bread's model port. Imported when a provider's model is used.

A turn is stored as the layer's own message (codec `pydantic-ai/2`) and sent back unchanged, thinking signatures
included. Everything that a client would do on its own is off or said: no retries inside, no answer of half a stream.
"""

from __future__ import annotations

import json
import re
from collections.abc import AsyncGenerator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

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
    ModelMessage,
    ModelMessagesTypeAdapter,
    ModelResponse,
    ModelResponseStreamEvent,
    PartDeltaEvent,
    PartEndEvent,
    PartStartEvent,
    TextPart,
    TextPartDelta,
    ThinkingPart,
    ThinkingPartDelta,
    ToolCallPart,
    ToolCallPartDelta,
    ToolReturnPart,
    UserPromptPart,
)
from pydantic_ai.messages import (
    ModelRequest as LayerRequest,
)
from pydantic_ai.models import Model as LayerModel
from pydantic_ai.models import ModelRequestParameters, infer_model
from pydantic_ai.output import OutputObjectDefinition
from pydantic_ai.providers import Provider, infer_provider_class
from pydantic_ai.settings import ModelSettings
from pydantic_ai.tools import ToolDefinition

from ..domain.errors import BreadError, InvalidInput
from ..domain.messages import (
    PYDANTIC_AI,
    AnyMessage,
    AssistantMessage,
    Message,
    ToolMessage,
    ToolUse,
    UserMessage,
    read_turn,
)
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
        except (UserError, ValueError, TypeError) as error:
            raise InvalidInput("MODEL_NOT_READY", _what_to_do(name, str(error)), model=name) from error
        client = cls(name, _strict(model, made[0]), made[0])
        key = api_key or getattr(made[0].client, "api_key", None)
        return replace(client, secrets=(key,)) if isinstance(key, str) and len(key) >= 8 else client

    async def open(self) -> None:
        await self.provider.__aenter__()

    async def close(self) -> None:
        await self.provider.__aexit__(None, None, None)

    def check(self, settings: Mapping[str, Any]) -> None:
        """MODEL_NOT_READY for a setting that no model of this provider knows: it would be ignored in silence."""
        kinds = {self.model.system.partition("-")[0], self.name.partition(":")[0].partition("-")[0], "openai"}
        for setting in settings:
            if setting not in ModelSettings.__annotations__ and setting.partition("_")[0] not in kinds:
                known = ", ".join(sorted(ModelSettings.__annotations__))
                raise InvalidInput(
                    "MODEL_NOT_READY", f"{self.name} has no setting {setting!r}; there are: {known}", model=self.name
                )

    # --- one attempt

    async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelEvent]:
        """Perform one attempt. Raises ModelError, which says whether another attempt makes sense."""
        settings: dict[str, Any] = {"timeout": SILENCE_SECONDS, **request.settings, "max_retries": 0}
        turn = _Turn()
        try:
            async with model_request_stream(
                self.model,
                to_layer(request.messages, request.prompt),
                model_settings=ModelSettings(**settings),  # type: ignore[typeddict-item]
                model_request_parameters=self._parameters(request, settings),
            ) as stream:
                async for event in stream:
                    for told in turn.tell(event):
                        yield told
                response = stream.get()
        except Exception as error:
            raise self._failed(error) from error
        if response.state != "complete" or response.finish_reason is None:
            raise ModelError("the model's stream was cut short")
        message = from_layer(response)
        rest = turn.rest(read_turn(message).text)
        if rest:
            yield TextDelta(rest)
        yield TurnDone(message, response.finish_reason, _usage(response))

    def _parameters(self, request: ModelRequest, settings: Mapping[str, Any]) -> ModelRequestParameters:
        parameters = ModelRequestParameters(function_tools=[_tool(spec) for spec in request.tools])
        if request.output is None:
            return parameters
        schema = request.output
        if not isinstance(schema, dict):
            schema = {}
        definition = OutputObjectDefinition(json_schema=schema, name="answer")
        native = replace(parameters, output_mode="native", output_object=definition)
        if schema.get("type") == "object":  # providers enforce no other shapes
            try:
                self.model.prepare_request(ModelSettings(**settings), native)  # type: ignore[typeddict-item]
                return native
            except UserError:
                pass  # the provider cannot enforce it: the model is asked for it
        return replace(native, output_mode="prompted")

    def _failed(self, error: Exception) -> ModelError:
        if isinstance(error, ModelError):
            return error
        message = _explain(error)
        for secret in self.secrets:
            message = message.replace(secret, "***")
        retry_after = error.retry_after if isinstance(error, ModelAPIError) else None
        return ModelError(message, retryable=_is_retryable(error), retry_after=retry_after)


def _provider(name: str, base_url: str | None, api_key: str | None) -> Provider[Any]:
    if base_url is not None and name in ("openai", "openai-chat"):
        from pydantic_ai.providers.openai_compatible import OpenAICompatibleProvider

        # OpenAI's own provider would send OPENAI_API_KEY to whatever address it is given.
        return OpenAICompatibleProvider("openai-compatible", base_url=base_url, api_key=api_key)
    options = {key: value for key, value in (("base_url", base_url), ("api_key", api_key)) if value is not None}
    if base_url is not None and api_key is None:
        raise UserError(f"give api_key along with base_url: a key of {name} is not sent to another address unasked")
    return infer_provider_class(name)(**options)


def _strict(model: LayerModel, provider: Provider[Any]) -> LayerModel:
    """The model, such that a chat stream that ends without a finish reason is no answer."""
    if not any(base.__name__ == "OpenAIChatModel" for base in type(model).__mro__):
        return model
    make: Any = type(model)
    made: LayerModel = make(
        model.model_name, provider=provider, profile={"openai_chat_streaming_requires_finish_reason": True}
    )
    return made


def _what_to_do(name: str, message: str) -> str:
    variable = _VARIABLE.search(message)
    if variable is not None and "environment variable" in message:
        return f"{name} needs a key: set {variable[0]}, or give api_key to define_model"
    return f"{name}: {' '.join(message.split())[:500]}"


# --- errors -----------------------------------------------------------------------------------------------------------


def _is_retryable(error: Exception) -> bool:
    if isinstance(error, ModelQuotaExceededError | ModelRequestRejectedError | ContentFilterError | UserError):
        return False
    if isinstance(error, ModelHTTPError):
        return error.status_code in RETRYABLE_STATUSES or error.status_code >= 500
    if isinstance(error, ModelAPIError | UnexpectedModelBehavior | OSError | TimeoutError):
        return True
    # What the clients' HTTP libraries raise and the layer lets through.
    return any(base.__name__ == "TransportError" for base in type(error).__mro__)


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
                return [self._input(index, _fragment(args))]
            case PartEndEvent(index=index, part=ToolCallPart()) if index in self._calls:
                return [self._input(index, "", done=True)]
        return []

    def _input(self, index: int, text: str, *, done: bool = False) -> ToolInputDelta:
        part = self._calls[index]
        return ToolInputDelta(self._order[index], part.tool_name, part.tool_call_id, text, done=done)

    def rest(self, whole: str) -> str:
        """What was not told of the text. The layer may replace a part that it has streamed: then nothing counts."""
        said = "".join(self._said)
        if not whole.startswith(said):
            raise ModelError("the model layer's text is not what it streamed")
        return whole[len(said) :]


def _fragment(args: str | dict[str, Any] | None) -> str:
    return args if isinstance(args, str) else json.dumps(args, ensure_ascii=False) if args else ""


def _usage(response: ModelResponse) -> Usage:
    used = response.usage
    more = {name: value for name in ("cache_read_tokens", "cache_write_tokens") if (value := getattr(used, name, 0))}
    return Usage(input_tokens=used.input_tokens, output_tokens=used.output_tokens, **more)


# --- messages ---------------------------------------------------------------------------------------------------------


def from_layer(response: ModelResponse) -> Message:
    """A turn as it is stored."""
    data = ModelMessagesTypeAdapter.dump_python([response], mode="json", exclude_none=True)
    return Message(codec=PYDANTIC_AI, data=data[0])


def to_layer(messages: Sequence[AnyMessage], prompt: str) -> list[ModelMessage]:
    """The conversation as the layer sends it. Adjacent outcomes and words of the caller are one request."""
    found: list[ModelMessage] = []
    parts: list[Any] = []
    for message in messages:
        match message:
            case UserMessage(text=text):
                parts.append(UserPromptPart(text))
            case ToolMessage():
                parts.append(_outcome(message))
            case AssistantMessage():
                if parts:
                    found.append(LayerRequest(parts=parts))
                parts = []
                found.append(_response(message))
    found.append(LayerRequest(parts=parts, instructions=prompt or None))
    return found


def _outcome(message: ToolMessage) -> ToolReturnPart[Any]:
    outcomes = {"ok": "success", "error": "failed", "denied": "denied"}
    return ToolReturnPart(
        tool_name=message.tool,
        content=message.content,
        tool_call_id=message.call_id,
        outcome=outcomes[message.outcome],  # type: ignore[arg-type]
    )


def _response(message: AssistantMessage) -> ModelResponse:
    """The layer's own message, or one made of the neutral reading where another model wrote the turn.

    Ids of calls are those that are unique in the run: a provider that repeats one would be sent two outcomes for it.
    """
    if message.message.codec != PYDANTIC_AI:
        return _written_elsewhere(message)
    [response] = ModelMessagesTypeAdapter.validate_python([message.message.data])
    if not isinstance(response, ModelResponse):
        raise BreadError("STORE_INVALID", "a stored turn of the model is none")
    ids = iter(message.call_ids)
    parts = [
        replace(part, tool_call_id=next(ids)) if isinstance(part, ToolCallPart) else part for part in response.parts
    ]
    return replace(response, parts=parts)


def _written_elsewhere(message: AssistantMessage) -> ModelResponse:
    parts: list[Any] = [TextPart(message.text)] if message.text else []
    parts += [_call(use, call_id) for use, call_id in zip(message.calls, message.call_ids, strict=True)]
    return ModelResponse(parts=parts)


def _call(use: ToolUse, call_id: str) -> ToolCallPart:
    args = use.args if isinstance(use.args, dict | str) else json.dumps(use.args)
    return ToolCallPart(tool_name=use.tool, args=args, tool_call_id=call_id)


def _tool(spec: ToolSpec) -> ToolDefinition:
    schema = spec.schema if isinstance(spec.schema, dict) else {"type": "object"}
    return ToolDefinition(name=spec.name, description=spec.description, parameters_json_schema=schema)
