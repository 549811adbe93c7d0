"""What is promised in numbers: commits, tasks, queries, bytes."""

from __future__ import annotations

import asyncio
import re
import sqlite3
from collections import Counter as Tally
from pathlib import Path
from typing import Any

import pytest

from bread import Bread, define_tool
from bread.runtime import reads
from bread.runtime.postgres_sql import PostgresCursor
from bread.runtime.sql import Cursor
from bread.testing import call, pause, text
from scenes import (
    ONLY_FILE,
    Gate,
    OpenBread,
    agent,
    ask_first,
    asking,
    asks,
    come,
    ended,
    engine_of,
    names,
    question,
    until,
)
from support import read, trials


@define_tool
async def work(what: str = "") -> str:
    return "x" * 1000


def commits(bread: Bread) -> int:
    return engine_of(bread).journal.writer.commits


async def of_commits(bread: Bread, run_id: str) -> list[list[str]]:
    """The names of a run's events, commit by commit."""
    found: dict[str, list[str]] = {}
    async for event in bread.audit(run_id):
        found.setdefault(event.commit, []).append(event.name.split(".")[1])
    return list(found.values())


async def test_four_commits_for_start_ask_answer_finish(open_bread: OpenBread) -> None:
    """B43, B50: what no outside effect separates shares one commit."""
    async with open_bread(agent(asks(), asking())) as bread:
        before = commits(bread)
        asked = await ask_first(bread)
        await bread.resume(asked.checkpoint_id, "yes")
        assert commits(bread) - before == 4
        assert await of_commits(bread, asked.run_id) == [
            ["started"],
            ["model_responded", "suspended", "opened", "question_asked", "parked"],
            ["claimed", "resumed"],
            ["model_responded", "completed"],
        ]


async def test_five_commits_with_an_approval(open_bread: OpenBread) -> None:
    """B36, B43: the intent goes with the answer, the outcome is a commit of its own."""
    gated = agent([[call("tool_work")], [text("Done.")]], work, permissions={"ask": ["tool:*"]})
    async with open_bread(gated) as bread:
        before = commits(bread)
        asked = await ask_first(bread)
        await bread.resume(asked.checkpoint_id, {"approved": True})
        assert commits(bread) - before == 5
        assert await of_commits(bread, asked.run_id) == [
            ["started"],
            ["model_responded", "suspended", "opened", "question_asked", "parked"],
            ["claimed", "resumed", "tool_called"],
            ["tool_returned"],
            ["model_responded", "completed"],
        ]


async def test_one_commit_for_each_result_that_comes_on_its_own(open_bread: OpenBread) -> None:
    """B6, B26: a finished tool is committed at once, never held back for a slower sibling."""
    gates = {name: Gate() for name in ("one", "two", "three")}

    @define_tool
    async def hold(gate: str) -> str:
        await gates[gate]()
        return gate

    script = [[call("tool_hold", {"gate": name}) for name in gates], [text("Done.")]]
    async with open_bread(agent(script, hold)) as bread:
        before = commits(bread)
        run_id = await bread.start("a", "go")
        for gate in gates.values():
            await gate.reached.wait()
        assert commits(bread) - before == 2
        stream = aiter(bread.observe(run_id))
        for count, (name, gate) in enumerate(gates.items(), 1):
            gate.open()
            async for crumb in stream:
                if crumb.type == "tool:result":
                    assert crumb.result == name
                    break
            assert (await names(bread, run_id)).count("tool_returned") == count
        await ended(bread, run_id)
        assert commits(bread) - before == 2 + 3 + 1
        assert (await of_commits(bread, run_id))[1] == ["model_responded", *["tool_called"] * 3]


async def test_a_parked_run_costs_nothing(open_bread: OpenBread) -> None:
    """B61: no task, no actor, no cached state, no subscription for any of them."""
    async with open_bread(agent(asks(), asking())) as bread:
        engine = engine_of(bread)
        await asyncio.sleep(0)
        idle = {task.get_name() for task in asyncio.all_tasks()}
        for _ in range(trials(30, 300)):
            await ask_first(bread)
        asked = await ask_first(bread)
        await come(lambda: not engine.hub._subscriptions)
        left = {task.get_name() for task in asyncio.all_tasks() if not task.cancelling()} - idle
        assert {name for name in left if name.startswith(("run_", "bread run"))} == set()
        assert len(asyncio.all_tasks()) <= len(idle) + 1
        assert engine.actors == {}
        assert (engine.journal.writer._cache, engine.journal.writer._places) == ({}, {})
        assert engine.hub._live == {}
        assert (await bread.get_run(asked.run_id)).status == "suspended"


async def test_an_ended_run_leaves_nothing_either(open_bread: OpenBread) -> None:
    """B61: after its last commit."""
    async with open_bread(agent(asks(), asking())) as bread:
        engine = engine_of(bread)
        for _ in range(trials(10, 100)):
            asked = await ask_first(bread)
            await bread.resume(asked.checkpoint_id, "yes")
        await ended(bread, asked.run_id)
        assert engine.actors == {}
        assert (engine.journal.writer._cache, engine.journal.writer._places) == ({}, {})
        assert engine.hub._live == {}


