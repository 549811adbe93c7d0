"""The kit of the journal: of what was deleted a tombstone is left, and nothing else."""

from __future__ import annotations

import asyncio
import random

import pytest

from bread.domain import commits
from bread.domain.envelope import Principal
from bread.domain.events import Erased
from bread.domain.run_events import RunCancelled
from bread.domain.run_state import RunState
from bread.domain.session import EndSession
from bread.runtime import reads, tree_reads
from bread.runtime.unit import Collision
from support import trials

from .desk import Desk, code_of
from .opening import Opening, is_sound


class DeletionKit(Opening):
    """A deleted session leaves tombstones: who and when, and nothing else."""

    async def full(self, desk: Desk) -> None:
        """A session with an ended run, a claimed, a discarded and a pending question, beside one that stays."""
        await desk.suspended("run_0", "cp_0", session="s_other")
        await desk.start("run_1", "s1", tags={"team": "red"})
        await desk.ask("run_1", "cp_1", "cp_2")
        await desk.answer("cp_1")
        await desk.cancel("run_1")
        await desk.suspended("run_2", "cp_3", session="s1")

    async def test_deletion_leaves_no_row_and_a_tombstone_on_each_stream(self, desk: Desk) -> None:
        """B73, B75, B76: of other sessions everything stays."""
        await self.full(desk)
        others = {stream: await desk.journal.events(stream) for stream in ("run_0", "cp_0", "session:s_other")}
        deleted = await desk.commit(
            lambda streams: commits.delete_session(streams, "s1", EndSession("deleted"), None),
            by=Principal(kind="user", id="ann"),
        )
        assert deleted.result is True
        left = {stream: await desk.names(stream) for stream in ("run_1", "run_2", "cp_1", "cp_2", "cp_3", "session:s1")}
        assert left == {
            "run_1": ["bread.erased"],
            "run_2": ["bread.erased"],
            "cp_1": ["bread.erased"],
            "cp_2": ["bread.erased"],
            "cp_3": ["checkpoint.discarded", "bread.erased"],
            "session:s1": ["session.deleted"],
        }
        assert (await desk.journal.events("run_1"))[0].meta.by.id == "ann"
        for table, rows in (await self.views(desk)).items():
            assert not any(
                value in ("s1", "run_1", "run_2", "cp_1", "cp_2", "cp_3", "red") for row in rows for value in row
            ), table
        assert {stream: await desk.journal.events(stream) for stream in others} == others
        await is_sound(desk)

    async def test_a_deleted_session_is_erased_for_every_reader(self, desk: Desk) -> None:
        """B73, B76: loading says erased, and asking says not found."""
        await self.full(desk)
        await desk.delete("s1")
        assert (await desk.state("run_1")).status == "erased"
        assert await code_of(desk.journal.ask(reads.run_state, "run_1")) == "RUN_NOT_FOUND"
        assert await code_of(desk.journal.ask(tree_reads.run_info, "run_2")) == "RUN_NOT_FOUND"
        assert await code_of(desk.journal.ask(reads.get_run, "run_2")) == "RUN_NOT_FOUND"
        assert await code_of(desk.journal.ask(reads.get_session, "s1")) == "SESSION_NOT_FOUND"
        assert await code_of(desk.journal.ask(reads.session_events, "s1")) == "SESSION_NOT_FOUND"
        for checkpoint in ("cp_1", "cp_2", "cp_3"):
            assert await code_of(desk.journal.ask(reads.get_checkpoint, checkpoint)) == "CHECKPOINT_NOT_FOUND"
        assert await desk.journal.log("run_1", 0, 100) == []

    async def test_a_late_append_collides_with_the_tombstone(self, desk: Desk) -> None:
        """B77: at every version that a stale writer may believe in, by the decision and by the store alike."""
        await self.full(desk)
        states = {run_id: await desk.state(run_id) for run_id in ("run_1", "run_2")}
        late = (await desk.journal.events("run_2"))[-1]
        position = (await desk.everything())[-1].position
        await desk.delete("s1")
        before = await desk.everything()
        for run_id, state in states.items():
            desk.journal.writer._cache[run_id], desk.journal.writer._known = state, position
            assert await code_of(desk.cancel(run_id)) == "RUN_NOT_FOUND"
        for checkpoint in ("cp_1", "cp_2", "cp_3"):
            assert await code_of(desk.answer(checkpoint, claim="late")) == "CHECKPOINT_NOT_FOUND"
        assert await code_of(desk.start("run_3", "s1")) == "SESSION_DELETED"
        with pytest.raises(Collision), desk.journal.store.write() as tx:
            tx.insert([type(late)(late.stream, late.version + 1, RunCancelled(reason="late"), late.meta)])
        assert await desk.everything() == before
        await is_sound(desk)

    async def test_deleting_twice_or_nothing_is_no_commit(self, desk: Desk) -> None:
        """B143: an unknown id and one that was deleted are already gone."""
        await desk.start()
        assert await desk.delete("s1") is True
        before = await desk.everything()
        assert await desk.delete("s1") is False
        assert await desk.delete("s_unknown") is False
        assert await desk.everything() == before

    async def test_claim_against_delete_is_one_or_the_other(self, desk: Desk) -> None:
        """B73, B77: in any order that they reach the writer, and nothing of the session is left."""
        rng = random.Random(7)
        for trial in range(trials(10, 200)):
            session, checkpoint = f"s{trial}", f"cp_{trial}"
            await desk.suspended(f"run_{trial}", checkpoint, session=session)
            works = [
                code_of(desk.answer(checkpoint)),
                code_of(desk.delete(session)),
                code_of(desk.cancel(f"run_{trial}")),
            ]
            rng.shuffle(works)
            codes = await asyncio.gather(*map(code_of, works))
            assert set(codes) <= {None, "CHECKPOINT_NOT_FOUND", "RUN_NOT_FOUND"}
            assert (await desk.state(f"run_{trial}")).status == "erased"
        assert all(not rows for rows in (await self.views(desk)).values())
        await is_sound(desk)

    async def test_an_erased_stream_folds_to_its_tombstone(self, desk: Desk) -> None:
        """B73: its version goes on from where it stood, so that nothing is ever appended at a used one."""
        await desk.suspended()
        version = (await desk.state("run_1")).version
        await desk.delete("s1")
        [tombstone] = await desk.journal.events("run_1")
        assert tombstone.version == version + 1
        assert tombstone.event == Erased()
        assert await desk.state("run_1") == RunState(id="run_1", version=version + 1, status="erased")
