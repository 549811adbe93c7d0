"""Pages of other origins: none may call unless its origin is named."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import httpx2
import pytest

from bread import Bread, Config
from bread.runtime.http.api import create_api
from bread.runtime.http.auth import Auth, Keys
from scenes import refused
from web.conftest import Served
from web.kit import error
from web.served import agents

PAGE = "https://app.example"
ASKS = {"Access-Control-Request-Method": "POST", "Access-Control-Request-Headers": "content-type, idempotency-key"}


@asynccontextmanager
async def calling(*cors: str, origin: str = PAGE, auth: Auth | None = None) -> AsyncIterator[httpx2.AsyncClient]:
    """What a browser sends for a page, to an API in this process."""
    bread = Bread(agents=agents, store="memory://")
    transport = httpx2.ASGITransport(create_api(bread, cors=cors, auth=auth))
    headers = {"Origin": origin}
    async with bread, httpx2.AsyncClient(transport=transport, base_url="http://api", headers=headers) as client:
        yield client


def allowed(response: httpx2.Response) -> str | None:
    assert "access-control-allow-credentials" not in response.headers
    return response.headers.get("access-control-allow-origin")


async def test_no_page_may_call_by_default() -> None:
    """B148: neither asked before nor after."""
    async with calling() as client:
        assert error(await client.options("/agents/echo/run", headers=ASKS)) == (405, "METHOD_NOT_ALLOWED")
        for response in (await client.options("/agents", headers=ASKS), await client.get("/agents")):
            assert not [name for name in response.headers if name.startswith("access-control-")]


@pytest.mark.parametrize(
    ("cors", "origin", "expected"),
    [
        ([PAGE], PAGE, PAGE),
        (["http://localhost:3000", PAGE], PAGE, PAGE),
        ([PAGE], "https://evil.example", None),
        ([PAGE], f"{PAGE}.evil.example", None),
        ([PAGE], "http://app.example", None),
        ([PAGE], "null", None),
        (["*"], "https://evil.example", "*"),
    ],
    ids=str,
)
async def test_pages_that_are_named_may_call(cors: list[str], origin: str, expected: str | None) -> None:
    """B148: these origins and no other, never with cookies; a preflight says which methods and headers."""
    async with calling(*cors, origin=origin) as client:
        asked = await client.options("/agents/echo/run", headers=ASKS)
        assert (asked.status_code, allowed(asked)) == (200 if expected else 400, expected)
        assert asked.headers["access-control-allow-methods"] == "GET, POST, DELETE"
        names = {name.strip().lower() for name in asked.headers["access-control-allow-headers"].split(",")}
        assert names >= {"authorization", "x-api-key", "content-type", "idempotency-key", "last-event-id", "prefer"}
        assert allowed(await client.get("/agents")) == expected
        assert allowed(await client.get("/runs/nope")) == expected


async def test_a_page_needs_a_key_too(tmp_path_factory: pytest.TempPathFactory) -> None:
    """B148: a preflight has none and asks nothing; the call itself does. A page can read why it was refused."""
    keys = Keys.load(tmp_path_factory.mktemp("keys") / "bread.keys")
    key = keys.add("ann", ["observe"])
    async with calling(PAGE, auth=Auth(keys=keys)) as client:
        asked = {"Access-Control-Request-Method": "GET", "Access-Control-Request-Headers": "authorization"}
        assert (await client.options("/runs", headers=asked)).status_code == 200
        without = await client.get("/runs")
        assert (error(without), allowed(without)) == ((401, "UNAUTHORIZED"), PAGE)
        assert (await client.get("/runs", headers={"Authorization": f"Bearer {key}"})).status_code == 200


async def test_a_page_reads_that_something_went_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    """B147, B148: also where nobody expects it; pages that are not named cannot."""

    async def broken(bread: Bread, run_id: str) -> None:
        raise RuntimeError("secret")

    monkeypatch.setattr(Bread, "get_run", broken)
    for origin, expected in ((PAGE, PAGE), ("https://evil.example", None)):
        async with calling(PAGE, origin=origin) as client:
            got = await client.get("/runs/run_1")
            assert (error(got), allowed(got)) == ((500, "INTERNAL_ERROR"), expected)
            assert "secret" not in got.text


@pytest.mark.parametrize("accept", ["text/event-stream", "application/x-ndjson"])
async def test_a_page_reads_a_stream(tmp_path_factory: pytest.TempPathFactory, accept: str) -> None:
    """B139, B151: of a real server, with the id of its run."""
    server = Served(f"sqlite:///{tmp_path_factory.mktemp('served')}/bread.db", cors=[PAGE])
    headers = {"Origin": PAGE, "Accept": accept}
    try:
        async with (
            httpx2.AsyncClient(base_url=server.url, headers=headers, trust_env=False) as client,
            client.stream("POST", "/agents/echo/run", json={"input": "go"}) as got,
        ):
            assert (got.status_code, allowed(got)) == (200, PAGE)
            exposed = got.headers["access-control-expose-headers"].split(", ")
            assert {"X-Run-Id", "Location"} <= {*exposed}
            assert got.headers["x-run-id"] in (await got.aread()).decode()
    finally:
        server.kill()


NO_ORIGINS = [
    "app.example",
    "https://app.example/",
    "https://*.example",
    "HTTPS://app.example",
    "",
    "null",
    "https://a b",
]


@pytest.mark.parametrize("wrong", NO_ORIGINS, ids=repr)
def test_what_no_browser_ever_says_is_refused(wrong: str) -> None:
    """B148: a slip is an error, instead of a page that cannot call."""
    with refused("INPUT_INVALID"):
        create_api(Bread(store="memory://"), cors=[PAGE, wrong])
    with refused("CONFIG_INVALID"):
        Config(cors=(wrong,))


def test_origins_in_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """B157."""
    monkeypatch.setenv("BREAD_CORS", f"{PAGE}, http://[::1]:3000")
    assert Config(cors=("http://other.example",)).cors == (PAGE, "http://[::1]:3000")
