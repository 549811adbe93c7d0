"""Who may do what: API keys with roles, tokens, the hook of an app; and what is refused before anything is done."""

from __future__ import annotations

import stat
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
import jwt
import pytest

from bread import Bread, Session
from bread.runtime.http.api import create_api
from bread.runtime.http.auth import Auth, Caller, JsonWebTokens, Keys
from bread.runtime.http.serve import is_loopback, serve
from scenes import refused
from web.kit import error, run
from web.served import agents

SECRET = "a secret that two know, of 32 bytes at least"


@asynccontextmanager
async def calling(auth: Auth, **headers: str) -> AsyncIterator[httpx2.AsyncClient]:
    """A client of an API in this process."""
    bread = Bread(agents=agents, pipelines={"both": ["echo", "echo"]}, store="memory://")
    transport = httpx2.ASGITransport(create_api(bread, auth=auth))
    async with bread, httpx2.AsyncClient(transport=transport, base_url="http://api", headers=headers) as client:
        yield client


def bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


@pytest.fixture
def keys(tmp_path: Path) -> Keys:
    return Keys.load(tmp_path / "bread.keys")


async def test_who_has_no_key_gets_nothing(keys: Keys) -> None:
    """B148: 401 on every route but health, with any key that is none; the right one works, in either header."""
    key = keys.add("ann", ["admin"])
    async with calling(Auth(keys=keys)) as client:
        for headers in ({}, bearer("nope"), {"X-API-Key": key[:-1]}, {"Authorization": f"Basic {key}"}, bearer("")):
            for path in ("/agents", "/runs", "/checkpoints", "/sessions", "/loops", "/runs/x", "/runs/x/stream"):
                assert error(await client.get(path, headers=headers)) == (401, "UNAUTHORIZED")
            got = await client.post("/agents/echo/run", json={"input": 1}, headers=headers)
            assert error(got) == (401, "UNAUTHORIZED")
        assert (await client.get("/healthz")).status_code == 200
        for headers in (bearer(key), {"X-API-Key": key}):
            assert (await client.get("/agents", headers=headers)).status_code == 200


@pytest.mark.parametrize(
    ("role", "may"),
    [
        ("run", {"run", "cancel"}),
        ("answer", {"answer"}),
        ("observe", {"list"}),
        ("admin", {"run", "cancel", "answer", "list", "delete"}),
    ],
)
async def test_a_key_has_roles(keys: Keys, role: str, may: set[str]) -> None:
    """B148, B137: what a role does not cover is 403."""
    async with calling(Auth(keys=keys), **bearer(keys.add("ann", [role]))) as client:
        answers = {
            "run": await client.post("/agents/echo/run", json={"input": 1}),
            "cancel": await client.post("/runs/run_x/cancel"),
            "answer": await client.post("/resume/cp_x", json={"response": 1}),
            "list": await client.get("/checkpoints"),
            "delete": await client.delete("/sessions/x"),
        }
    assert {what for what, answer in answers.items() if answer.status_code != 403} == may
    for answer in answers.values():
        if answer.status_code == 403:
            assert error(answer) == (403, "FORBIDDEN")


async def test_the_log_says_who_it_was(keys: Keys) -> None:
    """B148, B129: the name of the key, whatever `author` says."""
    async with calling(Auth(keys=keys), **bearer(keys.add("ann", ["admin"]))) as client:
        asked = (await run(client, "/agents/clerk/run", {"input": "go"}))[-1]["payload"]
        found = await run(client, f"/resume/{asked['checkpointId']}", {"response": "yes", "author": "the queen"})
        assert found[0]["payload"]["author"] == "ann"
        log = (await client.get(f"/runs/{asked['runId']}/events")).json()["items"]
    assert {event["by"]["id"] for event in log if event["by"]["kind"] == "user"} == {"ann"}


