"""The routes of a real server over real HTTP: streams, answers, lists, and errors that are statuses."""

from __future__ import annotations

import asyncio
import json
import re

import pytest
from httpx2 import AsyncClient
from jsonschema import Draft202012Validator

from web.kit import error, events, run, said, types, watched

# --- runs -------------------------------------------------------------------------------------------------------------


async def test_a_run_is_a_stream(client: AsyncClient) -> None:
    """B139, B49: `id` is the cursor, `data` has type and payload, X-Run-Id the run; the stream ends at the question."""
    async with client.stream("POST", "/agents/clerk/run", json={"input": "go", "session": {"tags": {"a": "b"}}}) as got:
        assert got.status_code == 200
        assert got.headers["content-type"].startswith("text/event-stream")
        found = [event async for event in events(got)]
    assert types(found) == ["agent:run:start", "text:delta", "human:required"]
    assert all(event["id"] == event["payload"]["cursor"] for event in found)
    assert {event["payload"]["runId"] for event in found} == {got.headers["x-run-id"]}
    asked = found[-1]["payload"]
    assert (asked["toolName"], asked["prompt"], asked["responseSchema"]) == ("ask", "Well?", {"enum": ["yes", "no"]})
    session = (await client.get(f"/sessions/{asked['sessionId']}")).json()
    assert session["tags"] == {"a": "b"}


async def test_an_answer_is_the_continuation(client: AsyncClient) -> None:
    """B141: with author and comment; used once."""
    asked = (await run(client, "/agents/clerk/run", {"input": "go"}))[-1]["payload"]
    path = f"/resume/{asked['checkpointId']}"
    misfit = await client.post(path, json={"response": "perhaps"})
    assert error(misfit) == (422, "RESPONSE_INVALID")
    found = await run(client, path, {"response": "yes", "author": "ann", "comment": "fine"})
    assert types(found) == ["human:resumed", "text:delta", "agent:run:end"]
    assert found[0]["payload"]["author"] == "ann"
    assert error(await client.post(path, json={"response": "yes"})) == (404, "CHECKPOINT_NOT_FOUND")
    settled = (await client.get(f"/checkpoints/{asked['checkpointId']}")).json()
    assert (settled["status"], settled["comment"]) == ("claimed", "fine")


async def test_of_many_answers_over_http_one_wins(client: AsyncClient) -> None:
    """B62, B141: the others are told 404."""
    asked = (await run(client, "/agents/clerk/run", {"input": "go"}))[-1]["payload"]
    answers = [client.post(f"/resume/{asked['checkpointId']}", json={"response": "yes"}) for _ in range(10)]
    statuses = sorted(response.status_code for response in await asyncio.gather(*answers))
    assert statuses == [200, *[404] * 9]


async def test_a_pipeline_is_run(client: AsyncClient) -> None:
    """B140: as an agent is."""
    found = await run(client, "/pipelines/both/run", {"input": "go"})
    assert found[-1]["type"] == "human:required"
    asked = found[-1]["payload"]
    assert asked["parent"]["kind"] == "pipeline"
    found = await run(client, f"/resume/{asked['checkpointId']}", {"response": "no"})
    assert found[-1]["payload"]["output"] == ["You said: You said: go", "Noted."]
    assert error(await client.post("/pipelines/nope/run", json={"input": 1})) == (404, "PIPELINE_NOT_FOUND")


async def test_lines_instead_of_events(client: AsyncClient) -> None:
    """B151."""
    headers = {"Accept": "application/x-ndjson"}
    async with client.stream("POST", "/agents/echo/run", json={"input": "é"}, headers=headers) as got:
        assert got.headers["content-type"].startswith("application/x-ndjson")
        lines = [json.loads(line) async for line in got.aiter_lines()]
    assert all(line.keys() == {"v", "type", "runId", "seq", "crumb"} for line in lines)
    assert {(line["v"], line["type"]) for line in lines} == {(1, "crumb")}
    assert lines[-1]["crumb"]["output"] == "You said: é"
    assert [line["seq"] for line in lines] == [line["crumb"]["seq"] for line in lines]


