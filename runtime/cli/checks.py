"""The checks of `bread doctor`. Each looks at one thing; none makes a store, takes a run, or shows a secret."""

from __future__ import annotations

import fcntl
import os
import platform
import shutil
import sqlite3
import sys
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import closing
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from ...domain.errors import BreadError, StoreUnavailable
from ..sources import CONFIG_FILE
from .survey import NO_AGENTS, Survey, survey
from .words import moment

if TYPE_CHECKING:
    from .place import Place

TESTED = ((3, 11), (3, 13))
LITTLE_BYTES, TOO_LITTLE_BYTES = 1 << 30, 1 << 26
SKEW_SECONDS = 60.0
BUILT = datetime(2025, 1, 1, tzinfo=UTC)  # no clock is right that stands before it
REMOTE = ("nfs", "cifs", "smb", "9p", "fuse.sshfs", "fuse.s3fs", "ceph", "glusterfs", "afs")


@dataclass(frozen=True)
class Finding:
    """What one check has found. `to_do` says what helps."""

    state: Literal["ok", "warn", "fail"]
    what: str
    detail: str
    to_do: str = ""
    code: str = ""

    def as_data(self) -> dict[str, Any]:
        """For --json: camelCase, without what is empty."""
        data = {"toDo" if name == "to_do" else name: value for name, value in asdict(self).items()}
        return {name: value for name, value in data.items() if value}


def ok(what: str, detail: str) -> Finding:
    return Finding("ok", what, detail)


def warn(what: str, detail: str, to_do: str = "") -> Finding:
    return Finding("warn", what, detail, to_do)


def failed(what: str, error: BreadError, to_do: str = "") -> Finding:
    return Finding("fail", what, error.message, to_do, error.code)


async def examine(place: Place, *, deep: bool) -> AsyncIterator[Finding]:
    """All checks, in the order in which one depends on the other."""
    yield python()
    yield release()
    found = await survey(place)
    for finding in (*configuration(place, found), *agents(found), *models(found)):
        yield finding
    try:
        path = place.path
    except BreadError as error:
        if error.code == "INPUT_INVALID":  # of --store
            yield failed("store", error)
        else:
            yield warn("store", "not looked at, since what says where it is does not load")
    else:
        if path is not None:
            async for finding in database(place, path.expanduser().absolute(), deep=deep):
                yield finding
        elif place.is_memory:
            yield ok("store", "memory, gone with each process")
        else:
            async for finding in postgres(place, deep=deep):
                yield finding
    yield clock()
    async for finding in bus(place):
        yield finding


async def bus(place: Place) -> AsyncIterator[Finding]:
    """NATS, where there is to be one; what looks at it is imported where there is."""
    try:
        transport = place.transport()
    except BreadError as error:
        if error.code != "CONFIG_INVALID":  # which was said already
            yield failed("transport", error)
        return
    if transport is None:
        yield ok("transport", "in-process; processes on one store hear each other through it")
        return
    from . import checks_nats

    async for finding in checks_nats.server(transport):
        yield finding


async def postgres(place: Place, *, deep: bool) -> AsyncIterator[Finding]:
    """A PostgreSQL store; what looks at it is imported where there is one."""
    from ..stores import driver

    try:
        with driver():
            from . import checks_postgres
    except BreadError as error:
        yield failed("store", error)
        return
    async for finding in checks_postgres.database(place, deep=deep):
        yield finding


# --- the installation


def python() -> Finding:
    present, text = sys.version_info[:2], platform.python_version()
    if present > TESTED[1]:
        tested = " to ".join(f"{major}.{minor}" for major, minor in TESTED)
        return warn("python", f"{text} is newer than what bread is tested with", f"use Python {tested}")
    return ok("python", f"{text} ({platform.system()} {platform.machine()})")


def release() -> Finding:
    try:
        return ok("bread", f"{version('bread-runtime')} in {Path(__file__).parents[2]}")
    except PackageNotFoundError:
        return warn("bread", "it runs, but is not installed", "pip install bread-runtime")


def clock() -> Finding:
    """Deadlines, ids and the log are in UTC, by the clock of the machine."""
    now = datetime.now(UTC)
    if now < BUILT:
        return warn("clock", f"it says {moment(now)}", "set the clock of this machine")
    return ok("clock", f"{moment(now)} (UTC)")


# --- the app


def configuration(place: Place, found: Survey) -> Iterator[Finding]:
    for error in found.config_problems:
        yield failed("config", error)
    if not found.config_problems:
        where = CONFIG_FILE if os.path.isfile(CONFIG_FILE) else f"no {CONFIG_FILE}: defaults and the environment"
        yield ok("config", where)


def agents(found: Survey) -> Iterator[Finding]:
    for error in found.problems:
        if error.message == NO_AGENTS:
            yield warn("agents", error.message)
        else:
            yield failed("agents", error)
    for error in found.doubts:
        yield warn("agents", error.message)
    if not found.problems:
        yield ok("agents", f"{', '.join(agent.id for agent in found.agents)} (from {found.source})")


