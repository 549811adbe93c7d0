"""Where the lines of a person come from: a terminal, with editing and a history, or a pipe."""

from __future__ import annotations

import asyncio
import os
import sys
import termios
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from .exits import note

if TYPE_CHECKING:
    from prompt_toolkit.history import History
    from prompt_toolkit.key_binding import KeyBindings


class Lines(Protocol):
    """Lines, one after the other. What waits for one may be cancelled; no line is lost by that."""

    async def line(self, prompt: str = "", *, keep: bool = True) -> str | None:
        """The next line; None at the end, or if the person leaves. With `keep` it goes into the history."""

    def forget(self) -> None:
        """What was typed before now was not meant for what is asked now."""

    def close(self) -> None: ...


def lines_of_stdin(history: Path) -> Lines:
    """A line editor where a person sits at a terminal that can have one; the lines of stdin as they come otherwise."""
    if sys.stdin is None or not (sys.stdin.isatty() and sys.stdout.isatty()):
        return Keyboard()
    from prompt_toolkit.utils import is_dumb_terminal

    return Keyboard() if is_dumb_terminal() else Prompt(history)


class Keyboard:
    """Lines of stdin without a thread that would hold the process back."""

    def __init__(self) -> None:
        self._lines: asyncio.Queue[str | None] = asyncio.Queue()
        self._rest = b""
        self._reads = False
        if sys.stdin is None:
            self._typed = False
            self._lines.put_nowait(None)
            return
        self._file, self._typed = sys.stdin.fileno(), sys.stdin.isatty()
        try:
            asyncio.get_running_loop().add_reader(self._file, self._read)
        except PermissionError:  # a file, which never lets anybody wait
            while self._read():
                pass
        else:
            self._reads = True

    async def line(self, prompt: str = "", *, keep: bool = True) -> str | None:
        """The next line; None at the end of the input."""
        if self._typed:
            print(prompt, end="", flush=True, file=sys.stdout if sys.stdout.isatty() else sys.stderr)
        found = await self._lines.get()
        if found is None:
            self._lines.put_nowait(None)
        return found

    def forget(self) -> None:
        # Who wrote the lines of a pipe beforehand knew what would be asked.
        if self._typed:
            self._rest = b""
            while self._reads and not self._lines.empty():
                self._lines.get_nowait()
            termios.tcflush(self._file, termios.TCIFLUSH)

    def close(self) -> None:
        if self._reads:
            self._reads = False
            asyncio.get_running_loop().remove_reader(self._file)

    def _read(self) -> bool:
        try:
            data = os.read(self._file, 4096)
        except OSError:
            data = b""  # the terminal is gone
        *whole, self._rest = (self._rest + data).split(b"\n")
        if not data and self._rest:
            whole, self._rest = [self._rest], b""
        for line in whole:
            self._lines.put_nowait(line.removesuffix(b"\r").decode(errors="replace"))
        if not data:
            self.close()
            self._lines.put_nowait(None)
        return bool(data)


class Prompt:
    """A line editor at the terminal. Enter sends, Alt-Enter begins a new line, Ctrl-D leaves; Ctrl-C clears the line,
    and leaves where there is none."""

    def __init__(self, history: Path) -> None:
        from prompt_toolkit import PromptSession
        from prompt_toolkit.history import InMemoryHistory

        def session(history: History) -> PromptSession[str]:
            return PromptSession(
                history=history, multiline=True, key_bindings=_keys(), interrupt_exception=EOFError, enable_suspend=True
            )

        # Answers may be secrets, and would only be in the way among what was said.
        self._kept, self._passing = session(_history(history)), session(InMemoryHistory())

    async def line(self, prompt: str = "", *, keep: bool = True) -> str | None:
        session = self._kept if keep else self._passing
        try:
            return await session.prompt_async(prompt, set_exception_handler=False)
        except EOFError:
            return None

    def forget(self) -> None:
        from prompt_toolkit.input.typeahead import clear_typeahead

        clear_typeahead(self._kept.input)
        termios.tcflush(sys.stdin.fileno(), termios.TCIFLUSH)

    def close(self) -> None:
        return


def _keys() -> KeyBindings:
    from prompt_toolkit.enums import DEFAULT_BUFFER
    from prompt_toolkit.filters import Condition, has_focus
    from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent

    keys, editing = KeyBindings(), has_focus(DEFAULT_BUFFER)

    @Condition
    def is_filled() -> bool:
        from prompt_toolkit.application import get_app

        return bool(get_app().current_buffer.text)

    @keys.add("enter", filter=editing)
    def send(event: KeyPressEvent) -> None:
        event.current_buffer.validate_and_handle()

    @keys.add("escape", "enter", filter=editing)
    def begin_line(event: KeyPressEvent) -> None:
        event.current_buffer.insert_text("\n")

    @keys.add("c-c", filter=editing & is_filled)
    @keys.add("<sigint>", filter=is_filled)
    def clear(event: KeyPressEvent) -> None:
        event.current_buffer.reset()

    return keys


def _history(file: Path) -> History:
    """What was said in earlier chats, for the eyes of its owner; where it cannot be kept, that of this one."""
    from prompt_toolkit.history import FileHistory, InMemoryHistory

    try:
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        handle = os.open(file, os.O_CREAT | os.O_RDWR, 0o600)
        try:
            os.fchmod(handle, 0o600)
        finally:
            os.close(handle)
    except OSError as error:
        note(f"what is said here is not kept for the next chat: {file}: {error.strerror}")
        return InMemoryHistory()
    return FileHistory(file)
