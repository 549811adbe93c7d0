"""Ids are ordered and cannot be guessed; whoever lives holds a lock, and whoever died does not."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path

import pytest

from bread.domain.errors import StoreUnavailable
from bread.runtime import ids
from bread.runtime.ids import new_id, short_id
from bread.runtime.liveness import Alone, FileLocks
from support import trials

LETTERS = "0123456789abcdefghjkmnpqrstvwxyz"
SHAPE = re.compile(f"cp_[0-7][{LETTERS}]{{25}}")


def number_of(text: str) -> int:
    """The UUID of an id."""
    number = 0
    for letter in text.removeprefix("cp_"):
        number = number << 5 | LETTERS.index(letter)
    return number


def free_bits(text: str) -> int:
    """The 74 bits of an id that neither its time nor its version tell."""
    number = number_of(text)
    return (number >> 64 & 0xFFF) << 62 | number & (1 << 62) - 1


def shares(numbers: list[int], width: int) -> list[float]:
    """How often each bit is set."""
    return [sum(number >> bit & 1 for number in numbers) / len(numbers) for bit in range(width)]


def test_an_id_is_a_uuid_of_its_millisecond(monkeypatch: pytest.MonkeyPatch) -> None:
    """B45: version 7, with the time in front, so that ids of any process sort by when they were made."""
    monkeypatch.setattr(ids, "_last", 0)
    before = time.time_ns() // 1_000_000
    made = new_id("cp")
    after = time.time_ns() // 1_000_000
    assert SHAPE.fullmatch(made)
    number = number_of(made)
    assert before <= number >> 80 <= after
    assert (number >> 76 & 0xF, number >> 62 & 0b11) == (7, 0b10)


def test_ids_of_a_process_are_in_order_and_unique() -> None:
    """B45, B46: also of many in one millisecond, and from many threads."""
    made = [new_id("cp") for _ in range(trials(5_000, 500_000))]
    assert made == sorted(set(made))
    with ThreadPoolExecutor(8) as threads:
        batches = list(threads.map(lambda _: [new_id("cp") for _ in range(500)], range(8)))
    assert len({one for batch in batches for one in batch}) == 4000
    assert all(batch == sorted(batch) for batch in batches)


def test_ids_of_other_milliseconds_have_74_random_bits(monkeypatch: pytest.MonkeyPatch) -> None:
    """C54: every bit that is not the time is a coin."""
    clock = iter(range(10**13, 10**13 + 2000))
    monkeypatch.setattr(ids, "_last", 0)
    monkeypatch.setattr(ids, "_milliseconds", lambda: next(clock))
    made = [free_bits(new_id("cp")) for _ in range(2000)]
    assert all(0.4 < share < 0.6 for share in shares(made, 74))


def test_an_id_does_not_tell_the_next_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """C54: who knows an id of the same millisecond, say of the run, has 64 bits to guess."""
    monkeypatch.setattr(ids, "_last", 0)
    monkeypatch.setattr(ids, "_milliseconds", lambda: 10**13)
    made = [free_bits(new_id("cp")) for _ in range(500)]
    steps = [(later - earlier) % 2**74 for earlier, later in pairwise(made)]
    assert all(0.3 < share < 0.7 for share in shares(steps, 64))
    assert len(set(steps)) == len(steps)


def test_an_id_does_not_repeat_when_the_clock_goes_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """B45: the order of a process stays what it is."""
    clock = iter([10**13, 10**13 - 5000, 10**13 - 4999, 10**13 + 1])
    monkeypatch.setattr(ids, "_last", 0)
    monkeypatch.setattr(ids, "_milliseconds", lambda: next(clock))
    made = [new_id("cp") for _ in range(4)]
    assert made == sorted(set(made))


def test_short_ids_name_processes_and_commits() -> None:
    """B62: 48 random bits are enough to tell the commits of a store apart."""
    made = {short_id("w") for _ in range(2000)}
    assert len(made) == 2000
    assert all(re.fullmatch("w_[0-9a-f]{12}", one) for one in made)


# --- who is alive -----------------------------------------------------------------------------------------------------

HOLDER = """
import os, signal, sys
from bread.runtime.liveness import FileLocks

