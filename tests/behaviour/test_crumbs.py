"""Crumbs: one log for everybody, numbered without gaps, exact in its text, and silent about what is inside."""

from __future__ import annotations

import asyncio
from collections import Counter as Multiset
from pathlib import Path
from typing import Any, get_args

import pytest

from bread import AnswerCheckpoint, AnyCrumb, Bread, Crumb, StartRun, define_tool
from bread.projections import crumbs as crumb_types
from bread.testing import call, fail, pause, reasoning, text
from scenes import (
    LIVE,
    Checked,
    Gate,
    Heard,
    OpenBread,
    agent,
    ask_first,
    asking,
    asks,
    durable,
    ended,
    engine_of,
    question,
    questions,
    refused,
    until,
)
from support import read, said, types, wire


@define_tool
async def work(n: int) -> int:
    if n < 0:
        raise ValueError("below zero")
    return n


SCRIPT = [
    [reasoning("Hm. "), text("First "), text("words. "), call("tool_work", {"n": 1}), call("human_ask", {"q": 1})],
    [text("More. "), call("tool_work", {"n": -1}), call("tool_gone"), call("tool_gated", {"n": 2})],
    [text("Again. "), fail("overloaded"), text("Done.")],
]


@define_tool
async def gated(n: int) -> int:
    return n


def worker() -> Any:
    return agent(SCRIPT, work, gated, asking(), permissions={"ask": ["tool:gated"]})


async def play(bread: Bread) -> list[AnyCrumb]:
    """A run with everything in it, read stream by stream."""
    crumbs = await read(bread.run("a", "go", session="s1"))
    crumbs += await read(bread.resume(question(crumbs).checkpoint_id, "yes", author="ann"))
    return crumbs + await read(bread.resume(question(crumbs).checkpoint_id, {"approved": True}))


async def test_all_streams_show_the_same(open_bread: OpenBread) -> None:
    """B122, B47: streams, observers, listeners and the audit are derived from the same events."""
    heard = Heard("agent:run:end")
    async with open_bread(worker()) as bread:
        bread.on("crumb", heard)
        streamed = await play(bread)
        await heard.wait()
        run_id = streamed[0].run_id
        observed = await ended(bread, run_id)
        audited = [event async for event in bread.audit(run_id)]
    assert durable(streamed) == durable(observed) == durable(heard)
    assert said(streamed) == said(observed) == said(heard) == "First words. More. Again. Done."
    shown: Multiset[str] = Multiset(crumb.type for crumb in streamed if crumb.type not in LIVE)
    names = Multiset(event.name for event in audited)
    for kind, name in {
        "agent:run:start": "run.started",
        "tool:call": "run.tool_called",
        "tool:result": "run.tool_returned",
        "tool:error": "run.tool_failed",
        "model:retry": "run.model_failed",
        "human:required": "run.question_asked",
        "human:resumed": "run.resumed",
        "agent:run:end": "run.completed",
    }.items():
        assert shown[kind] == names[name] > 0, kind
    by_seq = {event.seq: event for event in audited}
    for crumb in streamed:
        if crumb.type not in LIVE:
            assert (crumb.timestamp, crumb.session_id) == (by_seq[crumb.seq].at, by_seq[crumb.seq].session_id)


async def test_seq_numbers_every_event_from_one_without_gaps(open_bread: OpenBread) -> None:
    """B123: over suspensions and resumes; what is shown only ever increases; a rebuild numbers alike."""
    async with open_bread(worker()) as bread:
        crumbs = await play(bread)
        run_id = crumbs[0].run_id
        before = [event async for event in bread.audit(run_id)]
        assert [event.seq for event in before] == list(range(1, len(before) + 1))
        seqs = [crumb.seq for crumb in crumbs if crumb.type not in LIVE]
        assert seqs == sorted(set(seqs))
        shown = durable(await ended(bread, run_id))
        await engine_of(bread).journal.rebuild()
        assert [event async for event in bread.audit(run_id)] == before
        assert durable(await ended(bread, run_id)) == shown


async def test_text_is_exact_from_every_cursor(open_bread: OpenBread) -> None:
    """B124, B130: whoever leaves after any crumb and comes back with its cursor sees the rest, and nothing twice."""
    async with open_bread(worker()) as bread:
        crumbs = await play(bread)
        run_id = crumbs[0].run_id
        whole = await ended(bread, run_id)
        for number, crumb in enumerate(crumbs):
            rest = await read(bread.observe(run_id, after=crumb.cursor))
            seen = crumbs[: number + 1]
            assert said([*seen, *rest]) == said(whole)
            assert durable([*seen, *rest]) == durable(whole)


