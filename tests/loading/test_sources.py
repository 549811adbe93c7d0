"""Files of the user's are executed as they stand now, apart from each other, and fail with their place."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any, get_type_hints

import pytest

from bread import BreadError, InvalidInput
from bread.runtime.sources import Files, line_of
from folders import HEAD, write


def module(folder: Path, name: str) -> Any:
    return Files(folder).module(folder / name)


def test_modules_know_their_own_names(app: Path) -> None:
    """A class of the file is found by annotations that are text, as pydantic and define_tool look for them."""
    write(
        app,
        {
            "tools/paint.py": "from __future__ import annotations\n"
            "from dataclasses import dataclass\n"
            "from bread import define_tool\n"
            "@dataclass\n"
            "class Colour:\n"
            "    name: str\n"
            "@define_tool\n"
            "def paint(colour: Colour) -> str:\n"
            "    return colour.name\n"
        },
    )
    found = module(app, "tools/paint.py")
    assert get_type_hints(found.paint.function)["colour"] is found.Colour
    assert sys.modules[found.__name__] is found
    assert found.paint.schema["$defs"]["Colour"]["required"] == ["name"]
    assert found.__file__ == str(app / "tools/paint.py")


def test_files_import_each_other(app: Path) -> None:
    """Helpers, files beside, files of the folder above, and packages with an __init__; each is executed once."""
    write(
        app,
        {
            "writer/tools/_shared.py": "executed = []\n",
            "writer/tools/first.py": "from ._shared import executed\nexecuted.append(__name__)\n",
            "writer/tools/second.py": "from .first import executed\nfrom ..words import WORD\nfrom ..kit import DEEP\n",
            "writer/words.py": "WORD = 'word'\n",
            "writer/kit/__init__.py": "from .deep import DEEP\n",
            "writer/kit/deep.py": "DEEP = 'deep'\n",
        },
    )
    files = Files(app)
    second = files.module(app / "writer/tools/second.py")
    first = files.module(app / "writer/tools/first.py")
    assert (second.WORD, second.DEEP) == ("word", "deep")
    assert second.executed is first.executed
    assert first.executed == [first.__name__]
    assert files.is_executed(app / "writer/kit")
    assert not files.is_executed(app / "writer/too")


def test_what_is_executed_is_what_the_file_says_now(app: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Bytecode that Python would take, by the time and size of the file, is not taken, and none is written."""
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    file = app / "value.py"
    file.write_text("VALUE = 1\n")
    as_of = file.stat()
    first = module(app, "value.py")
    file.write_text("VALUE = 2\n")
    os.utime(file, ns=(as_of.st_atime_ns, as_of.st_mtime_ns))
    second = module(app, "value.py")
    assert (first.VALUE, second.VALUE) == (1, 2)
    assert sys.modules[first.__name__] is first
    assert not (app / "__pycache__").exists()


def test_folders_do_not_meet(app: Path) -> None:
    """Two folders of the same name, with files of the same names, in one process."""
    for name in ("one", "two"):
        write(app / name / "agents", {"_shared.py": f"NAME = {name!r}\n", "value.py": "from ._shared import NAME\n"})
    found = [module(app / name / "agents", "value.py") for name in ("one", "two")]
    assert [one.NAME for one in found] == ["one", "two"]


def test_a_file_beside_a_folder_of_its_name_hides_nothing(app: Path) -> None:
    """`tools.py` beside `tools/`: what lies in the folder is found all the same."""
    write(app, {"tools.py": "1 / 0\n", "tools/look.py": "WHICH = 'below'\n"})
    assert module(app, "tools/look.py").WHICH == "below"


