"""The place of a command: in which folder it works, on which store, and which agents this process has."""

from __future__ import annotations

import asyncio
import os
import shlex
import sys
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, reduce
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import typer

from ...domain.errors import BreadError, InvalidInput, NotFound
from ..sources import AGENTS_FOLDER, CONFIG_FILE
from .exits import INTERRUPTED, note
from .words import plain

if TYPE_CHECKING:
    from ...transport.port import Transport
    from ..agents import Agent
    from ..app import Bread
    from ..composing import Step
    from ..config import Config


class Place:
    """What the global options say: None where they were not given.

    What a folder says beside them is read when it is needed: a list needs the store alone, and executes no agents.
    """

    def __init__(self, store: str | None, app: str | None, cwd: str | None = None, nats: str | None = None) -> None:
        self._store, self.app, self._nats = store, app, nats
        self._cwd: str | None = None
        self.if_interrupted: str | None = None
        self.enter(cwd)

    def enter(self, folder: str | None) -> None:
        """Work in another folder from now on."""
        if folder is None:
            return
        try:
            os.chdir(folder)
        except OSError as error:
            raise InvalidInput("INPUT_INVALID", f"--cwd {folder!r}: expected a folder: {error.strerror}") from error
        self._cwd = os.path.join(self._cwd or "", folder)

    @cached_property
    def config(self) -> Config | None:
        """What `bread.config.py` and the environment say; None where neither says anything."""
        if not os.path.isfile(CONFIG_FILE) and not any(map(_is_setting, os.environ)):
            return None
        from ..config import load_config

        see_working_folder()
        return load_config()

    @cached_property
    def _found(self) -> Named:
        return load_app(self.app) if self.app else Named([])

    @cached_property
    def store(self) -> str:
        """That of --store, of the configuration, of --app, or the default."""
        from ..stores import DEFAULT_STORE

        if self._store:
            return self._store
        if self.config is not None and "store" in self.config.model_fields_set:
            return self.config.store
        return self._found.store or DEFAULT_STORE

    @cached_property
    def nats(self) -> str | None:
        """That of --nats, of the configuration, or of --app. It may hold a password."""
        return self._nats or (self.config.nats if self.config is not None else None) or self._found.nats

    def transport(self) -> Transport | None:
        """How what happens here is told: None for the store alone."""
        from ..buses import bus_of

        return bus_of(self.nats) if self.config is None else self.config.transport(self.nats)

    @property
    def path(self) -> Path | None:
        """The database file; None for a store that is none: in memory, or PostgreSQL."""
        from ..stores import store_path

        path = store_path(self.store)
        return None if path is None else Path(path)

    @property
    def is_memory(self) -> bool:
        """Whether the store is gone with the process."""
        from ..stores import is_postgres

        return self.path is None and not is_postgres(self.store)

    @property
    def folder(self) -> Path | None:
        """The folder of agents that the agents come from; None where they come from --app, or are the demo's."""
        if self.app:
            return None
        config = self.config
        if config is not None and config.model_fields_set & {"agents", "entrypoints"}:
            return Path(config.agents)
        usual = Path(AGENTS_FOLDER)
        return usual if any(usual.glob("[!._]*/agent.py")) else None

    @cached_property
    def _agents(self) -> list[Agent]:
        if self.app:
            return self._found.agents
        if self.folder is None:
            from .demo import publisher

            return [publisher(self.path.expanduser() if self.path else None)]
        from ..loader import load_agents

        see_working_folder()
        return load_agents(self.folder)

    def agents(self) -> list[Agent]:
        """Those of --app, or of the folder `agents/`; else the demo's."""
        if self.config is not None and self.config.entrypoints:
            from ..config import check_entrypoints

            check_entrypoints(self.config, [*(agent.id for agent in self._agents), *self.pipelines()])
        return self._agents

    def pipelines(self) -> Mapping[str, Sequence[Step | str]]:
        """Those of --app, or of the configuration."""
        if self.app:
            return self._found.pipelines
        return self.config.pipelines if self.config is not None else {}

    def entrypoints(self) -> list[Agent]:
        """The agents that a person may start from here: those that the configuration names, or all."""
        named = self.config.entrypoints if self.config is not None else ()
        return [agent for agent in self.agents() if agent.id in named or not named]

    def pipelines_to_start(self) -> list[str]:
        """The pipelines that a person may start from here: those that the configuration names, or all."""
        named = self.config.entrypoints if self.config is not None else ()
        return [pipeline_id for pipeline_id in self.pipelines() if pipeline_id in named or not named]

    def open(self, *, executes: bool = False, takes: bool = True, tells: bool = False, performs: bool = True) -> Bread:
        """A Bread on the store. Only one that executes needs agents, and takes runs that nobody performs, unless it
        leaves all that it begins to others that perform; one that `tells` has a bus, since it changes something, or
        wants to hear at once."""
        from ..app import Bread

        if not executes:
            agents = self.agents() if self.app else []
            transport = self.transport() if tells else None
            return Bread(agents=agents, store=self.store, transport=transport, executes=False)
        agents = [*self.agents(), *self._demo()]
        limits: dict[str, Any] = {}
        if self.config is not None:
            limits = {"concurrency": self.config.concurrency, "grace": self.config.grace}
        limits["transport"] = self.transport()
        limits["executes"] = performs
        return Bread(agents=agents, pipelines=self.pipelines(), store=self.store, takes=takes, **limits)

    def _demo(self) -> list[Agent]:
        """The demo's agent where the demo has played, so that its questions can be answered from another terminal."""
        if self.app or self.folder is None or self.path is None:
            return []
        from .demo import AGENT, fetches, publisher

        database = self.path.expanduser()
        if not fetches(database).exists() or any(agent.id == AGENT for agent in self.agents()):
            return []
        return [publisher(database)]

    # --- words

    def first_line(self, *more: str) -> str:
        """Where the data is, and how events travel."""
        return "  ".join((f"bread {_version()}", f"data: {self.where}", f"bus: {self._bus()}", *more))

    @property
    def where(self) -> str:
        """Where the data is, for people: without a password."""
        if self.path is not None:
            return f"SQLite {self.path}{'' if self.path.exists() else ' (new)'}"
        if self.is_memory:
            return "memory, gone with this process"
        from ..stores import shown_store

        return f"PostgreSQL {shown_store(self.store)}"

    def _bus(self) -> str:
        try:
            return f"NATS {_shown(self.nats)}" if self.nats else "in-process"
        except BreadError:
            return "in-process"  # what needs a bus says what is wrong; a list needs none

    def announce(self, *more: str) -> None:
        print(plain(self.first_line(*more)).replace("\n", " "), flush=True)

    def command(self, *words: str) -> str:
        """A command line for this place, to be pasted."""
        nats = f"nats://{_shown(self._nats)}" if self._nats and "BREAD_NATS" not in os.environ else None
        options = {"--cwd": self._cwd, "--store": self._store_to_paste(), "--nats": nats, "--app": self.app}
        given = [word for option, value in options.items() if value for word in (option, value)]
        return shlex.join(["bread", *given, *words])

    def _store_to_paste(self) -> str | None:
        """No password stands in a command line: it comes from where it came from, or is asked of who pastes it."""
        from ..stores import without_password

        if self._store is None or (without := without_password(self._store)) == self._store:
            return self._store
        return None if os.environ.get("BREAD_STORE") == self._store else without

    def inside(self, folder: str, *words: str) -> str:
        """The same, for a folder that is no place yet."""
        return shlex.join(["bread", "--cwd", os.path.join(self._cwd or "", folder), *words])

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


