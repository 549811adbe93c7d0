"""The house: packages, links, sizes, docstrings, imports and public names are what the layout promises."""

import ast
import tomllib
from pathlib import Path
from typing import Any

import pytest

import bread

ROOT = Path(__file__).parent.parent
ROOMS = ("domain", "projections", "runtime", "transport")
MODULES = sorted(path for room in ROOMS for path in (ROOT / room).rglob("*.py"))


@pytest.fixture(scope="module")
def setuptools() -> dict[str, Any]:
    with (ROOT / "pyproject.toml").open("rb") as file:
        found: dict[str, Any] = tomllib.load(file)["tool"]["setuptools"]
    return found


def test_packages_are_the_folders(setuptools: dict[str, Any]) -> None:
    folders = {path.parent.relative_to(ROOT) for path in MODULES}
    expected = {"bread": "bread"} | {".".join(("bread", *folder.parts)): folder.as_posix() for folder in folders}
    assert setuptools["package-dir"] == expected
    assert setuptools["packages"] == sorted(expected)


def test_every_folder_of_a_room_is_a_package() -> None:
    assert [path.parent for path in MODULES if not (path.parent / "__init__.py").is_file()] == []


@pytest.mark.parametrize("room", ROOMS)
def test_each_link_is_its_room(room: str) -> None:
    link = ROOT / "bread" / room
    assert link.readlink() == Path("..", room)
    assert link.samefile(ROOT / room)


def test_bread_holds_links_and_modules_only() -> None:
    held = {path.name for path in (ROOT / "bread").iterdir() if path.is_dir() and path.name != "__pycache__"}
    assert held == set(ROOMS)
    assert (ROOT / "bread" / "py.typed").is_file()


def test_no_module_is_long() -> None:
    lines = {str(path.relative_to(ROOT)): len(path.read_text().splitlines()) for path in MODULES}
    assert {name: count for name, count in lines.items() if count > 400} == {}


def test_every_module_says_what_it_is_for() -> None:
    silent = [path.relative_to(ROOT) for path in MODULES if not ast.get_docstring(ast.parse(path.read_text()))]
    assert silent == []


def test_imports_inside_the_rooms_are_relative() -> None:
    absolute = [
        f"{path.relative_to(ROOT)}: {name}"
        for path in MODULES
        for node in ast.walk(ast.parse(path.read_text()))
        for name in absolute_imports(node)
        if name.split(".")[0] in {"bread", *ROOMS}
    ]
    assert absolute == []


def absolute_imports(node: ast.AST) -> list[str]:
    """The modules that an absolute import names; none for any other node."""
    match node:
        case ast.Import():
            return [alias.name for alias in node.names]
        case ast.ImportFrom(level=0, module=str(module)):
            return [module]
        case _:
            return []


def test_public_names_are_sorted_and_exist() -> None:
    names = bread.__all__
    assert names == sorted(set(names))
    assert [name for name in names if not hasattr(bread, name)] == []
