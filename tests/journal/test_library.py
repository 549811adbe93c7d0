"""A store is an application of the `eventsourcing` library: an auditor opens it with that library's own classes."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from eventsourcing.application import AggregateNotFoundError, Application
from eventsourcing.persistence import IntegrityError, Mapper, Notification, StoredEvent
from eventsourcing.sqlite import SQLiteApplicationRecorder, SQLiteDatastore, SQLiteFactory
from eventsourcing.utils import Environment

from bread.domain import run_state
from bread.domain.envelope import Recorded
from bread.domain.run_state import RunState
from bread.runtime.event_log import EventMapper, PlainTranscoder
from bread.runtime.folds import fold_run
from bread.runtime.sqlite_journal import SQLiteJournal
from bread.runtime.sqlite_log import SQLiteEventLog
from bread.transport.codec import unpack

from .desk import Desk
from .opening import is_sound

RUN_EVENTS = [
    "run.started@1",
    "run.model_responded@1",
    "run.suspended@1",
    "run.question_asked@1",
    "run.parked@1",
    "run.resumed@1",
    "run.model_responded@1",
    "run.completed@1",
]


@pytest.fixture
async def desk(tmp_path: Path) -> AsyncIterator[Desk]:
    """A store with a run that asked, was answered and ended, a deleted session, and one that was opened last."""
    journal = SQLiteJournal(f"{tmp_path}/bread.db", "w_a")
    await journal.open()
    desk = Desk(journal)
    await desk.suspended("run_1", "cp_1")
    await desk.answer("cp_1")
    await desk.turn("run_1", text="done")
    await desk.suspended("run_2", "cp_2", session="s2")
    await desk.delete("s2")
    await desk.start("run_3", "s3")
    yield desk
    await journal.close()


@pytest.fixture
def database(tmp_path: Path, desk: Desk) -> str:
    return (tmp_path / "bread.db").as_uri()


async def test_the_stock_recorder_reads_a_run_and_the_log(desk: Desk, database: str) -> None:
    """B149: streams, versions and topics; the envelope needs nothing but msgpack, and the facts not even the data."""
    recorder = SQLiteApplicationRecorder(SQLiteDatastore(database, originator_id_type="text"))
    stream = recorder.select_events("run_1")
    assert [stored.topic for stored in stream] == RUN_EVENTS
    assert [stored.originator_version for stored in stream] == list(range(1, 9))
    assert [stored.topic for stored in recorder.select_events("run_1", gt=2, lte=4)] == RUN_EVENTS[2:4]
    for stored, recorded in zip(stream, await desk.journal.events("run_1"), strict=True):
        form, meta, data = unpack(stored.state)
        assert (form, meta["by"], meta["session"], meta["at"]) == (1, ["app", "local"], "s1", recorded.meta.at)
        assert isinstance(data, bytes)
    assert unpack(unpack(stream[0].state)[2])["input"] == "go"
    recorder.datastore.close()


async def test_the_stock_notification_log_is_all_commits_in_order(desk: Desk, database: str) -> None:
    """B149: from any position, in pages, by topic; ids only increase and are those of the audit."""
    recorder = SQLiteApplicationRecorder(SQLiteDatastore(database, originator_id_type="text"))
    everything = await desk.everything()
    found = recorder.select_notifications(start=1, limit=1000)
    assert [(one.id, one.originator_id, one.originator_version) for one in found] == [
        (recorded.position, recorded.stream, recorded.version) for recorded in everything
    ]
    assert recorder.max_notification_id() == everything[-1].position
    paged: list[Notification] = []
    last = 0
    while page := recorder.select_notifications(start=last, limit=3, inclusive_of_start=False):
        paged += page
        last = page[-1].id
    assert paged == found
    erased = recorder.select_notifications(start=1, limit=10, topics=["bread.erased@1"])
    assert {one.originator_id for one in erased} == {"run_2", "cp_2"}
    recorder.datastore.close()


async def test_the_stock_application_opens_a_store(desk: Desk, database: str) -> None:
    """B149: configured by its environment alone, with bread's mapper named in it; the store is none the worse."""
    env = {
        "PERSISTENCE_MODULE": "eventsourcing.sqlite",
        "SQLITE_DBNAME": database,
        "ORIGINATOR_ID_TYPE": "text",
        "MAPPER_TOPIC": "bread.runtime.event_log:EventMapper",
        "TRANSCODER_TOPIC": "bread.runtime.event_log:PlainTranscoder",
    }
    with Application[str](env) as app:
        assert isinstance(app.factory, SQLiteFactory)
        assert type(app.recorder) is SQLiteApplicationRecorder
        assert list(app.events.get("run_1")) == [
            Recorded(recorded.stream, recorded.version, recorded.event, recorded.meta)
            for recorded in await desk.journal.events("run_1")
        ]
        state: RunState = app.repository.get("run_1", projector_func=fold)
        assert state == await desk.state("run_1")
        sections = app.notification_log["1,5"]
        assert [item.id for item in sections.items] == [1, 2, 3, 4, 5]
        assert sections.next_id == "6,10"
    await desk.start("run_4", "s4")
    await is_sound(desk)


