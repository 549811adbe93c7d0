"""The conformance kit of the journal: written once, run on every adapter.

Subclass JournalKit, and SharedJournalKit where several processes can have one store, and say how a journal is made.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from bread.domain import commits
from bread.domain.checkpoint import IdempotencyKey
from bread.domain.commits import Answered
from bread.domain.envelope import APP, Meta, Recorded
from bread.domain.errors import StoreUnavailable, StoreUnreadable
from bread.domain.events import Erased, Event
from bread.domain.run import RecordResult
from bread.domain.run_events import QuestionAsked, ToolReturned
from support import trials

from .desk import Desk, Ears, code_of
from .kit_commits import AtomicityKit, ConcurrencyKit
from .kit_deletion import DeletionKit
from .kit_reading import ReadingKit, SoundnessKit
from .opening import is_sound


class JournalKit(AtomicityKit, ConcurrencyKit, ReadingKit, DeletionKit, SoundnessKit):
    """All that a journal of one process shows."""


class SharedJournalKit(JournalKit):
    """What is shown besides where several processes have one store. Two journals stand for two processes."""

    @pytest.fixture
    async def other(self, tmp_path: Path, desk: Desk) -> AsyncIterator[Desk]:
        async with self.open(tmp_path, "w_b") as other:
            yield other

    async def test_rivals_in_two_processes_have_one_winner(self, desk: Desk, other: Desk) -> None:
        """B64, C1, C21: every loser gets CHECKPOINT_NOT_FOUND, no lock error reaches anyone."""
        for trial in range(trials(3, 20)):
            checkpoint = f"cp_{trial}"
            await desk.suspended(f"run_{trial}", checkpoint, session=f"s{trial}")
            rivals = [(desk, other)[n % 2].answer(checkpoint, claim=f"claim_{n}") for n in range(26)]
            codes = await asyncio.gather(*map(code_of, rivals))
            assert sorted(codes, key=str) == ["CHECKPOINT_NOT_FOUND"] * 25 + [None]
            assert (await other.names(f"run_{trial}")).count("run.resumed") == 1
        await is_sound(desk)

    async def test_seqs_are_contiguous_whoever_writes(self, desk: Desk, other: Desk) -> None:
        """B66, B123: two processes answer the questions of one run at once; no number is missing or given twice."""
        for trial in range(trials(3, 20)):
            root, asked = f"run_{trial}", [f"cp_{trial}_{n}" for n in range(10)]
            await desk.suspended(root, *asked, session=f"s{trial}")
            await asyncio.gather(
                *((desk, other)[n % 2].answer(checkpoint, claim=checkpoint) for n, checkpoint in enumerate(asked))
            )
            log = [entry.recorded for entry in await other.journal.log(root, 0, 1000)]
            assert [recorded.meta.seq for recorded in log] == list(range(1, len(log) + 1))
            assert {recorded.meta.worker for recorded in log} == {"w_a", "w_b"}
            versions = [recorded.version for recorded in log if recorded.stream == root]
            assert versions == list(range(1, len(versions) + 1))
            assert not (await desk.state(root)).questions
        await is_sound(desk)

    async def test_guards_hold_over_processes(self, desk: Desk, other: Desk) -> None:
        """B60, C16, C35: one root a session and one run a key, whoever starts it."""
        for trial in range(trials(3, 20)):
            starts = [(desk, other)[n % 2].start(f"run_{trial}_{n}", f"s{trial}") for n in range(10)]
            codes = await asyncio.gather(*map(code_of, starts))
            assert sorted(codes, key=str) == sorted([None, *["SESSION_BUSY"] * 9], key=str)
            key = IdempotencyKey(key=f"k{trial}", digest="d")
            keyed = [(desk, other)[n % 2].start(f"run_k{trial}_{n}", f"sk{trial}_{n}", key=key) for n in range(10)]
            assert len({started.run_id for started in await asyncio.gather(*keyed)}) == 1
        await is_sound(desk)

    async def test_positions_are_the_order_of_all_commits(self, desk: Desk, other: Desk) -> None:
        """B123, C21: 2 x 40 commits at once, and a position is given to one event only."""
        await asyncio.gather(*((desk, other)[n % 2].start(f"run_{n}", f"s{n}") for n in range(80)))
        events = await desk.everything()
        assert [recorded.position for recorded in events] == list(range(1, 161))
        assert await other.everything() == events

    async def test_a_writer_learns_of_others_by_colliding(self, desk: Desk, other: Desk) -> None:
        """C26, C63: each holds a state of the run that the other one changes, in turn."""
        call = await desk.calling()
        await other.cancel("run_1")
        await desk.commit(lambda streams: commits.record_outcome(streams, "run_1", RecordResult(call, "late", 1.0)))
        assert await desk.names("run_1") == [
            "run.started",
            "run.model_responded",
            "run.tool_called",
            "run.tool_failed",
            "run.cancelled",
        ]
        assert not any(isinstance(r.event, ToolReturned) for r in await desk.journal.events("run_1"))

    async def test_a_deleted_session_is_gone_for_the_other_process(self, desk: Desk, other: Desk) -> None:
        """B77: a process that runs it finds the tombstone at its next commit."""
        call = await desk.calling()
        assert await other.delete("s1") is True
        outcome = RecordResult(call, "late", 1.0)
        assert await code_of(desk.commit(lambda s: commits.record_outcome(s, "run_1", outcome))) == "RUN_NOT_FOUND"
        assert await desk.names("run_1") == ["bread.erased"]
        assert all(not rows for rows in (await self.views(desk)).values())

    async def test_a_store_outlives_its_journals(self, tmp_path: Path) -> None:
        """B65, C17: what was committed is there for the next process, with its numbers."""
        async with self.open(tmp_path) as desk:
            await desk.suspended()
            before, rows = await desk.everything(), await self.views(desk)
        async with self.open(tmp_path, "w_b") as later:
            assert await later.everything() == before
            assert await self.views(later) == rows
            assert await later.answer() == Answered("run_1", "run_1")
            assert (await later.everything())[len(before)].position == before[-1].position + 1
            await is_sound(later)

    async def test_a_process_hears_every_commit_of_others_once_and_in_order(self, desk: Desk, other: Desk) -> None:
        """B66, B130: and none of its own, while both are writing."""
        ears, others = Ears(desk.journal), Ears(other.journal)
        for round_ in range(trials(4, 40)):
            starts = [(desk, other)[n % 2].start(f"run_{round_}_{n}", f"s{round_}_{n}") for n in range(30)]
            await asyncio.gather(*starts)
        await desk.start("run_last_a", "s_last_a")
        await other.start("run_last_b", "s_last_b")
        log = await desk.everything()
        assert await ears.until_stream("run_last_b") == [r for r in log if r.meta.worker == "w_b"]
        assert await others.until_stream("run_last_a") == [r for r in log if r.meta.worker == "w_a"]

    async def test_a_process_hears_what_others_erased(self, desk: Desk, other: Desk) -> None:
        """B77: the tombstone, so that whoever runs or observes it stops."""
        await desk.suspended()
        ears = Ears(desk.journal)
        await other.delete("s1")
        heard = await ears.until_stream("session:s1")
        assert [recorded.event.NAME for recorded in heard] == [
            "checkpoint.discarded",
            "bread.erased",
            "bread.erased",
            "session.deleted",
        ]

    @pytest.mark.parametrize(
        "failure", [StoreUnavailable("the store is busy"), StoreUnreadable("STORE_INVALID", "a page is damaged")]
    )
    async def test_a_look_that_fails_loses_nothing(
        self, desk: Desk, other: Desk, monkeypatch: pytest.MonkeyPatch, failure: Exception
    ) -> None:
        """B130: the store does not answer, nothing more is written, and the commit is heard all the same."""
        for each in (desk, other):  # nothing else is to touch the file, which would be a reason to look again
            while each.journal.store.residue:
                each.journal.store.scrub()
            await each.start(f"run_{each.worker}", f"s_{each.worker}")
        ears, written, missed = Ears(desk.journal), threading.Event(), threading.Event()
        read = desk.journal.store.read

        def failing() -> Any:
            if missed.is_set():
                return read()
            if written.is_set():
                missed.set()
            raise failure

        monkeypatch.setattr(desk.journal.store, "read", failing)
        await other.start("run_1", "s1")
        written.set()
        await ears.until_stream("run_1")
        assert missed.is_set()

    async def test_what_this_release_cannot_read_deafens_nobody(
        self, desk: Desk, other: Desk, caplog: pytest.LogCaptureFixture
    ) -> None:
        """C37, C43: events of a newer release, and events that point to one, are reported; the others are heard."""
        await other.start("run_1", "s1")
        ears = Ears(desk.journal)
        newer: list[tuple[str, int, Event]] = [
            ("cp_new", 1, Erased()),
            ("run_1", 2, QuestionAsked(checkpoint="cp_new")),
        ]
        with other.journal.store.write() as tx:
            for seq, (stream, version, event) in enumerate(newer, 2):
                tx.insert([Recorded(stream, version, event, Meta(1.0, APP, "c_x", seq, "run_1", "s1", worker="w_b"))])
            tx.flush()
            tx.cursor.execute("UPDATE stored_events SET topic = 'checkpoint.opened@99' WHERE originator_id = 'cp_new'")
        await other.start("run_2", "s2")
        heard = await ears.until_stream("run_2")
        assert "cp_new" not in {recorded.stream for recorded in heard}
        assert "checkpoint.opened@99" in caplog.text
