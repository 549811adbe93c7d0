"""Durable agents that stop, ask a person, and go on from where they stood.

A name is imported when it is first used: commands that need little of bread start fast.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from bread.domain.commands import AnswerCheckpoint, CancelRun, DeleteSession, RetryRun, StartPipeline, StartRun
    from bread.domain.envelope import Principal
    from bread.domain.errors import (
        BreadError,
        InvalidInput,
        NotFound,
        Refused,
        RunStopped,
        RunSuspended,
        StoreUnavailable,
        StoreUnreadable,
    )
    from bread.domain.ports import Model, ModelError, ModelEvent, ModelRequest
    from bread.projections.audit import AuditEvent
    from bread.projections.crumbs import AnyCrumb, Crumb
    from bread.projections.lists import Checkpoint, Page, Run, Session
    from bread.runtime.agents import Agent, define_agent
    from bread.runtime.app import Bread
    from bread.runtime.composing import Loop, Step, SubAgent, Supervisor, map_, parallel, sequence, step
    from bread.runtime.config import Config
    from bread.runtime.door import Accepted
    from bread.runtime.handles import RunHandle
    from bread.runtime.providers import define_model
    from bread.runtime.skills import Skill, define_skill
    from bread.runtime.tools import HumanTool, Tool, ToolContext, define_human_tool, define_tool
    from bread.transport.jetstream import JetStream
    from bread.transport.port import Transport

_HOMES = {
    "Accepted": "bread.runtime.door",
    "Agent": "bread.runtime.agents",
    "AnswerCheckpoint": "bread.domain.commands",
    "AnyCrumb": "bread.projections.crumbs",
    "AuditEvent": "bread.projections.audit",
    "Bread": "bread.runtime.app",
    "BreadError": "bread.domain.errors",
    "CancelRun": "bread.domain.commands",
    "Checkpoint": "bread.projections.lists",
    "Config": "bread.runtime.config",
    "Crumb": "bread.projections.crumbs",
    "DeleteSession": "bread.domain.commands",
    "HumanTool": "bread.runtime.tools",
    "InvalidInput": "bread.domain.errors",
    "JetStream": "bread.transport.jetstream",
    "Loop": "bread.runtime.composing",
    "Model": "bread.domain.ports",
    "ModelError": "bread.domain.ports",
    "ModelEvent": "bread.domain.ports",
    "ModelRequest": "bread.domain.ports",
    "NotFound": "bread.domain.errors",
    "Page": "bread.projections.lists",
    "Principal": "bread.domain.envelope",
    "Refused": "bread.domain.errors",
    "RetryRun": "bread.domain.commands",
    "Run": "bread.projections.lists",
    "RunHandle": "bread.runtime.handles",
    "RunStopped": "bread.domain.errors",
    "RunSuspended": "bread.domain.errors",
    "Session": "bread.projections.lists",
    "Skill": "bread.runtime.skills",
    "StartPipeline": "bread.domain.commands",
    "StartRun": "bread.domain.commands",
    "Step": "bread.runtime.composing",
    "StoreUnavailable": "bread.domain.errors",
    "StoreUnreadable": "bread.domain.errors",
    "SubAgent": "bread.runtime.composing",
    "Supervisor": "bread.runtime.composing",
    "Tool": "bread.runtime.tools",
    "ToolContext": "bread.runtime.tools",
    "Transport": "bread.transport.port",
    "define_agent": "bread.runtime.agents",
    "define_human_tool": "bread.runtime.tools",
    "define_model": "bread.runtime.providers",
    "define_skill": "bread.runtime.skills",
    "define_tool": "bread.runtime.tools",
    "map_": "bread.runtime.composing",
    "parallel": "bread.runtime.composing",
    "sequence": "bread.runtime.composing",
    "step": "bread.runtime.composing",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = globals()[name] = getattr(import_module(_HOMES[name]), name)
    return found


def __dir__() -> list[str]:
    return __all__


__all__ = [
    "Accepted",
    "Agent",
    "AnswerCheckpoint",
    "AnyCrumb",
    "AuditEvent",
    "Bread",
    "BreadError",
    "CancelRun",
    "Checkpoint",
    "Config",
    "Crumb",
    "DeleteSession",
    "HumanTool",
    "InvalidInput",
    "JetStream",
    "Loop",
    "Model",
    "ModelError",
    "ModelEvent",
    "ModelRequest",
    "NotFound",
    "Page",
    "Principal",
    "Refused",
    "RetryRun",
    "Run",
    "RunHandle",
    "RunStopped",
    "RunSuspended",
    "Session",
    "Skill",
    "StartPipeline",
    "StartRun",
    "Step",
    "StoreUnavailable",
    "StoreUnreadable",
    "SubAgent",
    "Supervisor",
    "Tool",
    "ToolContext",
    "Transport",
    "define_agent",
    "define_human_tool",
    "define_model",
    "define_skill",
    "define_tool",
    "map_",
    "parallel",
    "sequence",
    "step",
]
