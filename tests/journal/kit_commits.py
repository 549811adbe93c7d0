"""The kit of the journal: commits are whole, go together, and collide where others were faster."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from bread.domain import commits, run
from bread.domain.checkpoint import IdempotencyKey
from bread.domain.commits import Answered
from bread.domain.errors import BreadError
from bread.domain.ports import Commit
from bread.domain.run import RecordResult
from bread.domain.session import session_stream
from bread.domain.streams import Streams
from bread.runtime import reads
from bread.runtime.unit import Collision
from support import trials

from .desk import Desk, Gate, code_of, start, submitted, together
from .opening import Opening, is_sound

HUGE = 10**5000  # a number that no codec here can spell


class AtomicityKit(Opening):
    """A commit is all or nothing, and what waits together is written together."""

    async def test_a_decision_that_raises_after_appending_leaves_nothing(self, desk: Desk) -> None:
        """B43, C18: neither events nor rows, and the next one finds nothing of it."""
        before = await self.views(desk)

        def decide(streams: Streams) -> None:
            start()(streams)
            start("run_2", "s2")(streams)
            raise RuntimeError("changed my mind")

        with pytest.raises(RuntimeError, match="changed my mind"):
            await desk.commit(decide)
        assert await desk.everything() == []
        assert await self.views(desk) == before
        assert not (await desk.start()).repeated
        await is_sound(desk)

    async def test_a_value_that_cannot_be_stored_leaves_nothing(self, desk: Desk) -> None:
        """B43, C43: also when other streams of the commit were fine, and the state is not remembered either."""
        call = await desk.calling()
        version = (await desk.state("run_1")).version

        def decide(streams: Streams) -> None:
            start("run_2", "s2")(streams)
            commits.record_outcome(streams, "run_1", RecordResult(call, HUGE, 1.0))

        with pytest.raises(ValueError, match="digits"):
            await desk.commit(decide)
        assert (await desk.state("run_1")).version == version
        assert await desk.names("run_2") == await desk.names(session_stream("s2")) == []
        await desk.commit(lambda streams: commits.record_outcome(streams, "run_1", RecordResult(call, 1, 1.0)))
        await is_sound(desk)

    async def test_one_bad_decision_in_a_group_does_not_hurt_the_others(self, desk: Desk, gate: Gate) -> None:
        """C18: raising, refused, not storable or stale, each gets its own verdict within one transaction."""
        await desk.failed("run_old", session="s_old")
        await desk.believes("run_old", 1)

        def broken(streams: Streams) -> None:
            start("run_broken", "s_broken")(streams)
            raise ZeroDivisionError

        tasks = await together(
            desk,
            gate,
            desk.start("run_1", "s1"),
            desk.commit(broken),
            desk.start("run_huge", "s_huge", input=HUGE),
            desk.start("run_refused", "s1"),
            desk.retry("run_old"),
            desk.start("run_2", "s2"),
        )
        outcomes = await asyncio.gather(*tasks, return_exceptions=True)
        shown = [outcome.code if isinstance(outcome, BreadError) else type(outcome).__name__ for outcome in outcomes]
        assert shown == ["Started", "ZeroDivisionError", "ValueError", "SESSION_BUSY", "NoneType", "Started"]
        streams = {recorded.stream for recorded in await desk.everything()}
        assert {"run_1", "run_2"} < streams
        assert not {"run_broken", "run_huge", "run_refused"} & streams
        assert (await desk.state("run_old")).status == "active"
        await is_sound(desk)

    @pytest.mark.parametrize("point", ["appended", "committed"])
    async def test_a_store_that_fails_leaves_it_undecided(self, desk: Desk, gate: Gate, point: str) -> None:
        """B44: everybody in the group is told STORE_UNAVAILABLE, on the disk or not; repeating is safe."""
        await desk.suspended("run_1", "cp_1", "cp_2")
        answers = (desk.answer("cp_1", claim="claim_1"), desk.answer("cp_2", claim="claim_2"))
        tasks = await together(desk, gate, *answers, broken_at=point)
        assert [await code_of(asyncio.wait_for(task, None)) for task in tasks] == ["STORE_UNAVAILABLE"] * 2
        was_written = point == "committed"
        assert ("run.resumed" in await desk.names("run_1")) is was_written
        assert await desk.answer("cp_1", claim="claim_1") == Answered("run_1", "run_1")
        assert await desk.answer("cp_2", claim="claim_2") == Answered("run_1", "run_1")
        assert (await desk.names("run_1")).count("run.resumed") == 2
        assert await desk.names("cp_1") == await desk.names("cp_2") == ["checkpoint.opened", "checkpoint.claimed"]
        await is_sound(desk)

    async def test_a_run_is_not_alone_beside_one_of_its_own_group(self, desk: Desk, gate: Gate) -> None:
        """B43: whether its session has other runs is as of its own decision, and not as of the group's beginning."""
        await desk.failed("run_1")
        retry = run.Retry(desk.worker, None)
        again = desk.commit(lambda streams: commits.retry(streams, "run_1", retry))
        tasks = await together(desk, gate, desk.start("run_2", "s1"), desk.cancel("run_2"), again)
        done = (await asyncio.gather(*tasks))[2]
        assert done.runs["run_1"].owner == desk.worker
        assert not done.alone
        await is_sound(desk)

    async def test_what_waits_together_is_one_transaction(self, desk: Desk, gate: Gate) -> None:
        """Group commit: 40 commits that come while one is being written share the next transaction."""
        tasks = await together(desk, gate, *(desk.start(f"run_{n}", f"s{n}") for n in range(40)))
        await asyncio.gather(*tasks)
        assert gate.passed == {"appended": 1, "committed": 1}
        assert desk.journal.writer.commits == 40
        assert len({recorded.meta.commit for recorded in await desk.everything()}) == 40

    async def test_commits_are_told_in_order_before_their_submitter_knows(self, desk: Desk) -> None:
        """B17: whoever publishes hears of every commit ahead of its submitter, in the order of the log."""
        told: list[str] = []

        def on_commit(commit: Commit[Any]) -> None:
            told.append(f"told {commit.events[-1].recorded.stream}")
            positions.extend(entry.recorded.position for entry in commit.events)

        positions: list[int] = []
        desk.journal.writer.on_commit = on_commit

        async def submit(run_id: str) -> None:
            await desk.start(run_id, f"s_{run_id}")
            told.append(f"done {run_id}")

        runs = [f"run_{n}" for n in range(30)]
        await asyncio.gather(*map(submit, runs))
        assert [entry for entry in told if entry.startswith("told")] == [f"told {run_id}" for run_id in runs]
        assert all(told.index(f"told {run_id}") < told.index(f"done {run_id}") for run_id in runs)
        assert positions == [recorded.position for recorded in await desk.everything()]

    async def test_a_publisher_that_fails_keeps_nobody_waiting(
        self, desk: Desk, gate: Gate, caplog: pytest.LogCaptureFixture
    ) -> None:
        """B17: what it raises is logged; its own submitter and the others of the group are told."""

        def on_commit(commit: Commit[Any]) -> None:
            raise ZeroDivisionError("in the hub")

        desk.journal.writer.on_commit = on_commit
        tasks = await together(desk, gate, desk.start("run_1", "s1"), desk.start("run_2", "s2"))
        assert [(await task).run_id for task in tasks] == ["run_1", "run_2"]
        assert caplog.text.count("was not published") == 2

    async def test_a_decision_without_events_is_not_told(self, desk: Desk) -> None:
        """B122: what is told is what stands in the log."""
        await desk.start()
        told: list[Commit[Any]] = []
        desk.journal.writer.on_commit = told.append
        done = await desk.commit(lambda streams: streams.run("run_1").status)
        assert (done.result, done.events, told) == ("active", [], [])

    async def test_a_submitter_that_goes_away_does_not_take_its_decision_back(self, desk: Desk, gate: Gate) -> None:
        """B61: the commit happens and is told, though nobody waits for it."""
        told: list[str] = []
        desk.journal.writer.on_commit = lambda commit: told.append(commit.events[-1].recorded.stream)
        gate.hold("appended")
        leaving, queued = await submitted(desk.start("run_1", "s1"), desk.start("run_2", "s2"))
        await gate.reached()
        leaving.cancel()
        queued.cancel()
        gate.let_go()
        assert (await desk.commit(lambda streams: streams.run("run_2").status)).result == "active"
        assert leaving.cancelled()
        assert queued.cancelled()
        assert told == ["run_1", "run_2"]

    async def test_closing_finishes_what_was_submitted(self, tmp_path: Path, gate: Gate) -> None:
        """B48: nothing that was taken is dropped; what comes later is refused as undecided."""
        async with self.open(tmp_path, fault=gate) as desk:
            told: list[str] = []
            desk.journal.writer.on_commit = lambda commit: told.append(commit.events[-1].recorded.stream)
            gate.hold("appended")
            tasks = await submitted(*(desk.start(f"run_{n}", f"s{n}") for n in range(20)))
            await gate.reached()
            closing = asyncio.create_task(desk.journal.writer.close())
            await asyncio.sleep(0)
            assert await code_of(desk.start("run_late", "s_late")) == "STORE_UNAVAILABLE"
            gate.let_go()
            await closing
            assert [(await task).run_id for task in tasks] == told == [f"run_{n}" for n in range(20)]
            assert len({recorded.stream for recorded in await desk.everything()}) == 40


