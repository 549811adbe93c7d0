"""A PostgreSQL that is full, or falls silent in the middle: undecided within a bound, no hang, and nothing lost."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest

from bread import Bread, BreadError, define_tool
from bread.runtime import postgres, postgres_url, postgres_watch
from bread.runtime.heartbeat import Heartbeats
from bread.runtime.postgres_write import PostgresTransaction
from bread.testing import call, text
from postgres import server, store_at
from scenes import Checked, Counter, Gate, agent, ask_first, asking, asks, engine_of, names, questions, refused
from silence import Way
from support import read

LIMIT = 1.0
BIG = "x" * 200_000
FULL = """
CREATE FUNCTION full_disk() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
    IF octet_length(NEW.state) > 100000 THEN
        RAISE EXCEPTION 'could not extend file "base/5/16385": No space left on device' USING ERRCODE = 'disk_full';
    END IF;
    RETURN NEW;
END $$"""


@pytest.fixture
def store(tmp_path: Path) -> str:
    return store_at(tmp_path)


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(postgres_watch, "LIMIT_SECONDS", LIMIT)
    monkeypatch.setattr(postgres_url, "CONNECT_SECONDS", 2)
    monkeypatch.setattr(postgres, "PATIENCE", 2.0)


# Time for what is cut, for a new connection that nobody answers, and for a machine that is busy.
BOUND = LIMIT + 2 * 2 + 2.0 + 8.0


@pytest.fixture
def way(store: str) -> Iterator[Way]:
    with Way(server().port) as way:
        yield way


def over(way: Way, store: str) -> str:
    return store.replace(f":{server().port}/", f":{way.port}/")


async def in_time(work: Callable[[], Awaitable[Any]]) -> Any:
    """What comes of it: its value or its error; but no hang."""
    begun = time.monotonic()
    async with asyncio.timeout(BOUND):
        try:
            return await work()
        except BreadError as error:
            return error
        finally:
            assert time.monotonic() - begun < BOUND


def code_of(outcome: Any) -> str:
    return outcome.code if isinstance(outcome, BreadError) else "ok"


# --- a full disk ------------------------------------------------------------------------------------------------------


@contextmanager
def full(store: str) -> Iterator[None]:
    """The server has no room for large events."""
    with psycopg.connect(store, autocommit=True) as connection:
        connection.execute(FULL.encode())
        connection.execute(
            "CREATE TRIGGER full_disk BEFORE INSERT ON stored_events FOR EACH ROW EXECUTE FUNCTION full_disk()"
        )
        yield
        connection.execute("DROP TRIGGER full_disk ON stored_events")
        connection.execute("DROP FUNCTION full_disk")


async def test_a_start_and_an_answer_on_a_full_disk_are_undecided(store: str) -> None:
    """Q STORE_UNAVAILABLE: with the reason; nothing is half-written; sent again when there is room they count once."""
    async with Checked(agents=[agent(asks(), asking())], store=store) as bread:
        asked = await ask_first(bread)
        before = await names(bread, asked.run_id)
        with full(store):
            with refused("STORE_UNAVAILABLE") as caught:
                await bread.start("a", BIG, session="s1", idempotency_key="k")
            assert "No space left on device" in caught.value.message
            with refused("SESSION_NOT_FOUND"):
                await bread.sessions.get("s1")
            with refused("STORE_UNAVAILABLE"):
                await bread.resume(asked.checkpoint_id, BIG)
            assert await names(bread, asked.run_id) == before
            assert (await bread.get_checkpoint(asked.checkpoint_id)).status == "pending"
            assert (await bread.start("a", "small", session="s2")).startswith("run_")
            assert (await bread.check()).ok
        run_id = await bread.start("a", BIG, session="s1", idempotency_key="k")
        assert await bread.start("a", BIG, session="s1", idempotency_key="k") == run_id
        assert await bread.resume(asked.checkpoint_id, BIG) == "Thanks."


async def test_outcomes_wait_for_room_on_the_disk(store: str) -> None:
    """Q STORE_UNAVAILABLE, B26: the result of a tool is kept until it can be written, and the tool runs once."""
    gate, ran = Gate(), Counter()

    @define_tool
    async def fetch(n: int) -> str:
        ran(n)
        await gate()
        return BIG

    async with Checked(agents=[agent([[call("tool_fetch", {"n": 1})], [text("Done.")]], fetch)], store=store) as bread:
        run_id = await bread.start("a", "go")
        await gate.reached.wait()
        with full(store):
            gate.open()
            with refused("STORE_UNAVAILABLE"):
                await bread.start("a", BIG)
            assert "tool_returned" not in await names(bread, run_id)
        assert await bread.observe(run_id) == "Done."
    assert ran.of == {1: 1}


# --- silence ----------------------------------------------------------------------------------------------------------


async def test_a_database_that_falls_silent_is_undecided_and_never_a_hang(store: str, way: Way) -> None:
    """Q STORE_UNAVAILABLE, C56: reads, starts and answers end within a bound; when it speaks again the same requests
    count once, and the run goes on."""
    async with Checked(agents=[agent(asks(), asking())], store=over(way, store)) as bread:
        asked = await ask_first(bread)
        way.silence()
        outcomes = await asyncio.gather(
            in_time(lambda: bread.list_runs()),
            in_time(lambda: bread.get_run(asked.run_id)),
            in_time(lambda: bread.check()),
            in_time(lambda: bread.start("a", "go", idempotency_key="k")),
            in_time(lambda: bread.resume(asked.checkpoint_id, "yes")),
        )
        assert [code_of(outcome) for outcome in outcomes] == ["STORE_UNAVAILABLE"] * 5, outcomes
        # Nothing is left of the old connections: new ones are tried, and nobody answers them either.
        assert code_of(await in_time(lambda: bread.list_runs())) == "STORE_UNAVAILABLE"
        way.speak()
        run_id = await bread.start("a", "go", idempotency_key="k")
        assert questions(await read(bread.observe(run_id, until="rest")))
        assert [run.id for run in (await bread.list_runs()).items] == [run_id, asked.run_id]
        assert await bread.resume(asked.checkpoint_id, "yes") == "Thanks."
        assert (await names(bread, asked.run_id)).count("resumed") == 1


async def test_an_acknowledgement_that_never_comes_is_looked_for(
    store: str, way: Way, monkeypatch: pytest.MonkeyPatch
) -> None:
    """C12: COMMIT arrives, its answer does not: the log shows on a new connection that it was committed."""
    end = PostgresTransaction.end
    points: list[str] = []

    def in_silence(self: PostgresTransaction) -> None:
        if points == ["appended"]:
            points.append("held")
            with socket.socket(fileno=os.dup(self.cursor.connection.fileno())) as ours:
                way.hold_answers(ours.getsockname()[1])
        end(self)

    monkeypatch.setattr(PostgresTransaction, "end", in_silence)
    bread = Checked(agents=[agent(asks(), asking())], store=over(way, store), fault=points.append)
    async with bread:
        run_id = await in_time(lambda: bread.start("a", "go"))
        assert (code_of(run_id), points[:3]) == ("ok", ["appended", "held", "committed"])
        assert questions(await read(bread.observe(run_id, until="rest")))
        assert [run.id for run in (await bread.list_runs()).items] == [run_id]


async def test_backends_that_are_stopped_are_given_up(store: str) -> None:
    """C56: what stands still is the server's processes of our connections; new ones work, and the rest goes on."""
    async with Checked(agents=[agent(asks(), asking())], store=store) as bread:
        asked = await ask_first(bread)
        before = await names(bread, asked.run_id)
        with psycopg.connect(store, autocommit=True) as connection:
            found = connection.execute(
                "SELECT pid FROM pg_stat_activity WHERE application_name = %s", (f"bread {bread.worker}",)
            ).fetchall()
            assert len(found) >= 3  # the writer, a reader, the tail
            for (pid,) in found:
                os.kill(pid, signal.SIGSTOP)
            try:
                outcomes = await asyncio.gather(
                    in_time(lambda: bread.list_runs()), in_time(lambda: bread.resume(asked.checkpoint_id, "yes"))
                )
                assert [code_of(outcome) for outcome in outcomes] == ["STORE_UNAVAILABLE"] * 2, outcomes
                assert await names(bread, asked.run_id) == before
                assert await in_time(lambda: bread.resume(asked.checkpoint_id, "yes")) == "Thanks."
            finally:
                for (pid,) in found:
                    os.kill(pid, signal.SIGCONT)


