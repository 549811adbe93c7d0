"""`bread doctor` on NATS: what it looks at, what it says to do, and that it leaves nothing there."""

from __future__ import annotations

import re
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from nats.aio.msg import Msg

from bread.runtime.cli import checks_nats
from bread.runtime.servers import NatsServer
from bread.transport import nats_probe
from bread.transport.jetstream import JetStream
from bread.transport.port import Job
from cli_kit import Done, Shell, error_line
from nats_server import outside
from silence import Way

ALL = ["transport", "nats rights", "stream", "nats clock", "nats storage"]
USERS = """
authorization {{ users: [
    {{ user: admin, password: "hunter3" }}
    {{ user: bread, password: "hunter2", permissions: {{ publish: [{publish}], subscribe: [{subscribe}] }} }}
] }}
"""
HEARS = '"bread.v1.*.events.*", "_INBOX.bread.>"'


@pytest.fixture(scope="module")
def nats(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NatsServer]:
    with NatsServer(tmp_path_factory.mktemp("nats")) as server:
        yield server


def look(shell: Shell, url: str, **env: str) -> tuple[Done, list[dict[str, Any]]]:
    """The command, and what it found of NATS."""
    done = shell.plain("--nats", url, "--app", "cli_agents:asker", "doctor", "--json", **env)
    assert "hunter" not in done.out + done.err
    return done, [one for one in done.json["checks"] if one["what"] in (*ALL, "jetstream")]


def wrong(found: list[dict[str, Any]]) -> list[tuple[str, str]]:
    return [(one["state"], one["what"]) for one in found if one["state"] != "ok"]


def limited(server: NatsServer, user: str = "bread:hunter2") -> str:
    return server.url.replace("//", f"//{user}@")


async def kept(server: NatsServer) -> int:
    """How much the stream holds."""
    client = await outside(server)
    found = (await client.jetstream().stream_info("BREAD_CRUMBS")).state.messages
    await client.close()
    return found


async def test_all_is_well_and_nothing_is_left(shell: Shell, tmp_path: Path) -> None:
    """B156: first without a stream, which is not made; then with one. Neither the stream nor who listens to everything
    gets anything of what was tried."""
    with NatsServer(tmp_path / "nats") as server:
        done, found = look(shell, server.url)
        assert (done.code, wrong(found)) == (0, [])
        assert "which the first process makes" in found[2]["detail"]
        bus = JetStream(server.url)
        await bus.open(lambda root, frame: None)
        await bus.close()
        client = await outside(server)
        seen: list[Msg] = []

        async def see(message: Msg) -> None:
            seen.append(message)

        version = client.connected_server_version.major
        await client.jetstream().publish("bread.v1.default.crumbs.a.s.r.r", b"x")
        await client.subscribe("bread.>", cb=see)
        await client.subscribe("$JS.API.STREAM.PURGE.>", cb=see)
        await client.flush()
        done, found = look(shell, server.url)
        await client.flush()
        await client.close()
        assert (done.code, done.err, wrong(found)) == (0, "", [])
        assert [one["what"] for one in found] == ALL
        assert re.fullmatch(rf"NATS {version}\.\d+\.\d+ at 127\.0\.0\.1:{server.port}", found[0]["detail"])
        assert found[2]["detail"].startswith("BREAD_CRUMBS: 1 messages, ")
        assert found[2]["detail"].endswith(" of 1.0 GB, for 3600 s, replicas: 1")
        assert (await kept(server), seen) == (1, [])


