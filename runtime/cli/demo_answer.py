"""A process of the demo that answers one question when it is told to, and performs what follows from it here.

    python -m bread.runtime.cli.demo_answer STORE CHECKPOINT AUTHOR

It says `ready` once it has opened the store, and answers at the next line of stdin; at its end it answers nothing.
"""

from __future__ import annotations

import asyncio
import sys

from .demo_together import APPROVED, bread_of


async def answer(store: str, checkpoint_id: str, author: str) -> int:
    async with bread_of(store) as bread:
        print("ready", flush=True)
        if not await asyncio.to_thread(sys.stdin.readline):
            return 1
        async for _ in bread.resume(checkpoint_id, APPROVED, author=author):
            pass
    return 0


if __name__ == "__main__":
    _, store, checkpoint_id, author = sys.argv
    sys.exit(asyncio.run(answer(store, checkpoint_id, author)))
