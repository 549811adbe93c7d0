"""The golden logs, as scripts. What they recorded is in v1/ and v2/; they are kept to tell how it came."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from bread.domain.checkpoint import (
    CheckpointClaimed,
    CheckpointOpened,
    IdempotencyKey,
    ParentLink,
)
from bread.domain.envelope import SYSTEM, Principal
from bread.domain.events import Event, JsonValue
from bread.domain.messages import ToolUse, native_message
from bread.domain.plans import Execute, Refuse
from bread.domain.run_events import (
    ChildResumed,
    ChildReturned,
    ChildStarted,
    ChildSuspended,
    IterationFinished,
    LoopFinished,
    LoopStarted,
    ModelResponded,
    Parked,
    QuestionAsked,
    Resumed,
    RunCancelled,
    RunCompleted,
    RunFailed,
    RunStarted,
    StepFinished,
    StepStarted,
    Suspended,
    ToolCalled,
    ToolFailed,
    ToolReturned,
    Usage,
)
from bread.domain.session import SessionOpened
from bread.runtime.folds import fold_run

from .later_logs import answers_that_fit, delegated_and_looped
from .specimens import QUESTION
from .tape import ANN, BOB, DECISION_SCHEMA, A, B, Call, Tape, ask

Script = Callable[[Tape], Awaitable[None]]


async def asked_and_answered(tape: Tape) -> None:
    """A run asks, is answered by a person, ends; a second run of the session has its history."""
    key = IdempotencyKey(key="order-17", digest="6b86b273ff34fce19d6b804eff5a3f57")
    trace = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
    input: JsonValue = {"topic": "bread \N{BAGUETTE BREAD}", "words": [80, 120]}
    tags = {"team": "press", "gr\u00f6\u00dfe": "\u00fcberlang"}
    await tape.start("run_01", "launch", input, key=key, tags=tags, tenant="acme", cause="cmd_1", traceparent=trace)
    question = ask("cp_01", response=DECISION_SCHEMA)
    usage = Usage(input_tokens=120, output_tokens=18)
    publish: Call = ("human_approve_publish", {"url": "https://x.test"}, "toolu_01", question)
    await tape.turn("run_01", "I need approval. ", publish, usage=usage, finish="tool_use")
    again = IdempotencyKey(key="click-1", digest="d4735e3a265e16eee03f59718b9b5d03")
    answer: JsonValue = {"publish": True, "note": None}
    await tape.answer("cp_01", "answered", answer, comment="looks good", key=again, cause="cmd_2")
    await tape.turn("run_01", "Published.")
    await tape.start("run_02", "launch", "And now the newsletter.", tags={"team": "mail", "year": "2025"}, by=BOB)
    args: JsonValue = {"id": 2**70, "half": "\ud83d", "\u03c0": 3.141592653589793}
    await tape.turn("run_02", "", ("tool_fetch", args, "", Execute(True)))
    result: JsonValue = {"subscribers": 12, "none": None, "nested": [[], {}, -0.5, 1e300, False]}
    await tape.returns("run_02", 0, result)
    await tape.turn("run_02", "Sent to 12.")


async def approved_with_other_arguments(tape: Tape) -> None:
    """One turn with a plain call, two approvals of one call id and a refused one; edited, rejected, failed."""

    def gated(path: str, checkpoint: str) -> Call:
        schema: JsonValue = {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]}
        gate = ask(checkpoint, "approval", "delete", schema=schema, prompt="Allow delete?")
        return "tool_delete", {"path": path}, "call_b", gate

    await tape.start("run_01", "s1", "Clean up.")
    await tape.turn(
        "run_01",
        "Let me see. ",
        ("tool_fetch", {"path": "/srv"}, "call_a", Execute(True)),
        gated("/srv/a", "cp_01"),
        gated("/srv/b", "cp_02"),
        ("tool_secret", {}, "", Refuse("FORBIDDEN", "this agent may not use 'tool_secret'")),
        reasoning="The user wants less in /srv.",
    )
    await tape.answer("cp_02", "rejected", {"approved": False, "reason": "keep b"}, by=BOB)
    await tape.returns("run_01", 0, ["a", "b"])
    await tape.answer("cp_01", "approved", {"approved": True, "args": {"path": "/srv/a.bak"}, "comment": "the copy"})
    await tape.raises("run_01", 1, "PermissionError: /srv/a.bak")
    await tape.turn("run_01", "Once more. ", gated("/srv/c", "cp_03"))
    await tape.answer("cp_03", "approved", {"approved": True}, worker=B, performs=False)
    await tape.take("run_01", None, worker=B)
    await tape.returns("run_01", 0, "deleted", worker=B)
    await tape.turn("run_01", "Deleted one of three.", worker=B)


async def in_doubt(tape: Tape) -> None:
    """A worker dies with calls under way: one is repeated, of others people say what happened, one comes in late."""
    await tape.start("run_01", "s1", "Charge and ship.")
    calls: list[Call] = [("tool_fetch", {"n": 0}, "call_0", Execute(True))]
    calls += [("tool_charge", {"n": n}, f"call_{n}", Execute()) for n in range(1, 5)]
    await tape.turn("run_01", "", *calls)
    tape.at += 60
    await tape.take("run_01", A, worker=B)
    for n in range(1, 5):
        await tape.doubt("run_01", n, f"cp_0{n}")
    await tape.returns("run_01", 0, "fetched", worker=B)
    receipt: JsonValue = {"receipt": "r-1"}
    await tape.answer("cp_01", "happened", {"outcome": "happened", "result": receipt}, worker=B)
    await tape.answer("cp_02", "failed", {"outcome": "failed", "error": "the card was refused"}, worker=B)
    await tape.returns("run_01", 3, {"receipt": "r-3"}, worker=A)
    await tape.answer("cp_04", "retry", {"outcome": "retry"}, worker=B)
    await tape.returns("run_01", 4, {"receipt": "r-4"}, worker=B)
    await tape.turn("run_01", "Three of four.", worker=B)


async def cancelled(tape: Tape) -> None:
    """A run is cancelled while it waits and works; another is superseded by the next run of its session."""
    await tape.start("run_01", "s1", "Slowly.")
    working: Call = ("tool_work", {}, "", Execute())
    await tape.turn("run_01", "Working. ", working, ("human_approve_publish", {"url": "1"}, "", ask("cp_01")))
    await tape.cancel("run_01", "no longer needed", cause="cmd_9")
    await tape.start("run_02", "s1", "Again.")
    await tape.turn("run_02", "", ("human_approve_publish", {"url": "2"}, "", ask("cp_02")))
    await tape.start("run_03", "s1", "Never mind.", cancel_pending=True)
    await tape.turn("run_03", "Fine.")


async def failed_and_retried(tape: Tape) -> None:
    """Attempts of the model fail until they are used up; then too many steps; after each of them a retry goes on."""
    await tape.start("run_01", "s1", "Try.", max_steps=1)
    await tape.model_fails("run_01", "529 overloaded", retry_after=1.5)
    await tape.model_fails("run_01", "529 overloaded", retry_after=30)
    await tape.model_fails("run_01", "401 no such key")
    await tape.retry("run_01")
    await tape.turn("run_01", "Step. ", ("tool_fetch", {}, "call_1", Execute(True)))
    await tape.raises("run_01", 0, "TimeoutError: ")
    await tape.turn("run_01", "Step. ", ("tool_fetch", {}, "call_1", Execute(True)))
    await tape.retry("run_01", max_steps=50, by=ANN)
    await tape.turn("run_01", "", ("tool_nope", [1], "", Refuse("TOOL_NOT_FOUND", "there is no tool 'tool_nope'")))
    await tape.turn("run_01", "Enough.", finish="length")


async def expired(tape: Tape) -> None:
    """Three questions run out of time: one has an outcome for that, one has none, one is an approval."""
    await tape.start("run_01", "s1", "Ask quickly.")
    deadline = tape.at + 3600
    await tape.turn(
        "run_01",
        "",
        ("human_approve_publish", {"url": "1"}, "", ask("cp_01", deadline=deadline, on_timeout={"publish": False})),
        ("human_approve_publish", {"url": "2"}, "", ask("cp_02", deadline=deadline)),
        ("tool_delete", {"path": "3"}, "", ask("cp_03", "approval", "delete", deadline=deadline + 0.5)),
    )
    tape.at = deadline
    for checkpoint in ("cp_01", "cp_02", "cp_03"):
        await tape.expire(checkpoint)
    await tape.turn("run_01", "Nobody answered.")


async def handed_over(tape: Tape) -> None:
    """A run that nobody owns is taken from the queue, given back, and taken by another worker."""
    await tape.start("run_01", "s1", "Later.", owned=False)
    await tape.take("run_01", None, worker=A)
    await tape.turn("run_01", "", ("tool_fetch", {}, "", Execute(True)))
    await tape.release("run_01")
    await tape.take("run_01", None, worker=B)
    await tape.returns("run_01", 0, None, worker=B)
    await tape.turn("run_01", "Done by another.", worker=B)


async def deleted(tape: Tape) -> None:
    """Sessions are deleted: by a person, with an ended run and a pending question; by a cleanup. One stays."""
    await asked_and_answered(tape)
    await tape.start("run_03", "launch", "One more.")
    await tape.turn("run_03", "", ("human_approve_publish", {"url": "3"}, "", ask("cp_02")))
    await tape.start("run_04", "old", "Forgotten.")
    await tape.turn("run_04", "Yes.")
    await tape.start("run_05", "stays", "Not this one.")
    await tape.delete("launch")
    await tape.delete("old", by=Principal(kind="app", id="janitor"))
    await tape.turn("run_05", "I stay.")


async def pending(tape: Tape) -> None:
    """Runs that a later release finds suspended, ready, owned by the dead, and failed: it has to go on with them."""
    await tape.start("run_01", "s1", "Ask.")
    question = ask("cp_01", response=DECISION_SCHEMA)
    await tape.turn("run_01", "May I? ", ("human_approve_publish", {"url": "1"}, "", question))
    await tape.start("run_02", "s2", "Delete.")
    await tape.turn("run_02", "", ("tool_delete", {"path": "a"}, "", ask("cp_02", "approval", "delete")))
    await tape.start("run_03", "s3", "Wait.", owned=False)
    await tape.start("run_04", "s4", "Die.")
    await tape.turn("run_04", "", ("tool_charge", {"n": 1}, "", Execute()))
    await tape.start("run_05", "s5", "Fail.")
    await tape.model_fails("run_05", "500 oops")


async def composed(tape: Tape) -> None:
    """A pipeline of an agent that asks, two parallel branches, and a supervisor that delegates and loops.

    Written event by event: no decision of the first release makes these. What is sure is that they are read.
    """
    root, session = "run_01", "s1"
    leaf: JsonValue = {"kind": "agent", "agent": "left"}
    steps: JsonValue = [
        {"kind": "agent", "agent": "writer"},
        {"kind": "parallel", "steps": [leaf, {"kind": "agent", "agent": "right"}]},
        {"kind": "agent", "agent": "boss"},
    ]

    async def write(*appended: tuple[str, Event], worker: str = A, by: Principal = SYSTEM) -> None:
        await tape.write(root, session, *appended, worker=worker, by=by)

    def begun(run_id: str, agent: str, input: JsonValue, parent: ParentLink | None = None) -> tuple[str, Event]:
        fields = {"agent": agent, "input": input, "session": session, "root": root, "started": tape.at, "owner": A}
        if parent is None:
            return run_id, RunStarted.model_validate(fields | {"kind": "pipeline", "steps": steps})
        return run_id, RunStarted.model_validate(fields | {"parent": parent})

    def child(run_id: str, agent: str, input: JsonValue, link: ParentLink, **shown: str) -> list[tuple[str, Event]]:
        fields = {"slot": link.slot, "child": run_id, "agent": agent, "kind": link.kind}
        return [(link.run, ChildStarted.model_validate(fields | shown)), begun(run_id, agent, input, link)]

    async def said(run_id: str, text: str, *calls: tuple[str, JsonValue]) -> tuple[str, Event]:
        events = await tape.workers[A].events(run_id)
        state = fold_run(run_id, events)
        message = native_message(text, tuple(ToolUse(tool, args) for tool, args in calls))
        base = events[state.base - 1].meta.seq
        turn = ModelResponded(turn=state.turn, base=base, message=message, model="scripted", finish="stop")
        return run_id, turn

    async def ended(run_id: str, text: str) -> list[tuple[str, Event]]:
        last = len(await tape.workers[A].events(run_id)) + 1
        return [await said(run_id, text), (run_id, RunCompleted(of=last, duration_ms=1500.0))]

    def returned(link: ParentLink, run_id: str, output: JsonValue) -> tuple[str, Event]:
        end = ChildReturned(slot=link.slot, child=run_id, status="completed", output=output, owner=A)
        return link.run, end

    # The first step asks; the tree comes to rest; the answer goes on in the child.
    await write(("session:s1", SessionOpened(session=session)), begun(root, "press", "launch"), by=ANN)
    first = ParentLink(run=root, slot="0", kind="pipeline")
    step = StepStarted(path="0", agent="writer", child="run_02")
    await write((root, step), *child("run_02", "writer", "launch", first))
    asking = await said("run_02", "", ("human_approve_publish", {"url": "1"}))
    call = {"call": f"{await tape.seq('run_02', 1)}.0", "tool": "human_approve_publish"}
    call["tool_call_id"] = f"call_{call['call']}"
    question = QUESTION | call | {"run": "run_02", "root": root, "tool": "approve_publish", "args": {"url": "1"}}
    question |= {"agent": "writer", "prompt": "Publish 1?", "parent": first}
    await write(
        asking,
        ("cp_01", CheckpointOpened.model_validate(question)),
        ("run_02", Suspended(call=call["call"], checkpoint="cp_01", kind="input")),
        (root, ChildSuspended(slot="0", child="run_02")),
        (root, QuestionAsked(checkpoint="cp_01", run="run_02")),
        (root, Parked(pending=1)),
    )
    answer = call | {"checkpoint": "cp_01", "kind": "input", "verdict": "answered", "response": "yes", "owner": B}
    await write(
        ("cp_01", CheckpointClaimed(claim="claim_01", resumed=4)),
        ("run_02", Resumed.model_validate(answer)),
        (root, ChildResumed(slot="0", child="run_02")),
        worker=B,
        by=ANN,
    )
    left, right = ParentLink(run=root, slot="1/0", kind="pipeline"), ParentLink(run=root, slot="1/1", kind="pipeline")
    await write(
        *await ended("run_02", "Written."),
        returned(first, "run_02", "Written."),
        (root, StepFinished(path="0", output="Written.")),
        (root, StepStarted(path="1", agent="parallel")),
        *child("run_03", "left", "Written.", left),
        *child("run_04", "right", "Written.", right),
        worker=B,
    )

    # Branches end on their own; one fails; the step ends with the last of them.
    oops = {"code": "MODEL_ERROR", "message": "500 oops"}
    failed = {"slot": "1/1", "child": "run_04", "status": "failed"} | oops
    await write(
        ("run_04", RunFailed.model_validate(oops)),
        (root, ChildReturned.model_validate(failed)),
    )
    boss = ParentLink(run=root, slot="2", kind="pipeline")
    await write(
        *await ended("run_03", "Left."),
        returned(left, "run_03", "Left."),
        (root, StepFinished(path="1", output=["Left.", None])),
        (root, StepStarted(path="2", agent="boss", child="run_05")),
        *child("run_05", "boss", ["Left.", None], boss),
    )

    # A supervisor: a delegation that nobody sees, one that is cancelled, and a loop.
    key = await tape.seq("run_05", 1)
    turn = await said(
        "run_05",
        "Help! ",
        ("core_delegate", {"agentId": "helper", "input": "help"}),
        ("core_delegate", {"agentId": "slow", "input": "wait"}),
        ("core_start_loop", {"pipeline": ["left"]}),
    )
    helper, slow, loop = (f"{key}.{index}" for index in range(3))
    calls = {slot: {"call": slot, "tool": "core_delegate", "tool_call_id": f"call_{slot}"} for slot in (helper, slow)}
    calls[loop] = {"call": loop, "tool": "core_start_loop", "tool_call_id": f"call_{loop}"}
    kinds = {helper: "supervisor", slow: "supervisor", loop: "loop"}
    links = {slot: ParentLink.model_validate({"run": "run_05", "slot": slot, "kind": kinds[slot]}) for slot in kinds}
    opening = LoopStarted(loop=loop, call=loop, steps=[leaf], max_iterations=2, input="go")
    await write(
        turn,
        *(("run_05", ToolCalled.model_validate(call | {"args_at": 2})) for call in calls.values()),
        *child("run_06", "helper", "help", links[helper], visibility="hidden"),
        *child("run_07", "slow", "wait", links[slow], visibility="mediate"),
        ("run_05", opening),
        *child("run_08", "loop", "go", links[loop]),
    )
    await write(
        *await ended("run_06", "Helped."),
        returned(links[helper], "run_06", "Helped."),
        ("run_05", ToolReturned.model_validate(calls[helper] | {"result": "Helped.", "duration_ms": 3.5})),
    )
    stopped = {"code": "RUN_CANCELLED", "message": "too slow"}
    away = {"slot": slow, "child": "run_07", "status": "cancelled"} | stopped
    await write(
        ("run_07", RunCancelled(reason="too slow")),
        ("run_05", ChildReturned.model_validate(away)),
        ("run_05", ToolFailed.model_validate(calls[slow] | stopped)),
    )
    result: JsonValue = {"final": "first"}
    await write(
        ("run_08", RunCompleted(output="first")),
        returned(links[loop], "run_08", "first"),
        ("run_05", IterationFinished(loop=loop, iteration=1, call=loop, output="first")),
        ("run_05", LoopFinished(loop=loop, status="completed", iterations=1, result=result)),
        ("run_05", ToolReturned.model_validate(calls[loop] | {"result": result})),
    )
    await write(
        *await ended("run_05", "All done."),
        returned(boss, "run_05", "All done."),
        (root, StepFinished(path="2", output="All done.")),
        (root, RunCompleted(output="All done.", duration_ms=9000.0)),
    )


LOGS: dict[str, Script] = {
    script.__name__: script
    for script in (
        asked_and_answered,
        approved_with_other_arguments,
        in_doubt,
        cancelled,
        failed_and_retried,
        expired,
        handed_over,
        deleted,
        pending,
        composed,
        answers_that_fit,
        delegated_and_looped,
    )
}
