"""`bread build`: reads the configuration and every agent, and names everything that is wrong with them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ...domain.errors import BreadError
from . import exits
from .exits import report
from .options import AsJson, Cwd
from .output import console, print_json, print_table
from .words import one_line

if TYPE_CHECKING:
    from ..agents import Agent
    from .place import Place
    from .survey import Survey


def build(
    context: typer.Context,
    strict: Annotated[
        bool, typer.Option("--strict", help="What may be meant so, or lacks a key here, counts as a problem, too.")
    ] = False,
    cwd: Cwd = None,
    json: AsJson = False,
) -> None:
    """Check that the configuration and all agents load and are whole. Exit code 1 if something is wrong."""
    place: Place = context.obj

    async def work() -> int:
        from .survey import survey

        found = await survey(place)
        problems = [*found.config_problems, *found.problems]
        warnings = [*found.doubts, *_unready(found)]
        if strict:
            problems, warnings = problems + warnings, []
        if json:
            print_json(
                {
                    "ok": not problems,
                    "agents": [_as_data(agent, found) for agent in found.agents],
                    "problems": [_problem(error) for error in problems],
                    "warnings": [_problem(error) for error in warnings],
                }
            )
        else:
            _show(found, problems, warnings)
        if not problems:
            return exits.DONE
        count = "1 problem" if len(problems) == 1 else f"{len(problems)} problems, the first"
        report(problems[0].code, f"{count}: {problems[0].message}")
        return exits.ERROR

    place.perform(work)


def _unready(found: Survey) -> Iterator[BreadError]:
    for agent_id, error in found.unready.items():
        yield type(error)(error.code, f"agent {agent_id}: {error.message}")


def _problem(error: BreadError) -> dict[str, str]:
    return {"code": error.code, "message": error.message}


def _show(found: Survey, problems: list[BreadError], warnings: list[BreadError]) -> None:
    for kind, errors in (("error", problems), ("warn", warnings)):
        for error in errors:
            console().print(f"{kind:<6} " + one_line(f"{error.message} ({error.code})"))
    rows = [
        (agent.id, agent.model.name, " ".join(agent.tools), " ".join(agent.skills), _permissions(agent))
        for agent in found.agents
    ]
    print_table(("agent", "model", "tools", "skills", "permissions"), rows, "No agent is whole.", None)


def _permissions(agent: Agent) -> str:
    lists = {name: getattr(agent.permissions, name) for name in ("allow", "ask", "deny")}
    return "; ".join(f"{name} {' '.join(selectors)}" for name, selectors in lists.items() if selectors) or "all"


def _as_data(agent: Agent, found: Survey) -> dict[str, Any]:
    named = found.config.entrypoints if found.config is not None else ()
    return {
        "id": agent.id,
        "model": agent.model.name,
        "tools": [*agent.tools],
        "skills": [*agent.skills],
        "permissions": {name: [*getattr(agent.permissions, name)] for name in ("allow", "ask", "deny")},
        "entrypoint": agent.id in named or not named,
    }
