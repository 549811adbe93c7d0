"""Teams that the tests of compositions play with: supervisors, those they delegate to, and hosts of loops."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from typing import Any

from bread import Agent, AnyCrumb, Bread, Checkpoint, Loop, SubAgent, Supervisor
from bread.domain.messages import ToolMessage
from bread.domain.ports import ModelRequest
from bread.projections.crumbs import HumanRequired
from bread.runtime.scripted import Call
from bread.testing import call, pause, text
from scenes import Gate, Script, Spy, agent, asking, questions
from support import read

# --- what models say --------------------------------------------------------------------------------------------------


def delegate(agent_id: str, input: Any = None) -> Call:
    """The call that hands work to another agent."""
    return call("core_delegate", {"agentId": agent_id, "input": input})


def start_loop(*pipeline: Any, **more: Any) -> Call:
    return call("core_start_loop", {"pipeline": list(pipeline), **more})


def iterate(**more: Any) -> Call:
    return call("core_iterate_loop", more)


def finish(**more: Any) -> Call:
    return call("core_finish_loop", more)


def outcomes(request: ModelRequest) -> list[Any]:
    """What the calls of the last turn came to: results as they are, errors as (outcome, text)."""
    found: list[Any] = []
    for message in reversed(request.messages):
        if not isinstance(message, ToolMessage):
            break
        found.insert(0, message.content if message.outcome == "ok" else (message.outcome, message.content))
    return found


def told(spy: Spy) -> list[Any]:
    """What the model was told at its last turn of the calls before it."""
    return outcomes(spy.requests[-1])


def tells(request: ModelRequest) -> list[Any]:
    """The turn of a model that repeats what its calls came to, as JSON."""
    return [text(json.dumps(outcomes(request)))]


# --- who says it ------------------------------------------------------------------------------------------------------


def team(
    script: Script | Spy, *agents: str | SubAgent, id: str = "boss", tools: Sequence[Any] = (), **more: Any
) -> Agent:
    """A supervisor of these agents. `max` and `visibility` are those of the supervisor."""
    shape = {name: more.pop(name) for name in ("max", "visibility") if name in more}
    return agent(script, *tools, id=id, supervisor=Supervisor(agents=agents, **shape), **more)


def hands_on(*agents: str, id: str = "boss", **more: Any) -> Agent:
    """A supervisor that delegates its input to each of these agents in one turn, and tells what came of it."""

    def script(request: ModelRequest) -> list[Any]:
        if request.turn:
            return tells(request)
        return [delegate(one, getattr(request.messages[0], "text", None)) for one in agents]

    return team(script, *dict.fromkeys(agents), id=id, **more)


def host(script: Script | Spy, *pool: str, id: str = "host", tools: Sequence[Any] = (), **more: Any) -> Agent:
    """An agent that composes loops of the agents in its pool. `max_iterations` is that of the loop."""
    shape = {name: more.pop(name) for name in ("max_iterations",) if name in more}
    return agent(script, *tools, id=id, loop=Loop(pool=pool, **shape), **more)


def worker(id: str = "worker") -> Agent:
    """Says its name and what it was given."""
    return agent(lambda request: [text(f"{id}: {request.messages[-1].text}")], id=id)


def asker(id: str = "asker", times: int = 1) -> Agent:
    """Asks a person `times` times, and says its name and the answers."""

    def script(request: ModelRequest) -> list[Any]:
        if request.turn < times:
            return [call("human_ask", {"by": id, "n": request.turn})]
        heard = [str(message.content) for message in request.messages if isinstance(message, ToolMessage)]
        return [text(f"{id}: {', '.join(heard)}")]

    return agent(script, asking(), id=id)


def broken(id: str = "broken") -> Agent:
    """Its model fails, and is not asked again."""
    return agent([], id=id)


def waits(gate: Gate, id: str = "slow") -> Agent:
    """Says its name once the gate is open."""
    return agent([[pause(gate), text(id)]], id=id)


def turns(*turns: Any) -> Spy:
    """A host that does this, turn by turn, and then says what its last calls came to."""
    return Spy(lambda request: [turns[request.turn]] if request.turn < len(turns) else tells(request))


def quotes() -> Any:
    """A worker that gives back what it was given."""
    return agent(lambda request: [text(request.messages[-1].text)], id="worker")


def script(*calls: Any) -> list[Any]:
    """One turn with these calls, then the end."""
    return [list(calls), [text("Done.")]]


# --- what is looked at ------------------------------------------------------------------------------------------------


def by_agent(crumbs: list[AnyCrumb]) -> dict[str, HumanRequired]:
    """The questions of a stream by who asks."""
    return {asked.agent_id: asked for asked in questions(crumbs)}


async def waiting(bread: Bread) -> list[Checkpoint]:
    """The delegation checkpoints that are listed."""
    return (await bread.list_checkpoints(kind="delegation")).items


async def open_questions(bread: Bread) -> dict[str, str]:
    """The questions that can be answered, by who asks: agent to checkpoint id."""
    return {found.agent_id: found.id for found in (await bread.list_checkpoints(answerable=True)).items}


async def opened(bread: Bread, count: int = 1) -> dict[str, str]:
    """The open questions, once there are so many: before the tree rests nothing else tells of them."""
    async with asyncio.timeout(10):
        while len(found := await open_questions(bread)) < count:
            pass
    return found


async def children(bread: Bread, root: str) -> dict[str, str]:
    """The runs below a root, by agent; where an agent runs more than once, the last of them."""
    page = await bread.list_runs(root=root, limit=1000)
    return {run.agent_id: run.id for run in reversed(page.items) if run.id != root}


async def answer_all(bread: Bread, crumbs: list[AnyCrumb], answer: Any = "yes") -> list[AnyCrumb]:
    """Answer what a stream asks, one by one, until nothing is asked any more; gives the last stream."""
    while asked := questions(crumbs):
        for one in asked:
            crumbs = await read(bread.resume(one.checkpoint_id, answer))
    return crumbs


def shown_by(crumbs: Sequence[AnyCrumb], agent_id: str) -> list[str]:
    """The types of crumbs of an agent's runs, text once."""
    found: list[str] = []
    for crumb in crumbs:
        if crumb.agent_id == agent_id and crumb.type != (found[-1] if found else ""):
            found.append(crumb.type)
    return found


def pending(found: Checkpoint) -> Mapping[str, tuple[str, ...]]:
    """What a delegation waits for: the sub-agent and the questions to be answered there."""
    return {one.sub_agent_id: one.child_checkpoint_ids for one in found.pending}


def frames(crumbs: list[AnyCrumb]) -> list[tuple[str, str, str]]:
    """The frames of steps: start, end or error, the place, and whose step it is."""
    return [
        (crumb.type.removeprefix("pipeline:step:"), "/".join(crumb.path), crumb.agent_id)
        for crumb in crumbs
        if crumb.type.startswith("pipeline:step:")
    ]
