"""What a run of one tenant asks is asked in that tenant."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from bread import Bread, StartRun, define_agent, define_human_tool
from bread.runtime import reads
from bread.testing import ScriptedModel, call, text


async def test_a_question_belongs_to_the_tenant_of_its_run(open_bread: Callable[..., Bread]) -> None:
    """B46: it is opened by bread itself, and is listed where its run is, nowhere else."""
    sign = define_human_tool("sign", {"type": "object"})
    clerk = define_agent("clerk", model=ScriptedModel([[call("human_sign")], [text("Signed.")]]), tools=[sign])
    async with open_bread(clerk) as bread:
        started = await bread.send(StartRun(agent="clerk", input="go", tenant="acme"))
        assert started.run_id is not None
        async for crumb in bread.observe(started.run_id):
            if crumb.type == "human:required":
                break

        async def asked(tenant: str) -> list[str]:
            options: dict[str, Any] = {"filters": {}, "tags": {}, "answerable": None, "limit": 10, "after": None}
            page = await bread._running().journal.ask(reads.list_checkpoints, tenant=tenant, **options)
            return [item.run_id for item in page.items]

        assert {tenant: await asked(tenant) for tenant in ("acme", "default")} == {
            "acme": [started.run_id],
            "default": [],
        }
