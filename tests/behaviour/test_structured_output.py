"""Answers that have to fit a schema, and inputs that have to."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import BaseModel, field_validator

from bread import RunStopped, define_tool
from bread.runtime.output import output_of
from bread.testing import call, text
from scenes import DURABLE, OpenBread, Spy, agent, ask_first, asking, ended, names, question, refused
from support import read, said, types


class Article(BaseModel):
    title: str
    words: int = 100

    @field_validator("title")
    @classmethod
    def short(cls, title: str) -> str:
        if len(title) > 10:
            raise ValueError("at most 10 characters")
        return title.strip()


SCHEMA = {
    "type": "object",
    "properties": {"title": {"type": "string"}, "words": {"type": "integer"}},
    "required": ["title"],
    "additionalProperties": False,
}
FITS, MISFIT = '{"title": "Bread"}', '{"name": "Bread"}'


@define_tool
async def count(text: str) -> int:
    """Count words."""
    return len(text.split())


@pytest.mark.parametrize(
    ("shape", "output"), [(Article, {"title": "Bread", "words": 100}), (SCHEMA, {"title": "Bread"})]
)
async def test_an_answer_that_fits_is_the_output_as_data(open_bread: OpenBread, shape: Any, output: Any) -> None:
    """A11, B2: the output is data, defaults of a model filled in; the text is what the model said."""
    spy = Spy([[text(FITS)]])
    async with open_bread(agent(spy, output=shape)) as bread:
        crumbs = await read(bread.run("a", "go"))
        assert types(crumbs) == ["agent:run:start", "text:delta", "agent:run:end"]
        assert said(crumbs) == FITS
        assert crumbs[-1].output == output  # type: ignore[union-attr]
        assert await bread.run("a", "again") == output
        assert (await bread.get_run(crumbs[0].run_id)).output == output
    schema = spy.requests[0].output
    assert isinstance(schema, dict)
    assert schema["required"] == ["title"]


async def test_a_misfit_goes_back_to_the_model(open_bread: OpenBread) -> None:
    """B11: it is told what is wrong and asked again; each of it is a recorded event and a crumb."""
    spy = Spy([[text("Here it is: bread.")], [text(MISFIT)], [text(FITS)]])
    async with open_bread(agent(spy, output=SCHEMA)) as bread:
        crumbs = await read(bread.run("a", "go"))
        assert types(crumbs, "text:delta") == ["agent:run:start", "model:retry", "model:retry", "agent:run:end"]
        first, second = (crumb for crumb in crumbs if crumb.type == "model:retry")
        assert (first.code, first.attempt, second.attempt) == ("OUTPUT_INVALID", 1, 2)
        assert "not JSON" in first.message
        assert "'title' is a required property" in second.message
        assert crumbs[-1].output == {"title": "Bread"}  # type: ignore[union-attr]
        recorded = ["model_responded", "output_rejected"] * 2 + ["model_responded", "completed"]
        assert await names(bread, crumbs[0].run_id) == ["started", *recorded]
    *_, (role, told) = spy.seen[-1]
    assert role == "user"
    assert "'title' is a required property" in told
    assert [message[1] for message in spy.seen[-1] if message[0] == "assistant"] == ["Here it is: bread.", MISFIT]


@pytest.mark.parametrize("retries", [0, 1, 3])
async def test_misfits_are_bounded_and_a_retry_goes_on(open_bread: OpenBread, retries: int) -> None:
    """B11, B59: OUTPUT_INVALID after the last one, everything kept; the retry has the same bound anew."""
    spy = Spy(lambda request: [text(FITS if len(spy.requests) > retries + 1 else MISFIT)])
    async with open_bread(agent(spy, output=SCHEMA, output_retries=retries)) as bread:
        crumbs = await read(bread.run("a", "go"))
        run_id = crumbs[0].run_id
        assert len(spy.requests) == retries + 1
        assert types(crumbs, "text:delta") == ["agent:run:start", *["model:retry"] * retries, "agent:error"]
        assert crumbs[-1].code == "OUTPUT_INVALID"  # type: ignore[union-attr]
        with pytest.raises(RunStopped, match="required property"):
            await bread.observe(run_id)
        assert await bread.retry(run_id) == {"title": "Bread"}
        assert "required property" in spy.seen[-1][-1][1]


@DURABLE
async def test_tools_and_people_work_as_for_text(open_bread: OpenBread) -> None:
    """B11, B26: an ordinary and a human tool in one turn, a misfit after the answer, over a restart."""
    script = [
        [call("tool_count", {"text": "one two"}), call("human_ask", {"n": 1})],
        [text("Two words.")],
        [text(FITS)],
    ]
    spy = Spy(script)
    a = agent(spy, count, asking(), output=Article)
    async with open_bread(a) as bread:
        asked = await ask_first(bread)
    async with open_bread(a) as bread:
        assert await bread.resume(asked.checkpoint_id, "yes") == {"title": "Bread", "words": 100}
        crumbs = await ended(bread, asked.run_id)
    assert types(crumbs, "text:delta")[-3:] == ["human:resumed", "model:retry", "agent:run:end"]
    assert [crumb.type for crumb in crumbs].count("tool:result") == 1


async def test_the_session_goes_on_with_what_was_said(open_bread: OpenBread) -> None:
    """B5: the next run of the session sees the answers as the model gave them, and what bread told it."""
    spy = Spy(lambda request: [text("Hm." if len(spy.requests) == 1 else FITS)])
    async with open_bread(agent(spy, output=SCHEMA)) as bread:
        await bread.run("a", "one", session="s")
        await bread.run("a", "two", session="s")
        shown = await bread.sessions.messages("s")
    assert [message[0] for message in spy.seen[-1]] == ["user", "assistant", "user", "assistant", "user"]
    assert [message.get("author") for message in shown] == [None, None, "bread", None, None, None]


@pytest.mark.parametrize(
    ("answer", "value", "wrong"),
    [
        (FITS, {"title": "Bread", "words": 100}, ""),
        (f"```json\n{FITS}\n```", {"title": "Bread", "words": 100}, ""),
        (f"\n ```\n{FITS}\n```\n", {"title": "Bread", "words": 100}, ""),
        ('{"title": " Bread "}', {"title": "Bread", "words": 100}, ""),
        ('{"title": "Much too long"}', None, "title: Value error, at most 10 characters"),
        ('{"title": 7}', None, "title: 7 is not of type 'string'"),
        ('{"title": "a", "words": 1e999}', None, "a number is too large"),
        ('{"title": NaN}', None, "not JSON"),
        ("", None, "not JSON"),
        ("[" * 100_000, None, "not JSON"),
    ],
)
def test_an_answer_is_read_in_this_way(answer: str, value: Any, wrong: str) -> None:
    """B11: the schema first, then what a class knows beyond it."""
    output, problems = output_of(Article, "output").read(answer)
    assert output == value
    assert wrong in "; ".join(problems)
    assert bool(problems) == bool(wrong)


async def test_a_null_can_be_the_output(open_bread: OpenBread) -> None:
    """B11: null is JSON like any other, where the schema lets it through."""
    async with open_bread(agent([[text("null")]], output={"type": ["null", "integer"]})) as bread:
        crumbs = await read(bread.run("a", "go"))
        assert crumbs[-1].wire()["output"] is None


async def test_an_input_that_does_not_fit_begins_nothing(open_bread: OpenBread) -> None:
    """Q INPUT_INVALID, B139: it names the place, and nothing is written."""
    async with open_bread(agent([[text("Fine.")]], input=Article)) as bread:
        with refused("INPUT_INVALID") as caught:
            await bread.run("a", {"title": 7}, session="s")
        assert "title: 7 is not of type 'string'" in caught.value.message
        with refused("INPUT_INVALID") as caught:
            await bread.run("a", "go")
        assert "(input)" in caught.value.message
        with refused("SESSION_NOT_FOUND"):
            await bread.sessions.get("s")
        assert await bread.run("a", {"title": "Bread"}) == "Fine."


async def test_a_cancelled_question_leaves_no_output(open_bread: OpenBread) -> None:
    """B11, B18: a run with a schema ends like any other."""
    async with open_bread(agent([[call("human_ask")], [text(FITS)]], asking(), output=SCHEMA)) as bread:
        crumbs = await read(bread.run("a", "go"))
        await bread.cancel(question(crumbs).run_id)
        assert (await bread.get_run(crumbs[0].run_id)).output is None
