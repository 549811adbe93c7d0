"""The door: every command of the outside is checked here and committed."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeVar, assert_never

from pydantic import ValidationError

from ..domain import commits, run
from ..domain.answers import verdict_of
from ..domain.checkpoint import CheckpointOpened, IdempotencyKey
from ..domain.commands import AnswerCheckpoint, AnyCommand, CancelRun, DeleteSession, RetryRun, StartPipeline, StartRun
from ..domain.errors import InvalidInput, NotFound, Refused, checkpoint_not_found, response_invalid
from ..domain.events import JsonValue
from ..domain.names import check_session_id, check_tags
from ..domain.ports import Commit
from ..domain.session import EndSession, session_stream
from ..projections.render import RunInfo
from ..transport.cursor import Cursor
from . import reads, tracing, tree_reads
from .agents import Agent
from .engine import Engine
from .folds import fold_checkpoint
from .ids import new_id, short_id
from .observer import Observer
from .schema import problems
from .skills import find_skill
from .tools import Tool

C = TypeVar("C")


@dataclass(frozen=True, slots=True)
class Accepted:
    """A command that was committed: the run it is about, and the cursor in its root's log from which it is seen."""

    run_id: str | None = None
    root_run_id: str | None = None
    cursor: str | None = None
    repeated: bool = False
    status: str | None = None
    info: RunInfo | None = field(default=None, repr=False)


