"""Doing what a page shows: files are written, Python is run, commands are typed, and what comes out is compared.

A fenced block says by its first line what it is:

    ```python                 run, in one namespace a page; a ```text block right after it is what it prints
    ```python no-run          only compiled: it needs a key or a server
    ```python file=a/b.py     a file of that name (of any language)
    ```console                lines after `$ ` are typed into a shell, the others are what it prints

Ids and times differ each time: the first one that is shown is bound to the first one that comes, also for what is typed
after that. `...` stands for anything on its line; alone on a line, for any lines.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

FENCE = re.compile(r"^```(?P<info>[^\n]*)\n(?P<text>.*?)^```$", re.DOTALL | re.MULTILINE)
ID = re.compile(r"\b(?:run|cp|s|w)_[0-9a-z]{12,26}\b")
VARYING = re.compile(
    rf"(?P<id>{ID.pattern})"
    r"|(?P<time>\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(?:\.\d+)?Z)"
    r"|(?P<age>\b\d+[smhd]\b)"
    r"|(?P<number>(?<=duration_ms=)[\d.]+)"
    r"|(?P<any>\.\.\.)"
)
SHAPES = {"time": r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(?:\.\d+)?Z", "age": r"\d+[smhd]", "number": r"[\d.]+", "any": ".*"}
PATIENCE = 60.0


@dataclass(frozen=True)
class Block:
    """A fenced block of a page."""

    page: str
    line: int
    language: str
    words: tuple[str, ...]
    text: str
    follows: bool
    """Whether nothing stands between it and the block before."""

    @property
    def file(self) -> str | None:
        names = [word.removeprefix("file=") for word in self.words if word.startswith("file=")]
        return names[0] if names else None

    @property
    def place(self) -> str:
        return f"{self.page}:{self.line}"


def blocks_of(page: Path) -> list[Block]:
    """The blocks of a page, in order."""
    text, found, end = page.read_text(), list[Block](), 0
    for match in FENCE.finditer(text):
        language, *words = match["info"].split() or [""]
        line = text.count("\n", 0, match.start()) + 2
        follows = bool(found) and not text[end : match.start()].strip()
        found.append(Block(page.name, line, language, tuple(words), match["text"], follows))
        end = match.end()
    return found


@dataclass
class Reader:
    """A reader in an empty folder, who does what pages say."""

    folder: Path
    env: dict[str, str]
    interactive: dict[str, Callable[[dict[str, str]], str]] = field(default_factory=dict)
    """How commands that need a terminal are played, by what is typed; gives what the terminal showed."""
    instead: dict[str, str] = field(default_factory=dict)
    """What stands for something else here: the address of a server, for example."""

    def __post_init__(self) -> None:
        self.ids: dict[str, str] = {}
        self._page: dict[str, Any] = {}

    def read(self, page: Path) -> int:
        """Do all of a page; the number of blocks that were done."""
        self._page = {"__name__": page.stem}
        done, blocks = 0, blocks_of(page)
        with contextlib.chdir(self.folder):
            for block, after in zip(blocks, [*blocks, None][1:], strict=True):
                if block.file:
                    self.write(block.file, block.text)
                elif block.language == "console":
                    self.type(block)
                elif block.language == "python":
                    follows = after is not None and after.language == "text" and after.follows
                    self.run(block, after.text if after is not None and follows else "")
                else:
                    continue
                done += 1
        return done

    def write(self, name: str, text: str) -> None:
        file = self.folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)

    def run(self, block: Block, shown: str) -> None:
        text = block.text
        for shown_one, here in self.instead.items():
            text = text.replace(shown_one, here)
        code = compile("\n" * (block.line - 1) + text, block.page, "exec", dont_inherit=True)
        if "no-run" in block.words:
            return
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(code, self._page)  # noqa: S102  # it is what the page tells its reader to do
        self.compare(shown, printed.getvalue(), block.place)

    def type(self, block: Block) -> None:
        for place, typed, shown in typed_in(block):
            for known in ID.findall(typed):
                assert known in self.ids, f"{place}: {known} was not shown before it is typed"
            command = ID.sub(lambda match: self.ids[match[0]], typed)
            play = self.interactive.get(command)
            self.compare(shown, play(self.env) if play else self.shell(command), place)

    def shell(self, command: str) -> str:
        """What a terminal would show; variables that are exported stay so."""
        after = self.folder.parent / f"{self.folder.name}-env"
        done = subprocess.run(
            ["sh", "-c", f"{command}\nenv -0 > '{after}'"],
            cwd=self.folder,
            env=self.env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=PATIENCE,
            check=False,
        )
        pairs = (pair.partition("=") for pair in after.read_text().split("\0") if pair)
        self.env = {name: value for name, _, value in pairs}
        return done.stdout

    def compare(self, shown: str, came: str, place: str) -> None:
        """AssertionError unless what came is what is shown; ids that are shown for the first time are bound."""
        new: list[str] = []
        pattern = "".join(self._pattern(line, new) for line in lines_of(shown))
        text = "".join(f"{line}\n" for line in lines_of(came))
        match = re.fullmatch(pattern, text)
        assert match, f"{place} shows\n{shown}\nbut this came:\n{came}"
        self.ids |= {one: match[f"id{number}"] for number, one in enumerate(new)}

    def _pattern(self, line: str, new: list[str]) -> str:
        if line == "...":
            return r"(?:.*\n)*?"
        found, end = "", 0
        for match in VARYING.finditer(line):
            found += re.escape(line[end : match.start()]) + self._part(match, new)
            end = match.end()
        return f"{found}{re.escape(line[end:])}\n"

    def _part(self, match: re.Match[str], new: list[str]) -> str:
        kind, text = str(match.lastgroup), match[0]
        if kind != "id":
            return SHAPES[kind]
        if text in self.ids:
            return re.escape(self.ids[text])
        if text in new:
            return f"(?P=id{new.index(text)})"
        new.append(text)
        return f"(?P<id{len(new) - 1}>{text.partition('_')[0]}_[0-9a-z]+)"


def lines_of(text: str) -> list[str]:
    """The lines without the blanks that only lay them out, and without empty ones."""
    return [" ".join(line.split()) for line in text.splitlines() if line.strip()]


def typed_in(block: Block) -> Iterator[tuple[str, str, str]]:
    """Of a console block: the place, what is typed, and what is shown then."""
    typed, shown, place = "", "", block.place
    for number, line in enumerate(block.text.splitlines()):
        if line.startswith("$ "):
            if typed:
                yield place, typed, shown
            typed, shown, place = line[2:], "", f"{block.page}:{block.line + number}"
        else:
            assert typed, f"{place}: a console block begins with what is typed"
            shown += f"{line}\n"
    yield place, typed, shown


def environment(bin_folder: Path, python_path: Path) -> dict[str, str]:
    """Of a person who has installed bread: its command is found, and nothing is set for it."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("BREAD_", "PYTEST_", "GIT_"))}
    kept = {name: value for name, value in kept.items() if not name.endswith("_API_KEY")}
    return kept | {
        "PATH": f"{bin_folder}{os.pathsep}{kept.get('PATH', os.defpath)}",
        "PYTHONPATH": str(python_path),
        "PYTHONIOENCODING": "utf-8",
        "PYTHONDONTWRITEBYTECODE": "1",
    }
