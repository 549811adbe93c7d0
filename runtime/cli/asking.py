"""Asking a person at the keyboard, until the question is answered, left, or settled by somebody else."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING

from ...domain.commands import AnswerCheckpoint
from ...domain.errors import BreadError
from ...domain.events import JsonValue
from ...projections.crumbs import AgentError, HumanDiscarded, HumanRequired, HumanResumed, RunEnd
from ..schema import to_json
from . import exits
from .options import json_or_text
from .output import console
from .questions import answer_of, has_fields, prompt_of, show_question
from .shapes import flat_fields
from .words import one_line

if TYPE_CHECKING:
    from ...domain.envelope import Principal
    from ..app import Bread
    from .prompting import Lines

LEAVE = ("later", "exit", "quit")
HELP = """\
  /later      leave, with the question as it is; so do /exit, /quit and Ctrl-D
  /cancel     stop the run for good
  /fields     give the fields of the answer one by one
  /session    the id of this session, and how to come back
An answer is JSON if it can be read as JSON, else text; text that looks like JSON, or begins with /, goes in quotes."""


class Asker:
    """Puts questions to one person, whose answers are recorded as theirs."""

    def __init__(self, bread: Bread, lines: Lines, by: Principal, tell_session: Callable[[], None]) -> None:
        self._bread, self._lines, self._by, self._tell_session = bread, lines, by, tell_session

    async def ask(self, question: HumanRequired, which: str) -> bool:
        """Ask until the question is settled, here or elsewhere. False if the person leaves it for later."""
        show_question(question, which)
        # What was typed before the question could be read is no answer to it.
        self._lines.forget()
        try:
            while True:
                line = await self._line(question, prompt_of(question))
                if line is None or (line.startswith("/") and line[1:].strip() in LEAVE):
                    return False
                # An Enter alone decides nothing.
                if line.strip() and await self._settles(question, line):
                    return True
        except _SettledElsewhere:
            _print("\nThis question has been settled meanwhile.")
            return True

    async def _line(self, question: HumanRequired, prompt: str) -> str | None:
        """What the person types, unless the question is settled before that."""
        typing = asyncio.ensure_future(self._lines.line(prompt, keep=False))
        settling = asyncio.ensure_future(self._settled(question))
        try:
            await asyncio.wait((typing, settling), return_when=asyncio.FIRST_COMPLETED)
            if not typing.done() and settling.exception() is None:
                raise _SettledElsewhere
            return await typing
        finally:
            for task in (typing, settling):
                task.cancel()
            await asyncio.gather(typing, settling, return_exceptions=True)

    async def _settled(self, question: HumanRequired) -> None:
        """Until somebody else answers, its time is over, or its run ends."""
        async for crumb in self._bread.observe(question.root_run_id, after=question.cursor):
            match crumb:
                case HumanResumed() | HumanDiscarded() if crumb.checkpoint_id == question.checkpoint_id:
                    return
                case RunEnd() | AgentError() if crumb.run_id == question.root_run_id:
                    return

    async def _settles(self, question: HumanRequired, line: str) -> bool:
        """Do what a line says. False if the question has to be asked again: nothing was recorded."""
        try:
            if line.startswith("/"):
                return await self._command(question, line[1:].strip())
            await self._answer(question, answer_of(question, line))
        except BreadError as error:
            if error.code == "CHECKPOINT_NOT_FOUND":
                _print("Somebody was faster: this question is settled.")
                return True
            exits.report(error.code, error.message)
            return False
        return True

    async def _answer(self, question: HumanRequired, response: JsonValue) -> None:
        answer = to_json(response, "the answer")
        await self._bread.send(AnswerCheckpoint(checkpoint_id=question.checkpoint_id, response=answer, by=self._by))

    async def _command(self, question: HumanRequired, word: str) -> bool:
        match word:
            case "cancel":
                await self._bread.cancel(question.root_run_id, reason="cancelled in a chat", by=self._by)
                return True
            case "fields" if has_fields(question):
                given = await self._fields(question)
                if given is not None:
                    await self._answer(question, given)
                return given is not None
            case "fields":
                _print("the fields of this answer cannot be asked for one by one")
            case "help":
                _print(HELP)
            case "session":
                self._tell_session()
            case _:
                _print(f"there is no command /{one_line(word)} here; an answer that begins with / goes in quotes")
        return False

    async def _fields(self, question: HumanRequired) -> JsonValue:
        """The answer, field by field; None if the person gives it up."""
        given: dict[str, JsonValue] = {}
        for field in flat_fields(question.response_schema):
            _print(f"  {field.words}{'' if field.required else '; Enter leaves it out'}")
            typed: str | None = ""
            while not typed:
                typed = await self._line(question, f"{one_line(field.name)}> ")
                if typed is None:
                    return None
                if not field.required:
                    break
            if typed:
                given[field.name] = typed if field.text else json_or_text(typed)
        return given


class _SettledElsewhere(Exception):
    """What is being typed is not needed any more."""


def _print(text: str) -> None:
    console().print(text)