def test_keys_are_kept_as_hashes(keys: Keys) -> None:
    """B148: the file is its owner's alone; another name is another key; what is forgotten is none."""
    first, second = keys.add("ann", ["run"]), keys.add("bob", ["observe", "answer"])
    assert first != second
    assert stat.S_IMODE(keys.file.stat().st_mode) == 0o600
    assert first not in keys.file.read_text()
    again = Keys.load(keys.file)
    caller = again.find(second)
    assert caller is not None
    assert (caller.principal.kind, caller.principal.id) == ("user", "bob")
    assert caller.roles == {"answer", "observe"}
    assert again.remove("bob") == 1
    assert again.find(second) is None
    assert Keys.load(keys.file).find(first) is not None


@pytest.mark.parametrize("roles", [[], ["king"], ["run", "king"]])
def test_roles_are_those_that_there_are(keys: Keys, roles: list[str]) -> None:
    """B148."""
    with refused("INPUT_INVALID"):
        keys.add("ann", roles)
    assert not keys.file.exists()


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", '{"keys": [{}]}', '{"keys": [{"name": "a", "hash": "b", "roles": ["king"]}]}']
)
def test_a_file_that_has_no_keys_is_refused(keys: Keys, text: str) -> None:
    """B148: it is not taken for one that asks nobody."""
    keys.file.write_text(text)
    with refused("CONFIG_INVALID"):
        Keys.load(keys.file)


@pytest.mark.parametrize(
    ("claims", "expected"),
    [
        ({}, 200),
        ({"roles": "run observe"}, 200),
        ({"roles": None, "scope": "run other"}, 200),
        ({"roles": ["observe"]}, 403),
        ({"roles": ["king"]}, 403),
        ({"exp": 1}, 401),
        ({"exp": None}, 401),
        ({"sub": None}, 401),
        ({"aud": "others"}, 401),
        ({"iss": "others"}, 401),
    ],
    ids=str,
)
async def test_tokens(claims: dict[str, Any], expected: int) -> None:
    """B148: of the issuer, for us, not over, with the roles that they say."""
    tokens = JsonWebTokens(secret=SECRET, audience="bread", issuer="us")
    usual = {"sub": "ann", "exp": time.time() + 60, "roles": ["run", "answer"], "aud": "bread", "iss": "us"}
    sent = jwt.encode({name: value for name, value in (usual | claims).items() if value is not None}, SECRET, "HS256")
    async with calling(Auth(tokens=tokens), **bearer(sent)) as client:
        got = await client.post("/agents/echo/run", json={"input": 1})
        assert got.status_code == expected


async def test_a_token_of_another_secret_or_none_at_all() -> None:
    """B148: nor one that says it needs no signature."""
    tokens = JsonWebTokens(secret=SECRET)
    other = jwt.encode({"sub": "ann", "exp": time.time() + 60}, SECRET[::-1], "HS256")
    unsigned = jwt.encode({"sub": "ann", "exp": time.time() + 60}, "", "none")
    async with calling(Auth(tokens=tokens)) as client:
        for wrong in (other, unsigned, "x", "a.b.c"):
            assert error(await client.get("/agents", headers=bearer(wrong))) == (401, "UNAUTHORIZED")


def test_tokens_need_one_way_to_be_checked() -> None:
    """B148."""
    for wrong in ({}, {"secret": SECRET, "jwks_url": "https://x.test/keys"}):
        with refused("CONFIG_INVALID"):
            JsonWebTokens(**wrong)


async def test_the_hook_of_an_app(keys: Keys) -> None:
    """B137: it is asked about the record, after the roles; lists have what it lets through; nothing is done before."""

    def mine(caller: Caller, action: str, subject: Any) -> bool:
        if action == "run":
            return True
        return getattr(subject, "session_id", None) == caller.principal.id

    auth = Auth(keys=keys, authorize=mine)
    roles = ["run", "answer", "observe"]
    ann, bob = bearer(keys.add("ann", roles)), bearer(keys.add("bob", roles))
    async with calling(auth) as client:
        body = {"input": "go", "session": {"id": "ann"}}
        asked = (await run(client, "/agents/clerk/run", body, headers=ann))[-1]["payload"]
        run_id, path = asked["runId"], f"/resume/{asked['checkpointId']}"
        for where in (f"/runs/{run_id}", f"/runs/{run_id}/stream", f"/runs/{run_id}/events"):
            assert error(await client.get(where, headers=bob)) == (403, "FORBIDDEN")
        assert error(await client.post(path, json={"response": "yes"}, headers=bob)) == (403, "FORBIDDEN")
        for where in ("/runs", "/checkpoints"):
            assert (await client.get(where, headers=bob)).json()["items"] == []
            assert len((await client.get(where, headers=ann)).json()["items"]) == 1
        found = await run(client, path, {"response": "yes"}, headers=ann)
        assert found[-1]["type"] == "agent:run:end"


