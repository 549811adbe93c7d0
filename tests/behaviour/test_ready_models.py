"""A process whose model lacks a key or a package begins nothing, answers nothing, takes nothing, and says why."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Mapping
from typing import Any

import pytest

from bread import Agent, AnswerCheckpoint, InvalidInput, ModelRequest, define_agent
from bread.domain.ports import ManagedModel, ModelEvent
from bread.testing import ScriptedModel, call, text
from scenes import DURABLE, OpenBread, agent, ask_first, asking, asks, refused

SCRIPT: list[Any] = [[call("human_ask")], [text("Thanks.")]]


class Provider:
    """A model with a key that may be missing, as a provider's is."""

    name = "provider:model"

    def __init__(self, *, ready: bool = True) -> None:
        self.ready, self.users, self.settings = ready, 0, list[Any]()
        self.refused = asyncio.Event()
        self._model = ScriptedModel(SCRIPT)

    def open(self) -> None:
        self.users += 1

    async def close(self) -> None:
        self.users -= 1

    async def prepare(self, settings: Mapping[str, Any] | None = None) -> None:
        self.settings.append(settings)
        if not self.ready:
            self.refused.set()
            raise InvalidInput("MODEL_NOT_READY", "provider:model needs a key: set PROVIDER_KEY")

    async def stream(self, request: ModelRequest) -> AsyncIterator[ModelEvent]:
        async for event in self._model.stream(request):
            yield event


def with_model(model: Provider, **options: Any) -> Agent:
    return define_agent("a", model=model, tools=[asking()], **options)


async def test_a_start_is_refused_before_anything_is_written(open_bread: OpenBread) -> None:
    """Q MODEL_NOT_READY: one line that says what to set; nothing is written, and with the key it goes on."""
    model = Provider(ready=False)
    async with open_bread(with_model(model, settings={"temperature": 0})) as bread:
        with refused("MODEL_NOT_READY") as caught:
            await bread.run("a", "go", session="s")
        assert caught.value.message == "provider:model needs a key: set PROVIDER_KEY"
        with refused("SESSION_NOT_FOUND"):
            await bread.sessions.get("s")
        model.ready = True
        await ask_first(bread)
    assert model.settings == [{"temperature": 0}] * 2


async def test_an_answer_is_refused_before_the_claim(open_bread: OpenBread) -> None:
    """B54, B41, B59: the question stays pending, and is answered where the model is ready."""
    model = Provider()
    async with open_bread(with_model(model)) as bread:
        asked = await ask_first(bread)
        model.ready = False
        with refused("MODEL_NOT_READY"):
            await bread.resume(asked.checkpoint_id, "yes")
        assert [one.id for one in (await bread.list_checkpoints()).items] == [asked.checkpoint_id]
        model.ready = True
        assert await bread.resume(asked.checkpoint_id, "yes") == "Thanks."


@DURABLE
async def test_a_run_is_left_to_a_process_that_can_perform_it(
    open_bread: OpenBread, caplog: pytest.LogCaptureFixture
) -> None:
    """B48, B67: a process without the key does not take the run, and says so once; one with it does."""
    async with open_bread(with_model(Provider())) as bread:
        asked = await ask_first(bread)
    async with open_bread(executes=False) as bread:
        await bread.send(AnswerCheckpoint(checkpoint_id=asked.checkpoint_id, response="yes"))
    without = Provider(ready=False)
    with caplog.at_level(logging.WARNING, "bread"):
        async with open_bread(with_model(without)) as bread:
            for _ in range(2):
                without.refused.clear()
                await asyncio.wait_for(without.refused.wait(), 30)
            assert (await bread.get_run(asked.run_id)).status == "running"
            said = [record.getMessage() for record in caplog.records]
            assert said == [
                "runs of agent a are not taken here: MODEL_NOT_READY: provider:model needs a key: set PROVIDER_KEY"
            ]
            without.ready = True
            assert await bread.observe(asked.run_id) == "Thanks."


async def test_connections_are_held_as_long_as_a_process_performs(open_bread: OpenBread) -> None:
    """A model is opened and closed once a Bread that executes, however many agents have it."""
    model = Provider()
    assert isinstance(model, ManagedModel)
    assert not isinstance(ScriptedModel([]), ManagedModel)
    one, other = with_model(model), agent(asks(), asking(), id="b")
    async with open_bread(one, other):
        assert model.users == 1
        async with open_bread(one, store="memory://"):
            assert model.users == 2
        async with open_bread(one, store="memory://", executes=False):
            assert model.users == 1
    assert model.users == 0
