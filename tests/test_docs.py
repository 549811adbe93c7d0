"""The docs: complete, not stale, with links that lead somewhere and examples that give what they show."""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Callable
from inspect import signature
from pathlib import Path
from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.util._once import Once
from typer.main import get_command

import bread
import bread.testing
from bread import Config
from bread.domain.envelope import Recorded
from bread.domain.ports import Logged
from bread.projections.render import RunInfo, crumb_of, run_of, subject_of
from bread.runtime.cli import exits
from bread.runtime.cli.root import app
from bread.runtime.config import PREFIX
from bread.runtime.servers import NatsServer
from doc_kit import Reader, blocks_of, environment
from docs import generate
from golden.reading import events_of_bread, read_log
from test_numbers import CODES, NO_CODES, ROOMS, codes_in, parsed

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
PAGES = sorted(DOCS.glob("*.md"))
LINKED = [*PAGES, *(ROOT / name for name in ("README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "CHANGELOG.md"))]
LINK = re.compile(r"(?<!!)\[[^\]\n]*\]\(([^)\s]+)\)")


def without_code(text: str) -> str:
    """A page without its blocks: `#` begins no heading there, and brackets no link."""
    return re.sub(r"^```.*?^```$", "", text, flags=re.DOTALL | re.MULTILINE)


def headings(page: Path) -> list[str]:
    return re.findall(r"^#+ (.+)$", without_code(page.read_text()), re.MULTILINE)


def section(page: Path, heading: str) -> str:
    """What stands below a heading, to the next one."""
    _, found, rest = without_code(page.read_text()).partition(f"# {heading}\n")
    assert found, f"{page.name} has no heading {heading}"
    return re.split(r"^#+ ", rest, maxsplit=1, flags=re.MULTILINE)[0]


# --- complete ---------------------------------------------------------------------------------------------------------


def test_every_command_has_a_heading() -> None:
    """B156, B155: and no command that is not there has one."""
    root = get_command(app)
    there = {f"bread {name}" for name in root.commands if not hasattr(root.commands[name], "commands")}  # type: ignore[attr-defined]
    for name, group in root.commands.items():  # type: ignore[attr-defined]
        there |= {f"bread {name} {sub}" for sub in getattr(group, "commands", {})}
    assert len(there) >= 20
    assert {heading for heading in headings(DOCS / "cli.md") if heading.startswith("bread ")} == there


def test_every_option_is_there() -> None:
    """B156: in the section of its command."""
    for name, command in generate.commands(get_command(app)):
        text = section(DOCS / "cli.md", name)
        for param in command.params:
            for option in (*param.opts, *param.secondary_opts):
                if option.startswith("-") and option not in ("-h", "--help"):
                    assert re.search(rf"`{option}[ `]", text), f"{name} {option}"


def test_every_exit_code_is_there() -> None:
    """B156."""
    codes = {value for name, value in vars(exits).items() if name.isupper() and isinstance(value, int)}
    assert {int(code) for code in re.findall(r"^\| `(\d+)` \|", section(DOCS / "cli.md", "Exit codes"), re.M)} == codes


@pytest.mark.parametrize("setting", Config.model_fields)
def test_every_setting_has_a_heading(setting: str) -> None:
    """B157: with its variable and its default; one that is not there has none."""
    page = DOCS / "configuration.md"
    text = section(page, setting)
    assert f"`{PREFIX}{setting.upper()}`" in text
    default = Config.model_fields[setting].default
    if default not in (None, ()) and setting != "store":
        assert f"`{default}`" in text
    named = {name.lower() for name in re.findall(rf"`{PREFIX}([A-Z_]+)`", page.read_text())} - {
        "app",
        "store_password_file",
    }
    assert named == Config.model_fields.keys()


@pytest.mark.parametrize("name", events_of_bread())
def test_every_event_has_a_heading(name: str) -> None:
    """B149: of its present version, with each field."""
    cls = events_of_bread()[name]
    text = section(DOCS / "events.md", f"{name}@{cls.VERSION}")
    assert re.findall(r"^\| `(\w+)` \|", text, re.MULTILINE) == [*cls.model_fields]


@pytest.mark.parametrize("name", generate.crumbs())
def test_every_crumb_has_a_heading(name: str) -> None:
    """B122: with each field that is its own, by both names."""
    cls = generate.crumbs()[name]
    own = [field for field in cls.model_fields if field not in (*bread.Crumb.model_fields, "type")]
    rows = re.findall(r"^\| `(\w+)` \| `(\w+)` \|", section(DOCS / "observing.md", name), re.MULTILINE)
    assert [field for field, _ in rows] == own
    assert [wire for _, wire in rows] == [cls.model_fields[field].alias for field in own]


def test_every_code_has_a_heading() -> None:
    """B129: what can be raised or recorded is explained, and nothing else is."""
    found = {heading for heading in headings(DOCS / "errors.md") if re.fullmatch(r"[A-Z_]+", heading)}
    assert found >= CODES
    assert found <= codes_in(*ROOMS) - NO_CODES


def test_the_class_of_each_code_is_said() -> None:
    """B129: each class that the rooms raise a code with stands in its section."""
    classes = {"BreadError", "InvalidInput", "NotFound", "Refused", "StoreUnreadable"}
    raised: set[tuple[str, str]] = set()
    for _, tree in parsed(*ROOMS):
        for node in ast.walk(tree):
            match node:
                case ast.Call(func=ast.Name(id=name), args=[ast.Constant(value=str(code)), *_]) if name in classes:
                    raised.add((code, name))
    assert len(raised) >= 25
    specific = {code for code, name in raised if name != "BreadError"}
    raised = {(code, name) for code, name in raised if name != "BreadError" or code not in specific}
    silent = {(code, name) for code, name in raised if f"`{name}`" not in section(DOCS / "errors.md", code)}
    assert silent == set()


def test_codes_that_pages_name_are_codes() -> None:
    """B129: a page that promises a code promises one that there is."""
    known = codes_in(*ROOMS)
    for page in PAGES:
        named = set(re.findall(r"`([A-Z]+(?:_[A-Z]+)+)`", page.read_text()))
        variables = {name for name in named if name.startswith(PREFIX) or name.endswith(("_KEY", "_TOKEN", "_REGION"))}
        assert named - variables <= known, page.name


@pytest.mark.parametrize("name", [*bread.__all__, *bread.testing.__all__])
def test_every_public_name_is_mentioned(name: str) -> None:
    """B157: somewhere, as code."""
    assert any(re.search(rf"(?<![\w.]){name}\b", page.read_text()) for page in PAGES)


@pytest.mark.parametrize("name", [name for name in vars(bread.Bread) if not name.startswith("_")])
def test_every_call_is_explained(name: str) -> None:
    """B157: in python.md, as a call of a Bread."""
    text = (DOCS / "python.md").read_text()
    assert re.search(rf"\b(bread|Bread)\.{name}\(|`{name}\(", text)


def test_every_argument_is_explained() -> None:
    """B157: of a Bread, of a run, of an answer; and of what defines agents and human tools."""
    said: dict[Callable[..., Any], str] = {
        bread.Bread: "python.md",
        bread.Bread.run: "python.md",
        bread.Bread.resume: "python.md",
        bread.define_agent: "agents.md",
        bread.define_human_tool: "human-tools.md",
        bread.define_model: "agents.md",
        bread.define_skill: "skills.md",
        bread.define_tool: "tools.md",
    }
    for function, page in said.items():
        text = (DOCS / page).read_text()
        for parameter in signature(function).parameters.values():
            if parameter.kind is parameter.KEYWORD_ONLY:
                assert re.search(rf"`{parameter.name}\b|\b{parameter.name}=", text), f"{function} {parameter.name}"


# --- not stale --------------------------------------------------------------------------------------------------------


def test_generated_parts_are_what_the_code_gives() -> None:
    """B156: else a part says what was true once."""
    stale = [name for name, text in generate.pages().items() if (DOCS / name).read_text() != text]
    assert stale == [], f"these are stale; `{generate.COMMAND}` renews them"


def test_what_is_generated_does_not_depend_on_where(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """B156: neither on the width of the terminal, nor on the folder, nor on what is set."""
    here = generate.pages()
    monkeypatch.chdir(tmp_path)
    for name, value in {"COLUMNS": "40", "BREAD_STORE": "memory://", "BREAD_GRACE": "1", "TERM": "dumb"}.items():
        monkeypatch.setenv(name, value)
    assert generate.pages() == here
    for text in here.values():
        assert not re.search(rf"{Path.home()}\b|{ROOT}\b|/tmp/(?!a\b|b\b)", text)


def test_what_an_event_shows_is_what_observers_see() -> None:
    """B122: the crumbs that the page names for events are those of the golden logs."""
    seen: dict[str, str] = {}
    for file in sorted((ROOT / "tests" / "golden" / "v2").glob("*.jsonl")):
        if file.stem != "events":
            seen |= shown_by([line.recorded() for line, _ in read_log(file)])
    assert len(seen) >= 12
    assert {name: generate.SHOWN[name] for name in seen} == seen


def shown_by(log: list[Recorded]) -> dict[str, str]:
    """The crumb type of each event that shows one, by the name of the event."""
    by_place = {(one.stream, one.version): one for one in log}
    found = {}
    for one in log:
        entry = Logged(one, by_place.get(subject_of(one) or ("", 0)))
        run = run_of(entry)
        crumb = crumb_of(entry, RunInfo(run, run, "s", "a"), "1") if run is not None else None
        if crumb is not None:
            found[one.event.NAME] = crumb.wire()["type"]
    return found


# --- links ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("page", LINKED, ids=lambda page: page.name)
def test_every_link_leads_somewhere(page: Path) -> None:
    """B156: to a file that is there and to a heading that it has."""
    for link in LINK.findall(without_code(page.read_text())):
        if link.startswith("https://"):
            continue
        name, _, anchor = link.partition("#")
        target = (page.parent / name).resolve() if name else page
        assert target.exists(), link
        if anchor:
            assert anchor in {generate.slug(heading) for heading in headings(target)}, link


def test_no_heading_is_twice_on_a_page() -> None:
    """B156: a link to it would lead to the first one."""
    for page in PAGES:
        slugs = [generate.slug(heading) for heading in headings(page)]
        assert sorted(set(slugs)) == sorted(slugs), page.name


def test_every_page_is_on_the_map() -> None:
    """B156: index.md links all others, and README links it."""
    linked = set(LINK.findall((DOCS / "index.md").read_text()))
    assert {page.name for page in PAGES} - {"index.md"} <= linked
    assert "docs/index.md" in (ROOT / "README.md").read_text()


# --- examples ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_what_a_page_shows_is_what_happens(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """B156, B157: each block of Python and each command, in a folder that is empty."""
    for variable in ("BREAD_STORE", "BREAD_APP", "BREAD_MODEL"):
        monkeypatch.delenv(variable, raising=False)
    # A page that traces sets the provider of the process, which later tests shall not find.
    monkeypatch.setattr(trace, "_TRACER_PROVIDER", None)
    monkeypatch.setattr(trace, "_TRACER_PROVIDER_SET_ONCE", Once())
    reader = Reader(tmp_path / "reader", environment(Path(sys.executable).parent, ROOT))
    reader.folder.mkdir()
    if page.stem == "nats":
        with NatsServer(tmp_path / "nats") as server:
            reader.instead = {"nats://127.0.0.1:4222": server.url}
            assert reader.read(page) >= 4
    else:
        assert reader.read(page) >= (page.stem != "index")


@pytest.mark.parametrize("shown", ["two\n", "one\nthree\n", "one\n", "one two\n", "one\ntwo\nthree\n", "..\n"])
@pytest.mark.parametrize(
    "block", ["```python\nprint('one\\ntwo')\n```\n\n```text\n", "```console\n$ echo one; echo two\n"]
)
def test_a_page_that_shows_something_else_is_found(block: str, shown: str, tmp_path: Path) -> None:
    """Of Python, and of commands."""
    reader, page = Reader(tmp_path, environment(Path(sys.executable).parent, ROOT)), tmp_path / "page.md"
    page.write_text(f"{block}{shown}```\n")
    with pytest.raises(AssertionError, match=r"page\.md:2 shows"):
        reader.read(page)
    page.write_text(f"{block}one\n...\n```\n")
    assert reader.read(page) == 1


def test_ids_are_told_apart(tmp_path: Path) -> None:
    """The same id has to come where the same one is shown, and one that is typed has to be known."""
    reader, page = Reader(tmp_path, environment(Path(sys.executable).parent, ROOT)), tmp_path / "page.md"
    one, other = "run_01m8s7ejq4ekg9d9keactj7fn7", "run_01m8sebk21fahak1p242aeg9bf"
    page.write_text(f"```console\n$ echo {one}\n{one}\n```\n")
    with pytest.raises(AssertionError, match="was not shown before it is typed"):
        reader.read(page)
    print_two = "```console\n$ printf 'run_%s run_%s' aaa bbb\n"
    page.write_text(f"{print_two}{one} {one}\n```\n")
    with pytest.raises(AssertionError, match="shows"):
        reader.read(page)
    page.write_text(f"{print_two}{one} {other}\n$ echo {other}\nrun_bbb\n```\n")
    assert reader.read(page) == 1


def test_few_blocks_are_not_run() -> None:
    """What is not run may be wrong; a block with a language that nobody knows would be one."""
    blocks = [block for page in PAGES for block in blocks_of(page)]
    assert sum("no-run" in block.words for block in blocks) <= 2
    assert {block.language for block in blocks} <= {"", "python", "text", "console", "markdown", "sh"}
