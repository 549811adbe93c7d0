"""The transport port: what it is told, and what observers make of what it brings."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from bread import AnyCrumb, Bread, define_agent, define_human_tool
from bread.domain.ports import Logged
from bread.testing import ScriptedModel, call, pause, text
from bread.transport.local import Frame, HintFrame, TextFrame
from crash.stores import BY_THE_STORE, Shared
from support import read, said


class Wire:
    """A transport whose other end is in this process; what is told is kept, and handed over if somebody listens."""

    def __init__(self) -> None:
        self.told: list[tuple[str, Frame]] = []
        self.peer: Wire | None = None
        self.heard: Callable[[str, Frame], None] | None = None

    async def open(self, heard: Callable[[str, Frame], None]) -> None:
        self.heard = heard

    def tell(self, root: str, frame: Frame) -> None:
        self.told.append((root, frame))
        if self.peer is not None and self.peer.heard is not None:
            asyncio.get_running_loop().call_soon(self.peer.heard, root, frame)

    async def close(self) -> None:
        self.heard = None


@BY_THE_STORE
async def test_a_transport_is_told_everything_after_its_commit_and_in_order(shared: Shared) -> None:
    """B122: every event of the tree once, by its seq, between them what is live; nothing of what others commit."""
    ask = define_human_tool("approve", {"type": "object"})
    agent = define_agent(
        "asker", model=ScriptedModel([[text("May I? "), call("human_approve")], [text("Thanks.")]]), tools=[ask]
    )
    wire, other = Wire(), Wire()
    store = shared.url
    async with (
        Bread(agents=[agent], store=store, transport=wire) as bread,
        Bread(agents=[agent], store=store, transport=other, executes=False) as watching,
    ):
        run_id = await bread.start("asker", "go")
        passive = asyncio.create_task(read(watching.observe(run_id)))
        async for crumb in bread.observe(run_id, until="rest"):
            if crumb.type == "human:required":
                await bread.resume(crumb.checkpoint_id, {"yes": True})
        await passive
        events = [frame.recorded for root, frame in wire.told if root == run_id and isinstance(frame, Logged)]
        recorded = [event async for event in bread.audit(run_id)]
        assert [one.meta.seq for one in events] == [event.seq for event in recorded]
        assert "".join(f.text for _, f in wire.told if isinstance(f, TextFrame)) == "May I? Thanks."
        assert any(isinstance(frame, HintFrame) for _, frame in wire.told)
        assert other.told == []


@BY_THE_STORE
async def test_live_text_of_another_process_comes_by_the_transport(shared: Shared) -> None:
    """B66, B124: the store brings only whole turns; with a transport an observer elsewhere sees them grow, exactly."""
    begin, go_on = asyncio.Event(), asyncio.Event()
    script = (pause(begin.wait), text("One two "), pause(go_on.wait), text("three."))
    agent = define_agent("talker", model=ScriptedModel([[*script]]))
    here, there = Wire(), Wire()
    here.peer = there
    store = shared.url
    async with (
        Bread(agents=[agent], store=store, transport=here) as bread,
        Bread(agents=[agent], store=store, transport=there, executes=False) as watching,
    ):
        run_id = await bread.start("talker", "go")
        crumbs: list[AnyCrumb] = []
        async for crumb in watching.observe(run_id):
            crumbs.append(crumb)
            if crumb.type == "agent:run:start":
                begin.set()
            if crumb.type == "text:delta":
                go_on.set()  # the turn is not over: what has come until now came live
        assert said(crumbs) == "One two three."
        assert [c.offset for c in crumbs if c.type == "text:delta"][:2] == [0, len("One ")]
