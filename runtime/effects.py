"""The effects: calling a model, calling a tool, asking a person. Each performs, then commits its outcome."""

from __future__ import annotations

import asyncio
import contextvars
import inspect
import time
from collections.abc import AsyncGenerator, Callable, Collection
from functools import partial
from typing import TYPE_CHECKING, Any

from ..domain import commits
from ..domain.errors import BreadError, InvalidInput, NotFound
from ..domain.events import JsonValue
from ..domain.messages import ToolUse, read_turn
from ..domain.plans import Accept, Ask, Execute, Plan, Refuse, Reject, Verification
from ..domain.ports import (
    ModelError,
    ModelRequest,
    ReasoningDelta,
    TextDelta,
    ToolInputDelta,
    TurnDone,
)
from ..domain.run import Compose, RaiseDoubt, RecordError, RecordFailure, RecordResult, RecordTurn, StartIntents
from ..domain.run_state import Call, CallModel, unique_call_id
from ..projections.render import leaf_name
from ..transport.local import HintFrame
from . import tracing
from .agents import Agent
from .composing import plan_composing
from .ids import new_id
from .schema import problems, to_json
from .tools import HumanTool, Tool, ToolContext, collect

if TYPE_CHECKING:
    from .actor import Actor

MODEL_ATTEMPTS = 4
BACKOFF_SECONDS = (0.5, 2.0, 8.0)


# --- the model --------------------------------------------------------------------------------------------------------


async def call_model(actor: Actor, effect: CallModel) -> None:
    """One attempt at a turn. Its text is shown as it comes; the turn, or the failure, is one commit."""
    engine = actor.engine
    if effect.not_before is not None:
        await asyncio.sleep(max(0.0, effect.not_before - engine.clock()))
    messages, loaded = await actor.messages(), actor.state.loaded
    check_alive(actor)
    base_seq, started = actor.seq_of_base(), time.perf_counter()
    try:
        # What a step hands on is known only when it is there: the other ways in have been checked at the door.
        if effect.turn == 0 and (wrong := problems(actor.state.input, actor.agent.input_schema, "input")):
            misfit = f"the input does not fit agent {actor.agent.id!r}: {'; '.join(wrong)}"
            await _record_failure(actor, effect, base_seq, misfit, False, None, code="INPUT_INVALID")
            return
        try:
            request = ModelRequest(
                run_id=actor.run_id,
                agent_id=actor.agent.id,
                turn=effect.turn,
                attempt=effect.attempt,
                prompt=actor.agent.instructions(loaded),
                messages=messages,
                tools=actor.agent.offered(loaded),
                settings=actor.agent.settings,
                output=actor.agent.output.schema if actor.agent.output else None,
            )
            with tracing.model_call(actor) as span:
                done = await _stream(actor, request, base_seq)
                tracing.answered(span, done)
            turn = read_turn(done.message)
        except ModelError as error:
            await _record_failure(actor, effect, base_seq, str(error), error.retryable, error.retry_after)
            return
        except BaseException as error:
            if _is_for_us(error):
                raise
            code = error.code if isinstance(error, NotFound) else "MODEL_ERROR"
            message = error.message if isinstance(error, BreadError) else f"{type(error).__name__}: {error}"
            await _record_failure(actor, effect, base_seq, message, retryable=False, retry_after=None, code=code)
            return
        engine.fault("model_done")
        command = RecordTurn(
            owner=engine.worker,
            base=effect.base,
            base_seq=base_seq,
            at=engine.clock(),
            message=done.message,
            plans=[plan_call(actor, use, loaded) for use in turn.calls],
            model=actor.agent.model.name,
            finish=done.finish,
            usage=done.usage,
            duration_ms=_elapsed_ms(started),
            verified=None if turn.calls else verify(actor.agent, turn.text),
        )
        asked = [plan.checkpoint for plan in command.plans if isinstance(plan, Ask)]
        await engine.persist(lambda streams: commits.record_turn(streams, actor.run_id, command), reads=asked)
    finally:
        engine.hub.end_text(actor.root, base_seq)


async def _stream(actor: Actor, request: ModelRequest, base_seq: int) -> TurnDone:
    engine, root = actor.engine, actor.root
    done: TurnDone | None = None
    ids: dict[int, str] = {}
    events = actor.agent.model.stream(request)
    try:
        async for event in events:
            match event:
                case TextDelta(text=text):
                    if text:
                        engine.hub.publish_text(root, actor.run_id, base_seq, text)
                        engine.fault("model_text")
                case ReasoningDelta(text=text):
                    engine.hub.publish(root, HintFrame(actor.run_id, "reasoning", {"text": text}))
                case ToolInputDelta():
                    _hint_input(actor, event, base_seq, ids)
                case TurnDone():
                    done = event
    finally:
        # A stream that is left in the middle ends now, with its connection, and not when it is collected.
        if isinstance(events, AsyncGenerator):
            await events.aclose()
    if done is None:
        raise ModelError("the model's stream was cut short")
    return done


