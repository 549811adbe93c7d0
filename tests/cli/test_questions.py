"""How a question is shown, and what a line means as an answer."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

import pytest
from pydantic import BaseModel, Field

from bread import Bread, BreadError, define_agent, define_human_tool
from bread.domain.commands import AnswerCheckpoint
from bread.domain.envelope import Principal
from bread.projections.crumbs import HumanRequired
from bread.runtime.cli.asking import Asker
from bread.runtime.cli.questions import answer_of, show_question
from bread.runtime.cli.shapes import described, flat_fields
from bread.testing import ScriptedModel, call, text
from scenes import until

ANY = "any JSON value but null"


class Guest(BaseModel):
    name: str = Field(description="as in the passport", min_length=1)
    child: bool = False


class Stay(BaseModel):
    """Who comes, and where to."""

    room: Literal["red", "blue"]
    guests: list[Guest] = Field(max_length=4)
    price: float | None = None


TREE: dict[str, Any] = {"$ref": "#/$defs/node", "$defs": {"node": {"type": "object", "properties": {}}}}
TREE["$defs"]["node"]["properties"]["left"] = {"$ref": "#/$defs/node"}


@pytest.mark.parametrize(
    ("schema", "lines"),
    [
        (None, [ANY]),
        ({}, [ANY]),
        (True, [ANY]),
        ({"type": "string"}, ["text"]),
        ({"type": ["integer", "null"], "minimum": 1}, ["whole number or null (at least 1)"]),
        ({"enum": ["red", 2]}, ['one of "red", 2']),
        ({"const": "yes", "description": "say\nso"}, ['"yes" - say so']),
        ({"anyOf": [{"type": "string"}, {"type": "string"}, {"type": "boolean"}]}, ["text or true or false"]),
        ({"type": "array", "items": {"enum": [1, 2]}}, ["list (each: one of 1, 2)"]),
        ({"allOf": [{"$ref": "#/$defs/a"}], "$defs": {"a": {"type": "number"}}}, ["number"]),
        ({"oneOf": [{"type": "object", "properties": {"a": {}, "b": {}}, "required": ["a"]}]}, ["object (a, b?)"]),
        ({"$ref": "#/$defs/gone"}, [ANY]),
        ({"not": {"type": "string"}}, ['{"not": {"type": "string"}}']),
        ({"type": "string", "default": "\x1b[2J"}, [r'text (default "\u001b[2J")']),
    ],
)
def test_a_schema_in_words(schema: Any, lines: list[str]) -> None:
    """B152: what fits is said in words; what has no words is shown as it is, and nothing steers the terminal."""
    assert described(schema) == lines


def test_a_model_in_words() -> None:
    """B152: fields with their types, whether they are required, what may be chosen, and what they are."""
    assert described(Stay.model_json_schema()) == [
        "object - Who comes, and where to.",
        '  room: one of "red", "blue", required',
        "  guests: list (each: object (name, child?); at most 4 of them), required",
        "    name: text (at least 1 characters), required - as in the passport",
        "    child: true or false (default false)",
        "  price: number or null",
    ]


def test_schemas_without_an_end() -> None:
    """B152: a shape that contains itself, or points to itself, is shown to some depth."""
    assert described(TREE) == ["object", "  left: object", "    left: object", "      left: object"]
    assert described({"$ref": "#"}) == [ANY]
    endless: dict[str, Any] = {"anyOf": [{"$ref": "#"}, {"type": "string"}]}
    assert described(endless) == ["JSON or text or text or text"]


def test_which_answers_are_asked_for_field_by_field() -> None:
    """B152: objects of simple fields; text is what is text only."""
    assert [(field.name, field.required, field.text) for field in flat_fields(Guest.model_json_schema())] == [
        ("name", True, True),
        ("child", False, False),
    ]
    either: Any = {"type": "object", "properties": {"a": {"anyOf": [{"type": "string"}, {"type": "null"}]}}}
    assert [field.text for field in flat_fields(either)] == [False]
    others: list[Any] = [None, {"type": "string"}, Stay.model_json_schema(), {"properties": {"a": {}}}]
    assert [flat_fields(other) for other in others] == [[], [], [], []]


def question(kind: Any, **more: Any) -> HumanRequired:
    common: dict[str, Any] = {"seq": 1, "cursor": "1", "run_id": "r", "root_run_id": "r", "agent_id": "a"}
    given: dict[str, Any] = {"args": {}, "schema": {}, "prompt": "Well?", "timestamp": datetime.now(UTC)}
    ids: dict[str, Any] = {"session_id": "s", "checkpoint_id": "cp_1", "tool_name": "ask", "tool_call_id": "c"}
    return HumanRequired(**common, **ids, kind=kind, **(given | more))


@pytest.mark.parametrize(
    ("kind", "line", "answer"),
    [
        ("input", "yes", "yes"),
        ("input", " as it is ", " as it is "),
        ("input", '"yes"', "yes"),
        ("input", ' {"a": 1} ', {"a": 1}),
        ("input", "NaN", "NaN"),
        ("input", "true", True),
        ("approval", "y", {"approved": True}),
        ("approval", " YES ", {"approved": True}),
        ("approval", "n", {"approved": False}),
        ("approval", "No  not today ", {"approved": False, "reason": "not today"}),
        ("approval", '{"approved": false, "comment": "x"}', {"approved": False, "comment": "x"}),
        ("in_doubt", "Retry", {"outcome": "retry"}),
        ("in_doubt", "failed", {"outcome": "failed", "error": "it was cut off"}),
        ("in_doubt", "failed no paper", {"outcome": "failed", "error": "no paper"}),
        ("in_doubt", "happened", {"outcome": "happened", "result": None}),
        ("in_doubt", "happened [1]", {"outcome": "happened", "result": [1]}),
        ("in_doubt", '{"outcome": "retry"}', {"outcome": "retry"}),
    ],
)
def test_what_a_line_means(kind: str, line: str, answer: Any) -> None:
    """B152: JSON if it can be read as JSON, else text; words for yes, no, and the three outcomes."""
    assert answer_of(question(kind), line) == answer


@pytest.mark.parametrize(
    ("kind", "line"),
    [
        *(("approval", line) for line in ("yes please", "ye", "1", "true", "null", "[]", '"y"', "{}", '{"ok": true}')),
        *(("in_doubt", line) for line in ("y", "retry now", "null", "it happened")),
    ],
)
def test_what_is_no_answer(kind: str, line: str) -> None:
    """B152, B37, C31: what is unclear is neither a yes nor a no: it is asked again."""
    with pytest.raises(BreadError) as refused:
        answer_of(question(kind), line)
    assert refused.value.code == "RESPONSE_INVALID"


def test_a_question_is_shown_whole(capsys: pytest.CaptureFixture[str]) -> None:
    """B152, B22, B23: nothing of the arguments is cut, and no line of theirs looks like one of the program's."""
    args = {"text": f"a  b\nanswer  {'x' * 500}"}
    show_question(question("input", args=args, prompt="Really?\ndeadline  never"))
    shown = capsys.readouterr().out
    assert f'args        text: "a  b\\nanswer  {"x" * 500}"\n' in shown
    assert "QUESTION    Really?\n            deadline  never\n" in shown