locks = FileLocks(sys.argv[1], sys.argv[2])
locks.join()
for line in map(str.strip, sys.stdin):
    if line == "fork":
        lives, says = os.pipe()
        child = os.fork()
        if child == 0:
            signal.alarm(60)  # whatever becomes of the test
            os.write(says, b".")
            signal.pause()
        os.read(lives, 1)
        print(child, flush=True)
    elif line == "leave":
        locks.leave()
        print("left", flush=True)
    elif line == "hello":
        print("held", flush=True)
"""


class Holder:
    """Another process that holds the lock of a worker."""

    def __init__(self, database: Path, worker: str) -> None:
        command = [sys.executable, "-c", HOLDER, str(database), worker]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert self.ask("hello") == "held"

    def ask(self, line: str) -> str:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(f"{line}\n")
        self.process.stdin.flush()
        return self.process.stdout.readline().strip()

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()


@contextmanager
def holding(database: Path, worker: str) -> Iterator[Holder]:
    holder = Holder(database, worker)
    try:
        yield holder
    finally:
        holder.kill()
        for stream in (holder.process.stdin, holder.process.stdout):
            assert stream is not None
            stream.close()


def test_a_worker_lives_while_its_process_does(tmp_path: Path) -> None:
    """B48, B67: alive while it holds its lock, dead at once when it was killed, without any clock."""
    here = FileLocks(str(tmp_path / "bread.db"), "w_here")
    with holding(tmp_path / "bread.db", "w_there") as holder:
        for _ in range(3):
            assert here.is_alive("w_there")
        holder.kill()
        assert not here.is_alive("w_there")
    assert not here.is_alive("w_there")


def test_a_worker_that_left_is_dead(tmp_path: Path) -> None:
    """B48: its process may live on; nothing of it is left in the folder."""
    here = FileLocks(str(tmp_path / "bread.db"), "w_here")
    with holding(tmp_path / "bread.db", "w_there") as holder:
        assert holder.ask("leave") == "left"
        assert not here.is_alive("w_there")
        assert list((tmp_path / "bread.db-workers").iterdir()) == []


def test_a_forked_child_does_not_live_in_its_parents_name(tmp_path: Path) -> None:
    """B67: a process that a tool forked survives its killed parent, and the parent is dead all the same."""
    here = FileLocks(str(tmp_path / "bread.db"), "w_here")
    with holding(tmp_path / "bread.db", "w_there") as holder:
        child = int(holder.ask("fork"))
        assert here.is_alive("w_there")
        try:
            holder.kill()
            os.kill(child, 0)
            assert not here.is_alive("w_there")
        finally:
            os.kill(child, signal.SIGKILL)


def test_a_worker_that_never_was_is_dead(tmp_path: Path) -> None:
    """B48: also where nobody ever was, and nothing is made there by asking."""
    here = FileLocks(str(tmp_path / "bread.db"), "w_here")
    assert not here.is_alive("w_nobody")
    assert not here.is_alive("w_here")
    assert list(tmp_path.iterdir()) == []


def test_two_workers_of_one_process_are_told_apart(tmp_path: Path) -> None:
    """B48: each lives and dies by its own lock, and each sees itself and the other."""
    database = str(tmp_path / "bread.db")
    one, two = FileLocks(database, "w_1"), FileLocks(database, "w_2")
    one.join()
    two.join()
    assert all(locks.is_alive(worker) for locks in (one, two) for worker in ("w_1", "w_2"))
    one.leave()
    one.leave()
    assert [two.is_alive(worker) for worker in ("w_1", "w_2")] == [False, True]
    two.leave()
    assert not one.is_alive("w_2")


def test_a_name_is_held_once(tmp_path: Path) -> None:
    """B48: a second holder of a name would live in the first one's place."""
    one, two = (FileLocks(str(tmp_path / "bread.db"), "w_1") for _ in range(2))
    one.join()
    with pytest.raises(StoreUnavailable):
        two.join()
    two.leave()
    assert two.is_alive("w_1")
    one.leave()


def test_a_folder_that_cannot_be_made_is_said_to_be_one(tmp_path: Path) -> None:
    """B48: STORE_UNAVAILABLE, with the place."""
    (tmp_path / "bread.db-workers").write_text("in the way")
    with pytest.raises(StoreUnavailable, match=r"bread\.db-workers"):
        FileLocks(str(tmp_path / "bread.db"), "w_1").join()


def test_a_store_in_memory_has_one_worker() -> None:
    """B48: nobody else can see it, so nobody else lives."""
    alone = Alone("w_1")
    alone.join()
    assert (alone.is_alive("w_1"), alone.is_alive("w_2")) == (True, False)
    alone.leave()
