"""Reading streams as a client does, by the rules of server-sent events."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

import httpx2


async def events(response: httpx2.Response) -> AsyncIterator[dict[str, Any]]:
    """Each event: `id`, and `type` and `payload` of its data."""
    event: dict[str, Any] = {}
    async for line in response.aiter_lines():
        name, _, value = line.partition(": ")
        match name:
            case "id":
                event["id"] = value
            case "data":
                event |= json.loads(value)
            case "" if "type" in event:
                yield event
                event = {}


async def run(client: httpx2.AsyncClient, path: str, body: Any, **more: Any) -> list[dict[str, Any]]:
    """Every event of a POST that streams."""
    async with client.stream("POST", path, json=body, **more) as response:
        assert response.status_code == 200, await response.aread()
        return [event async for event in events(response)]


async def watched(client: httpx2.AsyncClient, run_id: str, **headers: str) -> list[dict[str, Any]]:
    """Everything that a run's stream has, to its end."""
    async with client.stream("GET", f"/runs/{run_id}/stream", headers=headers) as response:
        assert response.status_code == 200
        return [event async for event in events(response)]


def types(found: list[dict[str, Any]]) -> list[str]:
    """The types of durable events; text once."""
    kinds = [event["type"] for event in found if not event["type"].startswith("tool:input")]
    return [kind for index, kind in enumerate(kinds) if kinds[index - 1 : index] != [kind]]


def said(found: list[dict[str, Any]]) -> str:
    return "".join(event["payload"]["text"] for event in found if event["type"] == "text:delta")


def error(response: httpx2.Response) -> tuple[int, str]:
    """Status and code; the shape is that of every error."""
    body = response.json()
    assert body.keys() == {"error"}
    assert {"code", "message"} <= body["error"].keys() <= {"code", "message", "details"}
    return response.status_code, body["error"]["code"]
