"""The place of a command: which store it works on, and which agents this process has."""

from __future__ import annotations

import asyncio
import os
import shlex
import sys
from collections.abc import Callable, Coroutine
from functools import cached_property, reduce
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import typer

from ...domain.errors import InvalidInput, NotFound
from .exits import INTERRUPTED, note
from .words import plain

if TYPE_CHECKING:
    from ..agents import Agent
    from ..app import Bread


class Place:
    """What the global options say. `store` and `app` are None where they were not given."""

    def __init__(self, store: str | None, app: str | None) -> None:
        self._store, self._app = store, app
        self.if_interrupted: str | None = None

    @cached_property
    def _found(self) -> tuple[list[Agent], str | None]:
        return load_app(self._app) if self._app else ([], None)

    @property
    def store(self) -> str:
        from ..app import DEFAULT_STORE

        return self._store or self._found[1] or DEFAULT_STORE

    @property
    def path(self) -> Path | None:
        """The database file; None for a store that is no file."""
        return Path(self.store.removeprefix("sqlite:///")) if self.store.startswith("sqlite:///") else None

    def agents(self) -> list[Agent]:
        """Those of --app; without it the demo's, so that its questions can be answered from another terminal."""
        if self._app:
            return self._found[0]
        from .demo import publisher

        return [publisher(self.path.expanduser() if self.path else None)]

    def open(self, *, executes: bool = False) -> Bread:
        """A Bread on the store. Only one that executes needs agents, and takes runs that nobody performs."""
        from ..app import Bread

        agents = self.agents() if executes or self._app else []
        return Bread(agents=agents, store=self.store, executes=executes)

    # --- words

    def first_line(self, *more: str) -> str:
        """Where the data is, and how events travel."""
        where = f"data: {self.store}"
        if self.path is not None:
            where = f"data: SQLite {self.path}{'' if self.path.exists() else ' (new)'}"
        elif self.store == "memory://":
            where = "data: memory, gone with this process"
        return "  ".join((f"bread {_version()}", where, "bus: in-process", *more))

    def announce(self, *more: str) -> None:
        print(plain(self.first_line(*more)).replace("\n", " "), flush=True)

    def command(self, *words: str) -> str:
        """A command line for this place, to be pasted."""
        given = [*(("--store", self._store) if self._store else ()), *(("--app", self._app) if self._app else ())]
        return shlex.join(["bread", *given, *words])

    # --- performing

    def perform(self, work: Callable[[], Coroutine[Any, Any, int]]) -> NoReturn:
        """Run a command to its exit code. Ctrl-C closes the store in order, and says how to go on."""
        try:
            code = asyncio.run(work())
        except KeyboardInterrupt:
            note(f"interrupted. {self.if_interrupted or ''}")
            sys.stdout.flush()
            os._exit(INTERRUPTED)  # a tool that still runs in a thread would hold the process back
        raise typer.Exit(code)


def _version() -> str:
    try:
        return version("bread-runtime")
    except PackageNotFoundError:
        return "(not installed)"


def load_app(spec: str) -> tuple[list[Agent], str | None]:
    """The agents that `module:attr` names: an Agent, a list of Agents, or a Bread, which brings its store, too."""
    from ..agents import Agent
    from ..app import Bread

    module, _, attribute = spec.partition(":")
    if not module or not attribute:
        raise InvalidInput("INPUT_INVALID", f"--app {spec!r}: expected module:attr")
    if "" not in sys.path:
        sys.path.insert(0, "")  # modules of the working folder, as with `python -m`
    try:
        found = reduce(getattr, attribute.split("."), import_module(module))
    except Exception as error:
        raise NotFound("APP_NOT_FOUND", f"--app {spec!r}: {type(error).__name__}: {error}") from error
    if isinstance(found, Bread):
        return list(found.agents.values()), found.store
    agents = [found] if isinstance(found, Agent) else found
    if isinstance(agents, list | tuple) and all(isinstance(agent, Agent) for agent in agents):
        return list(agents), None
    raise InvalidInput("INPUT_INVALID", f"--app {spec!r}: expected an Agent, a list of Agents or a Bread")
