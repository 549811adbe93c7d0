"""`bread demo`: the agent of the demonstration, and the two ways to play it.

The agent fetches a draft, asks a person, and publishes. Its tool leaves a line in a file each time it is executed, so
that everybody can count what happened outside of the log.
"""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import BaseModel

from ...domain.errors import InvalidInput, Refused
from ...domain.messages import ToolMessage
from ...domain.ports import ModelRequest
from ..agents import Agent, define_agent
from ..scripted import ScriptedModel, Turn, call, text
from ..tools import Tool, ToolContext, define_human_tool, define_tool

if TYPE_CHECKING:
    from .place import Place

AGENT = "demo_publisher"
INPUT = "publish the launch post"
URL = "https://bread.example/launch"
DRAFT = "Runs that wait for people, and cost nothing while they wait."
MODEL = "model: scripted (no key needed)"
HEARTBEAT = (0.3, 1.5)  # where processes share a database: whoever is killed counts as dead soon
FETCHING = "I fetch the draft first. "
ASKING = "The draft is ready. I need approval. "
PUBLISHED = f"Published {URL}. Thank you."


class ApprovePublish(BaseModel):
    url: str
    draft: str


class Decision(BaseModel):
    approved: bool
    reason: str | None = None


def publisher(database: Path | None) -> Agent:
    """The demo's agent on a store; its tool counts in a file beside the database."""
    approve = define_human_tool("approve_publish", ApprovePublish, response=Decision, prompt="Publish {url}?")
    return define_agent(
        AGENT,
        model=ScriptedModel(_script),
        prompt="Fetch the draft, ask for approval, publish.",
        tools=[_fetch_draft(database), approve],
    )


def _script(request: ModelRequest) -> Turn:
    if request.turn == 0:
        return [text(FETCHING), call("tool_fetch_draft", {"url": URL})]
    last = request.messages[-1]
    content = last.content if isinstance(last, ToolMessage) else None
    if request.turn > 1:
        return [text(after_answer(content))]
    if content != DRAFT:
        return [text("There is no draft, so there is nothing to publish.")]
    return [text(ASKING), call("human_approve_publish", {"url": URL, "draft": DRAFT})]


def after_answer(answer: object) -> str:
    """What the model says once a person has answered."""
    if not isinstance(answer, dict) or answer.get("approved") is not True:
        reason = answer.get("reason") if isinstance(answer, dict) else None
        return f"Not published: {reason or 'you said no'}."
    return PUBLISHED


def _fetch_draft(database: Path | None) -> Tool:
    @define_tool
    def fetch_draft(url: str, ctx: ToolContext) -> str:
        """Fetch the draft of a post."""
        if database is not None:
            note = {"run": ctx.run_id, "call": ctx.tool_call_id, "url": url, "process": os.getpid()}
            with fetches(database).open("a") as file:
                file.write(json.dumps(note) + "\n")
        return DRAFT

    return fetch_draft


def fetches(database: Path) -> Path:
    """Where each execution of fetch_draft leaves a line."""
    return database.with_name("demo-fetches.jsonl")


def fetched(database: Path, run_id: str) -> int:
    """How often fetch_draft was executed for a run, by the file."""
    try:
        lines = fetches(database).read_text().splitlines()
    except FileNotFoundError:
        return 0
    return sum(json.loads(line)["run"] == run_id for line in lines)


# --- playing ----------------------------------------------------------------------------------------------------------


async def play(place: Place, *, by_itself: bool, composition: bool = False) -> int:
    """The demonstration, at a terminal or by itself; that of a composition is always by itself. Gives the exit code."""
    database = place.path
    if database is None:
        raise InvalidInput("INPUT_INVALID", "the demo needs a store in a file: --store sqlite:///path/to/file.db")
    database = database.expanduser().absolute()
    place.announce(MODEL)
    with _stage(database, alone=by_itself or composition):
        if composition:
            from .demo_together import play_together

            return await play_together(place, database)
        if by_itself:
            from .demo_alone import play_alone

            return await play_alone(place, database)
        from .demo_terminal import play_here

        return await play_here(place, database)


@contextmanager
def _stage(database: Path, *, alone: bool) -> Iterator[None]:
    """Any number of terminals may play on one store; what plays by itself counts processes, and wants to be alone."""
    try:
        database.parent.mkdir(parents=True, exist_ok=True)
        handle = os.open(database.with_name("demo.lock"), os.O_CREAT | os.O_RDWR, 0o600)
    except OSError:
        yield  # opening the store says what is wrong with the place
        return
    try:
        fcntl.flock(handle, (fcntl.LOCK_EX if alone else fcntl.LOCK_SH) | fcntl.LOCK_NB)
    except BlockingIOError:
        raise Refused("DEMO_BUSY", f"another demo plays on {database}; choose another --store") from None
    else:
        yield
    finally:
        os.close(handle)
