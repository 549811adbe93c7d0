"""`bread demo --cluster`: real servers from wheels, and processes that share nothing but them.

One performs a run and is killed, one watches, one goes on and answers: as it would be on three machines. A program
that has only NATS hears it all.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from secrets import token_hex
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from pydantic import TypeAdapter

from ...domain.errors import BreadError
from ...projections.crumbs import AnyCrumb, HumanRequired, RunEnd, ToolResult
from ..servers import NatsServer, PostgresServer
from ..stores import driver
from .demo import AGENT, HEARTBEAT, INPUT, MODEL, publisher
from .demo_alone import PATIENCE_SECONDS, Audience, check_audience, process_of
from .demo_checks import Promises, check_run
from .demo_outside import Outsider
from .options import person
from .place import Place

if TYPE_CHECKING:
    from ..app import Bread

ANN = "ann"
END_SECONDS = 10.0
_CRUMB: TypeAdapter[AnyCrumb] = TypeAdapter(AnyCrumb)


async def play_cluster() -> int:
    """Three acts on one run; 1 if a promise was broken. INPUT_INVALID where a wheel is missing."""
    with driver(), TemporaryDirectory(prefix="bread-demo-") as folder, _servers(Path(folder)) as where:
        from ..app import Bread
        from .demo_member import servers

        print(Place(where["BREAD_STORE"], None, nats=where["BREAD_NATS"]).first_line(MODEL), flush=True)
        promises = Promises()
        database = Path(folder, "demo")
        async with (
            Outsider(where["BREAD_NATS"], where["BREAD_NATS_PASSWORD"]) as outsider,
            Bread(agents=[publisher(database)], heartbeat=HEARTBEAT, executes=False, **servers(where)) as bread,
        ):
            run_id = await bread.start(AGENT, INPUT, tags={"bread": "demo"}, by=person(None))
            print(f"run {run_id}  agent {AGENT}")
            async with (
                _member(where, "watch", run_id) as watching,
                Audience(_crumbs(watching)) as audience,
            ):
                audience.say(f"B, process {watching.pid}, watches; what it sees stands here")
                await _die(where, bread, database, run_id, audience, promises)
                await _go_on(where, database, run_id, audience, outsider)
            print("\nThe promises of this run:")
            await _check_workers(bread, run_id, promises)
            await check_run(bread, database, run_id, promises)
            await check_audience(bread, run_id, audience, promises)
            await _check_outsider(bread, run_id, outsider, promises)
    print("\nThe servers have ended, and their data is gone. docs/deployment.md says how to have servers that stay.")
    return promises.code()


@contextmanager
def _servers(folder: Path) -> Iterator[Mapping[str, str]]:
    """The variables that say where the servers are, and who we are there."""
    print("PostgreSQL and NATS are started, for this play alone", flush=True)
    password = token_hex()
    user = f'authorization {{ user: bread, password: "{password}" }}'
    with NatsServer(folder / "nats", user) as nats, PostgresServer() as postgres:
        yield {
            "BREAD_STORE": postgres.url(),
            "BREAD_NATS": f"nats://bread@127.0.0.1:{nats.port}",
            "BREAD_NATS_PASSWORD": password,
        }


async def _die(
    where: Mapping[str, str], bread: Bread, database: Path, run_id: str, audience: Audience, promises: Promises
) -> None:
    """A performs the run, up to the transaction that asks the person."""
    code, error, process = await process_of("demo_member", "perform", run_id, str(database), **where)
    await audience.sees(ToolResult)
    promise = "the kill was real, and the run outlived it"
    if code != -signal.SIGKILL:
        promises.check(False, promise, f"exit code {code} {error}")
        return
    audience.say(f"A, process {process}, was killed with SIGKILL inside the transaction that opens its question")
    run = await bread.get_run(run_id)
    kept = run.status == "running" and not run.checkpoints
    promises.check(kept, promise, f"{run.status}, no half of a suspension is left")


async def _go_on(where: Mapping[str, str], database: Path, run_id: str, audience: Audience, outsider: Outsider) -> None:
    """C takes the run over when A counts as dead, asks, and is told the answer."""
    async with _member(where, "answer", run_id, str(database)) as going_on:
        _, stale = HEARTBEAT
        audience.say(f"C, process {going_on.pid}, takes the run over when A has been silent for {stale} seconds")
        await audience.sees(HumanRequired)
        await _outside(audience, outsider, "human:required", "hears the question", "prompt")
        audience.say(f"{ANN} answers, on C")
        if going_on.stdin is not None:
            going_on.stdin.write(f"{ANN}\n".encode())
        await audience.sees(RunEnd)
        await audience.sees_the_end()
        await _outside(audience, outsider, "human:resumed", "has heard the answer", "author")
        async with asyncio.timeout(PATIENCE_SECONDS):
            _, said = await going_on.communicate()
        if going_on.returncode:
            error = said.decode(errors="replace").strip()
            raise BreadError("PROMISE_BROKEN", f"C ended with exit code {going_on.returncode}: {error}")


@asynccontextmanager
async def _member(where: Mapping[str, str], *arguments: str) -> AsyncIterator[asyncio.subprocess.Process]:
    """A process on the servers. It is gone when the block ends, and Ctrl-C is for this process alone."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", f"{__package__}.demo_member", *arguments),
        env={**os.environ, **where},
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        start_new_session=True,
    )
    try:
        yield process
    finally:
        if process.stdin is not None:
            process.stdin.close()  # at its end the process ends, if it has not ended yet
        try:
            async with asyncio.timeout(END_SECONDS):
                await process.wait()
        except TimeoutError:
            process.kill()
            await process.wait()


async def _crumbs(process: asyncio.subprocess.Process) -> AsyncIterator[AnyCrumb]:
    """What a process that watches has said."""
    if process.stdout is None:
        return
    async for line in process.stdout:
        yield _CRUMB.validate_json(line)


async def _outside(audience: Audience, outsider: Outsider, kind: str, words: str, field: str) -> None:
    async with asyncio.timeout(PATIENCE_SECONDS):
        crumb = await outsider.hears(kind)
    audience.say(f"a program that has only NATS {words}: {crumb[field]}")


async def _check_outsider(bread: Bread, run_id: str, outsider: Outsider, promises: Promises) -> None:
    async with asyncio.timeout(PATIENCE_SECONDS):
        await outsider.hears("agent:run:end")
    logged = [(crumb.seq, crumb.type) async for crumb in bread.observe(run_id)]
    heard = [(seq, crumb["type"]) for seq, crumb in sorted(outsider.crumbs.items())]
    kept = await outsider.kept()
    promises.check(
        heard == logged and kept == len(logged),
        "who has only NATS heard every event, and NATS has kept each of them once",
        f"{len(heard)} heard, {kept} kept, {len(logged)} recorded",
    )


async def _check_workers(bread: Bread, run_id: str, promises: Promises) -> None:
    events = [event async for event in bread.audit(run_id)]
    claims = {event.worker for event in events if event.name == "checkpoint.claimed"}
    took = {event.worker for event in events if event.name == "run.taken"}
    tools = {event.worker for event in events if event.name == "run.tool_returned"}
    promises.check(
        len(tools) == len(claims) == 1 and claims <= took and not claims & tools,
        "one process fetched the draft, another one took the run over and answered",
        f"{', '.join(sorted(map(str, tools)))}, then {', '.join(sorted(map(str, claims)))}",
    )