def _is_setting(name: str) -> bool:
    # The store and the app have options of their own.
    return name.upper().startswith("BREAD_") and name.upper() not in (
        "BREAD_STORE",
        "BREAD_STORE_PASSWORD_FILE",
        "BREAD_NATS",
        "BREAD_APP",
    )


def _shown(nats: str) -> str:
    from ...transport.nats_settings import address_of

    return address_of(nats).shown


def see_working_folder() -> None:
    """Let modules of the working folder be imported, as with `python -m`."""
    if "" not in sys.path:
        sys.path.insert(0, "")


@dataclass(frozen=True)
class Named:
    """What `--app` names; a Bread brings its store, its bus and its pipelines, too."""

    agents: list[Agent]
    store: str | None = None
    nats: str | None = None
    pipelines: Mapping[str, Sequence[Step | str]] = field(default_factory=dict)


def load_app(spec: str) -> Named:
    """The agents that `module:attr` names: an Agent, a list of Agents, or a Bread, which brings its store, too."""
    from ..agents import Agent
    from ..app import Bread

    module, _, attribute = spec.partition(":")
    if not module or not attribute:
        raise InvalidInput("INPUT_INVALID", f"--app {spec!r}: expected module:attr")
    see_working_folder()
    try:
        found = reduce(getattr, attribute.split("."), import_module(module))
    except Exception as error:
        raise NotFound("APP_NOT_FOUND", f"--app {spec!r}: {type(error).__name__}: {error}") from error
    if isinstance(found, Bread):
        pipelines = {pipeline.id: pipeline.steps for pipeline in found.pipelines.values()}
        return Named(list(found.agents.values()), found.store, found.nats, pipelines)
    agents = [found] if isinstance(found, Agent) else found
    if isinstance(agents, list | tuple) and all(isinstance(agent, Agent) for agent in agents):
        return Named(list(agents))
    raise InvalidInput("INPUT_INVALID", f"--app {spec!r}: expected an Agent, a list of Agents or a Bread")