def fold(state: RunState | None, events: object) -> RunState | None:
    """The library's way to fold: `projector_func`."""
    assert hasattr(events, "__iter__")
    for recorded in events:
        if state is None:
            state = RunState(id=recorded.stream, version=recorded.version - 1)
        state = run_state.evolve(state, recorded.event)
    return state


async def test_our_event_log_has_the_librarys_api(desk: Desk, database: str) -> None:
    """B149: `repository.get`, the notification log and the recorder over the same file, while it is being written."""
    with SQLiteEventLog(database) as log:
        assert isinstance(log, Application)
        assert isinstance(log.mapper, Mapper)
        for run_id in ("run_1", "run_3"):
            assert log.repository.get(run_id, projector_func=fold) == await desk.state(run_id)
        assert log.repository.get("run_1", version=5, projector_func=fold) == await desk.state("run_1", 5)
        erased: RunState = log.repository.get("run_2", projector_func=fold)
        assert erased.status == "erased"
        with pytest.raises(AggregateNotFoundError):
            log.repository.get("run_none", projector_func=fold)
        await desk.start("run_4", "s4")
        assert log.repository.get("run_4", projector_func=fold) == await desk.state("run_4")
        mapper, whole = EventMapper(log.mapper.transcoder), log.recorder.select_notifications(1, 1000)
        assert log.notification_log.select(1, 10) == whole[:10]
        notified = [mapper.to_domain_event(one) for one in whole]
        assert [one.event for one in notified] == [recorded.event for recorded in await desk.everything()]
        assert fold_run("run_4", [one for one in notified if one.stream == "run_4"]) == await desk.state("run_4")


async def test_our_recorder_keeps_the_promises_of_the_table(desk: Desk, database: str) -> None:
    """B43, C63: one event per (stream, version), and a position is not used twice, also by the library's own calls."""
    with SQLiteEventLog(database) as log:
        [tombstone] = log.recorder.select_events("run_2")
        with pytest.raises(IntegrityError):
            log.recorder.insert_events([tombstone])
        last = log.recorder.max_notification_id()
        assert last is not None
        stored = StoredEvent("x_1", 1, tombstone.topic, tombstone.state)
        assert log.recorder.insert_events([stored]) == [last + 1]
        with log.factory.datastore.transaction(commit=True) as cursor:  # type: ignore[attr-defined]
            cursor.execute("DELETE FROM stored_events WHERE originator_id = 'x_1'")
        assert log.recorder.insert_events([stored]) == [last + 2]


async def test_the_mapper_is_its_own_inverse(desk: Desk) -> None:
    """B149: what is stored comes back the same, and is stored under the same bytes."""
    mapper = EventMapper(PlainTranscoder())
    for recorded in await desk.everything():
        stored = mapper.to_stored_event(recorded)
        assert (stored.originator_id, stored.originator_version) == (recorded.stream, recorded.version)
        back = mapper.to_domain_event(stored)
        assert (back.event, back.meta) == (recorded.event, recorded.meta)
        assert mapper.to_stored_event(back) == stored


async def test_the_environment_does_not_change_how_a_store_is_opened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """B157: the library would take all of these from the process; a store is what it was opened as."""
    elsewhere = {
        "PERSISTENCE_MODULE": "eventsourcing.popo",
        "SQLITE_DBNAME": str(tmp_path / "elsewhere.db"),
        "SQLITE_LOCK_TIMEOUT": "no number",
        "ORIGINATOR_ID_TYPE": "uuid",
        "CREATE_TABLE": "no",
        "COMPRESSOR_TOPIC": "zlib",
        "CIPHER_TOPIC": "eventsourcing.cipher:AESCipher",
        "CIPHER_KEY": "bm90IGEga2V5",
        "MAPPER_TOPIC": "nowhere:Mapper",
        "TRANSCODER_TOPIC": "nowhere:Transcoder",
        "FACTORY_TOPIC": "nowhere:Factory",
        "APPLICATION_RECORDER_TOPIC": "nowhere:Recorder",
        "IS_SNAPSHOTTING_ENABLED": "yes",
        "AGGREGATE_CACHE_MAXSIZE": "1000",
    }
    for prefix in ("", "BREAD_", "EVENTLOG_"):
        for name, value in elsewhere.items():
            monkeypatch.setenv(prefix + name, value)
    journal = SQLiteJournal(f"{tmp_path}/bread.db", "w_a")
    await journal.open()
    desk = Desk(journal)
    await desk.suspended()
    assert journal.store.log.repository.get("run_1", projector_func=fold) == await desk.state("run_1")
    assert journal.store.log.env == Environment("bread", journal.store.log.env)
    assert not set(elsewhere.values()) & set(journal.store.log.env.values())
    await is_sound(desk)
    await journal.close()
    assert os.listdir(tmp_path) == ["bread.db"]
