"""Many processes that open a store at the same instant, which has no tables yet."""

from __future__ import annotations

import psycopg

from bread.runtime.postgres_open import MIGRATION
from crash.processes import Processes
from crash.stores import ON_SERVERS
from support import trials

SCRIPT = {"turns": [[{"call": "tool_note", "args": {"what": "a"}}], [{"say": "Done."}]]}


@ON_SERVERS
def test_all_of_them_start(processes: Processes) -> None:
    """B64, C21: all of them have found no tables, and stand at the lock below which they are made; then all go on."""
    children = [processes.child(open=False) for _ in range(trials(6, 36))]
    for child in children:
        child.wait_for("loaded")
    with psycopg.connect(processes.shared.url, autocommit=True) as door:
        door.execute("SELECT pg_advisory_lock(%s, hashtext(current_schema()))", [MIGRATION])
        opening = [child.send("open") for child in children]
        waiting = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted"
        while door.execute(waiting).fetchone() != (len(children),):
            pass
    assert [child.reply(number) for child, number in zip(children, opening, strict=True)] == [
        child.worker for child in children
    ]
    starting = [child.send("start", script=SCRIPT, run=f"run_{n}") for n, child in enumerate(children)]
    for child, number in zip(children, starting, strict=True):
        child.reply(number)
    for n, child in enumerate(reversed(children)):
        assert child.call("seen", run=f"run_{n}")[-1]["type"] == "agent:run:end"
    for child in children:
        child.close()
    log = processes.log
    log.assert_sound()
    assert sorted(log.runs) == sorted(f"run_{n}" for n in range(len(children)))
    assert len(processes.effects(tool="note")) == len(children)
    processes.assert_quiet()
