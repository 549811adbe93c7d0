"""The processes of the chaos, and the clients that live with it: who begins, who answers, who watches, who kills."""

from __future__ import annotations

import asyncio
import json
import subprocess
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from random import Random
from typing import Any

import httpx2
import psycopg

from bread.runtime.servers import NatsServer, PostgresServer, free_port
from forked import Forked
from observers.clients import Client
from web.kit import events

from .played import PIPELINE

PLAYED = Path(__file__).with_name("played.py")
UNDECIDED = (httpx2.HTTPError, OSError)
ENDED = {"completed", "failed", "cancelled"}


class Process:
    """A server process that is killed and started again, on the same port."""

    def __init__(self, **spec: Any) -> None:
        self._spec = {"port": free_port(), **spec}
        self._process: Forked | None = None
        self.lives = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._spec['port']}"

    def start(self) -> None:
        """Begin; it listens when it has opened the store."""
        errors = Path(self._spec["effects"]).with_name(f"{self._spec['port']}.err")
        with errors.open("ab") as log:
            self._process = Forked([str(PLAYED), json.dumps(self._spec)], stdin=subprocess.DEVNULL, stderr=log)
        self.lives += 1

    def is_up(self) -> bool:
        """Waits until it listens; False if it ended instead."""
        assert self._process is not None
        return bool(self._process.stdout.readline())

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.communicate()
            self._process = None


