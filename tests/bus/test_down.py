"""What becomes of runs and their observers while NATS is not there, or does not want us: they do not wait for it."""

from __future__ import annotations

import asyncio
import json
import logging
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from bread import Bread, BreadError, InvalidInput
from bread.runtime.servers import NatsServer
from bread.testing import pause, text
from bread.transport import nats_link
from bread.transport.jetstream import JetStream
from nats_server import outside
from scenes import agent, engine_of
from support import read, wire

from .outsider import in_order, shown, stored
from .test_relay import store_in

CLERK = agent([[text("May I? "), pause(lambda: asyncio.sleep(0)), text("So?")]], id="clerk")
USER = 'authorization { users: [ { user: bread, password: "hunter2"%s } ] }'


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Servers come back at once here."""
    monkeypatch.setattr(nats_link, "RETRY_SECONDS", 0.05)
    monkeypatch.setattr(nats_link, "AGAIN_SECONDS", 0.05)


def bus_of(bread: Bread) -> Any:
    return engine_of(bread).transport


async def until_down(bread: Bread) -> None:
    while bus_of(bread).is_up:
        await bread.list_runs(limit=1)  # as long as a read takes


async def everything_is_out(bread: Bread) -> None:
    """Nothing is left to publish."""
    relay = engine_of(bread).relay
    assert relay is not None
    while relay._lanes or relay._behind is not None:
        await bread.list_runs(limit=1)


async def test_b130_b157_nats_may_come_later(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """It is down when the process begins: runs go on, one line says so, and then everything is published."""
    with NatsServer(tmp_path / "nats") as server:
        server.kill()
        async with Bread(agents=[CLERK], store=store_in(tmp_path), nats=server.url) as bread:
            assert not bus_of(bread).is_up
            runs = [bread.run("clerk", "go") for _ in range(3)]
            for run in runs:
                assert await run == "May I? So?"
            relay = engine_of(bread).relay
            assert relay is not None
            assert relay.published_upto < 3
            server.start()
            await bus_of(bread).until_up()
            await everything_is_out(bread)
            assert relay.published_upto == [e async for e in bread.audit()][-1].position
            expected = [[wire(c) async for c in bread.observe(run.run_id)] for run in runs]
        frames = await stored(server)
        assert [shown([f for f in frames if f["root"] == run.run_id]) for run in runs] == expected
    warnings = [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]
    assert len(warnings) == 1
    assert f"NATS at 127.0.0.1:{server.port} cannot be used now: " in warnings[0]


async def test_b130_b133_the_server_is_killed_while_runs_go_on(server: NatsServer, tmp_path: Path) -> None:
    """Twice. No run waits, no observer misses anything, and in the end the stream has every crumb, in order."""
    clerk = agent([[text("One. "), text("Two.")]], id="clerk")
    async with Bread(agents=[clerk], store=store_in(tmp_path), nats=server.url) as bread:
        seen: dict[str, list[Any]] = {}

        async def many(count: int) -> None:
            for _ in range(count):
                run = bread.run("clerk", "go")
                await run
                seen[run.run_id] = [wire(c) async for c in bread.observe(run.run_id)]

        async def outage() -> None:
            server.kill()
            await until_down(bread)
            await many(3)
            server.start()
            await bus_of(bread).until_up()

        for _ in range(2):
            busy = asyncio.gather(*(many(15) for _ in range(4)))
            await outage()
            await busy
        await everything_is_out(bread)
        frames = await stored(server)
    assert len(seen) == 126
    assert in_order(frames)
    assert {root: shown([f for f in frames if f["root"] == root]) for root in seen} == seen


async def test_b66_observers_elsewhere_go_on_from_the_store(server: NatsServer, tmp_path: Path) -> None:
    """What is said while NATS is away reaches them with the turn, nothing twice."""
    go_on, said_more = asyncio.Event(), asyncio.Event()
    script: list[Any] = [text("One "), pause(go_on.wait), text("two "), pause(said_more.wait), text("three.")]
    options: dict[str, Any] = {"store": store_in(tmp_path), "nats": server.url}
    async with (
        Bread(agents=[agent([script], id="talker")], **options) as talks,
        Bread(executes=False, **options) as watches,
    ):
        run_id = await talks.start("talker", "go")
        texts: list[str] = []
        async for crumb in watches.observe(run_id):
            if crumb.type == "text:delta":
                texts.append(crumb.text)
            if texts == ["One "]:
                server.kill()
                await until_down(talks)
                await until_down(watches)
                go_on.set()
                said_more.set()
        assert texts == ["One ", "two three."]


async def test_b130_a_stream_that_is_gone_is_made_again(server: NatsServer, tmp_path: Path) -> None:
    """Somebody deleted it, or the disk of the server was lost: what comes is kept as before."""
    async with Bread(agents=[CLERK], store=store_in(tmp_path), nats=server.url) as bread:
        await bread.run("clerk", "go")
        await everything_is_out(bread)
        client = await outside(server)
        await client.jetstream().delete_stream("BREAD_CRUMBS")
        await client.close()
        run = bread.run("clerk", "go")
        await run
    assert [frame["root"] for frame in await stored(server)] == [run.run_id] * 3


async def test_q_a_password_that_is_wrong_is_said_at_once_and_not_shown(tmp_path: Path) -> None:
    """TRANSPORT_UNAVAILABLE, with the setting; the store is closed again."""
    with NatsServer(tmp_path / "nats", USER % "") as server:
        url = f"nats://bread:wrong-hunter@127.0.0.1:{server.port}"
        bread = Bread(agents=[CLERK], store=store_in(tmp_path), nats=url)
        with pytest.raises(BreadError) as caught:
            await bread.open()
        assert caught.value.code == "TRANSPORT_UNAVAILABLE"
        assert "BREAD_NATS_PASSWORD" in caught.value.message
        assert "hunter" not in str(caught.value)
        good = JetStream(f"nats://bread@127.0.0.1:{server.port}", password="hunter2")
        async with Bread(agents=[CLERK], store=store_in(tmp_path), transport=good) as bread:
            assert good.is_up
            assert await bread.run("clerk", "go") == "May I? So?"


# The client library lets go of a connection that was refused without closing it.
@pytest.mark.filterwarnings("ignore:.*StreamWriter.__del__:pytest.PytestUnraisableExceptionWarning")
async def test_q_a_password_that_is_changed_later_is_said_and_tried_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """C63: the client library would give up for good."""
    with NatsServer(tmp_path / "nats", USER % "") as server:
        url = f"nats://bread:hunter2@127.0.0.1:{server.port}"
        async with Bread(agents=[CLERK], store=store_in(tmp_path), nats=url) as bread:
            server.kill()
            await until_down(bread)
            right, server.more = server.more, server.more.replace("hunter2", "hunter3")
            server.start()
            await bread.run("clerk", "go")
            while "does not accept who we are" not in caplog.text:
                await bread.list_runs(limit=1)
            server.kill(signal.SIGTERM)
            server.more = right
            server.start()
            await bus_of(bread).until_up()
            await everything_is_out(bread)
        assert "hunter" not in caplog.text


async def test_q_a_server_without_jetstream_is_refused(tmp_path: Path) -> None:
    """TRANSPORT_UNAVAILABLE."""
    with NatsServer(tmp_path / "nats", jetstream=False) as server:
        with pytest.raises(BreadError, match="has no JetStream") as caught:
            await Bread(store=store_in(tmp_path), nats=server.url).open()
        assert caught.value.code == "TRANSPORT_UNAVAILABLE"


@asynccontextmanager
async def old_server(version: str) -> AsyncIterator[int]:
    """What an older server says of itself; it knows nothing else."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        info = {"server_id": "x", "version": version, "max_payload": 1 << 20, "headers": True}
        writer.write(f"INFO {json.dumps(info)}\r\n".encode())
        while line := await reader.readline():
            if line.startswith(b"PING"):
                writer.write(b"PONG\r\n")
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        yield server.sockets[0].getsockname()[1]


