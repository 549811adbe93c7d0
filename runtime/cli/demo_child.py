"""A process of the demo that performs the run and kills itself with SIGKILL at a given moment.

    python -m bread.runtime.cli.demo_child STORE DATABASE RUN MOMENT

`suspending`: inside the transaction that would open the question. `waiting`: when the question has been asked.
`speaking`: after the answer, in the middle of what the model says.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from pathlib import Path
from typing import Any

from ...projections.crumbs import HumanRequired
from ..app import Bread
from .demo import HEARTBEAT, publisher


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


class Fate:
    """Called by the runtime at its named points, on whatever thread reaches them.

    `moment` says where this process is to die: suspending, waiting or speaking.
    """

    def __init__(self, moment: str) -> None:
        self._moment = moment
        self._count = 0

    def __call__(self, point: str) -> None:
        match self._moment, point:
            case "speaking", "model_text":
                self._count += 1
                if self._count == 2:
                    die()
            case "suspending", "model_done":
                self._count += 1
            case "suspending", "appended":
                if self._count == 2:  # the model's second turn asks the person
                    die()


async def perform(store: str, database: Path, run_id: str, moment: str, **options: Any) -> None:
    asyncio.get_running_loop().add_reader(sys.stdin, die)  # its end: who started this process is gone
    agents, fate = [publisher(database)], Fate(moment)
    async with Bread(agents=agents, store=store, fault=fate, heartbeat=HEARTBEAT, **options) as bread:
        async for crumb in bread.observe(run_id):
            if moment == "waiting" and isinstance(crumb, HumanRequired):
                die()


if __name__ == "__main__":
    _, store, database, run_id, moment = sys.argv
    asyncio.run(perform(store, Path(database), run_id, moment))
