"""A process of `bread demo --cluster`, on the servers that its environment names. It ends with whoever started it.

python -m bread.runtime.cli.demo_member watch RUN            says each crumb of a run as a line of JSON, to its end
python -m bread.runtime.cli.demo_member answer RUN FOLDER    performs the run; answers at a line of stdin, as whom
"""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path
from typing import Any

from ...projections.crumbs import HumanRequired
from ..app import Bread
from .demo import HEARTBEAT, publisher
from .demo_child import die
from .words import as_json


def bread_here(**options: Any) -> Bread:
    return Bread(store=os.environ["BREAD_STORE"], heartbeat=HEARTBEAT, **options)


async def watch(run_id: str) -> None:
    asyncio.get_running_loop().add_reader(sys.stdin, die)
    async with bread_here(executes=False) as bread:
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
    async with bread_here(agents=[publisher(database)]) as bread:
        async for crumb in bread.observe(run_id):
            if isinstance(crumb, HumanRequired):
                author = (await lines.get()).strip()
                async for _ in bread.resume(crumb.checkpoint_id, {"approved": True}, author=author):
                    pass


if __name__ == "__main__":
    _, role, run_id, *more = sys.argv
    asyncio.run(watch(run_id) if role == "watch" else answer(run_id, Path(*more)))