@pytest.mark.parametrize("version", ["2.9.10", "2.10.25"])
async def test_q_an_old_server_is_refused(tmp_path: Path, version: str) -> None:
    """TRANSPORT_TOO_OLD: it would take settings that it does not know, and say nothing."""
    async with old_server(version) as port:
        with pytest.raises(BreadError, match=r"version 2\.\d+; bread needs 2\.11 or newer") as caught:
            await Bread(store=store_in(tmp_path), nats=f"nats://127.0.0.1:{port}").open()
        assert caught.value.code == "TRANSPORT_TOO_OLD"


PUBLISHES = (
    ', permissions: { publish: ["bread.v1.>"%s], subscribe: ["bread.v1.*.events.*", "_INBOX.bread.>"] } },'
    ' { user: admin, password: "hunter3"'
)


@pytest.mark.parametrize("more", ["", ', "$JS.API.STREAM.INFO.BREAD_CRUMBS"'], ids=["blind", "looks"])
async def test_b148_whoever_may_not_make_streams_uses_the_one_that_is_there(tmp_path: Path, more: str) -> None:
    """TRANSPORT_UNAVAILABLE where it looks and finds none. An administrator makes it, as docs/nats.md shows."""
    with NatsServer(tmp_path / "nats", USER % (PUBLISHES % more)) as server:
        url = f"nats://bread:hunter2@127.0.0.1:{server.port}"
        if more:
            with pytest.raises(BreadError, match="no stream BREAD_CRUMBS, and we could not make it") as caught:
                await Bread(store=store_in(tmp_path), nats=url).open()
            assert caught.value.code == "TRANSPORT_UNAVAILABLE"
        admin = f"nats://admin:hunter3@127.0.0.1:{server.port}"
        async with Bread(store=store_in(tmp_path), nats=admin):
            pass
        async with Bread(agents=[CLERK], store=store_in(tmp_path), nats=url) as bread:
            run = bread.run("clerk", "go")
            await run
            await everything_is_out(bread)
        client = await outside(server, user="admin", password="hunter3")
        assert (await client.jetstream().stream_info("BREAD_CRUMBS")).state.messages == 3
        await client.close()


