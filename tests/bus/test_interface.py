"""What is promised to programs outside: docs/asyncapi.yaml and docs/nats.md, against what goes over the wire."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import msgpack
import nats
import pytest
import yaml
from jsonschema import Draft202012Validator
from nats.aio.msg import Msg

from bread import Bread, StartRun, define_tool
from bread.runtime.servers import NatsServer
from bread.testing import call, fail, text
from bread.transport.subjects import KEPT, Kind, Place, pattern, subject
from doc_kit import blocks_of
from docs import asyncapi
from docs.generate import crumbs
from nats_server import kept, outside
from observers.clients import HINTS
from scenes import agent, asking, questions
from support import read
from teams import hands_on
from tree_agents import everybody

from .outsider import listening
from .test_relay import play, store_in

DOCS = Path(__file__).parents[2] / "docs"


@pytest.fixture(scope="module")
def document() -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load((DOCS / "asyncapi.yaml").read_text())
    return found


def validator(document: dict[str, Any], schema: str) -> Draft202012Validator:
    whole = {"$ref": f"#/components/schemas/{schema}", "components": document["components"]}
    return Draft202012Validator(whole, format_checker=Draft202012Validator.FORMAT_CHECKER)


def test_b122_the_file_is_what_the_code_gives(document: dict[str, Any]) -> None:
    """And every reference in it leads somewhere."""
    assert (DOCS / "asyncapi.yaml").read_text() == asyncapi.text()
    for path in set(re.findall(r"\$ref: '#/([^']+)'", asyncapi.text())):
        found: Any = document
        for part in path.split("/"):
            found = found[part]
        assert isinstance(found, dict), path
    for schema in document["components"]["schemas"].values():
        Draft202012Validator.check_schema(schema)


def test_b122_its_subjects_are_those_of_the_code(document: dict[str, Any]) -> None:
    place = Place("t", "a", "s", "run_1", "run_2")
    every: tuple[Kind, ...] = ("crumbs", "human", "live")
    for kind in every:
        channel = document["channels"][kind]
        assert channel["address"].format(**place._asdict()) == subject(kind, place)
        assert channel["parameters"].keys() == place._asdict().keys()
        assert ("x-jetstream" in channel) == (kind != "live")
    assert document["channels"]["crumbs"]["x-jetstream"]["subjects"] == [*KEPT]


def test_b122_every_crumb_has_its_schema(document: dict[str, Any]) -> None:
    schemas = document["components"]["schemas"]
    types = {
        schemas[one["$ref"].rpartition("/")[2]]["properties"]["type"]["const"] for one in schemas["AnyCrumb"]["oneOf"]
    }
    assert types == crumbs().keys()


async def test_b122_b130_what_is_told_fits_the_file(
    server: NatsServer, tmp_path: Path, document: dict[str, Any]
) -> None:
    """All compositions, questions and answers, failures, live text and hints, a crumb cut short, and the headers."""

    @define_tool
    async def bulk(size: int) -> Any:
        yield "part"
        yield "x" * size

    child = agent([[text("Well. "), call("human_ask")], [text("Done.")]], asking(), id="asks")
    flaky = agent([[fail("busy"), fail("out of order", times=99, retryable=False)]], id="flaky")
    big = agent([[call("tool_bulk", {"size": 600_000})], [text("Big.")]], bulk, id="big")
    agents = [*everybody.agents.values(), child, flaky, big, hands_on("asks", id="quiet", visibility="hidden")]
    pipelines = {p.id: p.steps for p in everybody.pipelines.values()}
    options: dict[str, Any] = {"store": store_in(tmp_path), "nats": server.url, "backoff": (0.01,)}
    async with (
        listening(server, pattern("live")) as outsider,
        Bread(agents=agents, pipelines=pipelines, **options) as bread,
    ):
        for name in ("contract", "case", "faulty", "host", "big", "quiet", "flaky"):
            run_id = await play(bread, name)
        await read(bread.retry(run_id))
        asked = questions(await read(bread.run("asks", "go")))[0]
        await bread.cancel(asked.run_id)
        await outsider.until(lambda frames: any(frame["type"] == "tool:result:partial" for frame in frames))
    frames, small = await kept(server), await kept(server, pattern("human"))
    told = [msgpack.unpackb(message.data) for message in frames]
    about = [msgpack.unpackb(message.data) for message in small]
    fits = validator(document, "Frame")
    for frame in [*told, *outsider.frames]:
        assert not [*fits.iter_errors(frame)], frame
    for frame in about:
        assert not [*validator(document, "Question").iter_errors(frame)], frame
    types = {frame["type"] for frame in told}
    assert types == crumbs().keys() - {*HINTS, "text:reset"}
    assert {frame["type"] for frame in about} == {"human:required", "human:resumed", "human:discarded"}
    assert [frame["type"] for frame in told if "truncated" in frame] == ["tool:result"]
    names = document["components"]["messages"]["crumbs"]["headers"]["properties"].keys()
    for message in (*frames, *small):
        assert names <= (message.headers or {}).keys()


def test_the_file_refuses_what_does_not_fit(document: dict[str, Any]) -> None:
    """Else it would say nothing."""
    common = {"seq": 1, "cursor": "1", "runId": "r", "rootRunId": "r", "agentId": "a", "sessionId": "s"}
    crumb = common | {"type": "tool:call", "timestamp": "2026-01-02T03:04:05Z", "toolCallId": "c", "toolName": "t"}
    frame = {"v": 1, "type": "tool:call", "root": "r", "run": "r", "seq": 1, "visible": True, "at": 1.5}
    fits = validator(document, "Frame")
    assert fits.is_valid(frame | {"crumb": crumb | {"args": {}}})
    assert not fits.is_valid(frame | {"crumb": crumb})
    assert not fits.is_valid(frame | {"crumb": crumb | {"args": {}, "type": "tool:cull"}})
    assert not fits.is_valid({**frame, "v": 2, "crumb": crumb | {"args": {}}})
    cut = {name: value for name, value in crumb.items() if name not in ("toolCallId", "toolName")}
    assert not fits.is_valid(frame | {"crumb": cut})
    assert fits.is_valid(frame | {"crumb": cut, "truncated": True, "fetch": {"run": "r", "after": "0"}})


# --- rights -----------------------------------------------------------------------------------------------------------


async def test_b148_the_rights_that_the_page_shows_are_enough_and_not_too_much(tmp_path: Path) -> None:
    """bread works with its user; a reader of tenant acme reads that, comes to what is kept, and to nothing else."""
    [block] = [block for block in blocks_of(DOCS / "nats.md") if block.file == "nats.conf"]
    secrets = {"NATS_BREAD_PASSWORD": "bread-password", "NATS_READER_PASSWORD": "reader-password"}
    with NatsServer(tmp_path / "nats", block.text, jetstream=False, env=secrets) as server:
        url = f"nats://bread:bread-password@127.0.0.1:{server.port}"
        clerk = agent([[text("Well. "), call("human_ask")], [text("Done.")]], asking(), id="clerk")
        denied: list[str] = []

        async def on_error(error: Exception) -> None:
            denied.append(str(error))

        reader = await outside(
            server, user="reader", password="reader-password", inbox_prefix="_INBOX.reader", error_cb=on_error
        )
        heard: list[Msg] = []

        async def hear(message: Msg) -> None:
            heard.append(message)

        for subjects in (
            "bread.v1.acme.crumbs.>",
            "bread.v1.acme.human.>",
            "bread.v1.*.crumbs.>",
            "bread.v1.acme.events.>",
        ):
            await reader.subscribe(subjects, cb=hear)
        await reader.flush()
        await reader.flush()
        assert [re.sub('".*', "", one) for one in denied] == ["nats: permissions violation for subscription to "] * 2
        async with Bread(agents=[clerk], store=store_in(tmp_path), nats=url) as bread:
            asked = questions(await read(bread.run("clerk", "go", session="gone")))[0]
            await bread.sessions.delete("gone")
            await send(bread, "acme")
        assert asked.agent_id == "clerk"
        js = reader.jetstream(timeout=0.5)
        for tenant, may in (("acme", True), ("default", False)):
            config = nats.js.api.ConsumerConfig(
                name=f"reads_{tenant}", filter_subject=f"bread.v1.{tenant}.>", ack_policy=nats.js.api.AckPolicy.NONE
            )
            if not may:
                with pytest.raises(nats.errors.TimeoutError):
                    await js.add_consumer("BREAD_CRUMBS", config)
                continue
            await js.add_consumer("BREAD_CRUMBS", config)
            consumer = await js.pull_subscribe_bind(consumer=config.name, stream="BREAD_CRUMBS")
            stored = await consumer.fetch(10, timeout=5)
            assert {message.subject.split(".")[2] for message in stored} == {"acme"}
            assert len(stored) == len(heard) == 4  # three crumbs, and the question once more
        before = len(denied)
        await reader.publish("bread.v1.acme.crumbs.a.s.r.r", b"forged")
        await reader.flush()
        await reader.flush()
        assert len(denied) == before + 1
        await reader.close()


async def send(bread: Bread, tenant: str) -> None:
    """A run of another tenant, to its question."""
    accepted = await bread.send(StartRun(agent="clerk", input="go", tenant=tenant))
    assert accepted.run_id is not None
    await read(bread.observe(accepted.run_id, until="rest"))
