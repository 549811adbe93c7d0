"""Delegations and loops: what the calls to bread's own tools bring about in the run that makes them."""

from __future__ import annotations

from typing import Literal, assert_never

from .children import Loop
from .derived import derived_id
from .events import Event, JsonValue
from .plans import Delegate, FinishLoop, Iterate, StartLoop
from .run_events import (
    ChildStarted,
    IterationFinished,
    IterationStarted,
    LoopFinished,
    LoopStarted,
    ToolCalled,
    ToolFailed,
    ToolReturned,
)
from .run_state import Call, RunState

Composing = Delegate | StartLoop | Iterate | FinishLoop


def composing(state: RunState, call: Call, plan: Composing, at: float) -> list[Event]:
    """The events of a call that begins a child run, or that opens or ends a loop. `at` is unix seconds.

    The intent is among them unless it was committed before, as it was where a person had to approve the call.
    """
    intended = call.status == "called"
    intent = [] if intended else [_intent(call)]
    child = derived_id("run", at, state.id, call.key)
    loop = state.loop
    match plan:
        case Delegate():
            if (full := _full(state, plan)) is not None:
                return [refused(call, "DELEGATION_LIMIT", full)]
            started = ChildStarted(
                slot=call.key, child=child, agent=plan.agent, kind="supervisor", visibility=plan.visibility
            )
            return [*intent, started]
        case StartLoop():
            if loop is not None:
                return [refused(call, "LOOP_ALREADY_ACTIVE", f"loop {loop.id} is open: finish it first")]
            opened = LoopStarted(
                loop=f"loop_{state.id.removeprefix('run_')}_{call.key}",
                call=call.key,
                steps=plan.steps,
                max_iterations=plan.max_iterations,
                input=plan.input,
            )
            told: JsonValue = {"loop": opened.loop, "maxIterations": plan.max_iterations}
            return [*intent, opened, returned(call, told)]
        case Iterate():
            if loop is None:
                return [refused(call, "NO_ACTIVE_LOOP", "there is no open loop: start one first")]
            if loop.running is not None:
                return [refused(call, "LOOP_ERROR", "an iteration of the loop is under way")]
            if loop.iterations >= loop.max_iterations:
                return [*intent, *_exhausted(call, loop)]
            number = loop.iterations + 1
            begun = IterationStarted(loop=loop.id, iteration=number, call=call.key, child=child)
            return [*intent, begun, ChildStarted(slot=call.key, child=child, agent=loop.id, kind="loop")]
        case FinishLoop():
            if loop is None:
                return [refused(call, "NO_ACTIVE_LOOP", "there is no open loop")]
            if loop.running is not None:
                return [refused(call, "LOOP_ERROR", "an iteration of the loop is under way")]
            result = loop.output if plan.result is None else plan.result
            ended = LoopFinished(loop=loop.id, status="completed", iterations=loop.iterations, result=result)
            return [*intent, ended, returned(call, {"status": "completed", "iterations": loop.iterations})]
        case _:
            assert_never(plan)


def _intent(call: Call) -> ToolCalled:
    return ToolCalled(call=call.key, tool=call.tool, tool_call_id=call.id, args_at=call.args_at, idempotent=True)


def _full(state: RunState, plan: Delegate) -> str | None:
    flying = [child.agent for child in state.children if child.kind == "supervisor" and child.status != "ended"]
    if plan.limit is not None and len(flying) >= plan.limit:
        return f"{plan.limit} delegations are in flight, and no more are allowed"
    if plan.limit_of_agent is not None and flying.count(plan.agent) >= plan.limit_of_agent:
        return f"{plan.limit_of_agent} delegations to {plan.agent} are in flight, and no more are allowed"
    return None


def _exhausted(call: Call, loop: Loop) -> list[Event]:
    ended = LoopFinished(loop=loop.id, status="exhausted", iterations=loop.iterations, result=loop.output)
    told: JsonValue = {"status": "exhausted", "iterations": loop.iterations, "output": loop.output}
    return [ended, returned(call, told)]


def iteration_input(loop: Loop, feedback: JsonValue) -> JsonValue:
    """What the next iteration works on, with feedback if there is any."""
    return loop.input if feedback is None else {"previousOutput": loop.input, "feedback": feedback}


def closing(state: RunState, status: Literal["completed", "failed"]) -> list[Event]:
    """A run that ends leaves no loop open."""
    loop = state.loop
    if loop is None:
        return []
    return [LoopFinished(loop=loop.id, status=status, iterations=loop.iterations, result=loop.output)]


def outcome_of(parent: RunState, call: Call, child: RunState) -> list[Event]:
    """What a call is told of the child run that performed it."""
    known = parent.child(call.key)
    if known is not None and known.kind == "loop" and parent.loop is not None:
        if child.status != "completed":
            told = f"iteration {parent.loop.iterations} failed: {child.code}: {child.message}"
            return [refused(call, "LOOP_ERROR", told)]
        iteration = parent.loop.iterations
        finished = IterationFinished(loop=parent.loop.id, iteration=iteration, call=call.key, output=child.result)
        return [finished, returned(call, {"iteration": iteration, "output": child.result})]
    if child.status == "completed":
        return [returned(call, child.result)]
    return [refused(call, child.code or "AGENT_ERROR", child.message or child.status)]


def returned(call: Call, result: JsonValue) -> ToolReturned:
    return ToolReturned(call=call.key, tool=call.tool, tool_call_id=call.id, result=result)


def refused(call: Call, code: str, message: str) -> ToolFailed:
    return ToolFailed(call=call.key, tool=call.tool, tool_call_id=call.id, code=code, message=message)
