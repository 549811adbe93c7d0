"""Exit codes, and the one line on stderr that says what went wrong."""

from __future__ import annotations

import sys

from .words import one_line

DONE, ERROR, USAGE, RESTS, STOPPED, DAMAGED, INTERRUPTED = 0, 1, 2, 3, 4, 5, 130

HELP = """\
Exit codes:

\b
  0    done; a run that was followed has ended with its output
  1    an error: one line `CODE: message` on stderr; `invoke`: the run asks a person
  2    the command line was not understood
  3    the run rests: it waits for answers of people
  4    the run has failed, was cancelled, or its session was deleted
  5    `audit verify` found damage
  130  interrupted by Ctrl-C; the run is kept and can go on
"""


def report(code: str, message: str) -> None:
    """The line of an error."""
    print(f"{one_line(code)}: {one_line(message)}", file=sys.stderr, flush=True)


def note(message: str) -> None:
    """A line beside the output, which stays clean for programs."""
    print(one_line(message), file=sys.stderr, flush=True)
