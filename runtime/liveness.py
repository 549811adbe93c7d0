"""Who is alive. On SQLite each executing process holds a file lock; the kernel lets go of it when the process dies."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Protocol

from ..domain.errors import StoreUnavailable


class Published(Protocol):
    """How far this process has got with publishing what it has committed."""

    @property
    def published_upto(self) -> int:
        """The position in the log up to which everything of this worker is published."""

    @property
    def is_done(self) -> bool:
        """Whether that is everything."""


class Liveness(Protocol):
    """Tells living workers from dead ones, without clocks where that is possible."""

    publishes: Published | None
    """How far this process publishes, for whoever has to go on with it."""

    def left_behind(self) -> dict[str, int]:
        """Workers that are gone, and up to where of the log they had published; for one process at a time."""

    def bury(self, worker: str) -> None:
        """Everything that a worker has left is published."""

    def join(self) -> None: ...

    def look(self) -> None:
        """For one that does not join: see who is alive. Blocks."""

    def leave(self) -> None: ...

    def is_alive(self, worker: str) -> bool:
        """As of the last look; one that was never seen is alive until somebody has looked for it."""

    def dead_among(self, workers: Collection[str]) -> set[str]:
        """Those that count as dead as of the last look; who was never seen is looked for now. May block."""

    def is_dead_now(self, worker: str) -> bool:
        """Whether a worker counts as dead at this moment, not a while ago. May block; asked under the store's lock."""

    def may_act(self) -> bool:
        """Whether nobody can count this worker as dead: only then does it begin something that others can notice."""

    def on_revived(self, call: Callable[[], object]) -> None:
        """`call`, from any thread, when this worker may have counted as dead and lives again. It acts again after
        `revived`, when it has looked at what became of its runs."""

    def revived(self) -> None: ...


class Certain:
    """What is the same wherever death is known without clocks: nobody who lives is ever taken for dead, and how far
    workers have published is known to nobody."""

    publishes: Published | None = None

    def left_behind(self) -> dict[str, int]:
        return {}

    def bury(self, worker: str) -> None:
        return

    def look(self) -> None:
        return  # it is looked at when somebody asks

    def is_alive(self, worker: str) -> bool:
        raise NotImplementedError

    def dead_among(self, workers: Collection[str]) -> set[str]:
        return {worker for worker in workers if not self.is_alive(worker)}

    def is_dead_now(self, worker: str) -> bool:
        return not self.is_alive(worker)

    def on_revived(self, call: Callable[[], object]) -> None:
        return  # a lock that is gone does not come back

    def revived(self) -> None:
        return


class Alone(Certain):
    """A store that only this process can see: nobody else lives."""

    def __init__(self, worker: str) -> None:
        self._worker = worker

    def join(self) -> None:
        return

    def leave(self) -> None:
        return

    def is_alive(self, worker: str) -> bool:
        return worker == self._worker

    def may_act(self) -> bool:
        return True


class FileLocks(Certain):
    """One lock file a worker, in a folder beside the database."""

    def __init__(self, database: str, worker: str) -> None:
        self._folder = Path(f"{Path(database).expanduser().absolute()}-workers")
        self._worker = worker
        self._held: int | None = None

    def join(self) -> None:
        try:
            self._folder.mkdir(mode=0o700, exist_ok=True)
            self._held = os.open(self._file(self._worker), os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600)
            fcntl.flock(self._held, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise StoreUnavailable(f"cannot hold a lock in {self._folder}: {error.strerror}") from error
        # A forked child would keep the lock of a parent that died.
        os.register_at_fork(after_in_child=self._let_go)

    def leave(self) -> None:
        if self._held is not None:
            self._file(self._worker).unlink(missing_ok=True)
            self._let_go()

    def is_alive(self, worker: str) -> bool:
        try:
            handle = os.open(self._file(worker), os.O_RDWR)
        except FileNotFoundError:
            return False
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        else:
            self._file(worker).unlink(missing_ok=True)
            return False
        finally:
            os.close(handle)

    def may_act(self) -> bool:
        return self.is_alive(self._worker)

    def _file(self, worker: str) -> Path:
        return self._folder / f"{worker}.lock"

    def _let_go(self) -> None:
        if self._held is not None:
            os.close(self._held)
            self._held = None
