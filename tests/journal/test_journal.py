"""The journal's adapters under the kit, and what only SQLite has."""

from __future__ import annotations

import asyncio
import random
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from bread.domain import commits
from bread.domain.commits import Answered
from bread.domain.envelope import Recorded
from bread.domain.messages import ToolUse
from bread.domain.plans import Execute
from bread.domain.run import RecordResult
from bread.runtime import sqlite, sqlite_log, tail
from bread.runtime.postgres_journal import PostgresJournal
from bread.runtime.sqlite_journal import SQLiteJournal
from bread.runtime.store_journal import StoreJournal
from bread.transport.codec import pack
from postgres import store_at
from support import trials

from .desk import PATIENCE, Desk, Ears, Gate, asks, code_of, submitted, together
from .journal_kit import JournalKit, SharedJournalKit
from .opening import Opening, is_sound


class TestMemory(JournalKit):
    def make(self, place: Path, worker: str, **options: Any) -> SQLiteJournal:
        return SQLiteJournal(None, worker, **options)


class TestReplay(JournalKit):
    """Every run is forgotten and read again after each commit, and has to be what it was."""

    def make(self, place: Path, worker: str, **options: Any) -> SQLiteJournal:
        return SQLiteJournal(None, worker, always_replay=True, **options)


class TestSQLite(SharedJournalKit):
    def make(self, place: Path, worker: str, **options: Any) -> SQLiteJournal:
        return SQLiteJournal(f"{place}/bread.db", worker, **options)


def sqlite_of(desk: Desk) -> sqlite.SQLiteStore:
    assert isinstance(desk.journal.store, sqlite.SQLiteStore)
    return desk.journal.store


class TestPostgres(SharedJournalKit):
    def make(self, place: Path, worker: str, **options: Any) -> StoreJournal:
        return PostgresJournal(store_at(place), worker, **options)


SECRET = "correct horse battery staple"  # what must not be found again


def residue(place: Path, secret: str = SECRET) -> list[str]:
    """The files of a store that hold the secret."""
    return [
        file.name for file in sorted(place.glob("bread.db*")) if file.is_file() and secret.encode() in file.read_bytes()
    ]