# --- queries ----------------------------------------------------------------------------------------------------------

FILTERS: list[dict[str, Any]] = [
    {},
    {"agent": "a"},
    {"tool": "ask"},
    {"session": "s7"},
    {"kind": "input"},
    {"answerable": True},
    {"answerable": False},
    {"tags": {"team": "red"}},
    {"tags": {"team": "red", "tier": "gold"}},
    {"agent": "a", "tool": "ask"},
    {"agent": "a", "session": "s7", "tags": {"team": "red"}},
    {"tool": "ask", "kind": "input", "answerable": True},
]


class Recording:
    """A cursor that keeps what it is asked."""

    def __init__(self, cursor: Cursor) -> None:
        self.cursor, self.asked = cursor, list[tuple[str, Any]]()

    def execute(self, statement: str, values: Any = ()) -> Any:
        self.asked.append((statement, values))
        return self.cursor.execute(statement, values)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.cursor, name)


@pytest.mark.parametrize("given", FILTERS, ids=str)
async def test_a_page_of_questions_is_one_indexed_query(open_bread: OpenBread, given: dict[str, Any]) -> None:
    """B46: whatever is filtered by, one query that searches indexes and scans no table, and pages by key."""
    async with open_bread(agent(asks(), asking())) as bread:
        for n in range(8):
            await ask_first(bread, session=f"s{n}", tags={"team": "red", "tier": "gold"})
        journal = engine_of(bread).journal
        before = journal.queries
        page = await bread.list_checkpoints(**given, limit=3)
        assert journal.queries - before == 1
        expected = 0 if given.get("answerable") is False else 1 if "session" in given else 3
        assert len(page.items) == expected
        assert (page.next is None) == (expected < 3)
        columns = ("agent", "tool", "session", "kind")
        filters = {name: value for name, value in given.items() if name in columns}

        def look(cursor: Cursor) -> tuple[list[Any], list[str]]:
            recording: Any = Recording(cursor)
            reads.list_checkpoints(
                recording,
                tenant="default",
                filters=filters,
                tags=given.get("tags", {}),
                answerable=given.get("answerable"),
                limit=3,
                after=page.next or "1",
            )
            return recording.asked, plans_of(cursor, recording.asked)

        asked, plans = await journal.ask(look)
    assert len(asked) == 1
    # A page is read in the order of an index; only the few questions of one session may be sorted.
    assert not any("TEMP B-TREE" in step or step.startswith("Sort") for step in plans) or "session" in given
    assert [step for step in plans if step.startswith(("SCAN", "Seq Scan"))] == []
    assert all("INDEX" in step or "PRIMARY KEY" in step for step in plans if step.startswith("SEARCH"))
    used = re.compile("SEARCH c USING INDEX bread_|Index Scan using bread_.* on bread_checkpoints")
    assert any(map(used.match, plans))


def plans_of(cursor: Cursor, asked: list[tuple[str, Any]]) -> list[str]:
    """How the database would carry the statements out. So few rows are best scanned, unless that is forbidden."""
    if not isinstance(cursor, PostgresCursor):
        return [row[3] for one in asked for row in cursor.execute(f"EXPLAIN QUERY PLAN {one[0]}", one[1]).fetchall()]
    for setting in ("enable_seqscan", "enable_bitmapscan", "enable_sort"):
        cursor.execute(f"SET LOCAL {setting} = off")
    lines = [row[0] for one in asked for row in cursor.execute(f"EXPLAIN {one[0]}", one[1]).fetchall()]
    return [line.strip().removeprefix("->").strip() for line in lines]


async def test_pages_follow_each_other_without_gap_or_repeat(open_bread: OpenBread) -> None:
    """B46: oldest first, by key, also while questions are answered and asked in between."""
    async with open_bread(agent(asks(), asking())) as bread:
        ids = [(await ask_first(bread)).checkpoint_id for _ in range(11)]
        page = await bread.list_checkpoints(limit=4)
        seen = [one.id for one in page.items]
        assert seen == ids[:4]
        await bread.resume(ids[0], "yes")
        await bread.resume(ids[5], "yes")
        ids.append((await ask_first(bread)).checkpoint_id)
        while page.next is not None:
            page = await bread.list_checkpoints(limit=4, cursor=page.next)
            seen += [one.id for one in page.items]
        assert seen == [*ids[:5], *ids[6:]]