class World:
    """Three processes on one store, and what the clients have seen of it."""

    def __init__(self, folder: Path, seed: int, **options: Any) -> None:
        self.chance, self.folder = Random(seed), folder
        self.postgres = PostgresServer(fsync="off")
        self.nats = NatsServer(folder / "nats")
        self.effects = folder / "effects.jsonl"
        self.options = {"heartbeat": [0.3, 2.0], **options}
        self.processes: list[Process] = []
        self.runs: list[str] = []
        self.watchers: dict[str, list[Client]] = {}
        self.answers: dict[str, str] = {}
        self.counts: Counter[str] = Counter()
        self.done = asyncio.Event()

    def open(self) -> None:
        self.postgres.start()
        self.nats.start()
        for _ in range(3):
            options = {"nats": self.nats.url, **self.options}
            spec = {"store": self.postgres.url(), "effects": str(self.effects), "options": options}
            self.processes.append(Process(**spec))
        for process in self.processes:
            process.start()
        assert all(process.is_up() for process in self.processes)

    def close(self) -> None:
        for process in self.processes:
            process.kill()
        self.postgres.stop()
        self.nats.stop()

    # --- clients

    def client(self) -> httpx2.AsyncClient:
        """One of any of the processes."""
        url = self.chance.choice(self.processes).url
        return httpx2.AsyncClient(base_url=url, timeout=20, trust_env=False)

    async def ask(self, method: str, path: str, **more: Any) -> httpx2.Response:
        """The answer of some process, however often it takes. Nothing that is undecided counts."""
        while True:
            with suppress(*UNDECIDED):
                async with self.client() as client:
                    got = await client.request(method, path, **more)
                if got.status_code < 500:
                    return got
            self.counts["asked again"] += 1
            await asyncio.sleep(0.05)

    async def begin(self, number: int) -> str:
        path = self.chance.choice(["/agents/clerk/run", f"/pipelines/{PIPELINE}/run", "/agents/boss/run"])
        headers = {"Prefer": "respond-async", "Idempotency-Key": f"run {number}"}
        got = await self.ask("POST", path, json={"input": "go", "session": {"id": f"s{number}"}}, headers=headers)
        assert got.status_code == 202, got.text
        run_id = str(got.json()["runId"])
        self.runs.append(run_id)
        return run_id

    async def answer(self) -> None:
        """Two people who answer whatever is asked, by any process, until everything is over."""
        while not self.done.is_set():
            page = await self.ask("GET", "/checkpoints", params={"limit": 100, "answerable": "true"})
            asked = page.json()["items"]
            self.chance.shuffle(asked)
            await asyncio.gather(*(self._rivals(one) for one in asked[:20]))
            await asyncio.sleep(0.05)

    async def _rivals(self, question: dict[str, Any]) -> None:
        won = await asyncio.gather(*(self._one_answer(question, who) for who in ("ann", "bob")))
        winners = [who for who in won if who is not None]
        assert len(winners) <= 1, (question["id"], winners)
        if winners:
            assert question["id"] not in self.answers, question["id"]
            self.answers[question["id"]] = winners[0]

    async def _one_answer(self, question: dict[str, Any], who: str) -> str | None:
        said: Any = {"said": who}
        if question["kind"] == "in_doubt":
            said = {"outcome": "happened", "result": f"seen by {who}"}
        headers = {"Prefer": "respond-async", "Idempotency-Key": f"{question['id']} {who}"}
        got = await self.ask("POST", f"/resume/{question['id']}", json={"response": said}, headers=headers)
        if got.status_code == 202:
            self.counts["answers"] += 1
            return who
        assert got.status_code == 404, got.text
        return None

    async def watch(self, run_id: str) -> None:
        """An observer that roams: each connection is to any process, goes on from its cursor, and is dropped."""
        client = Client()
        self.watchers.setdefault(run_id, []).append(client)
        while not await self._connection(run_id, client, self.chance.randint(1, 12)):
            self.counts["connections"] += 1

    async def _connection(self, run_id: str, client: Client, patience: int) -> bool:
        headers = {"Last-Event-ID": client.cursor} if client.cursor else {}
        try:
            async with self.client() as http, http.stream("GET", f"/runs/{run_id}/stream", headers=headers) as got:
                if got.status_code != 200:
                    await asyncio.sleep(0.05)
                    return False
                async for event in events(got):
                    crumb = event["payload"] | {"type": event["type"]}
                    client.take(crumb)
                    if crumb["type"] in ("agent:run:end", "agent:error") and crumb["runId"] == run_id:
                        return True
                    patience -= 1
                    if patience == 0:
                        return False
        except UNDECIDED:
            await asyncio.sleep(0.05)
        return False

    async def all_ended(self) -> dict[str, str]:
        found = {}
        for run_id in self.runs:
            got = await self.ask("GET", f"/runs/{run_id}")
            assert got.status_code == 200, got.text
            found[run_id] = got.json()["status"]
        return found

    # --- who kills

    async def kill_one(self, number: int) -> None:
        """A process, and then it is started again; the other two go on."""
        process = self.processes[number]
        self.counts["processes killed"] += 1
        await asyncio.to_thread(process.kill)
        await asyncio.sleep(self.chance.uniform(0.0, 0.5))
        while True:
            process.start()
            if await asyncio.to_thread(process.is_up):
                return
            self.counts["starts that failed"] += 1  # the database was away

    async def kill_backend(self) -> None:
        """A process of PostgreSQL, at which all of it begins anew."""
        self.counts["backends killed"] += 1

        def kill() -> None:
            with psycopg.connect(self.postgres.url(), autocommit=True) as connection:
                rows = connection.execute(
                    "SELECT pid FROM pg_stat_activity WHERE application_name LIKE 'bread %'"
                ).fetchall()
            if rows:
                subprocess.run(["kill", "-9", str(self.chance.choice(rows)[0])], check=False)

        with suppress(psycopg.OperationalError):
            await asyncio.to_thread(kill)

    async def kill_nats(self) -> None:
        """The server of NATS; after a while it is there again, with what it had on its disk."""
        self.counts["NATS killed"] += 1
        self.nats.kill()
        await asyncio.sleep(self.chance.uniform(0.0, 1.0))
        await asyncio.to_thread(self.nats.start)

    async def wreak(self, rounds: int, every: float) -> None:
        """Kill a process, then one of the two servers, and so on."""
        victims: list[Callable[[], Any]] = [self.kill_backend, self.kill_nats]
        order = [*range(3)]
        for turn in range(rounds):
            await asyncio.sleep(self.chance.uniform(every / 2, every * 1.5))
            if turn % 2:
                await victims[turn // 2 % len(victims)]()
            else:
                if not turn % 6:
                    self.chance.shuffle(order)
                await self.kill_one(order[turn // 2 % 3])

    # --- what must be

    def effects_of(self, tool: str) -> Counter[str]:
        """How often each call of a tool was executed."""
        return Counter(line["key"] for line in self._lines(tool))

    def runs_of_keys(self, tool: str) -> dict[str, str]:
        """Which run each call of a tool is of."""
        return {line["key"]: line["run"] for line in self._lines(tool)}

    def _lines(self, tool: str) -> list[dict[str, Any]]:
        lines = map(json.loads, self.effects.read_text().splitlines())
        return [line for line in lines if line["tool"] == tool]
