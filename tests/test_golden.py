"""Golden logs: what was ever stored is read for ever, with the same meaning."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from bread import Bread, define_agent, define_human_tool, define_tool
from bread.domain.events import restore, topic_of
from bread.domain.ports import Logged
from bread.runtime import tree_reads
from bread.runtime.sqlite_journal import SQLiteJournal
from bread.testing import ScriptedModel, text
from bread.transport.codec import stored_form
from golden import logs, make, reading
from golden.reading import HERE, Line, holds, read_log
from support import read, types

GENERATIONS = sorted(folder.name for folder in HERE.glob("v[0-9]*"))
LOGS = sorted(str(file.relative_to(HERE).with_suffix("")) for file in HERE.glob("v[0-9]*/*.jsonl"))
WHOLE = [log for log in LOGS if not log.endswith("/events")]
# Events that showed nothing in the first generation. What they come to show is no change of what was shown.
SHOWN_LATER = {f"run.{name}" for name in ("child_started", "child_suspended", "child_resumed", "child_returned")}
SHOWN_LATER |= {f"run.{name}" for name in ("step_started", "step_finished")}
SHOWN_LATER |= {f"run.{name}" for name in ("loop_started", "iteration_finished", "loop_finished")}


def lines_of(log: str) -> list[Line]:
    return [line for line, _ in read_log(HERE / f"{log}.jsonl")]


def expected_of(log: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((HERE / f"{log}.json").read_text())
    return found


def specimens() -> dict[str, list[Line]]:
    """Every event on its own, by topic, as the first generation that has it."""
    found: dict[str, list[Line]] = {}
    for generation in GENERATIONS:
        lines = lines_of(f"{generation}/events")
        for topic in {line.topic for line in lines} - found.keys():
            found[topic] = [line for line in lines if line.topic == topic]
    return found


@pytest.mark.parametrize("log", LOGS)
def test_golden_bytes_are_read_and_written_as_they_were(log: str) -> None:
    """C37, C43: every stored event is decoded, and its present version is encoded to the very same bytes."""
    for line, twin in read_log(HERE / f"{log}.jsonl"):
        assert line.twin() == twin, "what stands beside the bytes is not what they say"
        recorded = line.recorded()
        assert (recorded.stream, recorded.version, recorded.position) == (line.stream, line.version, line.position)
        if topic_of(recorded.event) == line.topic:
            assert stored_form(recorded) == (line.topic, line.state)
            assert recorded.event.model_dump(exclude_defaults=True) == twin["data"]


@pytest.mark.parametrize("log", WHOLE)
def test_golden_logs_mean_what_they_meant(log: str) -> None:
    """C37, B122, B123, B5: the same states, crumbs with the same numbers, and messages."""
    expected = expected_of(log)
    recorded = [line.recorded() for line in lines_of(log)]
    found = reading.reading(recorded)
    assert expected.pop("about")
    assert holds(expected["states"], found["states"]) == []
    assert holds(expected["messages"], found["messages"]) == []
    assert expected["crumbs"].keys() == found["crumbs"].keys()
    names = {(one.meta.root, one.meta.seq): one.event.NAME for one in recorded}
    for root, crumbs in expected["crumbs"].items():
        later = SHOWN_LATER if log.startswith("v1/") else set()
        shown = [crumb for crumb in found["crumbs"][root] if names[root, crumb["seq"]] not in later]
        assert holds(crumbs, shown) == []


@pytest.mark.parametrize("generation", GENERATIONS)
def test_golden_logs_hold_more_than_they_expect(generation: str) -> None:
    """C37: no log is empty of what it is there for, so that none can pass by saying nothing."""
    for log in WHOLE:
        expected = expected_of(log)
        assert {line.stream for line in lines_of(log)} == set(expected["states"])
        assert all(expected["crumbs"].values())
        assert expected["messages"]
    assert holds({"a": [1]}, {"a": [1], "b": 2}) == []
    for wrong in ({"a": [2]}, {"a": [1, 1]}, {"a": [1.0]}, {"a": [True]}, {}, {"a": None}):
        assert holds({"a": [1]}, wrong) != []


def test_every_event_has_golden_bytes_of_each_of_its_versions() -> None:
    """C37, C43: a class or a version without one fails here: make the next generation (tests/golden/make.py)."""
    known = {f"{name}@{v}" for name, cls in reading.events_of_bread().items() for v in range(1, cls.VERSION + 1)}
    assert known == specimens().keys()


def test_golden_events_are_there_with_the_least_and_with_the_most() -> None:
    """C37: each with nothing but what it must have, and with every field other than its default."""
    for topic, (least, most) in specimens().items():
        shape = fields_of(topic)
        required = {name for name, field in shape.items() if "default" not in field}
        assert set(least.twin()["data"]) == required, topic
        for name, field in shape.items():
            has_one_value = isinstance(field["type"], dict) and len(field["type"].get("literal", "..")) == 1
            assert name in most.twin()["data"] or has_one_value, (topic, name)


def fields_of(topic: str) -> dict[str, Any]:
    """The fields of an event as its first golden generation has them."""
    for generation in GENERATIONS:
        shapes: dict[str, Any] = json.loads((HERE / generation / "fields.json").read_text())
        if topic in shapes:
            found: dict[str, Any] = shapes[topic]
            return found
    raise AssertionError(f"no golden fields of {topic}")


def test_the_fields_of_an_event_change_with_its_version_only() -> None:
    """C37: names, types, and defaults, which are stored by being left out; those of the parts of an event as well."""
    for topic, shape in reading.shapes().items():
        assert shape == fields_of(topic), f"{topic} has other fields: raise its version and write its upcaster"


def test_every_golden_log_is_there_with_what_is_expected() -> None:
    """C37: a log without its expectations, or the reverse, would be looked at by nobody."""
    for generation in GENERATIONS:
        files = {file.name for file in (HERE / generation).iterdir()}
        names = {Path(log).name for log in WHOLE if log.startswith(f"{generation}/")}
        assert files == {"events.jsonl", "fields.json"} | {f"{log}.{end}" for log in names for end in ("jsonl", "json")}
    assert set(logs.LOGS) <= {Path(log).name for log in WHOLE}


def test_golden_logs_hold_every_event_in_a_whole_log() -> None:
    """C37: every name occurs in the log of a run, not only on its own."""
    names = {line.topic.partition("@")[0] for log in WHOLE for line in lines_of(log)}
    assert names == reading.events_of_bread().keys()


def test_a_generation_is_not_written_twice(tmp_path: Path) -> None:
    """C37: golden logs are for ever."""
    (tmp_path / "v1").mkdir()
    with pytest.raises(FileExistsError):
        make.make(tmp_path / "v1")
    assert list((tmp_path / "v1").iterdir()) == []


def test_an_unknown_field_of_a_golden_event_is_kept() -> None:
    """C37: `cached_tokens` is of a release to come; it is in the most of ModelResponded and stays there."""
    _, most = specimens()["run.model_responded@1"]
    event = restore(most.topic, most.twin()["data"])
    assert event.model_dump()["usage"]["cached_tokens"] == 3


# --- a store of then, opened now --------------------------------------------------------------------------------------


async def as_a_store(log: str, place: Path) -> Path:
    """A database file that holds a golden log and, with what today's code makes of it, the views."""
    file = place / "bread.db"
    journal = SQLiteJournal(str(file), "w_maker")
    journal.store.close()
    connection = sqlite3.connect(file)
    rows = [(line.position, line.stream, line.version, line.topic, line.state) for line in lines_of(log)]
    columns = "rowid, originator_id, originator_version, topic, state"
    connection.executemany(f"INSERT INTO stored_events ({columns}) VALUES (?, ?, ?, ?, ?)", rows)  # noqa: S608
    connection.commit()
    connection.close()
    return file