def _hint_input(actor: Actor, event: ToolInputDelta, base_seq: int, ids: dict[int, str]) -> None:
    publish, root = actor.engine.hub.publish, actor.root
    if event.index not in ids:
        seen = actor.state.call_ids | set(ids.values())
        ids[event.index] = unique_call_id(event.call_id, f"{base_seq}.{event.index}", seen)
        start = {"tool_call_id": ids[event.index], "tool_name": leaf_name(event.tool)}
        publish(root, HintFrame(actor.run_id, "input_start", start))
    call_id = ids[event.index]
    if event.text:
        publish(root, HintFrame(actor.run_id, "input_delta", {"tool_call_id": call_id, "text": event.text}))
    if event.done:
        publish(root, HintFrame(actor.run_id, "input_end", {"tool_call_id": call_id}))


async def _record_failure(
    actor: Actor,
    effect: CallModel,
    base_seq: int,
    message: str,
    retryable: bool,
    retry_after: float | None,
    code: str = "MODEL_ERROR",
) -> None:
    engine = actor.engine
    retry_at = None
    if retryable and effect.attempt + 1 < MODEL_ATTEMPTS:
        wait = max(engine.backoff[min(effect.attempt, len(engine.backoff) - 1)], retry_after or 0.0)
        retry_at = engine.clock() + wait
    command = RecordFailure(engine.worker, effect.base, base_seq, code, message[:2000], retry_at)
    await engine.persist(lambda streams: commits.record_failure(streams, actor.run_id, command))


def verify(agent: Agent, text: str) -> Verification | None:
    """Whether a final answer is the output, for an agent whose output has a schema."""
    if agent.output is None:
        return None
    value, wrong = agent.output.read(text)
    return Reject("; ".join(wrong)[:2000], agent.output_retries) if wrong else Accept(value)


def plan_call(actor: Actor, use: ToolUse, loaded: Collection[str]) -> Plan:
    """What is to become of a call that the model asks for, by the agent's present tools and permissions."""
    agent, now = actor.agent, actor.engine.clock()
    tool = agent.tools.get(use.tool)
    if tool is None:
        offered = ", ".join(spec.name for spec in agent.offered(loaded))
        return Refuse("TOOL_NOT_FOUND", f"there is no tool {use.tool!r}; there are: {offered or 'none'}")
    access = agent.access(tool)
    if access == "deny":
        return Refuse("FORBIDDEN", f"this agent may not use {use.tool!r}")
    if tool.skill is not None and tool.skill not in loaded:
        return Refuse("TOOL_NOT_FOUND", f"{use.tool!r} belongs to skill {tool.skill!r}, which is not loaded")
    if use.malformed:
        return Refuse("INPUT_INVALID", f"the arguments of {use.tool} are not JSON")
    wrong = tool.problems(use.args) if isinstance(tool, Tool) else problems(use.args, tool.schema)
    if wrong:
        return Refuse("INPUT_INVALID", f"the arguments of {use.tool} do not fit: {'; '.join(wrong)}")
    if isinstance(tool, HumanTool):
        deadline = None if tool.timeout is None else now + tool.timeout
        return Ask(
            checkpoint=new_id("cp"),
            kind="input",
            tool=tool.name,
            args_schema=tool.schema,
            response_schema=tool.response_schema,
            prompt=tool.question(use.args),
            deadline=deadline,
            on_timeout=tool.on_timeout,
        )
    composed = (
        plan_composing(agent, use.tool, use.args, actor.engine.agents, actor.state.input) if tool.composes else None
    )
    if isinstance(composed, Refuse):
        return composed  # nobody is asked to approve what cannot be
    if access == "ask":
        return Ask(
            checkpoint=new_id("cp"),
            kind="approval",
            tool=leaf_name(use.tool),
            args_schema=tool.schema,
            response_schema=None,
            prompt=f"Allow {leaf_name(use.tool)}?",
        )
    return composed or Execute(tool.idempotent)


# --- tools ------------------------------------------------------------------------------------------------------------


class Lapsed(Exception):
    """This process may count as dead, and another one may perform by now."""


def check_alive(actor: Actor) -> None:
    if not actor.engine.liveness.may_act():
        raise Lapsed


