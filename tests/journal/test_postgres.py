"""What only PostgreSQL has: backends that die, acknowledgements that are lost, locks of others, tables of others."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from typing import Any

import psycopg
import pytest
from eventsourcing.persistence import Mapper
from psycopg import sql

from bread import Bread
from bread.domain.envelope import Recorded
from bread.domain.errors import BreadError
from bread.runtime import postgres_url, postgres_write
from bread.runtime.event_log import EventMapper
from bread.runtime.postgres import PostgresStore
from bread.runtime.postgres_journal import PostgresJournal
from bread.runtime.postgres_open import migrate
from bread.runtime.postgres_sql import SCHEMA_VERSION, PostgresCursor, translated
from bread.runtime.postgres_url import Address
from bread.runtime.postgres_wire import together
from bread.runtime.postgres_write import COMMIT
from bread.testing import text
from postgres import store_at
from scenes import agent, engine_of

from . import test_journal
from .desk import Desk, Ears, Gate, code_of, submitted
from .opening import Opening, is_sound

TABLES = ("stored_events", "bread_log", "bread_runs", "bread_checkpoints", "bread_sessions", "bread_tags")


class OnPostgres(Opening):
    def make(self, place: Path, worker: str, **options: Any) -> PostgresJournal:
        return PostgresJournal(store_at(place), worker, **options)


def at(place: Path) -> psycopg.Connection[Any]:
    """Another session on the store of a test."""
    return psycopg.connect(store_at(place), autocommit=True)


class Failing:
    """The writer's connection is lost with COMMIT, once: before the server has heard of it, or after."""

    def __init__(self, *, committed: bool) -> None:
        self._committed, self.lost = committed, False

    def __call__(self, connection: psycopg.Connection[Any], *asked: Any) -> list[list[Any]]:
        if asked[-1][0] is COMMIT and not self.lost:
            self.lost = True
            if self._committed:
                together(connection, *asked)
            connection.close()
            raise psycopg.OperationalError("server closed the connection unexpectedly")
        return together(connection, *asked)