@pytest.mark.parametrize("log", WHOLE)
async def test_a_store_of_then_is_rebuilt_and_sound(log: str, tmp_path: Path) -> None:
    """C37, B123: its views are made again, agree with its log, and give the numbers that were shown."""
    journal = SQLiteJournal(str(await as_a_store(log, tmp_path)), "w_now")
    await journal.open()
    await journal.rebuild()
    assert (await journal.check()).problems == []
    recorded = [line.recorded() for line in lines_of(log)]
    erased = {one.stream for one in recorded if one.event.NAME == "bread.erased"}
    for root in {one.meta.root for one in recorded if one.meta.root is not None} - erased:
        entries: list[Logged] = await journal.log(root, 0, 1000)
        assert [entry.recorded for entry in entries] == [one for one in recorded if one.meta.root == root]
        assert [entry.recorded.meta.seq for entry in entries] == list(range(1, len(entries) + 1))
        assert (await journal.ask(tree_reads.run_info, root)).root == root
    await journal.close()


DECISION = {"publish": True, "note": "go"}


async def test_runs_of_then_go_on_now(tmp_path: Path) -> None:
    """C37, C43, B65: what a release left suspended, ready, orphaned or failed, another one ends."""
    done: list[str] = []

    @define_tool
    async def delete(path: str) -> str:
        """Delete a file."""
        done.append(path)
        return f"deleted {path}"

    @define_tool
    async def charge(n: int) -> str:
        """Charge a card."""
        done.append(f"charge {n}")
        return "charged"

    publish = define_human_tool("approve_publish", {"type": "object"})
    model = ScriptedModel(lambda request: [text("Done.")])
    agent = define_agent(
        "publisher", model=model, tools=[publish, delete, charge], permissions={"ask": ["tool:delete"]}
    )
    for generation in GENERATIONS:
        file = await as_a_store(f"{generation}/pending", tmp_path)
        journal = SQLiteJournal(str(file), "w_rebuilds")
        await journal.open()
        await journal.rebuild()
        await journal.close()
        async with Bread(agents=[agent], store=f"sqlite:///{file}") as bread:
            await read(bread.observe("run_03"))
            assert (await bread.get_run("run_03")).output == "Done."
            assert types(await read(bread.resume("cp_01", DECISION, author="ann")))[0] == "human:resumed"
            assert await bread.resume("cp_02", {"approved": True}) == "Done."
            assert await bread.retry("run_05") == "Done."
            [doubt] = (await bread.list_checkpoints(kind="in_doubt")).items
            assert (doubt.run_id, doubt.tool_name) == ("run_04", "charge")
            assert await bread.resume(doubt.id, {"outcome": "happened", "result": "charged"}) == "Done."
            assert {run.status for run in (await bread.list_runs()).items} == {"completed"}
        assert done == ["a"]
        done.clear()
        file.unlink()