async def test_a_server_that_would_hand_on_what_is_tried(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """B156: one of a release to come, perhaps. Nothing is kept or removed, and the rights are not guessed."""
    monkeypatch.setattr(nats_probe, "RESERVED", "_INBOX.doctor")
    with NatsServer(tmp_path / "nats") as server:
        bus = JetStream(server.url)
        await bus.open(lambda root, frame: None)
        await bus.close()
        client = await outside(server)
        await client.jetstream().publish("bread.v1.default.crumbs.doctor", b"x")
        await client.close()
        found = [one async for one in checks_nats.server(bus)]
        assert await kept(server) == 1
    assert [(one.state, one.what) for one in found] == [("ok", "transport"), ("warn", "transport")]
    assert "does not say who may publish" in found[1].detail


def test_no_jetstream(shell: Shell, tmp_path: Path) -> None:
    """B156: TRANSPORT_UNAVAILABLE, once."""
    with NatsServer(tmp_path / "nats", jetstream=False) as server:
        done, found = look(shell, server.url)
    assert (done.code, error_line(done)[0]) == (1, "TRANSPORT_UNAVAILABLE")
    assert wrong(found) == [("fail", "jetstream")]
    assert found[-1]["toDo"].startswith("switch it on")


@pytest.mark.parametrize(
    ("publish", "subscribe", "words"),
    [
        ('"$JS.API.>", "bread.v1.*.live.>", "bread.v1.*.events.*"', HEARS, ["publish bread.v1.*.crumbs.>", "human"]),
        ('"bread.v1.>"', HEARS, ["$JS.API.STREAM.PURGE.BREAD_CRUMBS", "$JS.API.STREAM.MSG.DELETE.BREAD_CRUMBS"]),
        ('"bread.v1.>", "$JS.API.>"', '"_INBOX.bread.>"', ["may not subscribe bread.v1.*.events.*"]),
        ('"bread.v1.>", "$JS.API.>"', '"bread.v1.*.events.*"', ["may not subscribe _INBOX.bread.>"]),
    ],
    ids=["crumbs", "api", "events", "answers"],
)
def test_rights(shell: Shell, tmp_path: Path, publish: str, subscribe: str, words: list[str]) -> None:
    """B156: each right that is lacking is named, and where to give it."""
    with NatsServer(tmp_path / "nats", USERS.format(publish=publish, subscribe=subscribe)) as server:
        done, found = look(shell, limited(server))
    assert (done.code, error_line(done)[0]) == (1, "TRANSPORT_UNAVAILABLE")
    [lacking] = [one for one in found if one["what"] == "nats rights"]
    assert all(word in lacking["detail"] for word in words)
    assert "docs/nats.md" in lacking["toDo"]


def test_whoever_may_do_what_the_page_says_lacks_nothing(shell: Shell, tmp_path: Path) -> None:
    """B156: without the right to make the stream, it has to be there."""
    publish = '"bread.v1.>", ' + ", ".join(
        f'"$JS.API.STREAM.{verb}.BREAD_CRUMBS"' for verb in ("INFO", "PURGE", "MSG.DELETE")
    )
    with NatsServer(tmp_path / "nats", USERS.format(publish=publish, subscribe=HEARS)) as server:
        done, found = look(shell, limited(server))
    assert (done.code, wrong(found)) == (1, [("fail", "stream")])
    assert "$JS.API.STREAM.CREATE.BREAD_CRUMBS" in found[-1]["toDo"]
    assert [one["state"] for one in found if one["what"] == "nats rights"] == ["ok"]


@pytest.mark.parametrize(
    ("given", "state", "words"),
    [
        ({"subjects": ["bread.v1.*.crumbs.>"]}, "warn", "does not keep bread.v1.*.human.>"),
        ({"retention": "workqueue"}, "fail", "retention workqueue; bread needs limits"),
        ({"storage": "memory"}, "warn", "kept in memory"),
        ({"deny_purge": True, "deny_delete": True}, "fail", "set to deny_purge, deny_delete"),
        ({"discard": "new"}, "warn", "discards new"),
        ({"duplicate_window": 60}, "warn", "duplicates for 60 s only"),
        ({"allow_direct": False}, "warn", "direct reads"),
        ({"max_bytes": -1}, "warn", "without an end"),
        ({"max_bytes": 190, "max_age": 0}, "warn", "when it is full the oldest go"),
    ],
    ids=["subjects", "retention", "storage", "denied", "discard", "window", "direct", "endless", "full"],
)
async def test_a_stream_that_is_otherwise(
    shell: Shell, nats: NatsServer, given: dict[str, Any], state: str, words: str
) -> None:
    """B156: what differs, whether it matters, and what to do."""
    client = await outside(nats)
    js = client.jetstream()
    await js.add_stream(JetStream(nats.url).stream.evolve(**given))
    for _ in range(3):
        await js.publish("bread.v1.default.crumbs.a.s.r.r", b"x")
    done, found = look(shell, nats.url)
    await js.delete_stream("BREAD_CRUMBS")
    await client.close()
    [stream] = [one for one in found if one["state"] != "ok"]
    assert (stream["what"], stream["state"], done.code) == ("stream", state, int(state == "fail"))
    assert words in stream["detail"]
    assert stream["toDo"]


def test_a_server_that_does_not_let_us_in(shell: Shell, tmp_path: Path) -> None:
    """B156, C63: TRANSPORT_UNAVAILABLE with the settings to look at, and no password."""
    with NatsServer(tmp_path / "nats", USERS.format(publish='">"', subscribe='">"')) as server:
        done, found = look(shell, limited(server, "bread:wrong-hunter"))
        good, _ = look(shell, limited(server, "bread"), BREAD_NATS_PASSWORD="hunter2")
    assert (done.code, error_line(done)[0], wrong(found)) == (1, "TRANSPORT_UNAVAILABLE", [("fail", "transport")])
    assert "BREAD_NATS_PASSWORD" in found[0]["detail"]
    assert good.code == 0


def test_a_server_that_is_down_or_silent(shell: Shell, nats: NatsServer) -> None:
    """B156: one line that says what to do, soon; runs go on without it. Of several servers each is told of."""
    with socket.create_server(("127.0.0.1", 0)) as silent, socket.create_server(("127.0.0.1", 0)) as taken:
        down = taken.getsockname()[1]
        taken.close()
        for port in (down, silent.getsockname()[1]):
            began = time.monotonic()
            done, found = look(shell, f"nats://127.0.0.1:{port},{nats.url}")
            assert time.monotonic() - began < 20
            assert (done.code, wrong(found)) == (0, [("warn", "transport")])
            assert f"127.0.0.1:{port} cannot be used now: " in found[0]["detail"]
            assert found[0]["toDo"].startswith("start it")
            assert [one["what"] for one in found[1:]] == [one for one in ALL if one != "nats clock"]


async def test_a_server_that_falls_silent_while_it_is_asked(nats: NatsServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """B156: it is given up."""
    with Way(nats.port) as way:
        real = checks_nats._version

        def then_silence(probe: Any) -> str:
            way.silence()
            return real(probe)

        monkeypatch.setattr(checks_nats, "_version", then_silence)
        found = [one async for one in checks_nats.server(JetStream(f"nats://127.0.0.1:{way.port}"))]
    assert [(one.state, one.what) for one in found] == [("ok", "transport"), ("warn", "transport")]


@pytest.mark.parametrize(
    ("by", "words"), [(-100, "100 s ahead of"), (100, "100 s behind"), (2, "agree")], ids=["ahead", "behind", "near"]
)
def test_clocks(by: float, words: str) -> None:
    """B156: by the time that stands in the server's answer."""
    at = checks_nats._seconds("2026-12-03T00:26:56.129292521Z")
    finding = checks_nats._clock(at, at + by, at + by + 0.5)
    assert words in finding.detail
    assert (finding.state, bool(finding.to_do)) == (("ok", False) if by == 2 else ("warn", True))


def test_an_account_that_is_nearly_full(shell: Shell, tmp_path: Path) -> None:
    """B156: what is promised to streams counts."""
    account = "accounts { A { jetstream { max_file: 1GB }, users: [{ user: bread, password: hunter2 }] } }"
    with NatsServer(tmp_path / "nats", account) as server:
        url = limited(server)
        assert wrong(look(shell, url)[1]) == []
    room = checks_nats.from_room({"storage": 1, "reserved_storage": 95, "limits": {"max_storage": 100}})
    assert (room.state, room.detail) == ("warn", "95 bytes of 100 bytes are taken or promised to streams")


async def test_the_work_queue(shell: Shell, tmp_path: Path) -> None:
    """B156: whether there is one, how much is in it, or what it lacks: then ready runs are found in the store."""

    def line(url: str) -> dict[str, Any]:
        done = shell.plain("--nats", url, "--app", "cli_agents:asker", "doctor", "--json")
        [found] = [one for one in done.json["checks"] if one["what"] == "work queue"]
        assert isinstance(found, dict)
        return found

    rights = USERS.format(publish='"bread.v1.>", "$JS.API.STREAM.>"', subscribe=HEARS)
    with NatsServer(tmp_path / "nats", rights) as server:
        admin = server.url.replace("//", "//admin:hunter3@")
        assert (found := line(admin))["state"] == "ok"
        assert "which the first process makes" in found["detail"]
        bus = JetStream(admin)
        await bus.open(lambda root, frame: None)
        await bus.work.offer(Job("a", "r", "r"))
        await bus.close()
        assert line(admin)["detail"] == "BREAD_WORK: 1 jobs"
        lacking = line(limited(server))
        assert lacking["state"] == "warn"
        assert "$JS.API.CONSUMER.CREATE.BREAD_WORK" in lacking["detail"]
        assert "docs/nats.md" in lacking["toDo"]
        client = await outside(server, user="admin", password="hunter3")
        await client.jetstream().delete_stream("BREAD_WORK")
        await client.jetstream().add_stream(name="BREAD_WORK", subjects=["bread.v1.*.work.*"])
        await client.close()
        assert (found := line(admin))["state"] == "warn"
        assert found["detail"] == "BREAD_WORK is no work queue of bread.v1.*.work.*"
