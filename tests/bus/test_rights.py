"""The rights on docs/nats.md, taken from the page: with these alone bread does all of its work; none can be spared."""

from __future__ import annotations

import json
import re
from contextlib import AsyncExitStack
from pathlib import Path

import msgpack
import pytest

from bread import Bread
from bread.runtime import sweep
from bread.runtime.cli import checks_nats
from bread.runtime.cli.checks import Finding
from bread.runtime.servers import NatsServer
from bread.transport.jetstream import JetStream
from doc_kit import blocks_of
from nats_server import kept_of, outside
from scenes import agent, asking, asks, questions
from support import read

from .test_relay import store_in

PAGE = Path(__file__).parents[2] / "docs" / "nats.md"
CONF = """
authorization {{ users: [
    {{ user: admin, password: "secret" }}
    {{ user: bread, password: "secret", permissions: {{ publish: {publish}, subscribe: {subscribe} }} }}
] }}
"""


def rights() -> list[str]:
    """What bread needs of the JetStream API, as the page lists it."""
    [words] = re.findall(r"Of the JetStream API\s+bread needs(.*?)What is not permitted", PAGE.read_text(), re.DOTALL)
    return re.findall(r"`(\$JS\.[^`]+)`", words)


def hears() -> list[str]:
    """What the user for bread may subscribe to."""
    [block] = [block for block in blocks_of(PAGE) if block.file == "nats.conf"]
    [words] = re.findall(r"user: bread,.*?subscribe: (\[.*?\])", block.text, re.DOTALL)
    found = json.loads(words)
    assert isinstance(found, list)
    return found


def permitting(folder: Path, *publish: str) -> NatsServer:
    return NatsServer(folder, CONF.format(publish=json.dumps(["bread.v1.>", *publish]), subscribe=json.dumps(hears())))


def url_of(server: NatsServer, user: str = "bread") -> str:
    return f"nats://{user}:secret@127.0.0.1:{server.port}"


async def looked(server: NatsServer) -> list[Finding]:
    return [one async for one in checks_nats.server(JetStream(url_of(server))) if one.state != "ok"]


def test_the_page_lists_what_doctor_looks_for() -> None:
    """B156: each of them, but the right to change a stream, which is needed where somebody says how it is to be."""
    looked_for = {*checks_nats.NEEDS, *checks_nats.QUEUE, checks_nats.LOOK, checks_nats.CREATE}
    named = {subject.replace(".*.bread.v1.*.work.*", ".>") for subject in looked_for if subject.startswith("$")}
    assert {*rights()} == named


async def test_b148_with_these_rights_alone_runs_go_by_the_queue(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Begun and answered at one process, performed by another; and what is kept of a deleted session goes."""
    monkeypatch.setattr(sweep, "HANDED_OUT_SECONDS", 3600.0)
    with permitting(tmp_path / "nats", *rights()) as server:
        store, clerk = store_in(tmp_path), agent(asks(), asking())
        async with AsyncExitStack() as exits:
            desk, _ = [
                await exits.enter_async_context(
                    Bread(agents=[clerk], store=store, nats=url_of(server), executes=executes)
                )
                for executes in (False, True)
            ]
            [question] = questions(await read(run := desk.run("a", "go", session="gone")))
            assert (await read(desk.resume(question.checkpoint_id, "yes")))[-1].type == "agent:run:end"
            reasons = [event.data["reason"] async for event in desk.audit(str(run.run_id)) if event.name == "run.taken"]
            assert reasons == ["queued", "queued"]
            admin = await outside(server, user="admin", password="secret")
            js, crumbs = admin.jetstream(), "bread.v1.*.crumbs.*.gone.>"
            assert len(await kept_of(js, crumbs)) > 1
            await desk.sessions.delete("gone")
            while len(last := await kept_of(js, crumbs)) != 1:
                pass
            assert msgpack.unpackb(last[0].data)["type"] == "agent:error"  # how it ended
        assert (await js.stream_info("BREAD_WORK")).state.messages == 0
        await admin.close()
        assert await looked(server) == []
    assert [one.getMessage() for one in caplog.records if "not permit" in one.getMessage()] == []


async def test_b156_of_the_queue_no_right_can_be_spared(tmp_path: Path) -> None:
    """Whichever is lacking, `bread doctor` says that one and no other."""
    of_queue = [right for right in rights() if "BREAD_WORK" in right]
    assert len(of_queue) == 5
    for number, right in enumerate(of_queue):
        with permitting(tmp_path / f"{number}", *(one for one in rights() if one != right)) as server:
            [found] = await looked(server)
        assert (found.state, found.what) == ("warn", "work queue"), right
        [lacking] = re.findall(r"publish (\S+)", found.detail)
        assert lacking.startswith(right.rstrip(".>*")), right