def models(found: Survey) -> Iterator[Finding]:
    for agent in found.agents:
        error = found.unready.get(agent.id)
        if error is None:
            yield ok("model", f"{agent.model.name} of agent {agent.id} is ready")
        else:
            yield failed("model", error)


# --- the store


async def database(place: Place, file: Path, *, deep: bool) -> AsyncIterator[Finding]:
    """A SQLite store: its folder, the disk, the locks that tell living processes from dead ones, and what is in it."""
    folder = next(parent for parent in file.parents if parent.exists())
    if not folder.is_dir() or not os.access(folder, os.W_OK | os.X_OK):
        error = StoreUnavailable(f"nothing can be written in {folder}")
        yield failed("store", error, "give this user the right to, or choose another --store")
        return
    if _holds_something(file):
        to_do = "choose another --store; this file was not changed"
        async for finding in contents(place, f"SQLite {file}, {_size_of(file)}", to_do, deep=deep):
            yield finding
    else:
        yield ok("store", f"SQLite {file}, which the first run makes")
    yield disk(folder)
    yield locks(folder)


async def contents(place: Place, what: str, to_do: str = "", *, deep: bool) -> AsyncIterator[Finding]:
    """What is in a store that is there. `to_do` is for one that cannot be read."""
    from ..app import Bread

    try:
        async with Bread(store=place.store, executes=False) as bread:
            waiting = await bread.list_checkpoints(limit=1000)
            runs = (await bread.list_runs(limit=1)).items
            report = await bread.check() if deep else None
    except BreadError as error:
        yield failed("store", error, to_do if error.code == "STORE_INVALID" else "")
        return
    count = f"{len(waiting.items)}{' or more' if waiting.next else ''}"
    yield ok("store", f"{what}; questions that wait: {count}")
    ahead = max(((run.updated_at - datetime.now(UTC)).total_seconds() for run in runs), default=0.0)
    if ahead > SKEW_SECONDS:
        yield warn("clock", f"the newest run was changed {ahead:.0f} s from now", "set the clocks of the machines")
    if report is None:
        return
    if report.ok:
        yield ok("log", f"{report.streams} streams, {report.events} events: sound")
    for problem in report.problems:
        yield Finding("fail", "log", problem, "bread audit verify --rebuild, if only lists are wrong", "LOG_DAMAGED")


def _holds_something(file: Path) -> bool:
    return file.exists() and (file.is_dir() or file.stat().st_size > 0)


def disk(folder: Path) -> Finding:
    free = shutil.disk_usage(folder).free
    if free < TOO_LITTLE_BYTES:
        return failed("disk", StoreUnavailable(f"{size(free)} are free in {folder}"), "make room")
    if free < LITTLE_BYTES:
        return warn("disk", f"{size(free)} are free in {folder}", "make room")
    return ok("disk", f"{size(free)} are free")


def locks(folder: Path) -> Finding:
    """Two holders of one lock, and a write-ahead log, in a folder that is gone afterwards."""
    kind = file_system(folder)
    to_do = "put the store on a local disk"
    try:
        with tempfile.TemporaryDirectory(prefix=".bread-doctor-", dir=folder) as name:
            works = _excludes(Path(name, "lock")) and _has_wal(Path(name, "wal.db"))
    except (OSError, sqlite3.Error) as error:
        return failed("locks", StoreUnavailable(f"{kind or folder}: {error}"), to_do)
    if not works:
        return failed(
            "locks", StoreUnavailable(f"two processes would not keep out of each other's way on {kind}"), to_do
        )
    if kind.startswith(REMOTE):
        return warn("locks", f"they work here, but {kind} is no local file system", to_do)
    return ok("locks", f"they work{f' on {kind}' if kind else ''}")


def _excludes(file: Path) -> bool:
    first, second = (os.open(file, os.O_CREAT | os.O_RDWR, 0o600) for _ in range(2))
    try:
        fcntl.flock(first, fcntl.LOCK_EX | fcntl.LOCK_NB)
        fcntl.flock(second, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(first)
        os.close(second)
    return False


def _has_wal(file: Path) -> bool:
    with closing(sqlite3.connect(file)) as connection:
        mode = connection.execute("PRAGMA journal_mode = WAL").fetchone()[0]
        connection.execute("CREATE TABLE probe (x)")
    return bool(mode == "wal")


def file_system(folder: Path) -> str:
    """The kind of file system that a folder lies on; empty where the machine does not tell."""
    found, best = "", -1
    try:
        mounts = Path("/proc/self/mounts").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return ""
    for line in mounts:
        _, place, kind, *_ = line.split(" ")
        place = place.replace("\\040", " ")
        if folder.resolve().is_relative_to(place) and len(place) >= best:
            found, best = kind, len(place)
    return found


def _size_of(file: Path) -> str:
    return size(file.stat().st_size)


def size(count: int) -> str:
    """Bytes as people read them."""
    for unit, bytes_of in (("GB", 1 << 30), ("MB", 1 << 20), ("kB", 1 << 10)):
        if count >= bytes_of:
            return f"{count / bytes_of:.1f} {unit}"
    return f"{count} bytes"