class Typist:
    """A person who does something before they type."""

    def __init__(self, before: Callable[[], Any], line: str) -> None:
        self._before, self._line = before, line
        self.asked = 0

    async def line(self, prompt: str = "", *, keep: bool = True) -> str | None:
        self.asked += 1
        await self._before()
        return self._line

    def forget(self) -> None:
        return

    def close(self) -> None:
        return


async def test_an_answer_that_lost_the_race(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """B152, B53: somebody was faster by so little that the prompt did not hear of it: it is told, and that is all."""

    async def never(*_: Any) -> None:
        await asyncio.Event().wait()

    monkeypatch.setattr(Asker, "_settled", never)
    ask = define_human_tool("ask", {"type": "object"})
    model = ScriptedModel([[call("human_ask")], [text("Thanks.")]])
    agent = define_agent("a", model=model, tools=[ask])
    async with Bread(agents=[agent], store=f"sqlite:///{tmp_path / 'bread.db'}") as bread:
        asked: HumanRequired = await until(bread.run("a", "go"), "human:required")

        async def other() -> None:
            await bread.send(AnswerCheckpoint(checkpoint_id=asked.checkpoint_id, response="faster"))

        typist = Typist(other, "slower")
        ann = Principal(kind="user", id="ann")
        assert await Asker(bread, typist, ann, lambda: None).ask(asked, "")
        assert typist.asked == 1
        assert "Somebody was faster" in capsys.readouterr().out
        assert (await bread.get_checkpoint(asked.checkpoint_id)).response == "faster"