async def test_a_client_need_not_wait(client: AsyncClient) -> None:
    """B139: `Prefer: respond-async` gives the run, which goes on by itself."""
    prefer = {"Prefer": "respond-async"}
    got = await client.post("/agents/clerk/run", json={"input": "go"}, headers=prefer)
    run_id = got.json()["runId"]
    assert (got.status_code, got.headers["x-run-id"], got.headers["location"]) == (202, run_id, f"/runs/{run_id}")
    async with client.stream("GET", f"/runs/{run_id}/stream") as stream:
        async for event in events(stream):
            if event["type"] == "human:required":
                answer = {"response": "yes"}
                path = f"/resume/{event['payload']['checkpointId']}"
                accepted = await client.post(path, json=answer, headers=prefer)
                assert (accepted.status_code, accepted.json()) == (202, {"runId": run_id})
    assert (await client.get(f"/runs/{run_id}")).json()["output"] == "Noted."


@pytest.mark.parametrize("prefer", ["", "respond-async", "wait=5, Respond-Async"])
async def test_the_run_that_an_answer_names_is_the_one_whose_stream_goes_on(client: AsyncClient, prefer: str) -> None:
    """B139, B141, B134: with a stream or without, also where a child asked: the root, whose stream the answer's is."""
    asked = (await run(client, "/agents/boss/run", {"input": "go"}))[-1]["payload"]
    assert asked["runId"] != asked["rootRunId"]
    body = {"response": "yes"}
    got = await client.post(f"/resume/{asked['checkpointId']}", json=body, headers={"Prefer": prefer})
    run_id = got.headers["x-run-id"]
    assert run_id == asked["rootRunId"]
    if prefer:
        assert (got.status_code, got.json(), got.headers["location"]) == (202, {"runId": run_id}, f"/runs/{run_id}")
    else:
        assert got.status_code == 200
    found = await watched(client, run_id, **{"Last-Event-ID": asked["cursor"]})
    assert [event["payload"]["output"] for event in found if event["type"] == "agent:run:end"][-1] == "Led."
    if not prefer:
        assert all(f"id: {event['id']}\r\n" in got.text for event in found if event["type"] == "agent:run:end")


async def test_a_retry_names_its_run(client: AsyncClient) -> None:
    """B139, B18: as a run does."""
    failed = (await run(client, "/agents/broken/run", {"input": "go"}))[-1]["payload"]
    path = f"/runs/{failed['runId']}"
    for prefer, status in (("", 200), ("respond-async", 202)):
        got = await client.post(f"{path}/retry", headers={"Prefer": prefer})
        assert (got.status_code, got.headers["x-run-id"]) == (status, failed["runId"])
        assert (await watched(client, failed["runId"]))[-1]["type"] == "agent:error"
    assert (got.json(), got.headers["location"]) == ({"runId": failed["runId"]}, path)


@pytest.mark.parametrize("way", ["header", "body"])
async def test_the_same_key_is_the_same_run(client: AsyncClient, way: str) -> None:
    """B55, B139: and the same key with another body is refused."""
    headers = {"Prefer": "respond-async"} | ({"Idempotency-Key": f"k-{way}"} if way == "header" else {})
    more = {} if way == "header" else {"idempotencyKey": f"k-{way}"}
    first, second = [await client.post("/agents/echo/run", json={"input": "x"} | more, headers=headers) for _ in "12"]
    assert first.json() == second.json()
    other = await client.post("/agents/echo/run", json={"input": "y"} | more, headers=headers)
    assert error(other) == (422, "IDEMPOTENCY_CONFLICT")


async def test_a_client_that_goes_away_changes_nothing(client: AsyncClient) -> None:
    """B150: of a run in the middle of a sentence; it ends as if nothing had happened."""
    async with client.stream("POST", "/agents/slow/run", json={"input": "go"}) as got:
        run_id = got.headers["x-run-id"]
        async for event in events(got):
            if event["type"] == "text:delta":
                break
    assert (await client.get(f"/runs/{run_id}")).json()["status"] == "running"
    await run(client, "/agents/opener/run", {"input": "go"})
    found = await watched(client, run_id)
    assert (said(found), found[-1]["type"]) == ("Wait. Done.", "agent:run:end")


async def test_runs_are_stopped_and_retried(client: AsyncClient) -> None:
    """B18, B149."""
    asked = (await run(client, "/agents/clerk/run", {"input": "go"}))[-1]["payload"]
    path = f"/runs/{asked['runId']}"
    assert (await client.post(f"{path}/cancel", json={"reason": "enough"})).json()["status"] == "cancelled"
    assert (await client.post(f"{path}/cancel")).json()["status"] == "cancelled"
    assert error(await client.post(f"{path}/retry")) == (409, "RUN_NOT_RETRYABLE")
    failed = await run(client, "/agents/broken/run", {"input": "go"})
    assert failed[-1]["type"] == "agent:error"
    again = await run(client, f"/runs/{failed[-1]['payload']['runId']}/retry", {"maxSteps": 5})
    assert types(again) == ["agent:run:retry", "agent:error"]


