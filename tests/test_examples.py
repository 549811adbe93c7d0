"""The examples run, and give what they promise."""

from __future__ import annotations

from pathlib import Path

from examples import approval, background, observer, question


def test_every_example_is_run_here() -> None:
    found = {path.stem for path in Path(question.__file__).parent.glob("*.py")} - {"__init__"}
    assert found == {"approval", "background", "observer", "question"}


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
