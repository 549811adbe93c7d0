"""Agents as folders: the app in examples/folder_app, as a program opens it. `bread --cwd` opens the same."""

from __future__ import annotations

import asyncio
from pathlib import Path

from bread import Bread, RunSuspended

APP = Path(__file__).parent / "folder_app"


async def main(store: str = "memory://") -> object:
    async with Bread.from_config(APP, store=store) as bread:
        print(*bread.agents["greeter"].tools)
        try:
            await bread.run("greeter", "hello")
        except RunSuspended as waiting:
            return await bread.resume(waiting.checkpoints[0], "Ann", author="ann")
    return None


if __name__ == "__main__":
    print(asyncio.run(main()))
