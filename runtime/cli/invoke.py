"""`bread invoke`: one run for a program or a pipe: input in, output out, nobody is asked."""

from __future__ import annotations

import os
import sys
from typing import Annotated, Any

import typer

from ...domain.errors import InvalidInput
from ...projections.crumbs import AgentError, AnyCrumb, HumanRequired, RunEnd
from . import exits
from .chat import agent_of
from .crumbs import CrumbPrinter
from .drive import going_on, show_all
from .exits import note
from .options import AgentId, AsJson, Author, Cwd, Key, Session, Skill, json_or_text, person
from .output import print_json, print_output
from .place import Place

ASKS = exits.ERROR
"""Of a run that asks a person: who invokes wants an output, and there is none."""


def invoke(
    context: typer.Context,
    agent: AgentId,
    input: Annotated[
        str | None, typer.Argument(metavar="INPUT", help="Text, or a JSON object or list; without it stdin is read.")
    ] = None,
    as_text: Annotated[bool, typer.Option("--text", help="Take the input as text, also where it is JSON.")] = False,
    json: AsJson = False,
    trace: Annotated[bool, typer.Option("--trace", help="Show on stderr what happens; with --json as JSON.")] = False,
    session: Session = None,
    skill: Skill = None,
    key: Key = None,
    author: Author = None,
    cwd: Cwd = None,
) -> None:
    """Run an agent or a pipeline once; its output is all that stands on stdout.

    It waits for nobody: where the run asks a person, the question is named on stderr and stays in the store, the exit
    code is 1, and `bread checkpoints` answers it. Runs of others are not performed here.
    """
    place: Place = context.obj
    by = person(author)
    given = _read() if input is None else input

    async def work() -> int:
        if not json:
            note(place.first_line())
        value = given if as_text else _value(given)
        pipelines = place.pipelines_to_start()
        is_pipeline = agent in pipelines and agent not in {one.id for one in place.agents()}
        if is_pipeline and skill is not None:
            raise InvalidInput("INPUT_INVALID", "--skill: a pipeline has none, its steps have")
        name = agent if is_pipeline else agent_of(place, agent, pipelines).id
        async with place.open(executes=True, takes=False) as bread:
            if is_pipeline:
                run_id = await bread.start_pipeline(name, value, session=session, idempotency_key=key, by=by)
            else:
                run_id = await bread.start(name, value, session=session, skill=skill, idempotency_key=key, by=by)
            place.if_interrupted = going_on(place, run_id)
            printer = CrumbPrinter(as_json=json, quiet=not trace, stderr=True)
            await show_all(place, bread.observe(run_id, until="rest"), printer)
        return _tell(place, printer.last, list(printer.open.values()), as_json=json)

    place.perform(work)


def _read() -> str:
    if sys.stdin is None or sys.stdin.isatty():
        raise InvalidInput("INPUT_INVALID", "no input: give it as an argument, or on stdin")
    text = sys.stdin.read()
    if not text.strip():
        raise InvalidInput("INPUT_INVALID", "no input: stdin is empty")
    return text.removesuffix("\n")


def _value(text: str) -> Any:
    value = json_or_text(text)
    return value if isinstance(value, dict | list) else text


def _tell(place: Place, last: AnyCrumb | None, questions: list[HumanRequired], *, as_json: bool) -> int:
    """Say how the run has ended, or what it asks; the exit code."""
    if last is None:
        return exits.STOPPED  # every run has a start to be seen
    told: dict[str, Any] = {"runId": last.root_run_id, "sessionId": last.session_id}
    match last:
        case RunEnd():
            _print(told | {"status": "completed", "output": last.output} if as_json else last.output, as_json)
            return exits.DONE
        case AgentError():
            status = "cancelled" if last.code == "RUN_CANCELLED" else "failed"
            if as_json:
                _print(told | {"status": status, "error": {"code": last.code, "message": last.message}}, as_json)
            exits.report(last.code, last.message)
            return exits.STOPPED
    if as_json:
        fields = (
            "checkpointId",
            "kind",
            "agentId",
            "runId",
            "toolName",
            "prompt",
            "args",
            "responseSchema",
            "deadline",
        )
        asked = [{name: value for name, value in question.wire().items() if name in fields} for question in questions]
        _print(told | {"status": "suspended", "checkpoints": asked}, as_json)
    for question in questions:
        below = "" if question.run_id == question.root_run_id else f" of {question.agent_id}"
        note(f"{question.tool_name}{below} waits for a person: {question.checkpoint_id} ({question.kind}). To answer:")
        note(place.command("checkpoints", "show", question.checkpoint_id))
    return ASKS


def _print(value: Any, as_json: bool) -> None:
    try:
        print_json(value) if as_json else print_output(value)
    except BrokenPipeError:
        # Who read the output has seen enough; what is left in the buffer must not be tried again at the end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
