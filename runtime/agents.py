"""Agents: a model, a prompt, tools, skills, and which of them may be used."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal

from ..domain.errors import InvalidInput
from ..domain.events import JsonValue
from ..domain.names import check_name
from ..domain.permissions import Permissions
from ..domain.ports import ManagedModel, Model, ToolSpec
from .composing import Loop, Supervisor, core_tools
from .output import Output, output_of
from .providers import define_model
from .schema import schema_of
from .skills import Skill, find_skill, load_skill_tool, summary
from .tools import HumanTool, Tool

MAX_STEPS = 20
OUTPUT_RETRIES = 2
MODEL_NAME_LENGTH = 64


@dataclass(frozen=True)
class Agent:
    """An agent as it is configured now. What a suspended run uses after its answer is the agent of that time.

    `tools` has everything that the model may see, by the name under which it sees it: the agent's own tools, those of
    its skills, and bread's. `dataclasses.replace` checks the parts again.
    """

    id: str
    model: Model
    prompt: str
    permissions: Permissions
    max_steps: int
    settings: Mapping[str, Any]
    own_tools: tuple[Tool | HumanTool, ...] = ()
    own_skills: tuple[Skill, ...] = ()
    input_schema: JsonValue = None
    output: Output | None = None
    output_retries: int = OUTPUT_RETRIES
    supervisor: Supervisor | None = None
    loop: Loop | None = None
    skills: Mapping[str, Skill] = field(init=False)
    tools: Mapping[str, Tool | HumanTool] = field(init=False)

    @cached_property
    def managed(self) -> ManagedModel | None:
        """Its model, if that holds connections. Looked at once: a protocol is compared attribute by attribute."""
        return self.model if isinstance(self.model, ManagedModel) else None

    def __post_init__(self) -> None:
        skills: dict[str, Skill] = {}
        for skill in self.own_skills:
            if skill.id in skills:
                raise InvalidInput("INVALID_NAME", f"agent {self.id}: two skills are called {skill.id}")
            skills[skill.id] = skill
        tools: dict[str, Tool | HumanTool] = {}
        core = [*([load_skill_tool(skills, self.id)] if skills else []), *core_tools(self.supervisor, self.loop)]
        for tool in (*self.own_tools, *core, *(tool for skill in skills.values() for tool in skill.tools)):
            if tool.model_name in tools:
                raise InvalidInput("TOOL_NAME_COLLISION", f"agent {self.id}: two tools are called {tool.model_name}")
            if len(tool.model_name) > MODEL_NAME_LENGTH:
                raise InvalidInput(
                    "INVALID_NAME",
                    f"agent {self.id}: {tool.model_name} has more than the {MODEL_NAME_LENGTH} characters that "
                    "providers take",
                )
            tools[tool.model_name] = tool
        object.__setattr__(self, "skills", skills)
        object.__setattr__(self, "tools", tools)

    def access(self, tool: Tool | HumanTool) -> Literal["allow", "ask", "deny"]:
        """Human tools are exempt from permission lists."""
        return "allow" if isinstance(tool, HumanTool) else self.permissions.access(tool.selector)

    def offered(self, loaded: Collection[str] = ()) -> list[ToolSpec]:
        """The tools that the model is told about in a run that has loaded these skills."""
        return [
            ToolSpec(name, tool.description, tool.schema)
            for name, tool in self.tools.items()
            if self.access(tool) != "deny" and (tool.skill is None or tool.skill in loaded)
        ]

    def instructions(self, loaded: Sequence[str] = ()) -> str:
        """The prompt of a run that has loaded these skills. SKILL_NOT_FOUND for one that is no longer there."""
        parts = [self.prompt.strip()]
        loading = self.tools.get("core_load_skill")
        if loading is not None and self.access(loading) != "deny":
            parts.append(summary(self.skills))
        for shape, name in ((self.supervisor, "core_delegate"), (self.loop, "core_start_loop")):
            if shape is not None and self.access(self.tools[name]) != "deny":
                parts.append(shape.text())
        for skill in (find_skill(self.skills, skill_id, self.id) for skill_id in loaded):
            parts.append(f"# Skill {skill.id}\n\n{skill.prompt}")
        return "\n\n".join(part for part in parts if part)

    def idempotent(self) -> frozenset[str]:
        return frozenset(n for n, tool in self.tools.items() if isinstance(tool, Tool) and tool.idempotent)


def define_agent(
    id: str,
    *,
    model: Model | str,
    prompt: str = "",
    tools: Sequence[Tool | HumanTool] = (),
    skills: Sequence[Skill] = (),
    permissions: Mapping[str, Iterable[str]] | None = None,
    input: Any = None,
    output: Any = None,
    output_retries: int = OUTPUT_RETRIES,
    supervisor: Supervisor | None = None,
    loop: Loop | None = None,
    max_steps: int = MAX_STEPS,
    settings: Mapping[str, Any] | None = None,
) -> Agent:
    """Make an agent. `max_steps` bounds the model turns with tool calls; `settings` go to the model as they are.

    `model` is any object with `name` and `stream(request)`, or the name of a provider's model such as
    `anthropic:claude-sonnet-4-5`. `permissions` are lists of selectors under `allow`, `ask` and `deny`. `input` and
    `output` are pydantic model classes or JSON Schema dicts: what a caller has to give, and what the model has to
    answer; an answer that does not fit goes back to it at most `output_retries` times. A `supervisor` delegates
    to other agents, a `loop` composes pipelines of them. Raises INVALID_NAME, INVALID_PERMISSION, TOOL_NAME_COLLISION
    or INPUT_INVALID.
    """
    check_name(id, "agent")
    where = f"agent {id}"
    if isinstance(model, str):
        model = define_model(model)
    if not isinstance(prompt, str):
        raise InvalidInput("INPUT_INVALID", f"{where}: prompt: expected text")
    _check_number(max_steps, f"{where}: max_steps", 1)
    _check_number(output_retries, f"{where}: output_retries", 0)
    if not callable(getattr(model, "stream", None)):
        raise InvalidInput("INPUT_INVALID", f"{where}: model has no stream(request): expected a Model")
    if not isinstance(getattr(model, "name", None), str):
        raise InvalidInput("INPUT_INVALID", f"{where}: model has no name: expected a Model")
    for tool in tools:
        if not isinstance(tool, Tool | HumanTool):
            raise InvalidInput(
                "INPUT_INVALID", f"{where}: tools: {tool!r} is not made by define_tool or define_human_tool"
            )
    for shape, kind in ((supervisor, Supervisor), (loop, Loop)):
        if shape is not None and not isinstance(shape, kind):
            raise InvalidInput("INPUT_INVALID", f"{where}: {kind.__name__.lower()}: expected a {kind.__name__}")
    for skill in skills:
        if not isinstance(skill, Skill):
            raise InvalidInput("INPUT_INVALID", f"{where}: skills: {skill!r} is not made by define_skill")
    return Agent(
        id=id,
        model=model,
        prompt=prompt,
        permissions=Permissions.of(permissions),
        max_steps=max_steps,
        settings=dict(settings or {}),
        own_tools=tuple(tools),
        own_skills=tuple(skills),
        input_schema=None if input is None else schema_of(input, f"{where}: input"),
        output=None if output is None else output_of(output, f"{where}: output"),
        output_retries=output_retries,
        supervisor=supervisor,
        loop=loop,
    )


def _check_number(value: int, what: str, least: int) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        raise InvalidInput("INPUT_INVALID", f"{what} must be a whole number of at least {least}")