BROKEN = {
    "a name": ("x = 1\n\nnothing\n", "CONFIG_INVALID", "broken.py:3: NameError: name 'nothing' is not defined"),
    "syntax": ("x = 1\nif x\n    pass\n", "CONFIG_INVALID", "broken.py:2: SyntaxError: expected ':'"),
    "indentation": ("def f():\npass\n", "CONFIG_INVALID", "broken.py:2: IndentationError: expected an indented block"),
    "not text": ("x = '\udce9'\n", "CONFIG_INVALID", "broken.py:1: SyntaxError: (unicode error)"),
    "inside a function": (
        "def f():\n    1 / 0\nf()\n",
        "CONFIG_INVALID",
        "broken.py:2: ZeroDivisionError: division by",
    ),
    "in another library": ("import json\n\njson.loads('{')\n", "CONFIG_INVALID", "broken.py:3: JSONDecodeError: "),
    "text of its own": ("\neval('1 +')\n", "CONFIG_INVALID", "broken.py:2: SyntaxError: invalid syntax"),
    "no message": ("raise RuntimeError\n", "CONFIG_INVALID", "broken.py:1: RuntimeError"),
    "two lines": ("raise RuntimeError('one\\n  two')\n", "CONFIG_INVALID", "broken.py:1: RuntimeError: one two"),
    "leaving": ("import sys\nsys.exit('bye')\n", "CONFIG_INVALID", "broken.py:2: SystemExit: bye"),
    "a missing module": (
        "import no_such\n",
        "CONFIG_INVALID",
        "broken.py:1: ModuleNotFoundError: No module named 'no_such'",
    ),
    "a missing file": (
        "\nfrom ._none import x\n",
        "CONFIG_INVALID",
        "broken.py:2: ModuleNotFoundError: No module named '_none'",
    ),
    "a name of bread's": (
        HEAD + "@define_tool(name='Not Snake')\ndef f() -> None: ...\n",
        "INVALID_NAME",
        "broken.py:2: tool 'Not Snake' must be lowercase snake_case",
    ),
}


@pytest.mark.parametrize("case", BROKEN)
def test_errors_name_file_and_line(app: Path, case: str) -> None:
    """Whatever a file raises is one line that begins with its place; bread's own errors keep their code."""
    text, code, message = BROKEN[case]
    (app / "broken.py").write_bytes(text.encode(errors="surrogateescape"))
    with pytest.raises(InvalidInput) as caught:
        module(app, "broken.py")
    assert caught.value.code == code
    assert caught.value.message.startswith(message)
    assert "\n" not in caught.value.message


def test_errors_name_the_file_that_is_broken(app: Path) -> None:
    """Not the one that imports it; an unreadable one included."""
    write(app, {"tools/_shared.py": "\n1 / 0\n", "tools/first.py": "from ._shared import x\n"})
    with pytest.raises(InvalidInput, match=r"^CONFIG_INVALID: tools/_shared\.py:2: ZeroDivisionError: "):
        module(app, "tools/first.py")
    write(app, {"tools/_shared.py": "x = (\n"})
    with pytest.raises(InvalidInput, match=r"^CONFIG_INVALID: tools/_shared\.py:1: SyntaxError: '\(' was never closed"):
        module(app, "tools/first.py")


def test_a_place_outside_of_the_working_folder_is_whole(app: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What would lead out of it by `..` is absolute."""
    write(app, {"there/broken.py": "1 / 0\n", "here/empty": ""})
    monkeypatch.chdir(app / "here")
    with pytest.raises(InvalidInput) as caught:
        module(app / "there", "broken.py")
    assert caught.value.message.startswith(f"{app}/there/broken.py:1: ")


def test_values_that_do_not_fit_are_not_shown(app: Path) -> None:
    """A pydantic error of the user's names the field, and not the value: it may be a password."""
    (app / "broken.py").write_text(
        "from pydantic import BaseModel\nclass Key(BaseModel):\n    value: int\n\nKey(value='hunter2')\n"
    )
    with pytest.raises(InvalidInput) as caught:
        module(app, "broken.py")
    assert caught.value.message.startswith("broken.py:5: ValidationError: Key: value: Input should be a valid integer")
    assert "hunter2" not in caught.value.message


def test_ctrl_c_is_no_error_of_the_file(app: Path) -> None:
    """It ends the command that reads the file."""
    (app / "slow.py").write_text("raise KeyboardInterrupt\n")
    with pytest.raises(KeyboardInterrupt):
        module(app, "slow.py")


def test_a_file_that_failed_is_executed_again(app: Path) -> None:
    """By a new reading, as it stands then."""
    (app / "value.py").write_text("1 / 0\n")
    with pytest.raises(BreadError):
        module(app, "value.py")
    (app / "value.py").write_text("VALUE = 1\n")
    assert module(app, "value.py").VALUE == 1


def test_lines_of_names(app: Path) -> None:
    """The last place at module level that gives the name its value; the first line where there is none."""
    file = app / "names.py"
    file.write_text("agent = 1\nif agent:\n    agent = 3\nfrom x import y as other\ndef f():\n    agent = 2\n")
    assert [line_of(file, name) for name in ("agent", "other", "f", "none")] == [3, 4, 5, 1]
