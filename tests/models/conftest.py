"""Every test of models has a provider of its own, and no key from the environment of whoever runs it."""

from __future__ import annotations

import os
import ssl
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

from bread import Agent, Bread
from bread.runtime.providers import ProviderModel
from models.kit import CHAT, Provide, model_at
from models.stub import Stub
from scenes import Checked, OpenBread
from support import Mode

# 200 MB are installed for it, and it takes a minute: `make tiny`.
collect_ignore = [] if os.environ.get("BREAD_TINY") else ["test_tiny.py"]


@pytest.fixture(scope="session", autouse=True)
def _no_certificates() -> Iterator[None]:
    """Each client would read the authorities of the web, 20 ms each time; nothing here speaks TLS."""
    with pytest.MonkeyPatch.context() as patch:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        patch.setattr(ssl, "create_default_context", lambda *args, **options: context)
        yield


@pytest.fixture(autouse=True)
def _no_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in os.environ:
        if name.startswith(("OPENAI_", "ANTHROPIC_", "GOOGLE_", "GEMINI_")):
            monkeypatch.delenv(name)


@pytest.fixture
async def stub() -> AsyncIterator[Stub]:
    async with Stub() as stub:
        yield stub


@pytest.fixture
async def provide(stub: Stub) -> AsyncIterator[Provide]:
    """Models that the stub plays, open until the test ends."""
    models: list[ProviderModel] = []

    def make(name: str = CHAT, **options: Any) -> ProviderModel:
        models.append(model_at(stub, name, **options))
        models[-1].open()
        return models[-1]

    yield make
    for model in models:
        await model.close()


@pytest.fixture
def open_bread(mode: Mode, store: str) -> OpenBread:
    """`async with open_bread(agent, ...) as bread:` on the store of this test; backoff of model retries is short."""

    def make(*agents: Agent, **options: Any) -> Bread:
        settings: dict[str, Any] = {"store": store, "always_replay": mode == "replay", "backoff": (0.01,), "grace": 1.0}
        return Checked(agents=agents, **(settings | options))

    return make