class TestLostConnections(OnPostgres):
    @pytest.mark.parametrize("committed", [True, False], ids=["committed", "not committed"])
    async def test_a_lost_acknowledgement_is_recognised(
        self, desk: Desk, committed: bool, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """C2, C18: the answer to COMMIT is lost; what was written is there once, and everybody is told so."""
        await desk.suspended("run_1", "cp_1")
        failing = Failing(committed=committed)
        monkeypatch.setattr(postgres_write, "together", failing)
        tasks = await submitted(desk.answer("cp_1"), desk.start("run_2", "s2"))
        assert [await code_of(asyncio.wait_for(task, None)) for task in tasks] == [None, None]
        assert failing.lost
        assert (await desk.names("run_1")).count("run.resumed") == 1
        assert await desk.names("run_2") == ["run.started"]
        assert await code_of(desk.answer("cp_1", claim="claim_2")) == "CHECKPOINT_NOT_FOUND"
        await is_sound(desk)

    async def test_a_killed_backend_is_survived(self, desk: Desk, tmp_path: Path) -> None:
        """C18: of the writer, the readers and the listener; nobody who asks hears of it."""
        await desk.suspended("run_1", "cp_1")
        kill = (
            "SELECT count(pg_terminate_backend(pid, 1000)) FROM pg_stat_activity WHERE application_name = 'bread w_a'"
        )
        with at(tmp_path) as other:
            assert other.execute(kill).fetchone() != (0,)
        assert await desk.names("run_1")
        assert (await desk.answer("cp_1")).run_id == "run_1"
        await is_sound(desk)

    async def test_what_was_written_while_nobody_listened_is_heard(self, desk: Desk, tmp_path: Path) -> None:
        """B66, B130: the listener's session dies; it listens again, and reads what it has missed."""
        async with self.open(tmp_path, "w_b") as other:
            ears = Ears(desk.journal)
            await other.start("run_1", "s1")
            await ears.until_stream("run_1")
            with at(tmp_path) as killer:
                killer.execute(
                    "SELECT pg_terminate_backend(pid, 1000) FROM pg_stat_activity"
                    " WHERE application_name = 'bread w_a' AND query LIKE 'LISTEN%'"
                )
            await other.start("run_2", "s2")
            heard = await ears.until_stream("run_2")
        assert [recorded.stream for recorded in heard if recorded.stream.startswith("run")] == ["run_1", "run_2"]

    async def test_a_pause_in_a_transaction_costs_only_who_pauses(
        self, tmp_path: Path, gate: Gate, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """C21: a process that stands still in the middle of a write loses its lock, and writes again afterwards."""
        monkeypatch.setitem(postgres_url._SESSION, "idle_in_transaction_session_timeout", "300ms")
        async with self.open(tmp_path, fault=gate) as desk, self.open(tmp_path, "w_b") as other:
            gate.hold("appended")
            task = asyncio.create_task(desk.start("run_1", "s1"))
            await gate.reached()
            await other.start("run_2", "s2")
            gate.let_go()
            assert (await task).run_id == "run_1"
            assert await desk.names("run_1") == ["run.started"]
            await is_sound(desk)


class TestMessages(OnPostgres):
    async def test_a_commit_is_two_messages(self, desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
        """What a commit is expected to read comes with the lock, what it writes goes with COMMIT, and that is all."""
        sent: list[Any] = []
        native = PostgresCursor.native

        def counting(connection: psycopg.Connection[Any], *asked: Any) -> list[list[Any]]:
            sent.append([statement.name for statement, _ in asked])
            return together(connection, *asked)

        def alone(cursor: PostgresCursor, statement: Any, values: Any = ()) -> PostgresCursor:
            if threading.current_thread().name == "bread-writer":  # others read as they like
                sent.append(statement)
            return native(cursor, statement, values)

        await desk.start("run_2", "s2")
        with monkeypatch.context() as patched:
            patched.setattr(postgres_write, "together", counting)
            patched.setattr(PostgresCursor, "native", alone)
            await desk.suspended("run_1", "cp_1")
            await desk.answer("cp_1")
        assert sent == [[b"begin", b"lock", b"since", b"read", b"places"], [b"flush", b"commit"]] * 3
        await is_sound(desk)


class TestLocks(OnPostgres):
    async def test_a_log_held_for_too_long_is_unavailable(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """B64, C21: undecided, for all who wait, and nothing is half done; the same again works."""
        monkeypatch.setitem(postgres_url._SESSION, "lock_timeout", "100ms")
        async with self.open(tmp_path) as desk:
            await desk.suspended()
            before = await desk.everything()
            with at(tmp_path) as other, other.transaction():
                other.execute("LOCK TABLE stored_events IN EXCLUSIVE MODE")
                tasks = await submitted(desk.answer(), desk.start("run_2", "s2"))
                assert [await code_of(asyncio.wait_for(task, None)) for task in tasks] == ["STORE_UNAVAILABLE"] * 2
                assert await desk.everything() == before
            assert (await desk.answer()).run_id == "run_1"
            assert (await desk.start("run_2", "s2")).run_id == "run_2"
            await is_sound(desk)


class TestErasureOnPostgres(OnPostgres):
    async def test_deletion_leaves_no_row_that_tells(self, desk: Desk, tmp_path: Path) -> None:
        """B73: after the commit no row of any table has it; the fact that it was deleted is there."""
        await test_journal.TestErasure().confide(desk)
        await desk.suspended("run_9", "cp_9", session="s9")

        def tells(connection: psycopg.Connection[Any]) -> list[str]:
            found = []
            for table in TABLES:
                every = sql.SQL("SELECT count(*) FROM {} AS t WHERE position(%s::bytea in {}) > 0")
                column = sql.SQL("t.state" if table == "stored_events" else "convert_to(t::text, 'UTF8')")
                row = connection.execute(
                    every.format(sql.Identifier(table), column), (test_journal.SECRET.encode(),)
                ).fetchone()
                found += [table] if row != (0,) else []
            return found

        with at(tmp_path) as other:
            assert "stored_events" in tells(other)
            await desk.delete("s1")
            assert tells(other) == []
        assert (await desk.state("run_1")).status == "erased"
        await is_sound(desk)


class TestTables(OnPostgres):
    async def test_the_library_reads_streams_and_the_log(self, desk: Desk) -> None:
        """B149: with its own recorder and application classes over the same tables."""
        await desk.suspended("run_1", "cp_1")
        await desk.answer("cp_1")
        assert isinstance(desk.journal, PostgresJournal)
        everything = await desk.everything()
        log = desk.journal.store.event_log()
        try:
            found = log.recorder.select_notifications(start=None, limit=1000)
            assert [(one.id, one.originator_id, one.originator_version) for one in found] == [
                (recorded.position, recorded.stream, recorded.version) for recorded in everything
            ]
            mapper: Mapper[str] = log.mapper
            assert isinstance(mapper, EventMapper)
            stream = [mapper.to_domain_event(one) for one in log.recorder.select_events("run_1")]
            assert stream == [_unplaced(recorded) for recorded in await desk.journal.events("run_1")]
        finally:
            log.close()

    async def test_all_of_the_url_counts_for_every_connection(self, tmp_path: Path) -> None:
        """B148: that of the writer, readers, who listens, the heart, and the library's: none is less careful."""
        listed = "SELECT pid, application_name FROM pg_stat_activity WHERE client_port IS NOT NULL"
        with at(tmp_path) as other:
            before = {pid for pid, _ in other.execute(listed).fetchall()}
            url = f"{store_at(tmp_path)}&application_name=careful&sslmode=disable"
            async with Bread(agents=[agent([[text("Hello.")]])], store=url) as bread:
                assert await bread.run("a", "go") == "Hello."
                store = engine_of(bread).journal.store
                assert isinstance(store, PostgresStore)
                log = store.event_log()
                try:
                    assert log.recorder.max_notification_id()
                    found = {pid: name for pid, name in other.execute(listed).fetchall() if pid not in before}
                    assert len(found) >= 5
                    assert {*found.values()} == {"careful"}
                    with log.recorder.datastore.get_connection() as connection:  # type: ignore[attr-defined]
                        assert connection.info.get_parameters()["sslmode"] == "disable"
                        [row] = connection.execute("SHOW statement_timeout").fetchall()
                        assert row["statement_timeout"] == f"{postgres_url.STATEMENT_SECONDS}s"
                finally:
                    log.close()

    @pytest.mark.parametrize("what", ["newer", "foreign"])
    async def test_tables_of_others_are_left_alone(self, tmp_path: Path, what: str) -> None:
        """B48, C43: STORE_INVALID, and nothing is changed."""
        url = store_at(tmp_path)
        with at(tmp_path) as other:
            if what == "newer":
                other.execute("CREATE TABLE bread_schema (version BIGINT)")
                other.execute("INSERT INTO bread_schema VALUES (%s)", (SCHEMA_VERSION + 1,))
            else:
                other.execute("CREATE TABLE stored_events (mine TEXT)")
            with pytest.raises(BreadError) as caught:
                PostgresJournal(url, "w_a")
            assert caught.value.code == "STORE_INVALID"
            count = "SELECT count(*) FROM pg_tables WHERE schemaname = current_schema()"
            assert other.execute(count).fetchone() == (1,)

    def test_migrating_twice_changes_nothing(self, tmp_path: Path) -> None:
        address = Address(store_at(tmp_path), "w_a")
        assert [migrate(address), migrate(address)] == [None, SCHEMA_VERSION]

    def test_a_server_that_is_too_old_is_refused(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(postgres_url, "OLDEST", 990000)
        with pytest.raises(BreadError, match="PostgreSQL 18, bread needs 99 or newer") as caught:
            PostgresJournal(store_at(tmp_path), "w_a")
        assert caught.value.code == "STORE_INVALID"

    def test_a_password_is_never_shown(self) -> None:
        """Not by the address, and not by what cannot be reached."""
        address = Address(f"postgresql://me:{test_journal.SECRET.replace(' ', '%20')}@127.0.0.1:1/db", "w_a")
        assert address.shown == "postgresql://me@127.0.0.1:1/db"
        with pytest.raises(BreadError, match=r"cannot reach postgresql://me@127\.0\.0\.1:1/db: ") as caught:
            address.connect()
        assert test_journal.SECRET not in str(caught.value)

    def test_statements_are_said_in_its_words(self) -> None:
        assert translated("SELECT rowid FROM t WHERE a LIKE 'x@%' AND b = ?") == (
            "SELECT notification_id FROM t WHERE a LIKE 'x@%%' AND b = %s"
        )
        assert translated("UPDATE t SET a = :a", True) == "UPDATE t SET a = %(a)s"


def _unplaced(recorded: Recorded) -> Recorded:
    # The library's stored events do not say where in the log they stand.
    return Recorded(recorded.stream, recorded.version, recorded.event, recorded.meta, 0)
