"""What is seen of delegates: by their visibility, the same on every kind of stream, questions always."""

from __future__ import annotations

from typing import Any

import pytest

from bread import SubAgent
from bread.testing import text
from compositions.play import shown
from scenes import (
    Heard,
    OpenBread,
    Spy,
    ended,
    question,
    watch,
)
from support import read, said, types
from teams import (
    asker,
    children,
    delegate,
    hands_on,
    shown_by,
    team,
    tells,
    told,
    worker,
)

ASKED = ["human:required", "human:resumed"]
ALL = ["agent:run:start", "human:required", "human:resumed", "text:delta", "agent:run:end"]


@pytest.mark.parametrize(
    ("visibility", "frames", "inner"),
    [
        ("passthrough", ["subagent:run:start", "subagent:run:end"], ALL),
        ("mediate", ["subagent:run:start", "subagent:run:end"], ASKED),
        ("hidden", [], ASKED),
    ],
)
async def test_what_is_seen_of_a_delegate(
    open_bread: OpenBread, visibility: Any, frames: list[str], inner: list[str]
) -> None:
    """B101, B110: the same on the stream of the run, of the resume, and of an observer; questions and answers always;
    the result of the call is the same; who observes the delegate sees all of it."""
    spy = Spy(lambda request: [text("Done.")] if request.turn else [delegate("asker", "x")])
    async with open_bread(team(spy, "asker", visibility=visibility), asker()) as bread:
        handle = bread.run("boss", "go")
        live = await read(handle)
        asked = question(live)
        live += await read(bread.resume(asked.checkpoint_id, "yes"))
        replayed = await ended(bread, handle.run_id)
        below = await ended(bread, asked.run_id)
    for crumbs in (live, replayed):
        assert [crumb.type for crumb in crumbs if crumb.type.startswith("subagent:")] == frames
        assert [type for type in shown_by(crumbs, "asker") if not type.startswith("tool:input")] == inner
        assert shown_by(crumbs, "boss")[-1] == "agent:run:end"
    assert types(below) == ALL
    assert told(spy) == ["asker: yes"]


async def test_each_of_the_roster_has_its_own_visibility(open_bread: OpenBread) -> None:
    """B101: a SubAgent's, else that of the supervisor."""
    roster = (SubAgent("one", visibility="hidden"), SubAgent("two", visibility="passthrough"), "three")

    def script(request: Any) -> list[Any]:
        return [text("Done.")] if request.turn else [delegate(one) for one in ("one", "two", "three")]

    boss = team(script, *roster, visibility="mediate")
    async with open_bread(boss, worker("one"), worker("two"), worker("three")) as bread:
        crumbs = await read(bread.run("boss", "go"))
    assert {crumb.agent_id for crumb in crumbs} == {"boss", "two"}
    framed = [crumb.sub_agent_id for crumb in crumbs if crumb.type == "subagent:run:start"]
    assert framed == ["two", "three"]


async def test_what_is_hidden_hides_what_is_below(open_bread: OpenBread) -> None:
    """B101, B110: on every level above; not for who looks from below."""
    middle = hands_on("asker", id="middle")
    boss = team(lambda r: tells(r) if r.turn else [delegate("middle")], "middle", visibility="hidden")
    async with open_bread(boss, middle, asker()) as bread:
        handle = bread.run("boss", "go")
        asked = question(await read(handle))
        await read(bread.resume(asked.checkpoint_id, "yes"))
        log = await ended(bread, handle.run_id)
        assert {crumb.type for crumb in log if crumb.agent_id != "boss"} == {*ASKED}
        runs = await children(bread, handle.run_id)
        below = await ended(bread, runs["middle"])
        assert {"subagent:run:start", "agent:run:end"} <= {crumb.type for crumb in below}


@pytest.mark.parametrize("visibility", ["passthrough", "mediate", "hidden"])
async def test_every_reader_sees_the_same(open_bread: OpenBread, visibility: Any) -> None:
    """B101, B110, B122, B123: run and resume, a listener, who watched all along, and who comes with a cursor; numbers
    are skipped, and always increase."""
    heard = Heard("agent:run:end")
    boss = team(lambda r: tells(r) if r.turn else [delegate("asker")], "asker", visibility=visibility)
    async with open_bread(boss, asker()) as bread:
        bread.on("crumb", lambda crumb: heard(crumb) if crumb.agent_id != "asker" else heard.append(crumb))
        handle = bread.run("boss", "go")
        live = await read(handle)
        watching = await watch(bread, bread.observe(handle.run_id))
        asked = question(live)
        live += await read(bread.resume(asked.checkpoint_id, "yes"))
        await heard.wait()
        late = await read(bread.observe(handle.run_id, after=asked.cursor))
        watched = await watching
    assert shown(live) == shown(watched) == shown(list(heard))
    assert shown(late) == [one for one in shown(live) if one["seq"] > asked.seq]
    seqs = [one["seq"] for one in shown(live)]
    assert seqs == sorted({*seqs})
    assert said(live) == said(watched)
    assert said(live).endswith('["asker: yes"]')


async def test_a_hidden_question_that_is_discarded(open_bread: OpenBread) -> None:
    """B101, B75, C60: who was shown a question is shown that nobody can answer it any more."""
    boss = team([[delegate("asker")], [text("Done.")]], "asker", visibility="hidden")
    async with open_bread(boss, asker()) as bread:
        handle = bread.run("boss", "go")
        asked = question(await read(handle))
        await bread.cancel(asked.run_id, reason="enough")
        crumbs = await read(bread.observe(handle.run_id, after=asked.cursor))
    assert types(crumbs) == ["human:discarded", "tool:error", "text:delta", "agent:run:end"]
    assert [crumb.checkpoint_id for crumb in crumbs if crumb.type == "human:discarded"] == [asked.checkpoint_id]
