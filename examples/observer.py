"""An observer that leaves in the middle and comes back with its cursor: it misses nothing and sees nothing twice."""

from __future__ import annotations

import asyncio

from bread import Bread

from .question import painter


async def main(store: str = "memory://") -> list[str]:
    seen: list[str] = []
    async with Bread(agents=[painter], store=store) as bread:
        run_id, cursor, checkpoint = await bread.start("painter", "paint the door"), None, ""
        async for crumb in bread.observe(run_id):
            seen.append(crumb.type)
            cursor = crumb.cursor
            if crumb.type == "human:required":
                checkpoint = crumb.checkpoint_id
                break  # gone, while the run waits
        await bread.resume(checkpoint, "red", author="ann")
        async for crumb in bread.observe(run_id, after=cursor):
            seen.append(crumb.type)
    print(seen)
    return seen


if __name__ == "__main__":
    asyncio.run(main())
