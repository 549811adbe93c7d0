"""bread.config.py: what it may say, what beats it, and what is said of one that is wrong."""

from __future__ import annotations

from pathlib import Path

import pytest

from bread import Bread, Config, InvalidInput
from bread.runtime.config import app_options, check_entrypoints, load_config
from folders import write, write_agent

HEAD = "from bread import Config\n"


def config_py(folder: Path, arguments: str) -> None:
    write(folder, {"bread.config.py": f"{HEAD}\nconfig = Config({arguments})\n"})


def refused(folder: str | Path = ".") -> str:
    with pytest.raises(InvalidInput) as caught:
        load_config(folder)
    assert caught.value.code == "CONFIG_INVALID"
    return caught.value.message


def test_without_a_file_the_defaults_hold(app: Path) -> None:
    """B157: SQLite in .bread/bread.db, in-process; every agent of agents/ may be started."""
    config = load_config()
    assert (config.store, config.nats, config.agents) == ("sqlite:///.bread/bread.db", None, "agents")
    assert config.transport() is None
    assert (config.entrypoints, config.concurrency, config.grace, config.pipelines) == ((), None, 5.0, {})
    assert not (app / ".bread").exists()


def test_the_file_is_python(app: Path) -> None:
    """It is executed as it stands, with the files beside it."""
    write(
        app,
        {
            "bread.config.py": f"from datetime import timedelta\n{HEAD}from ._limits import MOST\n"
            "config = Config(concurrency=MOST, grace=timedelta(minutes=1).total_seconds(), entrypoints=['a', 'b'])\n",
            "_limits.py": "MOST = 8\n",
        },
    )
    config = load_config()
    assert (config.concurrency, config.grace, config.entrypoints) == (8, 60.0, ("a", "b"))


VARIABLES = {
    "BREAD_STORE": ("memory://", "store", "memory://"),
    "BREAD_NATS": ("nats://nats.example:4222", "nats", "nats://nats.example:4222"),
    "BREAD_NATS_CREDS": ("bread.creds", "nats_creds", "bread.creds"),
    "BREAD_AGENTS": ("others", "agents", "others"),
    "BREAD_ENTRYPOINTS": ("a, b,", "entrypoints", ("a", "b")),
    "BREAD_CONCURRENCY": ("3", "concurrency", 3),
    "BREAD_GRACE": ("0.5", "grace", 0.5),
    "bread_grace": ("1.5", "grace", 1.5),
}


@pytest.mark.parametrize("variable", VARIABLES)
def test_the_environment_beats_the_file(app: Path, monkeypatch: pytest.MonkeyPatch, variable: str) -> None:
    """Each field has its variable; an empty one says nothing."""
    config_py(app, "store='sqlite:///file.db', agents='mine', entrypoints=('x',), concurrency=1, grace=9")
    text, field, value = VARIABLES[variable]
    plain = getattr(load_config(), field)
    monkeypatch.setenv(variable, text)
    assert getattr(load_config(), field) == value
    monkeypatch.setenv(variable, "")
    assert getattr(load_config(), field) == plain


def test_entrypoints_of_the_environment_may_be_json(monkeypatch: pytest.MonkeyPatch) -> None:
    """As pydantic-settings reads every other list."""
    monkeypatch.setenv("BREAD_ENTRYPOINTS", '["a", "b"]')
    assert load_config().entrypoints == ("a", "b")


WRONG = {
    "store='mysql://ann:hunter2@db'": "store: expected sqlite:///path/to/file.db",
    "nats='nats://ann:hunter2@db/queue'": "nats: expected nats://host:4222, or tls://",
    "nats='http://db'": "nats: expected nats://host:4222, or tls://",
    "agents=''": "agents: String should have at least 1 character",
    "entrypoints=[1]": "entrypoints: expected a valid string",
    "concurrency=0": "concurrency: expected greater than or equal to 1",
    "grace=-1": "grace: expected greater than or equal to 0",
    "grace=float('inf')": "grace: expected a finite number",
    "pipelines={'a': [7]}": "pipelines: expected",
    "pipelines=7": "pipelines: expected a valid dictionary",
    "stroe='memory://'": "stroe: there is no such setting; there are: store, nats, nats_password, nats_creds, agents,",
    "store=1,\n    grace='x',\n": "store: expected a valid string; grace: expected a valid number",
}


