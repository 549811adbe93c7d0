"""Compositions: pipelines of agents, agents that delegate, agents that compose loops."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

from ..domain.errors import BreadError, InvalidInput, NotFound, Refused
from ..domain.events import JsonValue
from ..domain.names import check_name
from ..domain.plans import Delegate, FinishLoop, Iterate, Refuse, StartLoop
from .schema import problems
from .skills import find_skill
from .tools import Tool, define_tool

if TYPE_CHECKING:
    from .agents import Agent

Visibility = Literal["passthrough", "mediate", "hidden"]
MAX_ITERATIONS = 10
_CONCURRENCY = 1000
_DEPTH = 50  # of steps; a delegation begins anew


@dataclass(frozen=True)
class Step:
    """A step of a pipeline. Made by `step`, `parallel`, `sequence` and `map_`; `kind` says which one it is."""

    kind: Literal["agent", "parallel", "sequence", "map"]
    agent: str = ""
    skill: str | None = None
    steps: tuple[Step, ...] = ()
    concurrency: int = 1


def step(agent: str, *, skill: str | None = None) -> Step:
    """A step that runs an agent; its input is the output of the step before."""
    return Step("agent", agent=check_name(agent, "agent"), skill=skill)


def parallel(*steps: Step | str) -> Step:
    """A step that runs its branches at once. Its output is their outputs, in the order of the branches."""
    if not steps:
        raise InvalidInput("INPUT_INVALID", "parallel: expected at least one branch")
    return Step("parallel", steps=tuple(_step(one, "parallel") for one in steps))


def sequence(*steps: Step | str) -> Step:
    """Steps one after the other as one step, for a branch or an item that takes several."""
    if not steps:
        raise InvalidInput("INPUT_INVALID", "sequence: expected at least one step")
    return Step("sequence", steps=tuple(_step(one, "sequence") for one in steps))


def map_(body: Step | str, *, concurrency: int = 1) -> Step:
    """A step that runs `body` on each element of its input, `concurrency` at a time; what is no list is one element.

    Its output is the list of outputs, in the order of the input. An element that waits for a person frees its place.
    """
    if not isinstance(concurrency, int) or not 1 <= concurrency <= _CONCURRENCY:
        raise InvalidInput("INPUT_INVALID", f"map_: concurrency: expected a whole number from 1 to {_CONCURRENCY}")
    return Step("map", steps=(_step(body, "map_"),), concurrency=concurrency)


def _step(one: Step | str, what: str) -> Step:
    if isinstance(one, str):
        return step(one)
    if not isinstance(one, Step):
        raise InvalidInput("INPUT_INVALID", f"{what}: {one!r} is no step: expected an agent's id or a step")
    return one


@dataclass(frozen=True)
class Pipeline:
    """Steps under an id, checked against the agents that there are."""

    id: str
    steps: tuple[Step, ...]

    @property
    def agents(self) -> list[str]:
        """The ids of the agents that its steps name."""
        return sorted(set().union(*(agents_of(one) for one in self.steps)))

    def misfits(self, input: JsonValue, agents: Mapping[str, Agent]) -> list[str]:
        """What in its input does not fit the agents that work on it first."""
        return _misfits(self.steps[0], input, agents)

    def nodes(self, agents: Mapping[str, Agent]) -> JsonValue:
        """The steps as they are stored with a run: a changed configuration does not touch runs that have begun."""
        return [_node(one, agents) for one in self.steps]


def define_pipeline(id: str, steps: Sequence[Step | str], agents: Mapping[str, Agent]) -> Pipeline:
    """A checked pipeline. Raises INVALID_NAME, AGENT_NOT_FOUND, SKILL_NOT_FOUND or INPUT_INVALID with the place."""
    check_name(id, "pipeline")
    if isinstance(steps, str | Step) or not isinstance(steps, Sequence) or not steps:
        raise InvalidInput("INPUT_INVALID", f"pipeline {id}: expected a list with at least one step")
    pipeline = Pipeline(id, tuple(_step(one, f"pipeline {id}") for one in steps))
    for index, one in enumerate(pipeline.steps):
        try:
            _node(one, agents)
        except BreadError as error:
            raise type(error)(error.code, f"pipeline {id}: step {index}: {error.message}", **error.details) from None
    return pipeline


def _misfits(one: Step, input: JsonValue, agents: Mapping[str, Agent]) -> list[str]:
    match one.kind:
        case "agent":
            return problems(input, agents[one.agent].input_schema, "input")
        case "map":
            items = input if isinstance(input, list) else [input]
            return [wrong for item in items for wrong in _misfits(one.steps[0], item, agents)]
        case "parallel":
            return [wrong for branch in one.steps for wrong in _misfits(branch, input, agents)]
        case _:
            return _misfits(one.steps[0], input, agents)


def _node(one: Step, agents: Mapping[str, Agent], depth: int = 1) -> dict[str, JsonValue]:
    if depth > _DEPTH:
        raise InvalidInput("INPUT_INVALID", f"steps are nested more than {_DEPTH} levels deep")
    match one.kind:
        case "agent":
            agent = agents.get(one.agent)
            if agent is None:
                raise NotFound("AGENT_NOT_FOUND", f"no agent {one.agent!r}; there are: {', '.join(agents) or 'none'}")
            node: dict[str, JsonValue] = {"kind": "agent", "agent": one.agent, "max_steps": agent.max_steps}
            if one.skill is not None:
                node["skill"] = find_skill(agent.skills, one.skill, agent.id).id
            return node
        case "map":
            body = _node(one.steps[0], agents, depth + 1)
            return {"kind": "map", "step": body, "concurrency": one.concurrency}
        case _:
            return {"kind": one.kind, "steps": [_node(branch, agents, depth + 1) for branch in one.steps]}


# --- supervisors ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class SubAgent:
    """An agent of a supervisor's roster. `max` caps its delegations in flight; `visibility` says who sees its run:
    everybody (`passthrough`), its beginning and end only (`mediate`), or nobody (`hidden`)."""

    id: str
    description: str = ""
    max: int | None = None
    visibility: Visibility | None = None


@dataclass(frozen=True)
class Supervisor:
    """Makes an agent delegate to others by `core_delegate`. `max` caps all delegations in flight of one run."""

    agents: Sequence[str | SubAgent]
    max: int | None = None
    visibility: Visibility = "passthrough"

    def __post_init__(self) -> None:
        roster = tuple(
            SubAgent(one) if isinstance(one, str) else one for one in _listed(self.agents, "supervisor: agents")
        )
        for one in roster:
            if not isinstance(one, SubAgent):
                raise InvalidInput(
                    "INPUT_INVALID", f"supervisor: agents: {one!r}: expected an agent's id or a SubAgent"
                )
            check_name(one.id, "agent")
            _check_max(one.max, f"supervisor: {one.id}: max")
            _check_visibility(one.visibility or "passthrough")
        if len({one.id for one in roster}) < len(roster):
            raise InvalidInput("INVALID_NAME", "supervisor: agents: one of them is there twice")
        _check_max(self.max, "supervisor: max")
        _check_visibility(self.visibility)
        object.__setattr__(self, "agents", roster)

    @property
    def roster(self) -> Mapping[str, SubAgent]:
        return {one.id: one for one in self.agents if isinstance(one, SubAgent)}

    def text(self) -> str:
        """What the model is told of the agents that it may delegate to."""
        lines = [f"- {one.id}" + (f": {one.description}" if one.description else "") for one in self.roster.values()]
        return "\n".join(["Agents that core_delegate hands work to:", *lines])


def _listed(agents: Any, what: str) -> tuple[Any, ...]:
    if not isinstance(agents, Sequence) or isinstance(agents, str) or not agents:
        raise InvalidInput("INPUT_INVALID", f"{what}: expected a list with at least one agent")
    return tuple(agents)


def _check_max(value: int | None, what: str) -> None:
    if value is not None and (not isinstance(value, int) or isinstance(value, bool) or value < 1):
        raise InvalidInput("INPUT_INVALID", f"{what}: expected a whole number of at least 1")


def _check_visibility(value: str) -> None:
    if value not in ("passthrough", "mediate", "hidden"):
        raise InvalidInput(
            "INPUT_INVALID", f"supervisor: visibility {value!r}: expected passthrough, mediate or hidden"
        )


# --- loops ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Loop:
    """Makes an agent compose pipelines of the agents in `pool` and run them up to `max_iterations` times."""

    pool: Sequence[str]
    max_iterations: int = MAX_ITERATIONS

    def __post_init__(self) -> None:
        pool = _listed(self.pool, "loop: pool")
        for one in pool:
            check_name(one, "agent")
        if self.max_iterations is None:
            raise InvalidInput("INPUT_INVALID", "loop: max_iterations: expected a whole number of at least 1")
        _check_max(self.max_iterations, "loop: max_iterations")
        object.__setattr__(self, "pool", pool)

    def text(self) -> str:
        """What the model is told of the loop that it may compose."""
        return (
            "core_start_loop opens a loop over a pipeline of these agents, core_iterate_loop runs it once more, "
            f"core_finish_loop ends it. Agents: {', '.join(self.pool)}. At most {self.max_iterations} iterations."
        )


def steps_of(pipeline: JsonValue) -> list[Step]:
    """The steps that a model has composed: ids of agents, `{"parallel": [...]}`, `{"map": step, "concurrency": n}`."""
    if not isinstance(pipeline, list) or not pipeline:
        raise InvalidInput("INPUT_INVALID", "pipeline: expected a list with at least one step")
    return [_composed(one) for one in pipeline]


def _composed(one: JsonValue, depth: int = 1) -> Step:
    if depth > _DEPTH:
        raise InvalidInput("INPUT_INVALID", f"pipeline: steps are nested more than {_DEPTH} levels deep")
    match one:
        case str(agent):
            return step(agent)
        case {"agent": str(agent), **rest} if rest.keys() <= {"skill"}:
            skill = rest.get("skill")
            return step(agent, skill=skill if isinstance(skill, str) else None)
        case {"parallel": list(branches), **rest} if not rest and branches:
            return parallel(*(_composed(branch, depth + 1) for branch in branches))
        case {"map": body, **rest} if rest.keys() <= {"concurrency"}:
            concurrency = rest.get("concurrency", 1)
            return map_(_composed(body, depth + 1), concurrency=concurrency if isinstance(concurrency, int) else 0)
        case list(steps) if steps:
            return sequence(*(_composed(inner, depth + 1) for inner in steps))
    raise InvalidInput(
        "INPUT_INVALID", 'pipeline: a step is an agent\'s id, {"parallel": [...]} or {"map": step, "concurrency": n}'
    )


def agents_of(one: Step) -> set[str]:
    found = {one.agent} if one.kind == "agent" else set[str]()
    return found.union(*(agents_of(inner) for inner in one.steps))


# --- the tools that are plans -----------------------------------------------------------------------------------------


def core_tools(supervisor: Supervisor | None, loop: Loop | None) -> list[Tool]:
    """The tools through which a model composes. They are never executed: what they ask for is decided with the log."""
    found = []
    if supervisor is not None:

        @define_tool(description="Hand work to another agent. Its answer is the result.", idempotent=True)
        def delegate(agentId: str, input: Any) -> None: ...

        found.append(delegate)
    if loop is not None:

        @define_tool(description="Open a loop over a pipeline of agents, with an input.", idempotent=True)
        def start_loop(pipeline: list[Any], input: Any = None) -> None: ...

        @define_tool(description="Run the open loop once more, with feedback on the last output.", idempotent=True)
        def iterate_loop(feedback: Any = None) -> None: ...

        @define_tool(description="End the open loop, with a result.", idempotent=True)
        def finish_loop(result: Any = None) -> None: ...

        found += [start_loop, iterate_loop, finish_loop]
    return [replace(tool, scope="core", composes=True) for tool in found]


def plan_composing(
    agent: Agent, tool: str, args: Any, agents: Mapping[str, Agent], input: JsonValue
) -> Delegate | StartLoop | Iterate | FinishLoop | Refuse:
    """What a call to one of those tools asks for; `input` is that of the run."""
    match tool:
        case "core_delegate":
            return _delegate(agent, args["agentId"], args["input"], agents)
        case "core_start_loop":
            return _start_loop(agent, args["pipeline"], args.get("input"), agents, input)
        case "core_iterate_loop":
            return Iterate(args.get("feedback"))
        case _:
            return FinishLoop(args.get("result"))


def _delegate(agent: Agent, sub_id: str, input: JsonValue, agents: Mapping[str, Agent]) -> Delegate | Refuse:
    supervisor = agent.supervisor
    sub = supervisor.roster.get(sub_id) if supervisor is not None else None
    if supervisor is None or sub is None:
        known = ", ".join(supervisor.roster) if supervisor is not None else "none"
        return Refuse("DELEGATE_AGENT_NOT_CONFIGURED", f"{sub_id!r} is not in the roster; there are: {known}")
    found = agents.get(sub_id)
    if found is None:
        return Refuse("AGENT_NOT_FOUND", f"agent {sub_id!r} is not there now")
    if wrong := problems(input, found.input_schema, "input"):
        return Refuse("INPUT_INVALID", f"the input does not fit agent {sub_id!r}: {'; '.join(wrong)}")
    return Delegate(
        agent=sub_id,
        input=input,
        max_steps=found.max_steps,
        visibility=sub.visibility or supervisor.visibility,
        limit=supervisor.max,
        limit_of_agent=sub.max,
    )


def _start_loop(
    agent: Agent, pipeline: JsonValue, given: JsonValue, agents: Mapping[str, Agent], input: JsonValue
) -> StartLoop | Refuse:
    loop = agent.loop
    if loop is None:
        return Refuse("LOOP_ERROR", "this agent composes no loops")
    try:
        steps = steps_of(pipeline)
        strange = sorted(set().union(*(agents_of(one) for one in steps)) - set(loop.pool))
        if strange:
            known = ", ".join(loop.pool)
            return Refuse("LOOP_AGENT_NOT_IN_POOL", f"{', '.join(strange)}: not in the pool; there are: {known}")
        nodes: JsonValue = [_node(one, agents) for one in steps]
    except (InvalidInput, NotFound, Refused) as error:
        return Refuse("LOOP_ERROR" if error.code == "INPUT_INVALID" else error.code, error.message)
    return StartLoop(nodes, input if given is None else given, loop.max_iterations)