# --- observers --------------------------------------------------------------------------------------------------------


async def test_an_observer_stays_over_the_question(client: AsyncClient) -> None:
    """B135: `retry:` first; everything once, to the end of the run; the same again for who comes later."""
    asked = (await run(client, "/agents/clerk/run", {"input": "go"}))[-1]["payload"]
    run_id = asked["runId"]
    async with client.stream("GET", f"/runs/{run_id}/stream") as got:
        lines = got.aiter_lines()
        assert await anext(lines) == "retry: 3000"
    live = asyncio.create_task(watched(client, run_id))
    await run(client, f"/resume/{asked['checkpointId']}", {"response": "yes"})
    seen = await live
    assert types(seen)[-1] == "agent:run:end"
    later = await watched(client, run_id)
    assert (types(later), said(later)) == (types(seen), said(seen))


@pytest.mark.parametrize("way", ["header", "query"])
async def test_an_observer_comes_back(client: AsyncClient, way: str) -> None:
    """B135, B130: behind the event that it saw last, by Last-Event-ID or ?after=."""
    found = await run(client, "/agents/echo/run", {"input": "go"})
    run_id = found[0]["payload"]["runId"]
    for number, event in enumerate(found):
        if way == "header":
            rest = await watched(client, run_id, **{"Last-Event-ID": event["id"]})
        else:
            async with client.stream("GET", f"/runs/{run_id}/stream", params={"after": event["id"]}) as got:
                rest = [one async for one in events(got)]
        assert said(found[: number + 1]) + said(rest) == "You said: go"
        assert [one["id"] for one in rest if one["type"] != "text:delta"] == [
            one["id"] for one in found[number + 1 :] if one["type"] != "text:delta"
        ]


async def test_what_cannot_be_observed(client: AsyncClient) -> None:
    """B136, B138: a cursor that is none, a run that is not there."""
    found = await run(client, "/agents/echo/run", {"input": "go"})
    path = f"/runs/{found[0]['payload']['runId']}/stream"
    for wrong in ("x", "1~", "-1", "9~9:9~"):
        assert error(await client.get(path, headers={"Last-Event-ID": wrong})) == (400, "PROTOCOL_DECODE_ERROR")
        assert error(await client.get(path, params={"after": wrong})) == (400, "PROTOCOL_DECODE_ERROR")
    assert error(await client.get("/runs/run_nope/stream")) == (404, "RUN_NOT_FOUND")


# --- lists ------------------------------------------------------------------------------------------------------------


async def test_agents_are_described(client: AsyncClient) -> None:
    """B142."""
    agents = {one["id"]: one for one in (await client.get("/agents")).json()}
    assert agents["clerk"] == {"id": "clerk", "model": "scripted", "outputFormat": "text", "tools": ["human_ask"]}
    assert (await client.get("/agents/boss")).json() == agents["boss"]
    assert error(await client.get("/agents/nope")) == (404, "AGENT_NOT_FOUND")


async def test_checkpoints_and_runs_are_listed(client: AsyncClient) -> None:
    """B149: filters, pages, one by its id, and the log for auditors."""
    session = {"session": {"id": "listed"}}
    asked = (await run(client, "/agents/boss/run", {"input": "go"} | session))[-1]["payload"]
    found = (await client.get("/checkpoints", params={"session": "listed"})).json()
    kinds = {one["kind"]: one for one in found["items"]}
    assert kinds.keys() == {"input", "delegation"}
    [only] = (await client.get("/checkpoints", params={"session": "listed", "answerable": True})).json()["items"]
    assert only == kinds["input"] == (await client.get(f"/checkpoints/{asked['checkpointId']}")).json()
    refused = await client.post(f"/resume/{kinds['delegation']['id']}", json={"response": "yes"})
    assert error(refused) == (409, "SUPERVISOR_CHECKPOINT_NOT_RESUMABLE")
    assert refused.json()["error"]["details"]["checkpoints"] == [asked["checkpointId"]]
    busy = await client.post("/agents/clerk/run", json={"input": "go"} | session)
    assert error(busy) == (409, "SESSION_SUSPENDED")
    root = asked["rootRunId"]
    assert [one["id"] for one in (await client.get("/runs", params={"session": "listed"})).json()["items"]] == [root]
    tree = (await client.get("/runs", params={"root": root})).json()["items"]
    assert {one["agentId"] for one in tree} == {"boss", "clerk"}
    log = (await client.get(f"/runs/{root}/events")).json()["items"]
    assert [event["seq"] for event in log] == [*range(1, len(log) + 1)]
    first = (await client.get("/runs", params={"limit": 1})).json()
    assert first["next"]
    second = (await client.get("/runs", params={"limit": 1, "cursor": first["next"]})).json()
    assert first["items"] != second["items"]


