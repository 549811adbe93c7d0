"""What a real server refuses: statuses and codes, in the one shape, as its document says."""

from __future__ import annotations

import json
from typing import Any

import pytest
from httpx2 import AsyncClient
from jsonschema import Draft202012Validator

from web.kit import error, run


@pytest.mark.parametrize(
    ("path", "body", "expected"),
    [
        ("/agents/nope/run", {"input": 1}, (404, "AGENT_NOT_FOUND")),
        ("/agents/typed/run", {"input": {}}, (422, "INPUT_INVALID")),
        ("/agents/clerk/run", {}, (422, "INPUT_INVALID")),
        ("/agents/clerk/run", {"input": 1, "inputs": 2}, (422, "INPUT_INVALID")),
        ("/agents/clerk/run", {"input": 1, "skill": "nope"}, (404, "SKILL_NOT_FOUND")),
        ("/agents/clerk/run", [], (422, "INPUT_INVALID")),
        ("/resume/nope", {"response": 1}, (404, "CHECKPOINT_NOT_FOUND")),
        ("/runs/nope/cancel", {}, (404, "RUN_NOT_FOUND")),
        ("/runs/nope/retry", {}, (404, "RUN_NOT_FOUND")),
        ("/sessions/cleanup", {"olderThanDays": "x"}, (422, "INPUT_INVALID")),
        ("/sessions/cleanup", {"olderThanDays": 1e18}, (422, "INPUT_INVALID")),
        ("/sessions/cleanup", {"olderThanDays": False}, (422, "INPUT_INVALID")),
        ("/sessions/cleanup", {"olderThanDays": "0"}, (422, "INPUT_INVALID")),
        ("/agents/clerk/run", {"input": 1, "maxSteps": True}, (422, "INPUT_INVALID")),
        ("/nope", {}, (404, "NOT_FOUND")),
        ("/agents", {}, (405, "METHOD_NOT_ALLOWED")),
    ],
)
async def test_errors_are_statuses(client: AsyncClient, path: str, body: Any, expected: tuple[int, str]) -> None:
    """B139, B141, B147: before any stream opens, in one shape."""
    assert error(await client.post(path, json=body)) == expected


@pytest.mark.parametrize(
    ("path", "allowed"),
    [
        ("/agents", "GET"),
        ("/sessions/s", "GET, DELETE"),
        ("/sessions/cleanup", "GET, POST, DELETE"),
        ("/runs/r/cancel", "POST"),
    ],
)
async def test_what_a_path_allows(client: AsyncClient, path: str, allowed: str) -> None:
    """B147: every method that one of its routes has; also of a path that is a name of one and an id of the other."""
    got = await client.put(path, json={})
    assert error(got) == (405, "METHOD_NOT_ALLOWED")
    assert got.headers["allow"] == allowed


@pytest.mark.parametrize("cursor", ["nonsense", "1~", "-1", "9" * 40, "run_", "é", "\x00"])
@pytest.mark.parametrize("path", ["/runs", "/checkpoints", "/sessions", "/loops", "/runs/{run}/stream"])
async def test_a_cursor_of_another_shape(client: AsyncClient, path: str, cursor: str) -> None:
    """B136, B149: of a stream 400, of a list 422 or, where any text is a place in it, a page: as the document says."""
    run_id = (await run(client, "/agents/echo/run", {"input": "go"}))[0]["payload"]["runId"]
    stream = path.endswith("stream")
    got = await client.get(path.format(run=run_id), params={"after" if stream else "cursor": cursor})
    if path == "/sessions":
        assert (got.status_code, got.json().keys()) == (200, {"items", "next"})
        return
    assert error(got) == ((400, "PROTOCOL_DECODE_ERROR") if stream else (422, "INPUT_INVALID"))
    document = (await client.get("/openapi.json")).json()
    answers = document["paths"][path.replace("{run}", "{run_id}")]["get"]["responses"]
    assert answers[str(got.status_code)]["content"]["application/json"]["schema"] == {
        "$ref": "#/components/schemas/ErrorBody"
    }
    Draft202012Validator(
        document["components"]["schemas"]["ErrorBody"] | {"components": document["components"]}
    ).validate(got.json())


@pytest.mark.parametrize("content", [b'{"input": ', b"\xff\xfe", b"", b"input=1"])
async def test_what_is_no_json(client: AsyncClient, content: bytes) -> None:
    """B147."""
    headers = {"content-type": "application/json"}
    got = await client.post("/agents/clerk/run", content=content, headers=headers)
    assert error(got) == (422, "INPUT_INVALID")


@pytest.mark.parametrize("chunked", [False, True])
async def test_a_body_has_a_limit(client: AsyncClient, chunked: bool) -> None:
    """B146: whether its length was said or not; nothing is begun."""
    body = json.dumps({"input": "x" * 20_000}).encode()

    async def pieces() -> Any:
        for start in range(0, len(body), 1000):
            yield body[start : start + 1000]

    headers = {"content-type": "application/json"}
    got = await client.post("/agents/echo/run", content=pieces() if chunked else body, headers=headers)
    assert error(got) == (413, "BODY_TOO_LARGE")
