"""The app that `bread new` writes, and the writing of it. The texts are in scaffold_files.py."""

from __future__ import annotations

import re
from pathlib import Path

from ..domain.errors import InvalidInput
from .scaffold_files import FILES

NAME = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,63}")


def write_app(folder: Path) -> list[str]:
    """Write the app into a folder that is not there, or empty; gives the files. INPUT_INVALID writes nothing."""
    name = folder.absolute().name
    if not NAME.fullmatch(name):
        raise InvalidInput(
            "INPUT_INVALID", f"name {name!r}: expected a letter, then at most 63 letters, digits, _ or -"
        )
    try:
        if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
            raise InvalidInput("INPUT_INVALID", f"{folder} is there already: expected a new or an empty folder")
        for path, text in FILES.items():
            file = folder / path
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text.replace("{name}", name), encoding="utf-8")
    except OSError as error:
        raise InvalidInput("INPUT_INVALID", f"{folder} cannot be written: {error.strerror}") from error
    return list(FILES)
