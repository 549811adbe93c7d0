"""Crumbs narrow by their `type`: what is written here is checked by mypy, and run so that it cannot rot."""

from __future__ import annotations

from datetime import datetime
from typing import assert_type

from bread import Accepted, Bread, Checkpoint, Model, Page, Run, RunHandle, StartRun, Transport
from bread.domain.events import JsonValue
from bread.domain.ports import Journal
from bread.projections.crumbs import AgentError, HumanRequired, HumanResumed, RunEnd, TextDelta, ToolCall, ToolResult
from bread.runtime.sqlite_journal import SQLiteJournal
from bread.testing import ScriptedModel, call, text
from bread.transport.port import InProcess
from scenes import OpenBread, agent, asking, asks


async def follow(bread: Bread) -> list[str]:
    """Every crumb, narrowed; what a wrong attribute would be is an error of the type checker."""
    seen: list[str] = []
    handle = bread.run("a", "go")
    assert_type(handle, RunHandle)
    async for crumb in handle:
        assert_type(crumb.run_id, str)
        assert_type(crumb.timestamp, datetime)
        if crumb.type == "human:required":
            assert_type(crumb, HumanRequired)
            assert_type(crumb.checkpoint_id, str)
            assert_type(crumb.deadline, datetime | None)
            async for more in bread.resume(crumb.checkpoint_id, "yes"):
                if more.type == "human:resumed":
                    assert_type(more, HumanResumed)
                    assert_type(more.author, str | None)
                elif more.type == "agent:run:end":
                    assert_type(more, RunEnd)
                    assert_type(more.output, JsonValue)
                seen.append(more.type)
        elif crumb.type == "text:delta":
            assert_type(crumb, TextDelta)
            assert_type(crumb.text, str)
        elif crumb.type == "tool:call":
            assert_type(crumb, ToolCall)
        elif crumb.type == "tool:result":
            assert_type(crumb, ToolResult)
            assert_type(crumb.duration_ms, float)
        elif crumb.type == "agent:error":
            assert_type(crumb, AgentError)
            assert_type(crumb.code, str)
        seen.append(crumb.type)
    return seen


async def test_crumbs_narrow_by_their_type(open_bread: OpenBread) -> None:
    """B122, B133: the documented loop, as a type checker and as Python see it."""
    async with open_bread(agent([[text("Hm. "), call("human_ask")], [text("Done.")]], asking())) as bread:
        seen = await follow(bread)
    assert [kind for kind in seen if kind.startswith(("human", "agent"))] == [
        "agent:run:start",
        "human:resumed",
        "agent:run:end",
        "human:required",
    ]


async def test_what_calls_give_is_typed(open_bread: OpenBread) -> None:
    """B2, B46: outputs, pages and records."""
    async with open_bread(agent(asks(), asking())) as bread:
        run_id = await bread.start("a", "go")
        assert_type(run_id, str)
        async for crumb in bread.observe(run_id):
            if crumb.type == "human:required":
                break
        page = await bread.list_checkpoints()
        assert_type(page, Page[Checkpoint])
        assert_type(page.items[0].id, str)
        assert_type(await bread.get_run(run_id), Run)
        output = await bread.resume(page.items[0].id, "yes")
        assert_type(output, JsonValue)
        accepted = await bread.send(StartRun(agent="a", input="go"))
        assert_type(accepted, Accepted)
        assert accepted.run_id is not None


def test_adapters_fit_their_ports() -> None:
    """As a type checker sees it: what stands behind a port can be used as the port says."""

    def journal(adapter: SQLiteJournal) -> Journal:
        return adapter

    def model(adapter: ScriptedModel) -> Model:
        return adapter

    def transport(adapter: InProcess) -> Transport:
        return adapter

    one = SQLiteJournal(None, "w_types")
    assert callable(journal(one).commit)
    one.store.close()
    assert model(ScriptedModel([])).name == "scripted"
    assert callable(transport(InProcess()).tell)