def heart_of(bread: Bread) -> Heartbeats:
    heart = engine_of(bread).liveness
    assert isinstance(heart, Heartbeats)
    return heart


async def test_a_heart_beats_on_over_another_connection(store: str, way: Way) -> None:
    """C56: its connection falls silent: it is given up in time, and nobody else takes this worker for dead."""
    heartbeat = (0.5, 6.0)
    hello = agent([[text("Hi.")]])
    async with (
        Checked(agents=[hello], store=over(way, store), heartbeat=heartbeat) as bread,
        Checked(agents=[hello], store=store, heartbeat=heartbeat) as other,
    ):
        assert heart_of(other).is_alive(bread.worker)
        way.silence(only_open=True)
        begun = time.monotonic()
        async with asyncio.timeout(BOUND):
            while heart_of(bread)._acknowledged < begun + 0.1:
                assert heart_of(bread).may_act()
                assert heart_of(other).is_alive(bread.worker)
                await asyncio.sleep(0.02)  # nobody tells of a beat
        way.speak()
        assert await bread.run("a", "go") == "Hi."


# --- the watch itself -------------------------------------------------------------------------------------------------


def test_what_gets_on_is_left_alone(store: str) -> None:
    """C56: the limit counts from the last step, and only while something is under way."""
    with psycopg.connect(store, autocommit=True) as connection:
        with postgres_watch.watched(connection):
            for _ in range(4):
                postgres_watch.touch(connection)
                connection.execute("SELECT pg_sleep(0.5)")
        connection.execute("SELECT pg_sleep(1.5)")
        assert not postgres_watch.was_cut(connection)
        with pytest.raises(psycopg.OperationalError), postgres_watch.watched(connection, 0.3):
            connection.execute("SELECT pg_sleep(30)")
        assert postgres_watch.was_cut(connection)
        assert connection.closed


def test_a_watch_that_is_gone_is_begun_anew(store: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """C56: as in a forked process, where threads do not come along; a shorter limit is looked after sooner."""
    monkeypatch.setattr(postgres_watch, "_watch", postgres_watch.Watch(60.0))
    with psycopg.connect(store, autocommit=True) as connection:
        with postgres_watch.watched(connection, 60.0):
            connection.execute("SELECT 1")
        begun = time.monotonic()
        with pytest.raises(psycopg.OperationalError), postgres_watch.watched(connection, 0.3):
            connection.execute("SELECT pg_sleep(30)")
        assert time.monotonic() - begun < 10
