"""A process that has imported bread and forks for each command line that it is sent, so that a test pays for it once.

A request is a line of JSON on stdin: words, folder, environment, and the files of the standard streams. The answer is
the exit code. Each command is a process of its own that runs `main`, as the installed `bread` does.
"""

from __future__ import annotations

import json
import os
import sys
import traceback
from typing import Any, NoReturn

import bread
from bread.runtime.cli import main, root

IMPORTED = (bread.Bread, root.app)  # by now, and not again by each command


def perform(request: dict[str, Any]) -> NoReturn:
    code: object = 70
    try:
        os.chdir(request["folder"])
        os.environ.clear()
        os.environ.update(request["env"])
        for number, name in enumerate(request["files"]):
            os.dup2(os.open(name, os.O_RDWR), number)
        sys.argv = ["bread", *request["words"]]
        main()
        code = 0
    except SystemExit as end:
        code = end.code
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code if isinstance(code, int) else 0)


def serve() -> None:
    requests = os.fdopen(os.dup(0), encoding="utf-8")
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    for line in requests:
        process = os.fork()
        if process == 0:
            perform(json.loads(line))
        answers.write(f"{os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])}\n")
        answers.flush()


if __name__ == "__main__":
    serve()
