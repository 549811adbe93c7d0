"""What there is to do in a store: runs with work, and questions whose time is up."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from .sql import Cursor


@dataclass(frozen=True, slots=True)
class Work:
    """A run with work. `owner` is None where it is ready for anybody."""

    run_id: str
    agent: str
    owner: str | None
    root: str


def owned_work(cursor: Cursor) -> list[Work]:
    """Every run with work and an owner: a short list, since parked and ended runs have none."""
    cursor.execute(
        "SELECT id, agent, owner, root FROM bread_runs WHERE status = 'running' AND owner IS NOT NULL ORDER BY id"
    )
    return [Work(*row) for row in cursor.fetchall()]


def ready_work(cursor: Cursor, agents: Sequence[str], limit: int) -> list[Work]:
    """The oldest runs of some agents that are ready for anybody."""
    cursor.execute(
        "SELECT id, agent, owner, root FROM bread_runs WHERE status = 'running' AND owner IS NULL"  # noqa: S608
        f" AND agent IN ({', '.join('?' * len(agents)) or 'NULL'}) ORDER BY id LIMIT ?",
        (*agents, limit),
    )
    return [Work(*row) for row in cursor.fetchall()]


def overdue(cursor: Cursor, at: float) -> list[str]:
    """The pending checkpoints whose deadline has passed at `at`, in the order of their deadlines."""
    cursor.execute(
        "SELECT id FROM bread_checkpoints WHERE status = 'pending' AND deadline <= ? ORDER BY deadline", (at,)
    )
    return [row[0] for row in cursor.fetchall()]
