"""Keys of providers, what they need, and how their connections live and end."""

from __future__ import annotations

import asyncio
import gc
import logging
import subprocess
import sys
import warnings
from typing import Any

import pytest

from bread.domain.errors import InvalidInput
from bread.domain.ports import ManagedModel, TextDelta
from bread.runtime.providers import define_model
from models.kit import (
    CHAT,
    CLAUDE,
    EVERY_PROTOCOL,
    GEMINI,
    HI,
    KEY,
    RESPONSES,
    Provide,
    broken,
    done,
    failure,
    model_at,
    request,
    said,
    told,
    used,
)
from models.protocols import ABORT, SILENCE, Reply, says, status
from models.stub import Stub

# --- keys -------------------------------------------------------------------------------------------------------------


@EVERY_PROTOCOL
async def test_a_key_is_never_said(
    stub: Stub, provide: Provide, name: str, caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
) -> None:
    """B129: not in errors and their causes, not in representations, not in any log, not in what is stored."""
    caplog.set_level(logging.DEBUG)
    echo = f"the key {KEY} is not welcome"
    stub.plays(status(401, echo, code="invalid_api_key"), Reply(status=500, body=echo.encode()), says("ok"))
    model = provide(name)
    for code in (401, 500):
        error = await failure(model)
        assert str(error) == f"{code} from {name.partition(':')[2]}: the key *** is not welcome"
        assert KEY not in repr(error) + repr(error.__cause__)
        logging.getLogger("test").error("the whole traceback", exc_info=error)
    end = done(await told(model))
    assert KEY in str([sent.headers for sent in stub.requests])
    client = await model._client()
    shown = (repr(model), repr(client), str(client), end.message.model_dump_json(), caplog.text, *capsys.readouterr())
    assert KEY not in "".join(shown)