async def test_replayed_text_is_one_piece_a_turn(open_bread: OpenBread) -> None:
    """B124: with its base and offset; an abandoned attempt is not replayed."""
    async with open_bread(worker()) as bread:
        run_id = (await play(bread))[0].run_id
        pieces = [crumb for crumb in await ended(bread, run_id) if crumb.type == "text:delta"]
        assert [crumb.text for crumb in pieces] == ["First words. ", "More. ", "Again. Done."]
        assert [crumb.offset for crumb in pieces] == [0, 0, 0]
        assert len({crumb.base for crumb in pieces}) == 3


async def test_an_observer_joins_in_the_middle_of_a_turn(open_bread: OpenBread) -> None:
    """B124: it gets what has been said so far as one piece and then what is being said."""
    gate = Gate()
    async with open_bread(agent([[text("One two "), pause(gate), text("three four.")]])) as bread:
        run_id = await bread.start("a", "go")
        await gate.reached.wait()
        stream = aiter(bread.observe(run_id))
        assert (await anext(stream)).type == "agent:run:start"
        first = await anext(stream)
        assert first.type == "text:delta"
        assert (first.text, first.offset) == ("One two ", 0)
        assert first.cursor == f"{first.seq}~{first.base}:{len(first.text)}"
        gate.open()
        rest = [crumb async for crumb in stream]
        assert said([first, *rest]) == "One two three four."
        again = await read(bread.observe(run_id, after=first.cursor))
        assert [(c.text, c.offset) for c in again if c.type == "text:delta"] == [("three four.", 8)]


async def test_errors_are_a_code_and_a_message(open_bread: OpenBread) -> None:
    """B129: causes, stack traces and context stay inside, on crumbs, in the log and on what is raised."""

    class Secret(Exception):
        def __init__(self) -> None:
            super().__init__("no")
            self.password = "hunter2"

    @define_tool
    async def leak() -> None:
        try:
            raise KeyError("inner hunter2")
        except KeyError as inner:
            raise Secret from inner

    async with open_bread(agent([[call("tool_leak")], [fail("no luck", retryable=False)]], leak)) as bread:
        crumbs = await read(bread.run("a", "go"))
        errors = [wire(crumb) for crumb in crumbs if crumb.type in ("tool:error", "agent:error")]
        common = {"seq", "cursor", "runId", "rootRunId", "agentId", "sessionId", "path", "timestamp", "type"}
        assert errors[0].keys() - common == {"toolCallId", "toolName", "code", "message", "durationMs"}
        assert errors[1].keys() - common == {"code", "message"}
        assert (errors[0]["message"], errors[1]["message"]) == ("Secret: no", "no luck")
        log = str([event.model_dump() async for event in bread.audit(crumbs[0].run_id)])
        assert "hunter2" not in log + str(errors)
        assert "Traceback" not in log + str(errors)


async def test_resuming_inside_the_loop_that_reads_the_run(open_bread: OpenBread) -> None:
    """B133: the documented pattern of clients: no number twice, no gap, on every store."""
    seen: list[AnyCrumb] = []

    async def follow(stream: Any) -> None:
        async for crumb in stream:
            seen.append(crumb)
            if crumb.type == "human:required":
                answer: Any = {"approved": True} if crumb.kind == "approval" else "yes"
                await follow(bread.resume(crumb.checkpoint_id, answer))

    async with open_bread(worker()) as bread:
        await follow(bread.run("a", "go"))
        assert seen[-1].type == "agent:run:end"
        whole = await ended(bread, seen[0].run_id)
        assert durable(seen) == durable(whole)
        assert said(seen) == said(whole)


async def test_answering_each_question_of_a_turn_inside_the_loop(open_bread: OpenBread) -> None:
    """B133, B29: the outer stream goes on with the next question of the same rest; nothing is shown twice by one."""
    async with open_bread(agent(asks({"n": 1}, {"n": 2}, {"n": 3}), asking())) as bread:
        outer: list[AnyCrumb] = []
        inner: list[AnyCrumb] = []
        async for crumb in bread.run("a", "go"):
            outer.append(crumb)
            if crumb.type == "human:required":
                inner += await read(bread.resume(crumb.checkpoint_id, crumb.args))
        assert types(outer) == ["agent:run:start", *["human:required"] * 3]
        assert types(inner) == [*["human:resumed"] * 3, "text:delta", "agent:run:end"]
        assert sorted(crumb.seq for crumb in [*outer, *inner] if crumb.type not in LIVE) == sorted(
            crumb["seq"] for crumb in durable(await ended(bread, outer[0].run_id))
        )


async def test_every_run_has_an_id_and_a_channel_of_its_own(open_bread: OpenBread) -> None:
    """B134: runs at the same time, of one agent, show each reader its own."""
    gate = Gate()

    def turn(request: Any) -> list[Any]:
        return [text("for "), pause(gate), text(request.messages[0].text)]

    async with open_bread(agent(turn)) as bread:
        handles = [bread.run("a", f"reader {n}") for n in range(20)]
        readers = [asyncio.create_task(read(handle)) for handle in handles]
        await gate.reached.wait()
        gate.open()
        for n, crumbs in enumerate(await asyncio.gather(*readers)):
            assert said(crumbs) == f"for reader {n}"
            assert {crumb.run_id for crumb in crumbs} == {crumb.root_run_id for crumb in crumbs} == {handles[n].run_id}
        assert len({handle.run_id for handle in handles}) == 20


