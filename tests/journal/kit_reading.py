"""The kit of the journal: what is read is what was committed, and the views are what the log gives."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from bread.domain import commits
from bread.domain.envelope import SYSTEM, Principal
from bread.domain.errors import StoreUnreadable
from bread.runtime import reads

from .desk import Desk, code_of, start, submitted
from .opening import Opening, is_sound


class ReadingKit(Opening):
    """What is read is what was committed."""

    async def test_reads_see_what_was_committed_before(self, desk: Desk) -> None:
        """B46, B50: streams, the log and the lists, at once and from many readers."""
        for n in range(20):
            await desk.suspended(f"run_{n}", f"cp_{n}", session=f"s{n}")
            pages = await asyncio.gather(*(self._pending(desk) for _ in range(4)))
            assert pages == [[f"cp_{k}" for k in range(n + 1)]] * 4
        for n in range(20):
            await desk.answer(f"cp_{n}")
            assert f"cp_{n}" not in await self._pending(desk)
            assert (await desk.journal.events(f"cp_{n}", after=1))[0].event.NAME == "checkpoint.claimed"

    async def _pending(self, desk: Desk, tenant: str = "default") -> list[str]:
        page = await desk.journal.ask(
            reads.list_checkpoints, tenant=tenant, filters={}, tags={}, answerable=None, limit=100, after=None
        )
        return [item.id for item in page.items]

    async def test_the_log_of_a_root_is_paged_by_seq_with_what_its_events_point_to(self, desk: Desk) -> None:
        """B47, B123: a question's text stands in its checkpoint, an output in its turn."""
        await desk.suspended()
        await desk.answer()
        await desk.turn("run_1", text="done")
        whole = await desk.journal.log("run_1", 0, 1000)
        paged, seq = [], 0
        while page := await desk.journal.log("run_1", seq, 2):
            assert len(page) <= 2
            paged += page
            seq = page[-1].recorded.meta.seq
        assert paged == whole
        subjects = {entry.recorded.event.NAME: entry.subject.event.NAME for entry in whole if entry.subject is not None}
        assert subjects == {"run.question_asked": "checkpoint.opened", "run.completed": "run.model_responded"}

    async def test_a_commit_tells_the_same_as_the_log(self, desk: Desk) -> None:
        """B122: what is published from a commit and what is read later cannot differ."""
        told: list[Any] = []
        desk.journal.writer.on_commit = lambda commit: told.extend(commit.events)
        await desk.suspended("run_1", "cp_1", "cp_2")
        await desk.answer("cp_1")
        await desk.cancel()
        in_log = [entry for entry in told if entry.recorded.meta.root is not None]
        assert in_log == await desk.journal.log("run_1", 0, 1000)

    async def test_the_envelope_says_who_when_and_why(self, tmp_path: Path) -> None:
        """B45, B56: every event of a commit has its facts, and they come back from the store."""
        async with self.open(tmp_path, clock=lambda: 1234.5) as desk:
            ann = Principal(kind="user", id="ann")
            done = await desk.journal.commit(start(), by=ann, cause="cmd_1", tenant="acme", traceparent="00-ab-cd-01")
            metas = [recorded.meta for recorded in await desk.everything()]
            assert [entry.recorded.meta for entry in done.events] == metas
            assert {(m.at, m.by, m.cause, m.worker, m.tenant, m.traceparent, m.session) for m in metas} == {
                (1234.5, ann, "cmd_1", "w_a", "acme", "00-ab-cd-01", "s1")
            }
            assert len({meta.commit for meta in metas}) == 1
            assert [(meta.root, meta.seq) for meta in metas] == [(None, 0), ("run_1", 1)]

    async def test_tenants_do_not_see_each_other(self, desk: Desk) -> None:
        """B46: a list is of one tenant; a run stays its tenant's whoever goes on with it."""
        await desk.start("run_1", "s1", tenant="acme")
        await desk.start("run_2", "s2")
        await desk.commit(lambda streams: commits.cancel(streams, "run_1", "enough"), by=SYSTEM)

        async def runs(tenant: str) -> list[str]:
            page = await desk.journal.ask(reads.list_runs, tenant=tenant, filters={}, limit=10, before=None)
            return [run.id for run in page.items]

        assert (await runs("acme"), await runs("default")) == (["run_1"], ["run_2"])
        await is_sound(desk)
        await desk.journal.rebuild()
        assert (await runs("acme"), await runs("default")) == (["run_1"], ["run_2"])