@pytest.mark.parametrize("arguments", WRONG)
def test_what_is_wrong_in_the_file_is_named(app: Path, arguments: str) -> None:
    """With the file, the line of the call, the field, and what was expected; never with the value."""
    config_py(app, arguments)
    message = refused()
    assert message.startswith(f"bread.config.py:3: {WRONG[arguments]}")
    assert "hunter2" not in message


@pytest.mark.parametrize(
    ("variable", "expected"),
    [
        ("BREAD_STORE", "expected sqlite:///path/to/file.db, postgresql://user@host/database or memory://"),
        ("BREAD_NATS", "expected nats://host:4222, or tls://, several with commas between them"),
        ("BREAD_CONCURRENCY", "expected a valid integer"),
        ("BREAD_GRACE", "expected a valid number"),
        ("BREAD_PIPELINES", "expected lists of steps: say them in bread.config.py"),
        ("BREAD_ENTRYPOINTS", "expected names with commas between them, or a JSON list"),
    ],
)
def test_what_is_wrong_in_the_environment_is_named_and_not_shown(
    app: Path, monkeypatch: pytest.MonkeyPatch, variable: str, expected: str
) -> None:
    """The variable is named instead of the field, with and without a file; its value may be a password."""
    monkeypatch.setenv(variable, "[hunter2" if variable == "BREAD_ENTRYPOINTS" else "hunter2")
    assert (without := refused()).startswith(f"{variable}: {expected}")
    config_py(app, "grace=1")
    assert (within := refused()).startswith(f"bread.config.py:3: {variable}: {expected}")
    assert "hunter2" not in without + within


def test_a_file_without_a_config_is_named(app: Path) -> None:
    """With what it should have had; a file that breaks, by its line."""
    for text, message in (
        ("x = 1\n", "bread.config.py:1: expected config = Config(...), found NoneType"),
        ("\nconfig = {}\n", "bread.config.py:2: expected config = Config(...), found dict"),
        ("\n\nconfig = Config()\n", "bread.config.py:3: NameError: name 'Config' is not defined"),
    ):
        write(app, {"bread.config.py": text})
        assert refused() == message


def test_a_config_is_not_changed() -> None:
    """What was checked stays as it was checked."""
    config = Config(grace=1)
    with pytest.raises(ValueError, match="frozen"):
        config.grace = -1


def test_entrypoints_exist(app: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All that do not are named at once; those of the environment by their place."""
    write_agent(app / "agents")
    config_py(app, "entrypoints=('writer', 'nobody', 'none')")
    with pytest.raises(InvalidInput) as caught:
        app_options()
    assert (caught.value.code, caught.value.message) == (
        "CONFIG_INVALID",
        "bread.config.py:3: entrypoints: there is no agent 'nobody', 'none'; there are: writer",
    )
    monkeypatch.setenv("BREAD_ENTRYPOINTS", "writer,hunter2")
    with pytest.raises(InvalidInput) as caught:
        check_entrypoints(load_config(), ["writer"])
    assert caught.value.message == "BREAD_ENTRYPOINTS: no agent is called as its name 2; there are: writer"
    check_entrypoints(load_config(), ["writer", "hunter2"])


async def test_an_app_is_opened_from_its_folder(app: Path) -> None:
    """B157: paths are those of the folder, wherever the process stands; arguments beat the file."""
    write_agent(app / "there/mine", "writer")
    config_py(app / "there", "store='sqlite:///data/bread.db', agents='mine', concurrency=2, grace=0.5")
    options = app_options("there")
    assert (options["store"], options["concurrency"], options["grace"]) == ("sqlite:///there/data/bread.db", 2, 0.5)
    async with Bread.from_config(app / "there") as bread:
        assert await bread.run("writer", "x") == "Hi."
    assert (app / "there/data/bread.db").is_file()
    async with Bread.from_config("there", store="memory://", agents=[]) as bread:
        assert bread.agents == {}
        assert (await bread.list_runs()).items == []


@pytest.mark.parametrize("store", ["memory://", "sqlite:////absolute/bread.db", "sqlite:///~/bread.db"])
def test_stores_that_are_nowhere_below_stay_as_they_are(app: Path, store: str) -> None:
    """Memory, absolute paths, and those of the home."""
    write_agent(app / "there/agents")
    config_py(app / "there", f"store={store!r}")
    assert app_options("there")["store"] == store
