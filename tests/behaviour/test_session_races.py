"""Races about a session, between two breads on one store: never anything in a deleted session, not even bytes."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from bread import Bread, BreadError, define_tool
from bread.testing import call, text
from crash.stores import Shared, shared_at
from scenes import Checked, agent, ask_first, asking, scrubbed
from support import soaking, trials

PAYLOAD = "payload-of-session-"
DRAWN = pytest.mark.parametrize(
    ("kind", "seed"), [("sqlite", 0), ("sqlite", 1), ("postgres", 0), *([("postgres", 1)] if soaking() else [])]
)


@define_tool
async def echo(what: str) -> str:
    """Give back what was said."""
    return f"result {what}"


def script(request: Any) -> list[Any]:
    """Talk, call a tool, ask a person, call it again with the answer, and end: the input is in all of it."""
    said = next(message.text for message in request.messages if message.role == "user")
    if request.turn == 0:
        return [text(f"text {said}"), call("tool_echo", {"what": f"args {said}"}), call("human_ask", {"q": said})]
    if request.turn == 1:
        return [call("tool_echo", {"what": str(request.messages[-1].content)})]
    return [text(f"end {said}")]


@dataclass
class Pair:
    """Two breads on one store, and the store."""

    one: Bread
    two: Bread
    shared: Shared

    def either(self, draw: random.Random) -> Bread:
        return draw.choice([self.one, self.two])

    def rows(self, session: str) -> list[Any]:
        """What the tables hold of a session besides tombstones."""
        found: list[Any] = []
        with self.shared.read() as cursor:
            for table, column in (
                ("bread_runs", "session"),
                ("bread_checkpoints", "session"),
                ("bread_tags", "session"),
                ("bread_sessions", "id"),
            ):
                cursor.execute(f"SELECT * FROM {table} WHERE {column} = ?", (session,))  # noqa: S608
                found += cursor.fetchall()
            cursor.execute(
                "SELECT root FROM bread_log l LEFT JOIN stored_events e ON e.rowid = l.position WHERE e.rowid IS NULL"
            )
            found += cursor.fetchall()
        return found


@asynccontextmanager
async def pair(kind: str, folder: Path) -> AsyncIterator[Pair]:
    shared = shared_at(kind, folder)

    def make() -> Bread:
        return Checked(agents=[agent(script, echo, asking())], store=shared.url, grace=0.5)

    async with make() as one, make() as two:
        yield Pair(one, two, shared)


async def outcome(action: Awaitable[Any], draw: random.Random) -> Any:
    """What an action gives, or the code of its error; it begins a little later or earlier."""
    for _ in range(draw.randrange(6)):
        await asyncio.sleep(0)
    try:
        return await action
    except BreadError as error:
        return error.code


async def check_gone(store: Pair, session: str, marker: str) -> None:
    """Nothing of the session is left, for nobody."""
    for bread in (store.one, store.two):
        assert (await bread.list_checkpoints(session=session)).items == []
        assert (await bread.list_runs(session=session)).items == []
    assert store.rows(session) == []
    await scrubbed(store.one, store.two)
    assert not store.shared.holds(marker)


@DRAWN
async def test_start_against_delete(tmp_path: Path, kind: str, seed: int) -> None:
    """B73, B77: either the run is in a session that is there, or it was refused, or it went with its session."""
    draw = random.Random(seed)
    refused = set()
    async with pair(kind, tmp_path) as store:
        for trial in range(trials(10, 100)):
            session, marker = f"s{trial}", f"{PAYLOAD}{trial}."
            new = draw.random() < 0.3
            if not new:
                asked = await ask_first(store.one, input=marker, session=session, tags={"marker": marker})
                await store.one.resume(asked.checkpoint_id, marker)
            started, deleted = await asyncio.gather(
                outcome(store.either(draw).start("a", marker, session=session), draw),
                outcome(store.either(draw).sessions.delete(session), draw),
            )
            refused.add(started.split("_")[0])
            assert deleted in (True, False)
            if not deleted:
                assert new
                assert started.startswith("run_")
                assert (await store.two.get_run(started)).session_id == session
                assert await store.either(draw).sessions.delete(session)
            else:
                assert started == "SESSION_DELETED" or started.startswith("run_")
            await check_gone(store, session, marker)
    assert refused <= {"run", "SESSION"}


@DRAWN
async def test_start_against_suspend(tmp_path: Path, kind: str, seed: int) -> None:
    """B60, C16: a session never has two runs; who comes second gets SESSION_BUSY or SESSION_SUSPENDED."""
    draw = random.Random(seed)
    seen: dict[str, int] = {}
    async with pair(kind, tmp_path) as store:
        for trial in range(trials(10, 100)):
            session = f"s{trial}"
            first = await store.either(draw).start("a", "first", session=session)
            outcomes = await asyncio.gather(
                *(outcome(store.either(draw).start("a", "second", session=session), draw) for _ in range(3))
            )
            for one in outcomes:
                seen[one] = seen.get(one, 0) + 1
            assert [run.id for run in (await store.two.list_runs(session=session)).items] == [first]
            if trial % 5 == 0:
                await store.either(draw).sessions.delete(session)
                await check_gone(store, session, f"{PAYLOAD}{trial}.")
    assert set(seen) <= {"SESSION_BUSY", "SESSION_SUSPENDED"}


@DRAWN
async def test_claim_against_delete(tmp_path: Path, kind: str, seed: int) -> None:
    """B73, B76, C58: the claim or the deletion is first; either way nothing of the session is left, no byte."""
    draw = random.Random(seed)
    async with pair(kind, tmp_path) as store:
        for trial in range(trials(10, 100)):
            session, marker = f"s{trial}", f"{PAYLOAD}{trial}."
            asked = await ask_first(store.either(draw), input=marker, session=session, tags={"marker": marker})

            def claim(asked: Any = asked, marker: str = marker) -> Callable[[], Awaitable[Any]]:
                handle = store.either(draw).resume(asked.checkpoint_id, f"answer {marker}")

                async def begin() -> Any:
                    return await handle

                return begin

            *claims, deleted = await asyncio.gather(
                outcome(claim()(), draw),
                outcome(claim()(), draw),
                outcome(store.either(draw).sessions.delete(session), draw),
            )
            assert deleted is True
            assert set(claims) <= {f"end {marker}", "SESSION_DELETED", "CHECKPOINT_NOT_FOUND", "RUN_NOT_FOUND"}
            assert claims.count("CHECKPOINT_NOT_FOUND") >= 1
            await check_gone(store, session, marker)


@pytest.mark.parametrize("spread", [300, 500])
async def test_no_byte_is_left_of_what_shared_a_page(tmp_path: Path, spread: int) -> None:
    """B73: sessions side by side in the file; rows that the store moves when their neighbours go leave no copy."""
    path = tmp_path / "bread.db"
    async with Checked(agents=[agent([[text("ok")]])], store=f"sqlite:///{path}") as bread:
        markers = [f"{PAYLOAD}{n}." for n in range(trials(80, 400))]
        for n, marker in enumerate(markers):
            await bread.run("a", marker + "x" * (150 + 53 * n % spread), session=f"s{n}")
        left = []
        for n in [*range(1, len(markers), 2), *range(0, len(markers), 2)]:
            assert markers[n].encode() in path.read_bytes()
            await bread.sessions.delete(f"s{n}")
            await scrubbed(bread)
            if markers[n].encode() in path.read_bytes():
                left.append(n)
        assert left == []