async def test_a_key_of_the_environment_is_not_sent_elsewhere(stub: Stub, monkeypatch: pytest.MonkeyPatch) -> None:
    """Q MODEL_NOT_READY: keys, accounts and headers of the environment are not for another address."""
    for name in ("OPENAI_API_KEY", "OPENAI_ADMIN_KEY", "OPENAI_ORG_ID", "OPENAI_PROJECT_ID", "OPENAI_WEBHOOK_SECRET"):
        monkeypatch.setenv(name, "of-the-environment")
    for name in ("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "GOOGLE_API_KEY", "GEMINI_API_KEY"):
        monkeypatch.setenv(name, "of-the-environment")
    for name in ("OPENAI_CUSTOM_HEADERS", "ANTHROPIC_CUSTOM_HEADERS"):
        monkeypatch.setenv(name, "x-secret: of-the-environment")
    stub.plays(*[says("ok")] * 5)
    async with used(model_at(stub, api_key=None)) as model:
        await told(model)
    for name in (CHAT, RESPONSES, CLAUDE, GEMINI):
        async with used(model_at(stub, name)) as model:
            await told(model)
    assert len(stub.requests) == 5
    assert "of-the-environment" not in str([sent.headers for sent in stub.requests])
    assert all(KEY in str(sent.headers) for sent in stub.requests[1:])
    for name in (CLAUDE, GEMINI, RESPONSES):
        model = model_at(stub, name, api_key=None)
        with pytest.raises(InvalidInput, match=r"MODEL_NOT_READY: .*give api_key along with base_url"):
            await model.prepare()


@pytest.mark.parametrize("address", ["localhost:8000", "ftp://x.test", "http://me:secret@x.test/v1", "http:///v1", ""])
def test_an_address_of_another_shape(address: str) -> None:
    """Q INPUT_INVALID: an address is stored with each turn, so a password has no place in it, nor in the error."""
    with pytest.raises(InvalidInput, match="INPUT_INVALID: model openai:x: base_url: expected") as caught:
        define_model("openai:x", base_url=address)
    assert "secret" not in str(caught.value)


# --- what it needs ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "needs"),
    [
        ("groq:llama", "groq:llama needs a package (groq is missing): pip install 'bread-runtime[groq]'"),
        ("mistral:m", "mistral:m needs a package (mistralai is missing): pip install 'bread-runtime[mistral]'"),
        ("cohere:c", "cohere:c needs a package (cohere is missing): pip install 'bread-runtime[cohere]'"),
        ("bedrock:b", "bedrock:b needs a package (boto3 is missing): pip install 'bread-runtime[bedrock]'"),
        ("xai:grok", "xai:grok needs a package (xai_sdk is missing): pip install 'pydantic-ai-slim[xai]'"),
        ("openai:gpt-5", "openai:gpt-5 needs a key: set OPENAI_API_KEY, or give api_key to define_model"),
        ("anthropic:c", "anthropic:c needs a key: set ANTHROPIC_API_KEY, or give api_key to define_model"),
        ("google:g", "google:g needs a key: set GOOGLE_API_KEY, or give api_key to define_model"),
        ("gateway/openai:g", "gateway/openai:g needs a key: set PYDANTIC_AI_GATEWAY_API_KEY, or give api_key"),
        ("ollama:q", "ollama:q needs to know more: set OLLAMA_BASE_URL"),
        ("nobody:m", "nobody:m: Unknown provider: nobody"),
    ],
)
async def test_what_is_missing_is_named_in_one_line(name: str, needs: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Q MODEL_NOT_READY: what to install, or which variable to set."""
    for variable in ("PYDANTIC_AI_GATEWAY_API_KEY", "PAIG_API_KEY", "OLLAMA_BASE_URL"):
        monkeypatch.delenv(variable, raising=False)
    model = define_model(name)
    with pytest.raises(InvalidInput) as caught:
        await model.prepare()
    assert caught.value.code == "MODEL_NOT_READY"
    assert caught.value.message.startswith(needs)
    assert "\n" not in caught.value.message
    error = await failure(model)
    assert (str(error), error.retryable) == (caught.value.message, False)


async def test_the_layer_itself_may_be_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Q MODEL_NOT_READY: bread alone has no provider's client."""
    monkeypatch.setitem(sys.modules, "bread.runtime.model_layer", None)
    with pytest.raises(InvalidInput, match=r"openai:gpt-5 needs a package .*pip install 'bread-runtime\[openai\]'"):
        await define_model("openai:gpt-5").prepare()


async def test_a_key_is_found_once_it_is_set(monkeypatch: pytest.MonkeyPatch) -> None:
    """Q MODEL_NOT_READY: a failed attempt is not remembered."""
    async with used(define_model("openai:gpt-5")) as model:
        with pytest.raises(InvalidInput):
            await model.prepare()
        monkeypatch.setenv("OPENAI_API_KEY", KEY)
        await model.prepare()
    async with used(define_model("anthropic:claude-sonnet-4-5", api_key=KEY)) as model:
        await model.prepare()


@pytest.mark.parametrize("name", ["gpt-5", "", "openai:", ":x", "OpenAI:x", "openai: x", "a b:c", 7, None])
def test_a_name_of_another_shape(name: Any) -> None:
    """Q INPUT_INVALID: expected provider:model."""
    with pytest.raises(InvalidInput, match=r"INPUT_INVALID: model .*: expected a Model or provider:model"):
        define_model(name)


def test_nothing_is_imported_before_it_is_needed() -> None:
    """B157: the layer takes half a second, which a list of questions need not pay."""
    code = (
        "import sys; from bread import define_agent; from bread.runtime.providers import define_model\n"
        "define_agent('a', model='openai:gpt-5'); define_model('anthropic:x', api_key='x' * 9)\n"
        "print([name for name in sys.modules if name.partition('.')[0] in ('pydantic_ai', 'openai', 'anthropic')])"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout == "[]\n"


# --- life -------------------------------------------------------------------------------------------------------------


async def test_connections_are_kept_and_closed_with_the_last_user(stub: Stub) -> None:
    """B61: two users share one connection; with the last one it is closed, and nobody is warned of it."""
    with warnings.catch_warnings(record=True) as heard:
        warnings.simplefilter("always")
        stub.plays(*[says("ok")] * 3)
        model = model_at(stub)
        assert isinstance(model, ManagedModel)
        model.open()
        model.open()
        await told(model)
        await model.close()
        await told(model)
        [connection] = stub._connections
        await model.close()
        await connection._lost.wait()
        async with used(model):
            await told(model)
        del model
        gc.collect()
    assert [str(warning.message) for warning in heard] == []


def test_several_event_loops_in_one_process() -> None:
    """B61: connections belong to a loop; a model is used in one after the other, and in two at once."""
    models: list[Any] = []

    async def once() -> str:
        async with Stub() as stub:
            stub.plays(says("ok"))
            if not models:
                models.append(model_at(stub))
            models[0].base_url = stub.url
            async with used(models[0]) as model:
                return said(await told(model))

    async def twice() -> list[str]:
        return [await once(), await asyncio.to_thread(lambda: asyncio.run(once()))]

    assert asyncio.run(once()) == "ok"
    assert asyncio.run(once()) == "ok"
    assert asyncio.run(twice()) == ["ok", "ok"]


async def test_who_stops_listening_ends_the_request(stub: Stub, provide: Provide) -> None:
    """B18: the provider sees at once that nobody is there any more."""
    stub.plays(says("Once ", SILENCE))
    stream = provide().stream(request(HI))
    assert isinstance(await anext(stream), TextDelta)
    assert not stub.requests[0].gone.is_set()
    await stream.aclose()
    await stub.requests[0].gone.wait()


async def test_several_attempts_at_once(stub: Stub, provide: Provide) -> None:
    """B62: attempts of one model do not wait for each other, nor does the first one import anything twice."""
    gate = asyncio.Event()
    stub.plays(*[says("ok", gate)] * 20)
    model = provide()
    attempts = [asyncio.create_task(told(model)) for _ in range(20)]
    await stub.request(20)
    gate.set()
    assert [said(events) for events in await asyncio.gather(*attempts)] == ["ok"] * 20


async def test_an_aborted_connection(stub: Stub, provide: Provide) -> None:
    """B59: a reset in the middle is retryable, and what came before it was told."""
    gate = asyncio.Event()
    stub.plays(says("Once ", gate, ABORT))
    pieces, error = await broken(provide(), gate)
    assert pieces == [TextDelta("Once ")]
    assert error.retryable
    assert "onnection" in str(error)
