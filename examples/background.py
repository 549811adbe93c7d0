"""Start now, answer later: the question is found in a list, by a process that knows nothing of the run's beginning."""

from __future__ import annotations

import asyncio
import tempfile

from bread import Bread, RunSuspended

from .question import painter


async def main(store: str | None = None) -> object:
    with tempfile.TemporaryDirectory() as folder:
        store = store or f"sqlite:///{folder}/bread.db"
        async with Bread(agents=[painter], store=store) as bread:
            try:
                await bread.run("painter", "paint the door", session="door")
            except RunSuspended as waiting:
                print(f"{waiting.run_id} waits; this process may end now")

        async with Bread(agents=[painter], store=store) as bread:
            page = await bread.list_checkpoints(session="door")
            output = await bread.resume(page.items[0].id, "red", author="ann")
            print(output, [message["role"] for message in await bread.sessions.messages("door")])
            return output


if __name__ == "__main__":
    asyncio.run(main())