class ConcurrencyKit(Opening):
    """One event per (stream, version). A collision is never a verdict."""

    async def test_a_commit_on_a_stale_state_is_decided_again_and_wins(self, desk: Desk) -> None:
        """B62, C1: a state that others have written to is dropped, and the decision is made on what the log holds."""
        call = await desk.calling()
        await desk.believes("run_1", 1)
        attempts = desk.journal.writer.attempts
        assert await desk.cancel() == "cancelled"
        assert desk.journal.writer.attempts == attempts + 1
        events = await desk.journal.events("run_1")
        assert [event.version for event in events] == list(range(1, len(events) + 1))
        assert [event.event.NAME for event in events[3:]] == ["run.tool_failed", "run.cancelled"]
        assert getattr(events[3].event, "call", None) == call
        await is_sound(desk)

    async def test_a_commit_on_a_stale_state_gets_the_verdict_of_the_domain(self, desk: Desk) -> None:
        """B59, C63: somebody else retried the failed run: RUN_NOT_RETRYABLE, not a collision."""
        await desk.failed()
        failed = (await desk.state("run_1")).version
        await desk.retry()
        await desk.believes("run_1", failed)
        assert await code_of(desk.retry()) == "RUN_NOT_RETRYABLE"
        assert (await desk.names("run_1")).count("run.retried") == 1
        await is_sound(desk)

    async def test_an_answer_that_lost_is_not_found(self, desk: Desk) -> None:
        """B53, C3, C4, C26: whatever its writer believed about the run."""
        await desk.suspended("run_1", "cp_1", "cp_2")
        waiting = (await desk.state("run_1")).version
        await desk.answer("cp_1", "first")
        await desk.believes("run_1", waiting)
        assert await code_of(desk.answer("cp_1", "second", claim="claim_2")) == "CHECKPOINT_NOT_FOUND"
        await desk.cancel()
        await desk.believes("run_1", waiting)
        assert await code_of(desk.answer("cp_2", claim="claim_3")) == "CHECKPOINT_NOT_FOUND"
        assert (await desk.names("run_1")).count("run.resumed") == 1
        await is_sound(desk)

    async def test_a_refusal_on_a_stale_state_is_reconsidered(self, desk: Desk) -> None:
        """B62, C1: a run that seemed to be running has failed meanwhile; a question that seemed not to be is there."""
        await desk.failed()
        await desk.believes("run_1", 1)
        await desk.retry()
        assert (await desk.names("run_1"))[-1] == "run.retried"
        await desk.suspended("run_2", "cp_1", session="s2")
        await desk.believes("run_2", 1)
        assert await desk.answer("cp_1") == Answered("run_2", "run_2")
        await is_sound(desk)

    async def test_no_opinion_on_a_stale_state_is_reconsidered(self, desk: Desk) -> None:
        """B62: a decision that appends nothing and so cannot collide is held against the log all the same."""
        call = await desk.calling()
        await desk.believes("run_1", 1)
        await desk.commit(lambda streams: commits.record_outcome(streams, "run_1", RecordResult(call, "done", 1.0)))
        assert (await desk.names("run_1"))[-1] == "run.tool_returned"
        await desk.believes("run_1", 1)
        done = await desk.commit(lambda streams: streams.run("run_1"))
        assert done.result == await desk.state("run_1")

    async def test_a_guard_on_a_stale_state_is_reconsidered(self, desk: Desk) -> None:
        """B60, C16: what the decision only looked at counts as well as what it wrote to."""
        await desk.start("run_1", "s1")
        await desk.turn("run_1", text="done")
        await desk.suspended("run_2", session="s2")
        await desk.believes("run_2", 1)

        def decide(streams: Streams) -> str:
            start("run_3", "s3", input=len(streams.run("run_2").questions))(streams)
            return streams.run("run_2").status

        await desk.commit(decide)
        assert getattr((await desk.journal.events("run_3"))[0].event, "input", None) == 1

    async def test_rivals_in_one_process_have_one_winner(self, desk: Desk) -> None:
        """B62, C1: 50 answers to one question at once."""
        for trial in range(trials(2, 20)):
            checkpoint = f"cp_{trial}"
            await desk.suspended(f"run_{trial}", checkpoint, session=f"s{trial}")
            codes = await asyncio.gather(*(code_of(desk.answer(checkpoint, claim=f"claim_{n}")) for n in range(50)))
            assert sorted(codes, key=str) == ["CHECKPOINT_NOT_FOUND"] * 49 + [None]
            assert await desk.names(checkpoint) == ["checkpoint.opened", "checkpoint.claimed"]
        await is_sound(desk)

    async def test_a_second_event_at_a_version_collides(self, desk: Desk) -> None:
        """B43: below the decisions too, in the store itself."""
        await desk.start()
        [first] = await desk.journal.events("run_1")
        with pytest.raises(Collision), desk.journal.store.write() as tx:
            tx.insert([first])
        assert await desk.journal.events("run_1") == [first]

    async def test_seqs_of_a_root_are_contiguous_over_concurrent_commits(self, desk: Desk) -> None:
        """B123: every event of the tree has a number, 1, 2, 3..., without a gap."""
        questions = [f"cp_{n}" for n in range(12)]
        await desk.suspended("run_1", *questions)
        await asyncio.gather(*(desk.answer(checkpoint, claim=f"claim_{checkpoint}") for checkpoint in questions))
        await desk.turn("run_1", text="done")
        entries = [entry.recorded for entry in await desk.journal.log("run_1", 0, 1000)]
        assert [recorded.meta.seq for recorded in entries] == list(range(1, len(entries) + 1))
        assert {recorded.stream for recorded in entries} == {"run_1", *questions}
        assert entries == [recorded for recorded in await desk.everything() if recorded.meta.root == "run_1"]
        await is_sound(desk)

    async def test_positions_increase_and_are_never_used_again(self, desk: Desk) -> None:
        """B123: not even when the newest streams are gone, so that whoever tails the log skips nothing."""
        await desk.start("run_1", "s1")
        await desk.start("run_2", "s2")
        used = [recorded.position for recorded in await desk.everything()]
        assert used == sorted(set(used))
        self.execute(desk, "DELETE FROM stored_events WHERE originator_id IN ('run_2', 'session:s2')")
        await desk.start("run_3", "s3")
        assert (await desk.everything())[-2].position == used[-1] + 1
        last = (await desk.everything())[-1].position
        assert await desk.delete("s3")
        assert min(recorded.position for recorded in (await desk.everything())[-2:]) == last + 1

    async def test_a_session_has_one_running_root_whoever_starts_it(self, desk: Desk) -> None:
        """B60, C16: the guard is read under the lock, so of 20 starts at once one is accepted."""
        codes = await asyncio.gather(*(code_of(desk.start(f"run_{n}", "s1")) for n in range(20)))
        assert sorted(codes, key=str) == sorted([None, *["SESSION_BUSY"] * 19], key=str)
        assert len(await desk.journal.ask(lambda cursor: reads.session_events(cursor, "s1"))) == 1
        await is_sound(desk)

    async def test_a_start_in_a_suspended_session_is_refused_and_names_the_questions(self, desk: Desk) -> None:
        """B60, C16: nothing is written."""
        await desk.suspended("run_1", "cp_1", "cp_2")
        before = await desk.everything()
        with pytest.raises(BreadError) as refused:
            await desk.start("run_2", "s1")
        assert refused.value.code == "SESSION_SUSPENDED"
        assert refused.value.details["checkpoints"] == ["cp_1", "cp_2"]
        assert await desk.everything() == before

    async def test_an_idempotency_key_starts_one_run(self, desk: Desk) -> None:
        """B56, C35: of 20 requests with one key one starts; another body is refused; tenants do not meet."""
        key = IdempotencyKey(key="order-17", digest="d1")
        started = await asyncio.gather(*(desk.start(f"run_{n}", f"s{n}", key=key) for n in range(20)))
        assert {found.run_id for found in started} == {"run_0"}
        assert [found.repeated for found in started] == [False] + [True] * 19
        other = IdempotencyKey(key="order-17", digest="d2")
        assert await code_of(desk.start("run_x", "sx", key=other)) == "IDEMPOTENCY_CONFLICT"
        elsewhere = await desk.start("run_y", "sy", key=other, tenant="acme")
        assert (elsewhere.run_id, elsewhere.repeated) == ("run_y", False)
        await is_sound(desk)

    async def test_a_lost_acknowledgement_is_success(self, desk: Desk, gate: Gate) -> None:
        """B62, C40: the answer is on the disk, its author was told nothing; the same claim again has won."""
        await desk.suspended()
        gate.break_at("committed")
        assert await code_of(desk.answer("cp_1", "yes", claim="mine")) == "STORE_UNAVAILABLE"
        assert await code_of(desk.answer("cp_1", "no", claim="other")) == "CHECKPOINT_NOT_FOUND"
        assert await desk.answer("cp_1", "yes", claim="mine") == Answered("run_1", "run_1")
        assert await desk.names("cp_1") == ["checkpoint.opened", "checkpoint.claimed"]
        assert (await desk.names("run_1")).count("run.resumed") == 1