class Scrubs:
    """Hears whenever a journal has tried to remove what erasure leaves behind."""

    def __init__(self, desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
        store, loop, self._tried = desk.journal.store, asyncio.get_running_loop(), asyncio.Event()
        scrub = store.scrub

        def scrubbing() -> None:
            scrub()
            loop.call_soon_threadsafe(self._tried.set)

        monkeypatch.setattr(store, "scrub", scrubbing)

    async def tried(self) -> None:
        self._tried.clear()
        await asyncio.wait_for(self._tried.wait(), PATIENCE)

    async def cleaned(self, place: Path) -> None:
        """Wait until nothing is left."""
        while residue(place):
            await self.tried()


class TestErasure(Opening):
    """What was deleted is on the disk no more."""

    make = TestSQLite.make

    async def confide(self, desk: Desk) -> None:
        """Put the secret into everything that a session owns."""
        await desk.start("run_1", "s1", input={"text": SECRET}, tags={"note": SECRET})
        await desk.turn(
            "run_1",
            (ToolUse("tool_work", {"text": SECRET}), Execute()),
            (ToolUse("human_sign", {"text": SECRET}), asks("cp_1", prompt=SECRET)),
            (ToolUse("human_sign", {"text": SECRET}), asks("cp_2", prompt=SECRET)),
            text=SECRET,
        )
        call = (await desk.state("run_1")).calls[0].key
        result = RecordResult(call, SECRET * 1000, 1.0)  # also pages of its own
        await desk.commit(lambda streams: commits.record_outcome(streams, "run_1", result))
        await desk.answer("cp_1", {"text": SECRET}, comment=SECRET)

    async def test_deletion_leaves_no_byte_in_the_file_or_its_wal(
        self, desk: Desk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """B73: while the store is open, beside a session that stays, and with nothing written after it."""
        scrubs = Scrubs(desk, monkeypatch)
        await desk.suspended("run_0", "cp_0", session="s0")
        await self.confide(desk)
        assert residue(tmp_path)
        await desk.delete("s1")
        await scrubs.cleaned(tmp_path)
        await is_sound(desk)

    async def test_deletion_of_some_leaves_no_byte_in_the_pages_of_others(
        self, desk: Desk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """B73, B75: also where the database moved what stays together and left copies in between."""
        # Sizes, number and order are such that SQLite does leave copies, which secure_delete does not see.
        scrubs, sessions = Scrubs(desk, monkeypatch), [f"s{n:03}" for n in range(trials(120, 600))]
        for n, session in enumerate(sessions):
            secret = f"secret of {session} " * (1 + n % 13 * 5)
            await desk.start(f"run_{session}", session, input=secret, tags={"note": secret[:190]})
            await desk.ask(f"run_{session}", asks(f"cp_{session}", prompt=secret), args={"text": secret})
        gone = [session for n, session in enumerate(sessions) if n % 4]
        random.Random(1).shuffle(gone)
        for session in gone:
            await desk.delete(session)
        for session in gone:
            while residue(tmp_path, f"secret of {session}"):
                await scrubs.tried()
        assert all(residue(tmp_path, f"secret of {session}") for session in sessions[::4])
        await is_sound(desk)

    async def test_a_reader_in_the_way_only_delays_that(
        self, desk: Desk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """B73: nobody waits for it, and what it still needs goes when it has left."""
        scrubs = Scrubs(desk, monkeypatch)
        await self.confide(desk)
        with desk.journal.store.read() as cursor:
            cursor.execute("SELECT COUNT(*) FROM stored_events").fetchone()
            assert await desk.delete("s1")
            await desk.start("run_2", "s2")
            await scrubs.tried()
            assert residue(tmp_path)
        await scrubs.cleaned(tmp_path)
        await is_sound(desk)

    async def test_what_a_killed_process_left_goes_with_the_next_one(
        self, desk: Desk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """B73: it died after its commit and before the log was emptied."""
        await self.confide(desk)
        after = tmp_path / "after"
        after.mkdir()
        with desk.journal.store.read() as cursor:
            cursor.execute("SELECT COUNT(*) FROM stored_events").fetchone()
            await desk.delete("s1")
            for file in ("bread.db", "bread.db-wal"):  # as the disk is at this moment
                shutil.copy(tmp_path / file, after / file)
        assert residue(after)
        async with self.open(after, "w_b") as later:
            await Scrubs(later, monkeypatch).cleaned(after)
            assert (await later.state("run_1")).status == "erased"
            await is_sound(later)

    async def test_a_closed_store_holds_nothing_either(self, tmp_path: Path) -> None:
        """B73: also when it is opened again."""
        async with self.open(tmp_path) as desk:
            await self.confide(desk)
            await desk.delete("s1")
        assert residue(tmp_path) == []
        async with self.open(tmp_path, "w_b") as desk:
            await is_sound(desk)
        assert residue(tmp_path) == []


@contextmanager
def locked(database: Path) -> Iterator[subprocess.Popen[str]]:
    """Another process that holds the write lock until the block ends, or a line is written to it."""
    program = (
        "import sqlite3, sys\n"
        "c = sqlite3.connect(sys.argv[1], isolation_level=None)\n"
        "c.execute('BEGIN IMMEDIATE')\n"
        "print('held', flush=True)\n"
        "sys.stdin.readline()\n"
        "c.execute('ROLLBACK')\n"
        "print('free', flush=True)\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program, str(database)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as holder:
        assert holder.stdin is not None
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        try:
            yield holder
        finally:
            holder.communicate("\n")


class TestLockedStore(Opening):
    """A store that somebody else holds is undecided, never a verdict."""

    make = TestSQLite.make

    async def test_a_store_held_for_too_long_is_unavailable(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """B64, C21: everybody who waits is told STORE_UNAVAILABLE; nothing is half done, and the same again works."""
        monkeypatch.setattr(sqlite, "LOCK_TIMEOUT", 0)
        monkeypatch.setattr(sqlite_log, "LOCK_TIMEOUT", 0)
        async with self.open(tmp_path) as desk:
            await desk.suspended()
            before = await desk.everything()
            with locked(tmp_path / "bread.db"):
                tasks = await submitted(desk.answer(), desk.start("run_2", "s2"))
                assert [await code_of(asyncio.wait_for(task, None)) for task in tasks] == ["STORE_UNAVAILABLE"] * 2
                assert await desk.everything() == before
                assert await code_of(desk.answer()) == "STORE_UNAVAILABLE"
            assert (await desk.answer()).run_id == "run_1"
            assert (await desk.start("run_2", "s2")).run_id == "run_2"
            await is_sound(desk)

    async def test_a_store_held_for_less_is_waited_for(self, desk: Desk, tmp_path: Path) -> None:
        """B64, C21: the lock of another process reaches nobody as an error."""
        with locked(tmp_path / "bread.db") as holder:
            tasks = await submitted(desk.start("run_1", "s1"), desk.start("run_2", "s2"))
            assert await desk.everything() == []
            assert holder.stdin is not None
            holder.stdin.write("\n")
            holder.stdin.flush()
            assert [(await task).run_id for task in tasks] == ["run_1", "run_2"]
        await is_sound(desk)


MALFORMED = {
    "no msgpack": b"\xc1",
    "cut short": b"\x93\x01",
    "nothing": b"",
    "another envelope": pack([2, {}, b""]),
    "a bare value": pack("hello"),
    "no facts": pack([1, {}, pack({})]),
    "facts of another shape": pack([1, [], pack({})]),
    "no principal": pack([1, {"at": 1.0, "by": 5, "commit": "c"}, pack({})]),
    "data that is no bytes": pack([1, {"at": 1.0, "by": ["app", "x"], "commit": "c"}, "text"]),
    "data that is no map": pack([1, {"at": 1.0, "by": ["app", "x"], "commit": "c"}, pack([1])]),
    "an unhashable key": b"\x81\x90\x01",
}


class TestDamage(Opening):
    make = TestSQLite.make

    @pytest.mark.parametrize("what", MALFORMED)
    async def test_a_check_finds_every_event_that_cannot_be_read(self, desk: Desk, what: str) -> None:
        """C43, B48: bytes that are no event of ours are reported, with their stream, and the check goes on."""
        await desk.suspended("run_1", "cp_1")
        await desk.suspended("run_2", "cp_2", session="s2")
        with desk.journal.store.write() as tx:
            tx.cursor.execute(
                "UPDATE stored_events SET state = ? WHERE originator_id = 'run_1' AND originator_version = 2",
                (MALFORMED[what],),
            )
            tx.wrote = True
        report = await desk.journal.check()
        assert any(found.startswith("run_1: ") for found in report.problems), report.problems
        assert not any("run_2" in found for found in report.problems), report.problems
        assert report.streams == 6
        assert await code_of(desk.journal.events("run_1")) in ("PROTOCOL_DECODE_ERROR", "STORE_INVALID")


class TestTail(Opening):
    make = TestSQLite.make

    async def test_many_commits_are_heard_page_by_page(
        self, desk: Desk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """B66, B130: more than one look takes at a time, own ones among them, each once and in order."""
        monkeypatch.setattr(tail, "TAIL_PAGE", 7)
        ears = Ears(desk.journal)
        async with self.open(tmp_path, "w_b") as other:
            await asyncio.gather(*((desk, other, other)[n % 3].start(f"run_{n}", f"s{n}") for n in range(90)))
            await other.start("run_last", "s_last")
            log = await other.everything()
            assert await ears.until_stream("run_last") == [r for r in log if r.meta.worker == "w_b"]


class TestFailures(Opening):
    """What the driver or the disk says reaches nobody as such."""

    make = TestSQLite.make

    async def test_a_full_disk_is_undecided_and_loses_nothing(self, desk: Desk, gate: Gate) -> None:
        """C18, B44: with the commits that came with it; when there is room again they go through."""
        await desk.suspended()
        before = await desk.everything()
        writer = sqlite_of(desk)._writer
        pages = writer.execute("PRAGMA page_count").fetchone()[0]
        writer.execute(f"PRAGMA max_page_count = {pages}").fetchall()
        big = "x" * 100_000
        tasks = await together(desk, gate, desk.start("run_2", "s2", input=big), desk.start("run_3", "s3", input=big))
        assert [await code_of(asyncio.wait_for(task, None)) for task in tasks] == ["STORE_UNAVAILABLE"] * 2
        assert await desk.everything() == before
        writer.execute("PRAGMA max_page_count = 1000000").fetchall()
        assert (await desk.start("run_2", "s2", input=big)).repeated is False
        assert await desk.answer() == Answered("run_1", "run_1")
        await is_sound(desk)

    async def test_a_disk_that_cannot_be_read_is_undecided(
        self, desk: Desk, gate: Gate, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """C18: also where a decision was reading; nobody hears sqlite3."""
        await desk.suspended()
        read = sqlite.SQLiteTransaction.read

        def broken(tx: sqlite.SQLiteTransaction, stream: str, after: int) -> list[Recorded]:
            if stream == "run_1":
                raise sqlite3.OperationalError("disk I/O error")
            return read(tx, stream, after)

        monkeypatch.setattr(sqlite.SQLiteTransaction, "read", broken)
        desk.journal.writer._cache.clear()
        assert await code_of(desk.cancel("run_1")) == "STORE_UNAVAILABLE"
        monkeypatch.undo()
        assert await desk.cancel("run_1") == "cancelled"
        await is_sound(desk)

    async def test_a_damaged_page_is_said_to_be_one(self, tmp_path: Path) -> None:
        """C43: STORE_INVALID for whoever needs it, in reads and in commits; the others go on."""
        async with self.open(tmp_path) as desk:
            await desk.start("run_1", "s1", input="x" * 3000)
            await desk.start("run_2", "s2", input="y" * 3000)
        file = tmp_path / "bread.db"
        content = bytearray(file.read_bytes())
        page = content.index(b"x" * 3000) // 4096 * 4096
        content[page : page + 100] = b"\xff" * 100
        file.write_bytes(bytes(content))
        async with self.open(tmp_path, "w_b") as later:
            assert await code_of(later.journal.events("run_1")) == "STORE_INVALID"
            assert await code_of(later.cancel("run_1")) == "STORE_INVALID"
            assert await later.cancel("run_2") == "cancelled"

    async def test_a_commit_that_fails_at_its_end_hides_nobody_elses(self, tmp_path: Path, desk: Desk) -> None:
        """B130: whoever gets the positions that it would have had is heard."""
        await desk.start()
        ears = Ears(desk.journal)
        loop, writer = asyncio.get_running_loop(), sqlite_of(desk)._writer

        def refuse(action: int, first: str | None, *rest: str | None) -> int:
            if action == sqlite3.SQLITE_TRANSACTION and first == "COMMIT":
                assert desk.journal._tail is not None
                desk.journal._tail._hand_over(loop)  # the tail looks while the disk is slow
                return sqlite3.SQLITE_DENY
            return sqlite3.SQLITE_OK

        writer.set_authorizer(refuse)
        assert await code_of(desk.start("run_2", "s2")) == "STORE_UNAVAILABLE"
        writer.set_authorizer(None)
        async with self.open(tmp_path, "w_b") as other:
            await other.start("run_3", "s3")
            await other.start("run_4", "s4")
            heard = await ears.until_stream("run_4")
        assert [recorded.stream for recorded in heard] == ["session:s3", "run_3", "session:s4", "run_4"]