DAMAGES = {
    "a run's status": ("UPDATE bread_runs SET status = 'failed' WHERE id = 'run_1'", "run_1: status"),
    "a run's owner": ("UPDATE bread_runs SET owner = 'w_x' WHERE id = 'run_2'", "run_2: owner"),
    "a run's time": ("UPDATE bread_runs SET updated = updated + 1 WHERE id = 'run_2'", "run_2: updated"),
    "a run's row": ("DELETE FROM bread_runs WHERE id = 'run_2'", "run_2: no row in bread_runs"),
    "a question's status": ("UPDATE bread_checkpoints SET status = 'claimed' WHERE id = 'cp_1'", "cp_1: status"),
    "a question's place": ("UPDATE bread_checkpoints SET position = 1 WHERE id = 'cp_1'", "cp_1: position"),
    "a question's row": ("DELETE FROM bread_checkpoints WHERE id = 'cp_1'", "cp_1: no row in bread_checkpoints"),
    "a session's row": ("DELETE FROM bread_sessions WHERE id = 's1'", "s1: no row in bread_sessions"),
    "a session too many": ("INSERT INTO bread_sessions VALUES ('ghost', 'default', 1.0)", "bread_sessions has 3 rows"),
    "a tag": ("DELETE FROM bread_tags WHERE key = 'team'", "bread_tags has 0 rows"),
    "a tag's value": ("UPDATE bread_tags SET value = 'blue' WHERE key = 'team'", "s1: its tags"),
    "a number": ("DELETE FROM bread_log WHERE root = 'run_1' AND seq = 2", "seq 2 of run_1"),
    "another number": ("UPDATE bread_log SET seq = 99 WHERE root = 'run_1' AND seq = 3", "not contiguous"),
    "a number's place": ("UPDATE bread_log SET position = 1 WHERE root = 'run_1' AND seq = 3", "seq 3 of run_1"),
}
LOSSES = {
    "the first event": "DELETE FROM stored_events WHERE originator_id = 'run_1' AND originator_version = 1",
    "an event between": "DELETE FROM stored_events WHERE originator_id = 'run_1' AND originator_version = 2",
    "the last event": "DELETE FROM stored_events WHERE originator_id = 'run_1' AND originator_version ="
    " (SELECT MAX(originator_version) FROM stored_events WHERE originator_id = 'run_1')",
    "a whole stream": "DELETE FROM stored_events WHERE originator_id = 'cp_1'",
    "a known name": "UPDATE stored_events SET topic = 'run.dreamt@1' WHERE originator_id = 'run_1'"
    " AND originator_version = 2",
    "a known version": "UPDATE stored_events SET topic = 'run.started@99' WHERE originator_id = 'run_1'"
    " AND originator_version = 1",
    "its own data": "UPDATE stored_events SET state = (SELECT state FROM stored_events WHERE originator_id = 'cp_1')"
    " WHERE originator_id = 'run_1' AND originator_version = 1",
}


class SoundnessKit(Opening):
    """The views are what the log gives: a check finds every difference, a rebuild removes it."""

    async def mixed(self, desk: Desk) -> None:
        await desk.start("run_1", "s1", tags={"team": "red"})
        await desk.ask("run_1", "cp_1")
        await desk.calling("run_2", session="s2")
        await desk.suspended("run_3", "cp_3", session="s3")
        await desk.delete("s3")

    async def test_a_check_of_a_sound_store_finds_nothing(self, desk: Desk) -> None:
        """B123: and says what it looked at."""
        await self.mixed(desk)
        report = await desk.journal.check()
        assert report.ok
        assert (report.streams, report.events) == (8, len(await desk.everything()))

    @pytest.mark.parametrize("what", DAMAGES)
    async def test_a_check_finds_a_changed_view_and_a_rebuild_restores_it(self, desk: Desk, what: str) -> None:
        """B123, C17: exactly, with the same numbers."""
        await self.mixed(desk)
        before = await self.views(desk)
        statement, problem = DAMAGES[what]
        self.execute(desk, statement)
        assert await self.views(desk) != before
        report = await desk.journal.check()
        assert not report.ok
        assert any(problem in found for found in report.problems), report.problems
        assert await desk.journal.rebuild() == 8
        assert await self.views(desk) == before
        await is_sound(desk)

    @pytest.mark.parametrize("what", LOSSES)
    async def test_a_check_finds_what_the_log_lacks(self, desk: Desk, what: str) -> None:
        """B48, C17, C43: lost, exchanged and unreadable events."""
        await self.mixed(desk)
        self.execute(desk, LOSSES[what])
        report = await desk.journal.check()
        assert not report.ok
        assert any("run_1" in found or "bread_" in found for found in report.problems), report.problems

    @pytest.mark.parametrize("what", ["the first event", "an event between"])
    async def test_a_stream_with_a_gap_does_not_load(self, desk: Desk, what: str) -> None:
        """B48, C43: a state that nobody ever saw is not made up; STORE_INVALID names the stream."""
        await self.mixed(desk)
        self.execute(desk, LOSSES[what])
        desk.journal.writer._cache.clear()
        assert await code_of(desk.journal.ask(reads.run_state, "run_1")) == "STORE_INVALID"
        assert await code_of(desk.cancel("run_1")) == "STORE_INVALID"
        assert await code_of(desk.cancel("run_2")) is None

    async def test_a_rebuild_that_cannot_read_the_log_changes_nothing(self, desk: Desk) -> None:
        """C43: EVENT_UNKNOWN, loudly, and the views stay as they were."""
        await self.mixed(desk)
        before = await self.views(desk)
        self.execute(desk, LOSSES["a known name"])
        assert await code_of(desk.journal.rebuild()) == "EVENT_UNKNOWN"
        assert await self.views(desk) == before
        assert (await desk.start("run_4", "s4")).run_id == "run_4"

    async def test_an_unreadable_run_stops_nobody_else(self, desk: Desk) -> None:
        """C37, C43: its own commits say EVENT_UNKNOWN and change nothing, others go on."""
        await self.mixed(desk)
        self.execute(desk, LOSSES["a known name"])
        desk.journal.writer._cache.clear()
        tasks = await submitted(desk.cancel("run_1"), desk.cancel("run_2"))
        assert [await code_of(asyncio.wait_for(task, None)) for task in tasks] == ["EVENT_UNKNOWN", None]
        with pytest.raises(StoreUnreadable):
            await desk.journal.events("run_1")

    async def test_a_rebuilt_store_goes_on_as_before(self, desk: Desk) -> None:
        """B123: numbers and positions continue where they were."""
        await self.mixed(desk)
        await desk.journal.rebuild()
        await desk.answer("cp_1")
        await desk.turn("run_1", text="done")
        seqs = [entry.recorded.meta.seq for entry in await desk.journal.log("run_1", 0, 100)]
        assert seqs == list(range(1, len(seqs) + 1))
        await is_sound(desk)