class Door:
    """Carries out commands on one engine."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    async def send(self, command: AnyCommand) -> Accepted:
        """Carry out a command: the path that everything else takes."""
        match command:
            case StartRun():
                return await self._start_run(command)
            case StartPipeline():
                return await self._start_pipeline(command)
            case AnswerCheckpoint():
                return await self._answer(command)
            case CancelRun():
                done = await self._engine.commit(
                    lambda streams: commits.cancel(streams, command.run_id, command.reason), **_context(command)
                )
                return Accepted(run_id=command.run_id, status=done.result)
            case RetryRun():
                return await self._retry(command)
            case DeleteSession():
                deleted = await self.delete_session(command)
                return Accepted(status="deleted" if deleted else "unknown")
            case _:
                assert_never(command)

    async def _start_run(self, command: StartRun) -> Accepted:
        engine, agent = self._engine, self._agent(command.agent)
        if command.skill is not None:
            find_skill(agent.skills, command.skill, agent.id)
        if wrong := problems(command.input, agent.input_schema, "input"):
            raise InvalidInput("INPUT_INVALID", f"the input does not fit: {'; '.join(wrong)}", problems=wrong)
        await engine.prepare(agent)
        run_id, session = _ids(command)
        start = run.Start(
            agent=agent.id,
            input=command.input,
            session=session,
            root=run_id,
            at=engine.clock(),
            owner=self._engine.worker if engine.executes else None,
            max_steps=command.max_steps or agent.max_steps,
            skill=command.skill,
            key=_key(command.idempotency_key, _request_of(command)),
        )
        return await self._start(command, start)

    async def _start_pipeline(self, command: StartPipeline) -> Accepted:
        engine, pipeline = self._engine, self._engine.pipelines.get(command.pipeline)
        if pipeline is None:
            known = ", ".join(engine.pipelines) or "none"
            raise NotFound("PIPELINE_NOT_FOUND", f"no pipeline {command.pipeline!r}; there are: {known}")
        if wrong := pipeline.misfits(command.input, engine.agents):
            raise InvalidInput(
                "INPUT_INVALID", f"the input does not fit pipeline {pipeline.id}: {'; '.join(wrong)}", problems=wrong
            )
        for agent_id in pipeline.agents:
            await engine.prepare(self._agent(agent_id))
        run_id, session = _ids(command)
        request: list[JsonValue] = [command.pipeline, command.input, command.session, {**command.tags}, "pipeline"]
        start = run.Start(
            agent=pipeline.id,
            input=command.input,
            session=session,
            root=run_id,
            at=engine.clock(),
            owner=None,
            max_steps=1,
            steps=pipeline.nodes(engine.agents),
            key=_key(command.idempotency_key, request),
        )
        return await self._start(command, start)

    async def _start(self, command: StartRun | StartPipeline, start: run.Start) -> Accepted:
        engine, run_id = self._engine, start.root
        cancel_pending = command.on_pending == "cancel"
        while True:
            try:
                with engine.reserve():
                    done = await engine.commit(
                        lambda streams: commits.start(
                            streams, run_id, start, command.tags, cancel_pending=cancel_pending
                        ),
                        reads=(run_id, session_stream(start.session)),
                        **_context(command),
                    )
                return _accepted(done, done.result.run_id, done.result.run_id, done.result.repeated)
            except Refused as error:
                if error.code != "SESSION_BUSY" or command.on_busy != "wait":
                    raise
                await self._wait_for_rest(str(error.details["run_id"]))

    async def _wait_for_rest(self, run_id: str) -> None:
        try:
            info = await self._engine.journal.ask(tree_reads.run_info, run_id)
            seq = await self._engine.journal.ask(reads.last_seq, run_id)
            state = await self._engine.journal.ask(reads.run_state, run_id)
        except NotFound:
            return  # deleted with its session meanwhile: the next try says so
        if state.has_work:
            async for _ in Observer(self._engine, info, Cursor(seq), at_rest=True).crumbs():
                pass

    async def _answer(self, command: AnswerCheckpoint) -> Accepted:
        engine = self._engine
        question, idempotent = await self._check_answer(command)
        verdict = verdict_of(question.kind, command.response)
        worker = self._engine.worker if engine.executes and not command.detach else None
        answer = run.Answer(command.checkpoint_id, verdict, command.response, worker, idempotent)
        key = _key(command.idempotency_key, [command.checkpoint_id, command.response, command.comment])
        claim = short_id("claim")
        with engine.reserve(question.root):
            done = await engine.commit(
                lambda streams: commits.answer(
                    streams, command.checkpoint_id, answer, claim=claim, comment=command.comment, key=key
                ),
                reads=(command.checkpoint_id, question.run, question.root),
                **_context(command),
            )
        if done.result.expired:
            raise checkpoint_not_found(command.checkpoint_id)
        if done.result.repeated:
            return await self._continuation(command.checkpoint_id, done.result)
        return _accepted(done, done.result.run_id, done.result.root, repeated=False)

    async def _continuation(self, checkpoint_id: str, answered: commits.Answered) -> Accepted:
        """Where the continuation of an answer that came again begins: just before the commit of its claim."""
        for recorded in await self._engine.journal.events(checkpoint_id, after=1):
            before = recorded.meta.seq - 1
            # The question may have surfaced in the same commit, just ahead of it.
            for entry in await self._engine.journal.log(answered.root, before - 1, 1):
                before -= entry.recorded.meta.commit == recorded.meta.commit
            return Accepted(answered.run_id, answered.root, str(before), repeated=True)
        raise checkpoint_not_found(checkpoint_id)

    async def _check_answer(self, command: AnswerCheckpoint) -> tuple[CheckpointOpened, frozenset[str]]:
        """Everything that can refuse an answer and does not need the lock; the question and the idempotent tools."""
        events = await self._engine.journal.events(command.checkpoint_id)
        if not events:
            await self._refuse_delegation(command.checkpoint_id)
        state = fold_checkpoint(command.checkpoint_id, events)
        question = state.asked
        if state.status != "pending" and command.idempotency_key is None:
            raise checkpoint_not_found(command.checkpoint_id)
        agent = self._engine.agents.get(question.agent)
        if agent is None and self._engine.executes:
            raise NotFound("AGENT_NOT_FOUND", f"no agent {question.agent!r} here; the question stays pending")
        verdict = verdict_of(question.kind, command.response)
        if question.kind == "input" and (wrong := problems(command.response, question.response_schema)):
            raise response_invalid(f"the answer does not fit: {'; '.join(wrong)}", wrong)
        if agent is not None:
            await self._check_agent(question, agent)
        if verdict == "approved":
            await self._check_approval(question, agent, command.response)
        return question, agent.idempotent() if agent else frozenset()

    async def _refuse_delegation(self, checkpoint_id: str) -> None:
        """What a supervisor waits for is not answered itself: the error names what is."""
        found = await self._engine.journal.ask(tree_reads.get_delegation, checkpoint_id)
        leaves = [leaf for one in found.pending for leaf in one.child_checkpoint_ids]
        raise Refused(
            "SUPERVISOR_CHECKPOINT_NOT_RESUMABLE",
            f"{checkpoint_id} is answered by answering {', '.join(leaves)}",
            checkpoint_id=checkpoint_id,
            checkpoints=leaves,
        )

    async def _check_agent(self, question: CheckpointOpened, agent: Agent) -> None:
        """What the continuation needs is here: the model, and the skills that the run has loaded."""
        await self._engine.prepare(agent)
        if question.skill is not None:
            state = await self._engine.journal.ask(reads.run_state, question.run)
            for skill_id in state.loaded:
                find_skill(agent.skills, skill_id, agent.id)

    async def _check_approval(self, question: CheckpointOpened, agent: Agent | None, response: JsonValue) -> None:
        # The question has the leaf name, which a tool and one of a skill may share: the call has the whole one.
        call = (await self._engine.journal.ask(reads.run_state, question.run)).call(question.call)
        if call is None:
            return  # the run was stopped meanwhile: the commit says what became of the question
        tool = agent.tools.get(call.tool) if agent else None
        if agent is not None and (not isinstance(tool, Tool) or agent.access(tool) == "deny"):
            raise Refused(
                "TOOL_NOT_FOUND", f"agent {agent.id} has no tool {question.tool!r} now; the question stays pending"
            )
        if isinstance(response, dict) and "args" in response:
            wrong = problems(response["args"], question.args_schema)
            if not wrong and isinstance(tool, Tool):
                wrong = tool.problems(response["args"])
            if wrong:
                raise response_invalid(f"args do not fit: {'; '.join(wrong)}", wrong)

    async def delete_session(self, command: DeleteSession, spare: commits.Spare | None = None) -> bool:
        """Erase a session, unless it is spared. False if there was nothing to erase."""
        end = EndSession(command.reason)
        done = await self._engine.commit(
            lambda streams: commits.delete_session(streams, command.session, end, spare), **_context(command)
        )
        return done.result

    async def _retry(self, command: RetryRun) -> Accepted:
        engine = self._engine
        state = await engine.journal.ask(reads.run_state, command.run_id)
        if engine.executes:
            failed = [child.agent for child in state.children if child.outcome == "failed"]
            for agent_id in [state.agent] if state.kind == "agent" else failed:
                await engine.prepare(self._agent(agent_id))
        retry = run.Retry(self._engine.worker if engine.executes else None, command.max_steps)
        with engine.reserve():
            done = await engine.commit(
                lambda streams: commits.retry(streams, command.run_id, retry), **_context(command)
            )
        return _accepted(done, command.run_id, command.run_id, repeated=False)

    def _agent(self, agent_id: str) -> Agent:
        agent = self._engine.agents.get(agent_id)
        if agent is None:
            known = ", ".join(self._engine.agents) or "none"
            raise NotFound("AGENT_NOT_FOUND", f"no agent {agent_id!r}; there are: {known}", agent_id=agent_id)
        return agent


def _ids(command: StartRun | StartPipeline) -> tuple[str, str]:
    """The ids of the run and of its session, checked or made."""
    run_id = new_id("run") if command.run_id is None else command.run_id
    if not run_id.startswith("run_") or run_id == "run_":
        raise InvalidInput("INPUT_INVALID", f"run_id {run_id!r}: expected one that starts with run_")
    check_tags(command.tags)
    return run_id, new_id("s") if command.session is None else check_session_id(command.session)


def _request_of(command: StartRun) -> list[JsonValue]:
    tags: JsonValue = {**command.tags}
    request = [command.agent, command.input, command.session, tags]
    return [*request, command.skill] if command.skill else request


def _context(command: AnyCommand) -> dict[str, Any]:
    return {
        "by": command.by,
        "cause": command.command_id,
        "tenant": command.tenant,
        "traceparent": command.traceparent or tracing.traceparent(),
    }


def _key(key: str | None, request: Any) -> IdempotencyKey | None:
    if key is None:
        return None
    text = json.dumps(request, sort_keys=True, ensure_ascii=False)
    return IdempotencyKey(key=key, digest=hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:32])


def checked(kind: Callable[..., C], /, **fields: Any) -> C:
    """A command of checked fields; INPUT_INVALID names the field that does not fit."""
    try:
        return kind(**fields)
    except ValidationError as error:
        first = error.errors()[0]
        raise InvalidInput(
            "INPUT_INVALID", f"{'.'.join(map(str, first['loc']))}: {first['msg']}", problems=error.error_count()
        ) from None


def _accepted(done: Commit[Any], run_id: str, root: str, repeated: bool) -> Accepted:
    seqs = [entry.recorded.meta.seq for entry in done.events if entry.recorded.meta.root == root]
    state = done.runs.get(root)
    info = RunInfo(root, root, state.session, state.agent) if state else None
    return Accepted(run_id, root, str(min(seqs) - 1) if seqs else None, repeated, info=info)