async def test_sessions(client: AsyncClient) -> None:
    """B143."""
    await run(client, "/agents/echo/run", {"input": "go", "session": {"id": "mine", "tags": {"team": "a:b"}}})
    listed = (await client.get("/sessions", params={"tag": "team:a:b"})).json()["items"]
    assert [one["id"] for one in listed] == ["mine"]
    for wrong in (["nonsense"], ["team:a", "team:b"]):
        assert error(await client.get("/sessions", params={"tag": wrong})) == (422, "INPUT_INVALID")
    assert (await client.post("/sessions/cleanup", json={"olderThanDays": 1})).json() == {"deleted": 0}
    for _ in range(2):
        assert (await client.delete("/sessions/mine")).json() == {"ok": True}
    assert error(await client.get("/sessions/mine")) == (404, "SESSION_NOT_FOUND")


async def test_loops(client: AsyncClient) -> None:
    """B144."""
    found = await run(client, "/agents/host/run", {"input": "go"})
    run_id = found[0]["payload"]["runId"]
    loops = (await client.get("/loops", params={"agent": "host"})).json()["items"]
    [loop] = [one for one in loops if one["runId"] == run_id]
    assert (await client.get(f"/loops/{loop['id']}")).json() == loop
    assert [one["output"] for one in loop["iterations"]] == ["You said: x"]
    assert error(await client.get("/loops/nope")) == (404, "LOOP_NOT_FOUND")


async def test_health(client: AsyncClient) -> None:
    """B147."""
    for path in ("/healthz", "/readyz"):
        assert (await client.get(path)).json() == {"ok": True}


async def test_the_document_has_every_route_and_what_streams_are_made_of(client: AsyncClient) -> None:
    """B139, B151: the items of streams are described, every reference leads somewhere, errors have their shape."""
    document = (await client.get("/openapi.json")).json()
    assert document["openapi"] == "3.2.0"
    streams = {
        path
        for path, operations in document["paths"].items()
        for operation in operations.values()
        if "itemSchema" in operation["responses"]["200"].get("content", {}).get("text/event-stream", {})
    }
    assert streams == {
        *("/agents/{agent_id}/run", "/pipelines/{pipeline_id}/run", "/resume/{checkpoint_id}"),
        *("/runs/{run_id}/stream", "/runs/{run_id}/retry"),
    }
    schemas = document["components"]["schemas"]
    references = set(re.findall(r'"#/components/schemas/([^"]+)"', json.dumps(document)))
    assert references <= schemas.keys()
    found = await run(client, "/agents/clerk/run", {"input": "go"})
    document["components"]["schemas"]["Crumb"].pop("discriminator", None)
    validator = Draft202012Validator({"$ref": "#/components/schemas/Crumb", **document})
    for event in found:
        assert [*validator.iter_errors({"type": event["type"], **event["payload"]})] == []
    assert [*validator.iter_errors({"type": "nonsense"})] != []


async def test_metrics(client: AsyncClient) -> None:
    """B149: what stands in the store, and what this process did since it was first asked."""

    async def measured() -> dict[str, float]:
        got = await client.get("/metrics")
        assert got.headers["content-type"].startswith("text/plain")
        lines = [line.rpartition(" ") for line in got.text.splitlines() if not line.startswith("#")]
        return {name: float(value) for name, _, value in lines}

    before = await measured()
    asked = (await run(client, "/agents/clerk/run", {"input": "go"}))[-1]["payload"]
    after = await measured()
    assert after["bread_checkpoints_pending"] - before["bread_checkpoints_pending"] == 1
    assert after['bread_runs{status="suspended"}'] - before['bread_runs{status="suspended"}'] == 1
    assert after["bread_commits_total"] - before["bread_commits_total"] == 2
    assert after["bread_commit_seconds_count"] - before["bread_commit_seconds_count"] >= 2
    assert after["bread_commit_attempts_total"] >= after["bread_commits_total"]
    await run(client, f"/resume/{asked['checkpointId']}", {"response": "yes"})
    last = await measured()
    while last["bread_human_wait_seconds_count"] == before["bread_human_wait_seconds_count"]:
        last = await measured()
    assert last["bread_checkpoints_pending"] == before["bread_checkpoints_pending"]
