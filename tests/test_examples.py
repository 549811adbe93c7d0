"""The examples run, and give what they promise."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from bread import define_model
from bread.runtime.servers import NatsServer
from cli_kit import Server, Shell
from examples import (
    approval,
    background,
    folders,
    loop,
    observer,
    only_nats,
    pipeline,
    provider_model,
    question,
    skill,
    structured_output,
    supervisor,
)
from models.protocols import says
from models.stub import Stub

EXAMPLES = Path(question.__file__).parent
FOLDER_APP = EXAMPLES / "folder_app"


@pytest.fixture
def shell(tmp_path: Path) -> Iterator[Shell]:
    server = Server()
    yield Shell(tmp_path, server)
    server.close()


def test_every_example_is_run_here() -> None:
    shown = {name for name, value in globals().items() if getattr(value, "__package__", None) == "examples"}
    assert {path.stem for path in EXAMPLES.glob("*.py")} - {"__init__"} == shown
    assert [path for path in EXAMPLES.iterdir() if path.is_dir() and path.name != "__pycache__"] == [FOLDER_APP]


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.py")), ids=lambda path: path.stem)
def test_every_example_is_named_in_the_docs(path: Path) -> None:
    """The map of the documentation says what each is for."""
    if path.stem != "__init__":
        assert f"`{path.name}`" in (EXAMPLES.parent / "docs" / "index.md").read_text()


async def test_question() -> None:
    """B27, B49: an enum as the shape of the answer."""
    assert await question.main() == "Painted."


async def test_approval() -> None:
    """B36: the edited arguments are executed."""
    assert await approval.main() == "ann: hi"


async def test_background() -> None:
    """B2, B65: suspended in one process object, answered in another."""
    assert await background.main() == "Painted."


async def test_observer() -> None:
    """B130: nothing missed, nothing twice."""
    seen = await observer.main()
    assert [kind for kind in seen if kind != "text:delta"] == [
        "agent:run:start",
        "human:required",
        "human:resumed",
        "agent:run:end",
    ]


async def test_only_nats(tmp_path: Path) -> None:
    """B130: all of it, over NATS alone."""
    with NatsServer(tmp_path) as server:
        seen = await only_nats.main(server.url)
    assert seen == [
        "agent:run:start",
        "text:delta",
        "human:required",
        "human:resumed",
        "text:delta",
        "agent:run:end",
    ]


async def test_structured_output(capsys: pytest.CaptureFixture[str]) -> None:
    """B11: two answers that do not fit go back, the third is the output."""
    assert await structured_output.main() == {"title": "Bread", "minutes": 60}
    misfits, recipe = capsys.readouterr().out.splitlines()[:2], "title='Bread' minutes=60"
    assert [line.split(": ")[0] for line in misfits] == ["OUTPUT_INVALID"] * 2
    assert recipe == str(structured_output.Recipe(title="Bread", minutes=60))


async def test_skill() -> None:
    """B72: loaded by the model, and its tool is called."""
    assert await skill.main() == ["load_skill -> {'skill': 'house_style'}", "house_style_check_title -> []"]


async def test_folders() -> None:
    """B30: the tool and the human tool of a file in tools/."""
    assert await folders.main() == "Good morning!"


def test_the_folder_app_at_the_command_line(shell: Shell) -> None:
    """B30, B153, B155: checked, run to its question, and answered, with nothing said but the folder."""
    app = shell.folder / "app"
    shutil.copytree(FOLDER_APP, app, ignore=shutil.ignore_patterns("__pycache__", ".bread"))
    assert shell.plain("--cwd", str(app), "build", "--strict").code == 0
    asked = shell.plain("--cwd", str(app), "invoke", "greeter", "hello")
    assert asked.code == 1
    assert "first_name waits for a person" in asked.err
    [checkpoint] = shell.plain("--cwd", str(app), "checkpoints", "list", "--json").json["items"]
    assert checkpoint["prompt"] == "Good morning! What is your first name?"
    done = shell.plain("--cwd", str(app), "checkpoints", "answer", checkpoint["id"], '"Ann"', "--author", "ann")
    assert (done.code, done.err) == (0, ""), done
    assert (app / ".bread" / "bread.db").is_file()


async def test_provider_model_without_its_key(monkeypatch: pytest.MonkeyPatch) -> None:
    """Q MODEL_NOT_READY: it says which variable to set."""
    monkeypatch.delenv("ANTHROPIC_API_KEY", raising=False)
    monkeypatch.delenv("BREAD_MODEL", raising=False)
    said = await provider_model.main()
    assert isinstance(said, str)
    assert "ANTHROPIC_API_KEY" in said


async def test_provider_model_with_a_provider() -> None:
    """B1: over HTTP, with the settings of the agent."""
    async with Stub() as stub:
        stub.plays(says("Flour, water, ", "time."))
        model = define_model("openai:stub-1", base_url=stub.url, api_key="not-a-key")
        assert await provider_model.main(model) == "Flour, water, time."
        [body] = stub.bodies
    assert body.get("max_tokens", body.get("max_completion_tokens")) == 200


async def test_pipeline() -> None:
    """B81, B90: the last answer merges, in the order of the branches, and runs the rest."""
    assert await pipeline.main() == [
        "finance has signed",
        "law has signed",
        ["law has signed", "finance has signed"],
        "Sent.",
    ]


async def test_supervisor() -> None:
    """B103, B105: the answer to the delegate goes on up to the supervisor."""
    assert await supervisor.main() == "The house is done."


async def test_loop() -> None:
    """B115, B116: the feedback is in the input of the second iteration."""
    assert await loop.main() == ["completed", "a long, long poem", "a short poem"]
