"""Files of the user's, executed as modules: what stands in them now, and errors that name file and line.

    files = Files(Path("agents"))
    module = files.module(Path("agents/writer/tools/fetch.py"))  # `_bread_agents.writer.tools.fetch`

One `Files` is one reading of a folder: a package of its own in `sys.modules`, so that neither two folders nor two
readings of one can meet. Below it relative imports work (`from ._shared import x`, `from ..agent import agent`), and
`typing.get_type_hints` finds the modules.
"""

from __future__ import annotations

import ast
import re
import sys
import traceback
from collections.abc import Iterator, Sequence
from importlib import import_module
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, SourceFileLoader
from importlib.util import spec_from_file_location
from itertools import count
from pathlib import Path
from types import CodeType, ModuleType
from typing import TypeVar

from pydantic import ValidationError

from ..domain.errors import BreadError, InvalidInput

E = TypeVar("E", bound=BreadError)

CONFIG_FILE = "bread.config.py"
AGENTS_FOLDER = "agents"


class Files:
    """One reading of the Python files below a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder.absolute()
        self.package = _package(self.folder)
        self.executed: set[str] = set()
        self.named: dict[str, Path] = {}
        self.parents: set[str] = set()
        _finder.readings[self.package] = self
        if _finder not in sys.meta_path:
            sys.meta_path.insert(0, _finder)  # before the finder of paths, which would take cached bytecode

    def module(self, file: Path) -> ModuleType:
        """The module of a file below the folder; executed once a reading. Whatever it raises becomes a BreadError."""
        file = file.absolute()
        parts = file.relative_to(self.folder).with_suffix("").parts
        name = ".".join((self.package, *(part.replace(".", "_") for part in parts)))
        self.named[name] = file
        self.parents.update(".".join((self.package, *parts[:end])) for end in range(1, len(parts)))
        try:
            return import_module(name)
        except BreadError as error:
            prefixed(error, self._place(error, file))
            raise
        except (Exception, SystemExit) as error:
            message = " ".join(_words(error).replace(f"{self.package}.", "").split())
            raise InvalidInput("CONFIG_INVALID", f"{self._place(error, file)}: {message}") from error

    def is_executed(self, path: Path) -> bool:
        """Whether a file, or one below a folder, was executed: because it was asked for, or imported."""
        own = str(path.absolute())
        return any(name == own or name.startswith(f"{own}/") for name in self.executed)

    def _place(self, error: BaseException, file: Path) -> str:
        """`path:line` of where it went wrong: in which of the files that were executed, or could not be read."""
        if isinstance(error, SyntaxError) and error.filename and Path(error.filename).is_file():
            return f"{shown(Path(error.filename))}:{error.lineno or 1}"
        place = f"{shown(file)}:1"
        for frame, line in traceback.walk_tb(error.__traceback__):
            if frame.f_code.co_filename in self.executed:
                place = f"{shown(Path(frame.f_code.co_filename))}:{line}"
        return place


def _package(folder: Path) -> str:
    base = "_bread_" + re.sub(r"\W", "_", folder.name)
    for number in count(1):
        package = ModuleType(base if number == 1 else f"{base}_{number}")
        package.__path__ = [str(folder)]
        if sys.modules.setdefault(package.__name__, package) is package:
            return package.__name__
    raise AssertionError("numbers do not end")


class _Finder(MetaPathFinder):
    """Finds the modules of all readings: a package, a file, or a folder, in this order."""

    def __init__(self) -> None:
        self.readings: dict[str, Files] = {}

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        root, _, rest = fullname.partition(".")
        files = self.readings.get(root)
        if files is None or not rest:
            return None
        place = files.folder.joinpath(*rest.split("."))
        # What lies in a folder makes it a package, also where a file is called as the folder is.
        module = None if fullname in files.parents else Path(f"{place}.py")
        for file in (files.named.get(fullname), place / "__init__.py", module):
            if file is not None and file.is_file():
                loader = _Source(fullname, file, files.executed)
                below = [str(file.parent)] if file.name == "__init__.py" else None
                return spec_from_file_location(fullname, file, loader=loader, submodule_search_locations=below)
        if not place.is_dir():
            return None
        spec = ModuleSpec(fullname, None, is_package=True)
        spec.submodule_search_locations = [str(place)]
        return spec


_finder = _Finder()


class _Source(SourceFileLoader):
    """Compiles the text of the file. Cached bytecode is told from it by time and size, which may both be the same."""

    def __init__(self, fullname: str, file: Path, executed: set[str]) -> None:
        super().__init__(fullname, str(file))
        self._executed = executed

    def get_code(self, fullname: str) -> CodeType:
        path = self.get_filename(fullname)
        code: CodeType = self.source_to_code(self.get_data(path), path)
        self._executed.add(path)
        return code


# --- words


def shown(path: Path) -> str:
    """A path as people read it: relative to the working folder where it lies in it."""
    path = path.absolute()
    return str(path.relative_to(Path.cwd())) if path.is_relative_to(Path.cwd()) else str(path)


def prefixed(error: E, where: str) -> E:
    """The same error, whose message begins with where it came from."""
    error.message = f"{where}: {error.message}"
    error.args = (error.message,)
    return error


def line_of(file: Path, name: str) -> int:
    """The line on which a module gives a name its last value; 1 if it never does."""
    return max((line for given, line in _given(ast.parse(file.read_bytes())) if given == name), default=1)


def _given(node: ast.AST) -> Iterator[tuple[str, int]]:
    match node:
        case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
            yield name, node.lineno
            return  # names inside are of its own
        case ast.Name(id=name, ctx=ast.Store()):
            yield name, node.lineno
        case ast.Import(names=names) | ast.ImportFrom(names=names):
            yield from ((alias.asname or alias.name, node.lineno) for alias in names)
    for child in ast.iter_child_nodes(node):
        yield from _given(child)


def invalid(path: Path, message: str, line: int | None = None) -> InvalidInput:
    """CONFIG_INVALID for a file or folder."""
    where = shown(path) if line is None else f"{shown(path)}:{line}"
    return InvalidInput("CONFIG_INVALID", f"{where}: {message}")


def _words(error: BaseException) -> str:
    kind = type(error).__name__
    match error:
        case ValidationError():  # its own text has the values, which may be secret
            found = (f"{'.'.join(map(str, e['loc'])) or '(value)'}: {e['msg']}" for e in error.errors())
            return f"{kind}: {error.title}: {'; '.join(found)}"
        case SyntaxError():
            return f"{kind}: {error.msg}"
    return f"{kind}: {error}" if str(error) else kind
