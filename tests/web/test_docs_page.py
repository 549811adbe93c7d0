"""`/docs` without the internet: in a real browser, and by looking at what it refers to."""

from __future__ import annotations

import asyncio
import re
import shutil
import subprocess
from html import unescape
from pathlib import Path

import pytest
from httpx2 import AsyncClient

from bread import Bread
from bread.runtime.http.api import create_api
from bread.runtime.http.auth import Auth, Keys
from web.conftest import Served

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")


async def test_all_that_the_page_refers_to_is_served_here(client: AsyncClient) -> None:
    """B139: its own policy lets it load nothing else, and nothing of it stands in the page itself."""
    page = await client.get("/docs")
    assert page.headers["content-type"].startswith("text/html")
    policy = dict(part.strip().partition(" ")[::2] for part in page.headers["content-security-policy"].split(";"))
    assert policy["default-src"] == "'self'"
    assert not re.search(r"https?:|unsafe", page.headers["content-security-policy"] + page.text)
    assert not re.search(r"<style|\bstyle=|\bon\w+=|<script>", page.text)
    named = re.findall(r'(?:src|href)="([^"]+)"', page.text)
    assert len(named) == 4
    script = (await client.get("/docs/page.js")).text
    named += re.findall(r'url: "([^"]+)"', script)
    for name in named:
        got = await client.get(f"/{name}")
        assert (got.status_code, bool(got.content)) == (200, True), name
    assert "//" not in script
    assert (await client.get("/docs/nope.js")).status_code == 404


def seen(url: str, folder: Path) -> set[str]:
    """The texts in a page once its scripts have run, in a browser that reaches this machine alone."""
    assert CHROMIUM is not None
    words = [
        *(CHROMIUM, "--headless", "--no-sandbox", "--disable-gpu", "--dump-dom", f"--user-data-dir={folder}"),
        "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
        "--virtual-time-budget=20000",
        url,
    ]
    done = subprocess.run(words, capture_output=True, text=True, timeout=100, check=True)
    return {unescape(text).strip() for text in re.split(r"<[^>]+>", re.sub(r"<wbr/?>|\u200b", "", done.stdout))}


@pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium here: apt-get install chromium")
async def test_a_browser_shows_every_route(served: Served, client: AsyncClient, tmp_path: Path) -> None:
    """B139, B151: and what streams are made of, without the internet."""
    document = (await client.get("/openapi.json")).json()
    operation = document["paths"]["/runs/{run_id}/stream"]["get"]
    shown = await asyncio.to_thread(seen, f"{served.url}/docs#/runs/{operation['operationId']}", tmp_path)
    assert document["paths"].keys() <= shown
    operations = [one for operations in document["paths"].values() for one in operations.values()]
    assert {one["summary"] for one in operations} <= shown
    assert {"OAS 3.2", "Crumb", "CrumbEvent", "CrumbLine", "HumanRequired", "ErrorBody"} <= shown
    # The route that the address names stands open.
    assert {operation["description"], "text/event-stream", "application/x-ndjson", "Last-Event-ID"} <= shown
    assert "A cursor that is none." in shown


def test_where_keys_are_asked_for_the_page_can_give_one(tmp_path: Path) -> None:
    """B148: the document says how; health asks nobody."""
    closed = create_api(Bread(store="memory://"), auth=Auth(keys=Keys.load(tmp_path / "bread.keys"))).openapi()
    kinds = {
        (one["type"], one.get("scheme") or one["name"]) for one in closed["components"]["securitySchemes"].values()
    }
    assert kinds == {("http", "bearer"), ("apiKey", "X-API-Key")}
    assert [[*one] for one in closed["security"]] == [["bearer"], ["key"]]
    assert closed["paths"]["/healthz"]["get"]["security"] == []
    assert "security" not in closed["paths"]["/runs"]["get"]
    assert "security" not in create_api(Bread(store="memory://")).openapi()
