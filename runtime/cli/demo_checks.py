"""What the demo promises, checked against the log, the file that its tool writes, and a replay."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ...domain.events import JsonValue
from ...projections.crumbs import AnyCrumb, TextDelta, TextReset
from .demo import ASKING, FETCHING, after_answer, fetched
from .exits import DONE, ERROR, report

if TYPE_CHECKING:
    from ..app import Bread


class Promises:
    """Kept and broken promises, printed as they are checked."""

    def __init__(self) -> None:
        self.broken: list[str] = []

    def check(self, kept: bool, promise: str, found: str = "") -> None:
        print(f"  {'kept  ' if kept else 'BROKEN'}  {promise}{f' ({found})' if found else ''}", flush=True)
        if not kept:
            self.broken.append(f"{promise}: {found or 'it is not so'}")

    def code(self) -> int:
        """The exit code: any broken promise is an error, with its line."""
        for promise in self.broken:
            report("PROMISE_BROKEN", promise)
        return ERROR if self.broken else DONE


async def check_run(bread: Bread, database: Path, run_id: str, promises: Promises) -> None:
    """The promises about a run that has ended: once, exact, whole."""
    events = [event async for event in bread.audit(run_id)]
    log = [(event.name, event.data) for event in events]
    calls = sum(name == "run.tool_called" and data["tool"] == "tool_fetch_draft" for name, data in log)
    results = sum(name == "run.tool_returned" and data["tool"] == "tool_fetch_draft" for name, data in log)
    doubts = sum(name == "run.resumed" and data["kind"] == "in_doubt" for name, data in log)
    executed = fetched(database, run_id)
    promises.check(
        executed == calls == results == 1 or (doubts > 0 and results <= 1 and executed <= calls),
        "fetch_draft was not run twice",
        f"executed {executed} x by its own file, called {calls} x and returned {results} x by the log",
    )
    claims = [event for event in events if event.name == "checkpoint.claimed"]
    opened = sum(name == "checkpoint.opened" for name, _ in log)
    by = ", ".join(f"{claim.by.kind} {claim.by.id}" for claim in claims)
    promises.check(len(claims) == opened, "every question was answered exactly once", f"by {by or 'nobody'}")
    expected = expected_text(log)
    text = text_of([crumb async for crumb in bread.observe(run_id)])
    if expected is not None:
        promises.check(text == expected, "the text is exact", f"{len(text)} of {len(expected)} characters")
    whole = await bread.check()
    found = whole.problems[0] if whole.problems else f"{whole.streams} streams, {whole.events} events"
    promises.check(whole.ok, "the log verifies", found)


def expected_text(log: Sequence[tuple[str, Mapping[str, JsonValue]]]) -> str | None:
    """What the model must have said in all, by the answer in the log; None where the draft was never fetched."""
    for name, data in log:
        if name == "run.resumed" and data["kind"] == "input":
            return FETCHING + ASKING + after_answer(data["response"])
    return None


def text_of(crumbs: list[AnyCrumb]) -> str:
    """All text that a stream has shown, less what was reset."""
    texts: dict[int, str] = {}
    for crumb in crumbs:
        match crumb:
            case TextDelta():
                texts[crumb.base] = texts.get(crumb.base, "") + crumb.text
            case TextReset():
                texts.pop(crumb.base, None)
    return "".join(texts.values())