async def start_calls(actor: Actor) -> None:
    """Commit the intents of calls that somebody else made ready."""
    command = StartIntents(actor.engine.worker, actor.agent.idempotent())
    await actor.engine.persist(lambda streams: commits.start_intents(streams, actor.run_id, command))


async def call_tool(actor: Actor, call: Call) -> None:
    """Execute a call whose intent is committed, and commit its outcome at once, whatever else is under way."""
    engine, started = actor.engine, time.perf_counter()
    command: RecordResult | RecordError
    tool = actor.agent.tools.get(call.tool)
    if not isinstance(tool, Tool):
        command = RecordError(call.key, "TOOL_NOT_FOUND", f"the tool {call.tool!r} is no longer there", 0.0)
    elif actor.agent.access(tool) == "deny":
        command = RecordError(call.key, "FORBIDDEN", f"this agent may no longer use {call.tool!r}", 0.0)
    elif tool.composes:
        plan = plan_composing(actor.agent, call.tool, call.args, engine.agents, actor.state.input)
        composed = Compose(call.key, engine.clock(), plan)
        await engine.persist(lambda streams: commits.compose(streams, actor.run_id, composed))
        return
    else:
        check_alive(actor)
        engine.fault("tool_start")
        try:
            with tracing.tool_call(actor, call):
                result = to_json(await _execute(actor, tool, call), f"result of {call.tool}")
            command = RecordResult(call.key, result, _elapsed_ms(started))
        except InvalidInput as error:
            command = RecordError(call.key, "TOOL_ERROR", error.message, _elapsed_ms(started))
        except BaseException as error:
            if _is_for_us(error):
                raise
            message = f"{type(error).__name__}: {error}"[:2000]
            command = RecordError(call.key, "TOOL_ERROR", message, _elapsed_ms(started))
        engine.fault("tool_done")
    await engine.persist(lambda streams: commits.record_outcome(streams, actor.run_id, command))


def _is_for_us(error: BaseException) -> bool:
    """Whether it ends this task or the program; anything else that is raised is an outcome, whatever its class."""
    if not isinstance(error, asyncio.CancelledError | GeneratorExit):
        return isinstance(error, KeyboardInterrupt)
    try:
        task = asyncio.current_task()
    except RuntimeError:
        return True  # the loop is gone
    return task is None or task.cancelling() > 0


async def _execute(actor: Actor, tool: Tool, call: Call) -> Any:
    state = actor.state
    context = ToolContext(
        run_id=state.id,
        session_id=state.session,
        agent_id=state.agent,
        tool_call_id=call.id,
        idempotency_key=f"{state.id}/{call.key}",
        approved_by=actor.approvers.get(call.key),
    )
    arguments = tool.bind(call.args, context)
    if tool.kind == "stream":
        return await collect(tool.function(**arguments), partial(_hint_partial, actor, call))
    if tool.kind == "async":
        return await tool.function(**arguments)
    # A thread keeps the context of its caller, and the loop goes on meanwhile.
    run = partial(contextvars.copy_context().run, _call, tool.function, arguments)
    result = await asyncio.get_running_loop().run_in_executor(actor.engine.threads, run)
    return await result if inspect.isawaitable(result) else result


def _call(function: Callable[..., Any], arguments: dict[str, Any]) -> Any:
    try:
        return function(**arguments)
    except (StopIteration, GeneratorExit) as error:
        # No future can hold them: who waits would not be told.
        raise RuntimeError(f"the tool raised {type(error).__name__}") from error


def _hint_partial(actor: Actor, call: Call, item: Any) -> None:
    payload = {
        "tool_call_id": call.id,
        "tool_name": leaf_name(call.tool),
        "result": to_json(item, f"result of {call.tool}"),
    }
    actor.engine.hub.publish(actor.root, HintFrame(actor.run_id, "partial", payload))


async def ask_doubt(actor: Actor, call: Call) -> None:
    """Open the question what became of a call that an earlier owner started."""
    tool = actor.agent.tools.get(call.tool)
    schema: JsonValue = tool.schema if tool else {}
    name = leaf_name(call.tool)
    prompt = f"{name} was started and cut off by a crash. Did it happen? Nobody here can know."
    ask = Ask(new_id("cp"), "in_doubt", name, schema, None, prompt)
    command = RaiseDoubt(actor.engine.worker, call.key, ask)
    await actor.engine.persist(lambda streams: commits.raise_doubt(streams, actor.run_id, command))


def _elapsed_ms(started: float) -> float:
    return round((time.perf_counter() - started) * 1000, 3)
