"""A process of `bread demo --cluster`, on the servers that its environment names. It ends with whoever started it.

python -m bread.runtime.cli.demo_member perform RUN DATABASE    performs the run, and dies when it would ask
python -m bread.runtime.cli.demo_member watch RUN               says each crumb of a run as a line of JSON, to its end
python -m bread.runtime.cli.demo_member answer RUN DATABASE     performs the run; answers at a line of stdin, as whom
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ...projections.crumbs import HumanRequired
from ..app import Bread
from ..buses import bus_of
from .demo import HEARTBEAT, publisher
from .demo_child import die, perform
from .words import as_json


def servers(where: Mapping[str, str]) -> dict[str, Any]:
    """The options of a Bread on the servers that variables name."""
    return {"store": where["BREAD_STORE"], "transport": bus_of(where["BREAD_NATS"], where["BREAD_NATS_PASSWORD"])}


async def watch(run_id: str) -> None:
    asyncio.get_running_loop().add_reader(sys.stdin, die)
    async with Bread(executes=False, heartbeat=HEARTBEAT, **servers(os.environ)) as bread:
        async for crumb in bread.observe(run_id):
            print(as_json(crumb.wire()), flush=True)


async def answer(run_id: str, database: Path) -> None:
    lines: asyncio.Queue[str] = asyncio.Queue()

    def read() -> None:
        line = sys.stdin.readline()
        if not line:
            die()
        lines.put_nowait(line)

    asyncio.get_running_loop().add_reader(sys.stdin, read)
    async with Bread(agents=[publisher(database)], heartbeat=HEARTBEAT, **servers(os.environ)) as bread:
        async for crumb in bread.observe(run_id):
            if isinstance(crumb, HumanRequired):
                author = (await lines.get()).strip()
                async for _ in bread.resume(crumb.checkpoint_id, {"approved": True}, author=author):
                    pass


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["perform", run_id, database]:
            asyncio.run(perform(run_id=run_id, database=Path(database), moment="suspending", **servers(os.environ)))
        case ["watch", run_id]:
            asyncio.run(watch(run_id))
        case ["answer", run_id, database]:
            asyncio.run(answer(run_id, Path(database)))