async def test_filters_find_what_they_name(open_bread: OpenBread) -> None:
    """B46: agent, tool, session, tags, kind and answerable, alone and together."""
    gated = agent([[call("tool_work")], [text("Done.")]], work, permissions={"ask": ["tool:*"]}, id="b")
    async with open_bread(agent(asks(), asking()), gated) as bread:
        red = await ask_first(bread, session="s1", tags={"team": "red"})
        blue = await ask_first(bread, session="s2", tags={"team": "blue"})
        gate = await ask_first(bread, "b", session="s3", tags={"team": "red", "tier": "gold"})

        async def found(**filters: Any) -> list[str]:
            return [one.id for one in (await bread.list_checkpoints(**filters)).items]

        one, two, three = (asked.checkpoint_id for asked in (red, blue, gate))
        assert await found() == await found(answerable=True) == [one, two, three]
        assert await found(agent="a") == await found(tool="ask") == await found(kind="input") == [one, two]
        assert await found(agent="b") == await found(tool="work") == await found(kind="approval") == [three]
        assert await found(session="s2") == [two]
        assert await found(tags={"team": "red"}) == [one, three]
        assert await found(tags={"team": "red", "tier": "gold"}) == [three]
        assert await found(agent="a", tags={"team": "red"}) == [one]
        assert await found(agent="a", kind="approval") == await found(answerable=False) == []


# --- bytes ------------------------------------------------------------------------------------------------------------


def size(path: Path) -> int:
    """The bytes of the database file when all of it is in there."""
    connection = sqlite3.connect(path)
    assert connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[0] == 0
    connection.close()
    return path.stat().st_size


@ONLY_FILE
async def test_a_cycle_takes_less_than_five_kilobytes(open_bread: OpenBread, tmp_path: Path) -> None:
    """C20: start, ask, answer, finish; with its indexes and views, and the same for the last as for the first."""
    async with open_bread(agent(asks({"url": "https://x.test/post"}), asking(prompt="Publish {url}?"))) as bread:

        async def cycles(count: int) -> float:
            before = size(tmp_path / "bread.db")
            for _ in range(count):
                asked = await ask_first(bread, input="publish the launch post")
                await bread.resume(asked.checkpoint_id, {"approved": True}, author="ann")
            return (size(tmp_path / "bread.db") - before) / count

        first, later = await cycles(trials(100, 500)), await cycles(trials(100, 500))
    assert (first + later) / 2 < 5000
    assert later < 1.2 * first  # whole pages are counted, so batches differ a little


@ONLY_FILE
async def test_what_is_found_ready_is_taken_in_few_transactions(open_bread: OpenBread) -> None:
    """B48: the first is taken by itself; those that wait meanwhile go together."""
    gate, passed = Gate(), Tally[str]()
    script = [[pause(gate), text("Done.")]]
    async with open_bread(agent(script), executes=False) as passive:
        runs = [await passive.start("a", "go", session=f"s{n}") for n in range(100)]
    async with open_bread(agent(script), fault=lambda point: passed.update([point])) as bread:
        await come(lambda: gate.passed == len(runs))
        assert commits(bread) == len(runs)
        assert passed["committed"] <= 3
        gate.open()
        for run in runs:
            assert (await ended(bread, run))[-1].type == "agent:run:end"


@ONLY_FILE
async def test_bytes_grow_with_the_payload_and_no_faster(open_bread: OpenBread, tmp_path: Path) -> None:
    """C20: 50 tool calls of 1 kB before the suspension take under 150 kB; 200 take four times as much, not sixteen."""

    async def taken(calls: int, name: str) -> int:
        path = tmp_path / f"{name}.db"
        script = [*([[call("tool_work", {"what": "w" * 20})]] * calls), [call("human_ask")], [text("Done.")]]
        worker = agent(script, work, asking(), max_steps=1000)
        async with open_bread(worker, store=f"sqlite:///{path}") as bread:
            empty = size(path)
            question(await read(bread.run("a", "go")))
            return size(path) - empty

    fifty, two_hundred = await taken(50, "fifty"), await taken(200, "more")
    assert fifty < 150_000
    assert two_hundred < 4.4 * fifty
    assert two_hundred < 2 * 200 * 1000 + 200 * 1000


@ONLY_FILE
async def test_a_deletion_frees_what_it_took(open_bread: OpenBread, tmp_path: Path) -> None:
    """C20, B73: the next sessions fit into the room of those that are gone."""
    async with open_bread(agent(asks({"q": "x" * 500}), asking())) as bread:

        async def play(start: int) -> None:
            for n in range(start, start + 40):
                asked = await ask_first(bread, session=f"s{n}")
                await bread.resume(asked.checkpoint_id, "yes")

        await play(0)
        full = size(tmp_path / "bread.db")
        for n in range(40):
            await bread.sessions.delete(f"s{n}")
        await play(100)
        assert size(tmp_path / "bread.db") < 1.25 * full


async def test_nothing_polls_the_store_for_who_reads(open_bread: OpenBread) -> None:
    """B61: an observer of a parked run asks the store once, however long it waits."""
    async with open_bread(agent(asks(), asking())) as bread:
        asked = await ask_first(bread)
        stream = aiter(bread.observe(asked.run_id))
        async for crumb in stream:
            if crumb.type == "human:required":
                break
        waiting = asyncio.ensure_future(anext(stream))
        await until(bread.observe(asked.run_id), "human:required")
        before = engine_of(bread).journal.queries
        for _ in range(100):
            await asyncio.sleep(0)
        assert engine_of(bread).journal.queries - before <= 1
        await read(bread.resume(asked.checkpoint_id, "yes"))
        assert (await waiting).type == "human:resumed"
