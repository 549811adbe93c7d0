"""The transport port: telling other processes what happens here, and hearing what happens there.

A transport brings liveness, never truth: what it loses, repeats or delays is read from the store. So it may drop
frames, but not keep anybody waiting.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from .local import Frame


class Transport(Protocol):
    """Carries frames between the processes of one store. All calls come on the event loop."""

    async def open(self, heard: Callable[[str, Frame], None]) -> None:
        """Begin; `heard` is to be called, on the event loop, with the root and the frame that another process told."""

    def tell(self, root: str, frame: Frame) -> None:
        """An event of this process, after its commit and in order for each root, or something live. Returns at once."""

    async def close(self) -> None: ...


class InProcess:
    """No other process is told anything: those on the same file hear of each other by the store."""

    async def open(self, heard: Callable[[str, Frame], None]) -> None:
        return

    def tell(self, root: str, frame: Frame) -> None:
        return

    async def close(self) -> None:
        return
