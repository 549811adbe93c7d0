"""The process from which `forked.py` has its own: it has imported bread, and has neither threads nor open stores."""

from __future__ import annotations

import gc
import json
import os
import runpy
import signal
import socket
import sys
from pathlib import Path
from typing import Any


def load() -> None:
    """What most of them need."""
    import jsonschema
    import nats.js
    import psycopg_pool

    import bread
    import bread.runtime.http.serve
    import bread.runtime.postgres
    import bread.runtime.sqlite
    import bread.testing
    import bread.transport.jetstream
    from bread.runtime.cli import root

    loaded = [jsonschema, nats.js, psycopg_pool, bread.runtime, bread.testing, bread.transport, root.app]
    loaded += [getattr(bread, name) for name in bread.__all__]
    gc.collect()
    gc.freeze()  # what stands here is nobody's garbage, and its pages stay shared


def born(home: socket.socket) -> dict[str, Any]:
    """The request of the process that this has become. In the nursery itself it never returns."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody asks for nurses
    while True:
        order, streams, _, _ = socket.recv_fds(home, 1, 4)
        if not order:
            os._exit(0)  # the tests are over
        if os.fork() == 0:
            home.close()
            return nursed(streams)
        for one in streams:
            os.close(one)


def nursed(streams: list[int]) -> dict[str, Any]:
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    tells = os.fdopen(streams.pop(), "r+b", buffering=0)
    request: dict[str, Any] = json.loads(read_line(tells.fileno()))
    process = os.fork()
    if process == 0:
        tells.close()
        for number, (one, name) in enumerate(zip(streams, ("stdin", "stdout", "stderr"), strict=True)):
            os.dup2(one, number)
            os.close(one)
            # Anew: those of the nursery know whether theirs could seek.
            mode, errors, buffering = ("r" if name == "stdin" else "w"), "strict", -1
            if name == "stderr":
                errors, buffering = "backslashreplace", 1
            stream = open(number, mode, buffering, encoding="utf-8", errors=errors, closefd=False)  # noqa: SIM115
            setattr(sys, name, stream)
            setattr(sys, f"__{name}__", stream)
        return request
    for one in streams:
        os.close(one)
    tells.write(f"{process}\n".encode())
    _, status = os.waitpid(process, 0)
    tells.write(f"{os.waitstatus_to_exitcode(status)}\n".encode())
    os._exit(0)


def read_line(handle: int) -> bytes:
    line = b""
    while not line.endswith(b"\n"):
        line += os.read(handle, 65536)
    return line


def play(request: dict[str, Any]) -> None:
    """As `python WORDS`."""
    if request["session"]:
        os.setsid()
    os.chdir(request["cwd"])
    os.environ.clear()
    os.environ.update(request["env"])
    sys.path[1:1] = [one for one in request["env"].get("PYTHONPATH", "").split(os.pathsep) if one]
    words = request["words"]
    if words[0] == "-m":
        sys.argv, sys.path[0] = words[1:], request["cwd"]
        runpy.run_module(words[1], run_name="__main__", alter_sys=True)
    else:
        sys.argv, sys.path[0] = words, str(Path(words[0]).parent)
        runpy.run_path(words[0], run_name="__main__")


if __name__ == "__main__":
    load()
    play(born(socket.socket(fileno=int(sys.argv[1]))))