async def test_the_hook_is_asked_about_the_session_that_a_run_names(keys: Keys) -> None:
    """B137, B143, B7: nobody gets into a conversation of another, or deletes it; a new session is nobody's."""

    def mine(caller: Caller, action: str, subject: Any) -> bool:
        asked.append((action, type(subject).__name__))
        return not isinstance(subject, Session) or subject.id.startswith(caller.principal.id)

    asked: list[tuple[str, str]] = []
    auth = Auth(keys=keys, authorize=mine)
    ann, bob = bearer(keys.add("ann", ["admin"])), bearer(keys.add("bob", ["admin"]))
    async with calling(auth) as client:
        body = {"input": "go", "session": {"id": "ann-1", "tags": {"a": "b"}}}
        assert (await client.post("/agents/echo/run", json=body, headers=ann)).status_code == 200
        assert asked == [("run", "Agent")]
        for path in ("/agents/echo/run", "/pipelines/both/run"):
            assert error(await client.post(path, json=body, headers=bob)) == (403, "FORBIDDEN")
            assert asked[-1] == ("run", "Session")
            assert (await client.post(path, json=body, headers=ann)).status_code == 200
        assert error(await client.delete("/sessions/ann-1", headers=bob)) == (403, "FORBIDDEN")
        assert asked[-1] == ("admin", "Session")
        cleanup = {"olderThanDays": 0, "tags": {"a": "b"}}
        assert (await client.post("/sessions/cleanup", json=cleanup, headers=bob)).json() == {"deleted": 0}
        sessions = (await client.get("/sessions", headers=ann)).json()["items"]
        assert [one["id"] for one in sessions] == ["ann-1"]
        assert (await client.delete("/sessions/ann-2", headers=bob)).json() == {"ok": True}
        assert (await client.post("/sessions/cleanup", json=cleanup, headers=ann)).json() == {"deleted": 1}
        await client.post("/agents/echo/run", json=body | {"session": {"id": "ann-3"}}, headers=ann)
        assert (await client.delete("/sessions/ann-3", headers=ann)).json() == {"ok": True}


async def test_what_the_hook_hides_leaves_no_hole_in_a_page(keys: Keys) -> None:
    """B137, B149: a page is full as long as there is more; the pages are the list, each record once."""

    def third(caller: Caller, action: str, subject: Any) -> bool:
        return not isinstance(subject, Session) or int(subject.id) % 3 == 0

    async with calling(Auth(authorize=third)) as client:
        for number in range(100, 130):
            body = {"input": "go", "session": {"id": f"{number}"}}
            assert (await client.post("/agents/echo/run", json=body)).status_code == 200
        sizes: list[int] = []
        seen: list[str] = []
        cursor: str | None = ""
        while cursor is not None:
            page = (await client.get("/sessions", params={"limit": 4, "cursor": cursor})).json()
            sizes.append(len(page["items"]))
            seen += [one["id"] for one in page["items"]]
            cursor = page["next"]
    assert seen == [f"{number}" for number in range(100, 130) if number % 3 == 0]
    assert sizes == [4, 4, 2]


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.1", "example.test"])  # noqa: S104
def test_nobody_listens_for_all_by_accident(host: str) -> None:
    """B148: an address that others reach, without keys."""
    with refused("INPUT_INVALID") as caught:
        serve(Bread(store="memory://"), host, 0)
    assert "--open-to-all" in str(caught.value)


def test_what_only_this_machine_reaches() -> None:
    """B148."""
    assert all(map(is_loopback, ("127.0.0.1", "127.9.9.9", "::1", "localhost")))