async def test_a_late_observer_sees_what_is_pending_once_and_what_was_answered_as_answered(tmp_path: Path) -> None:
    """C39, C17, B65: after a restart lists, streams, session and checkpoints agree about every question."""

    def opened() -> Bread:
        return Checked(agents=[agent(asks({"n": 1}, {"n": 2}), asking())], store=f"sqlite:///{tmp_path}/bread.db")

    async with opened() as bread:
        first, second = questions(await read(bread.run("a", "go", session="s1")))
        await read(bread.resume(first.checkpoint_id, "yes"))
    async with opened() as bread:
        shown = await read(bread.observe(first.run_id, until="rest"))
        assert [crumb.checkpoint_id for crumb in questions(shown)] == [first.checkpoint_id, second.checkpoint_id]
        settled = {crumb.checkpoint_id for crumb in shown if crumb.type == "human:resumed"}
        pending = [one.checkpoint_id for one in questions(shown) if one.checkpoint_id not in settled]
        assert pending == [second.checkpoint_id]
        assert [one.id for one in (await bread.list_checkpoints(session="s1")).items] == pending
        run = await bread.get_run(first.run_id)
        assert (run.status, list(run.checkpoints)) == ("suspended", pending)
        assert [run.id for run in (await bread.list_runs(status="suspended")).items] == [first.run_id]
        history = [m for m in await bread.sessions.messages("s1") if m["role"] == "tool"]
        assert [(m["toolCallId"], m["content"]) for m in history] == [
            (first.tool_call_id, "yes"),
            (second.tool_call_id, None),
        ]
        heard: list[Any] = []
        bread.on("human:required", heard.append)
        assert await bread.resume(second.checkpoint_id, "no") == "Thanks."
        late = await read(bread.observe(first.run_id, after=shown[-1].cursor))
        assert types(late) == ["human:resumed", "text:delta", "agent:run:end"]
        assert heard == []


def test_the_union_has_every_crumb() -> None:
    """B122: what streams may give is what type checkers know."""
    union = set(get_args(get_args(AnyCrumb)[0]))
    known = {cls for cls in vars(crumb_types).values() if isinstance(cls, type) and issubclass(cls, Crumb)} - {Crumb}
    assert union == known
    kinds = [cls.model_fields["type"].default for cls in union]
    assert len(set(kinds)) == len(kinds)


@pytest.mark.parametrize(
    "cursor", ["", "x", "1~", "~", "1~1", "1:1", "-1", "1~1:1,", "9" * 16, "1~" + "1:1," * 9 + "1:1", "\uff11"]
)
async def test_a_cursor_that_is_none_is_refused(open_bread: OpenBread, cursor: str) -> None:
    """B124: at the first look, with INPUT_INVALID."""
    async with open_bread(agent([[text("Hi.")]])) as bread:
        run_id = await bread.start("a", "go")
        with refused("INPUT_INVALID"):
            await read(bread.observe(run_id, after=cursor))


async def test_a_cursor_of_elsewhere_is_refused(open_bread: OpenBread) -> None:
    """B124: one beyond the end, or with texts that begin after it, is none of this run's."""
    async with open_bread(agent(asks(), asking())) as bread:
        asked = await ask_first(bread)
        await read(bread.resume(asked.checkpoint_id, "yes"))
        for cursor in ("999999", "0~77:5"):
            with refused("INPUT_INVALID"):
                await read(bread.observe(asked.run_id, after=cursor))
        assert (await until(bread.observe(asked.run_id, after="0"), "agent:run:start")).seq == 1


async def test_an_id_of_the_caller_is_the_cause_of_what_its_command_brings_about(open_bread: OpenBread) -> None:
    """M: in the events of that commit, and in no others."""
    async with open_bread(agent(asks(), asking())) as bread:
        started = await bread.send(StartRun(agent="a", input="go", command_id="order-17"))
        assert started.run_id is not None
        await read(bread.observe(started.run_id, until="rest"))
        [asked] = (await bread.list_checkpoints()).items
        await bread.send(AnswerCheckpoint(checkpoint_id=asked.id, response="yes", command_id="reply-1"))
        await read(bread.observe(started.run_id))
        causes = [(event.name, event.cause) async for event in bread.audit(started.run_id)]
    assert {name for name, cause in causes if cause == "order-17"} == {"run.started"}
    assert {name for name, cause in causes if cause == "reply-1"} >= {"checkpoint.claimed", "run.resumed"}
    assert ("run.completed", None) in causes