@pytest.mark.parametrize(
    "url", ["", "nats://", "http://h", "nats://h/x", "nats://h:port", "nats://a:hunter2@h:1,", "nats://u:hunter2@h?x=1"]
)
def test_q_what_is_no_url_is_refused(url: str) -> None:
    """INPUT_INVALID, without what stands in it."""
    with pytest.raises(InvalidInput, match="expected nats://host:4222") as caught:
        JetStream(url)
    assert "hunter2" not in str(caught.value)


def test_what_is_shown_of_a_url_is_no_secret() -> None:
    bus = JetStream("nats://ann:hunter%2F2@one:4223,tls://two")
    assert bus.shown == "one:4223, two:4222"
    assert bus.link.address.password == "hunter/2"
    assert bus.link.address.servers == ("nats://one:4223", "tls://two:4222")
    assert "hunter" not in repr(bus.link.address)
    assert JetStream("nats://secret@[::1]").link.address.token == "secret"
    assert JetStream("nats://secret@[::1]").shown == "[::1]:4222"


async def test_b55_closing_does_not_wait_for_a_server_that_is_away(
    server: NatsServer, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """What is left is said."""
    async with Bread(agents=[CLERK], store=store_in(tmp_path), nats=server.url) as bread:
        server.kill()
        await until_down(bread)
        assert await bread.run("clerk", "go") == "May I? So?"
        async with asyncio.timeout(2):
            await bread.close()
    assert "not everything was published" in caplog.text
    async with Bread(store=store_in(tmp_path), executes=False) as bread:
        assert len(await read(bread.observe((await bread.list_runs()).items[0].id))) == 3
