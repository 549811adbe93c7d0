"""The command line: `bread`. What a command needs is imported when it runs, so that `bread --help` is quick."""

from __future__ import annotations


def main() -> None:
    """Entry point of `bread`."""
    from .root import run

    run()
