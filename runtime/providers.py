"""Models of providers, by name: `anthropic:claude-sonnet-4-5`. The model layer behind them is imported when needed."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from ..domain.errors import InvalidInput
from ..domain.ports import ModelError, ModelEvent, ModelRequest

if TYPE_CHECKING:
    from .model_layer import Client

# Extras of this distribution, by the provider that needs them; what is not here speaks OpenAI's protocol.
EXTRAS = {
    "anthropic": "anthropic",
    "bedrock": "bedrock",
    "cohere": "cohere",
    "google": "google",
    "google-cloud": "google",
    "groq": "groq",
    "huggingface": "huggingface",
    "mistral": "mistral",
}
_NAME = re.compile(r"[a-z0-9][a-z0-9/-]*:\S+")
_LAYERS_EXTRA = re.compile(r"pydantic-ai-slim\[([a-z-]+)\]")
# An address is stored with each turn: there must be no secret in it.
_ADDRESS = re.compile(r"https?://[^\s/@]+(/[^\s@]*)?$")


class ProviderModel:
    """A provider's model by its name. Made by `define_model`; connections belong to the event loop that uses them."""

    def __init__(self, name: str, *, base_url: str | None = None, api_key: str | None = None) -> None:
        self.name, self.base_url = name, base_url
        self._api_key = api_key
        self._clients: WeakKeyDictionary[asyncio.AbstractEventLoop, Client] = WeakKeyDictionary()
        self._users: WeakKeyDictionary[asyncio.AbstractEventLoop, int] = WeakKeyDictionary()
        self._locks: WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Lock] = WeakKeyDictionary()

    def __repr__(self) -> str:
        return f"ProviderModel({self.name!r})"

    # --- life

    def open(self) -> None:
        """Somebody on this event loop is going to use the model; connects and imports nothing."""
        loop = asyncio.get_running_loop()
        self._users[loop] = self._users.get(loop, 0) + 1

    async def close(self) -> None:
        """The counterpart of `open`: with the last one on this loop the connections are closed."""
        loop = asyncio.get_running_loop()
        self._users[loop] = self._users.get(loop, 1) - 1
        async with self._lock():
            if self._users[loop] <= 0 and (client := self._clients.pop(loop, None)) is not None:
                await client.close()

    async def prepare(self, settings: Mapping[str, Any] | None = None) -> None:
        """Import what the model needs and find its key. MODEL_NOT_READY says what to install or to set."""
        (await self._client()).check(settings or {})

    async def _client(self) -> Client:
        loop = asyncio.get_running_loop()
        async with self._lock():
            client = self._clients.get(loop)
            if client is None:
                # The import takes half a second or more, in which nothing else would move.
                client = await asyncio.to_thread(connect, self.name, self.base_url, self._api_key)
                await client.open()
                self._clients[loop] = client
            return client

    def _lock(self) -> asyncio.Lock:
        return self._locks.setdefault(asyncio.get_running_loop(), asyncio.Lock())

    # --- the port

    async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelEvent]:
        """One attempt at a turn, without retries of the client's own."""
        try:
            client = await self._client()
            client.check(request.settings)
        except InvalidInput as error:
            raise ModelError(error.message, retryable=False) from error
        async with aclosing(client.stream(request)) as events:
            async for event in events:
                yield event


def define_model(name: str, *, base_url: str | None = None, api_key: str | None = None) -> ProviderModel:
    """A model of a provider, `provider:model`, as the model layer names them (`openai:gpt-5`, `google:gemini-3-pro`).

    The key is taken from the provider's environment variable unless `api_key` gives it. With `base_url` the model is
    whatever serves OpenAI's chat protocol there (`openai:name`), or the provider's API at another address; a key from
    the environment is then not sent to it. Raises INPUT_INVALID for a name or an address of another shape.
    """
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise InvalidInput(
            "INPUT_INVALID", f"model {name!r}: expected a Model or provider:model, as in anthropic:claude-sonnet-4-5"
        )
    if base_url is not None and not _ADDRESS.match(base_url):
        raise InvalidInput(
            "INPUT_INVALID", f"model {name}: base_url: expected http://... or https://..., without a name or password"
        )
    return ProviderModel(name, base_url=base_url, api_key=api_key)


def connect(name: str, base_url: str | None, api_key: str | None) -> Client:
    """The client of a model; MODEL_NOT_READY if its package or its key is missing, or nobody knows the provider."""
    try:
        from .model_layer import Client

        return Client.of(name, base_url, api_key)
    except ImportError as error:
        missing = error.name or getattr(error.__cause__, "name", None)
        needs = f"{name} needs a package" + (f" ({missing} is missing)" if missing else "")
        what = _distribution(name.partition(":")[0], str(error))
        raise InvalidInput("MODEL_NOT_READY", f"{needs}: pip install '{what}'", model=name) from error


def _distribution(provider: str, message: str) -> str:
    """What to install for a provider; the layer knows more of them, and says so in its message."""
    extra = EXTRAS.get(provider.removeprefix("gateway/"))
    layers = _LAYERS_EXTRA.search(message)
    if extra is None and layers is not None and layers[1] != "openai":
        return f"pydantic-ai-slim[{layers[1]}]"
    return f"bread-runtime[{extra or 'openai'}]"
