"""Durable agents that stop, ask a person, and go on from where they stood."""

from bread.domain.commands import AnswerCheckpoint, CancelRun, DeleteSession, RetryRun, StartRun
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
from bread.runtime.door import Accepted
from bread.runtime.handles import RunHandle
from bread.runtime.providers import define_model
from bread.runtime.skills import Skill, define_skill
from bread.runtime.tools import HumanTool, Tool, ToolContext, define_human_tool, define_tool
from bread.transport.port import Transport

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
    "Crumb",
    "DeleteSession",
    "HumanTool",
    "InvalidInput",
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
    "StartRun",
    "StoreUnavailable",
    "StoreUnreadable",
    "Tool",
    "ToolContext",
    "Transport",
    "define_agent",
    "define_human_tool",
    "define_model",
    "define_skill",
    "define_tool",
]
