"""A process that executes, and lets others observe through it: JSON lines in, JSON lines out."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from contextlib import aclosing
from typing import Any

from bread import Bread, BreadError

from .agents import storyteller


class Child:
    """The process of its `Bread`."""

    def __init__(self, name: str, worker: str, store: str, **options: Any) -> None:
        self._text_left: int | None = None
        self._dies_watched, self._watched = False, asyncio.Event()
        self._readers: dict[int, asyncio.Task[None]] = {}
        self.bread = Bread(agents=[storyteller(name, self._pace)], store=store, fault=self._fault, **options)
        self.bread.worker = worker

    async def _pace(self) -> None:
        if self._dies_watched:
            await self._watched.wait()
        await self.bread.list_runs(limit=1)  # as long as a read takes: others get their turn between two pieces

    def _fault(self, point: str) -> None:
        if point == "model_text" and self._text_left is not None:
            self._text_left -= 1
            if self._text_left <= 0:
                os.kill(os.getpid(), signal.SIGKILL)

    async def _observe(self, client: int, run: str, after: str | None) -> None:
        try:
            async with aclosing(aiter(self.bread.observe(run, after=after))) as crumbs:
                async for crumb in crumbs:
                    say({"client": client, "crumb": crumb.wire()})
            say({"client": client, "over": "end"})
        except asyncio.CancelledError:
            say({"client": client, "over": "left"})
        except BreadError as error:
            say({"client": client, "over": error.code})

    async def carry_out(self, command: dict[str, Any]) -> None:
        match command.pop("do"):
            case "start":
                say({"started": await self.bread.start("storyteller", "go")})
            case "answer":
                await self.bread.resume(command["checkpoint"], "yes")._start()
                say({"answered": command["checkpoint"]})
            case "crash":
                self._text_left, self._dies_watched = command["after"], command.get("watched", False)
            case "observe":
                client = command["client"]
                self._readers[client] = asyncio.create_task(self._observe(**command))
                self._watched.set()
            case "leave":
                self._readers[command["client"]].cancel()


def say(line: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(line) + "\n")
    sys.stdout.flush()


async def main(name: str, worker: str, spec: str) -> None:
    child = Child(name, worker, **json.loads(spec))
    commands = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(commands), sys.stdin)
    async with child.bread:
        say({"ready": os.getpid()})
        async for line in commands:
            await child.carry_out(json.loads(line))


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
