"""What a shell completes: ids of agents, questions and runs of the place that the command line so far names.

A shell asks at every Tab, wherever somebody stands: whatever goes wrong completes nothing, says nothing, and makes no
store.
"""

from __future__ import annotations

import asyncio
import io
import os
from collections.abc import Callable, Coroutine
from contextlib import redirect_stderr, redirect_stdout
from typing import TYPE_CHECKING, Any

import typer

if TYPE_CHECKING:
    from ..app import Bread
    from .place import Place

Words = list[tuple[str, str]]
"""What can come next, each with a few words about it."""

ROWS = 100


def agent_ids(context: typer.Context, incomplete: str) -> Words:
    """The agents that a person may start."""
    return _quietly(context, incomplete, _agents)


def agent_and_pipeline_ids(context: typer.Context, incomplete: str) -> Words:
    """The agents and the pipelines that a person may start."""

    def find(place: Place) -> Words:
        return [*_agents(place), *((one, "pipeline") for one in place.pipelines_to_start())]

    return _quietly(context, incomplete, find)


def checkpoint_ids(context: typer.Context, incomplete: str) -> Words:
    """The questions that wait, oldest first."""

    async def ask(bread: Bread) -> Words:
        return [(c.id, f"{c.agent_id} {c.tool_name}") for c in (await bread.list_checkpoints(limit=ROWS)).items]

    return _quietly(context, incomplete, lambda place: _stored(place, ask))


def run_ids(context: typer.Context, incomplete: str) -> Words:
    """The newest runs."""

    async def ask(bread: Bread) -> Words:
        return [(r.id, f"{r.agent_id} {r.status}") for r in (await bread.list_runs(limit=ROWS)).items]

    return _quietly(context, incomplete, lambda place: _stored(place, ask))


def _agents(place: Place) -> Words:
    # The names of folders are enough; agents are not executed for a Tab.
    if place.folder is None:
        return [(agent.id, agent.model.name) for agent in place.entrypoints()]
    named = [name for name in (place.config.entrypoints if place.config else ()) if name not in place.pipelines()]
    return [(name, "") for name in named or sorted(file.parent.name for file in place.folder.glob("[!._]*/agent.py"))]


def _stored(place: Place, ask: Callable[[Bread], Coroutine[Any, Any, Words]]) -> Words:
    if not _is_there(place):
        return []

    async def work() -> Words:
        async with place.open() as bread:
            return await ask(bread)

    return asyncio.run(work())


def _is_there(place: Place) -> bool:
    """Whether there is a store, which opening it would make."""
    from ..stores import find_version

    if place.path is not None:
        return os.path.getsize(place.path.expanduser()) > 0  # an OSError where it is not
    return not place.is_memory and find_version(place.store) is not None


def _quietly(context: typer.Context, incomplete: str, find: Callable[[Place], Words]) -> Words:
    try:
        with redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()):
            return [words for words in find(_place(context)) if words[0].startswith(incomplete)]
    except (Exception, SystemExit):
        return []


def _place(context: typer.Context) -> Place:
    """The place of the words so far: a shell parses them, but no command is performed."""
    from .place import Place

    given = context.find_root().params
    place = Place(given.get("store"), given.get("agents"), given.get("cwd"))
    if context.parent is not None:
        place.enter(context.params.get("cwd"))
    return place
