"""Streams that the tests of runs begin with."""

from typing import Any

from bread.domain.events import JsonValue
from bread.domain.run_events import (
    Parked,
    QuestionAsked,
    Resumed,
    ToolFailed,
    ToolReturned,
    Verdict,
)
from bread.domain.run_state import Effect
from bread.runtime.kit import run_decider

from .support import (
    DELETE,
    FETCH,
    SIGN,
    called,
    responded,
    started,
    suspended,
)

RUN = run_decider("r1")


def returned(call: str, tool: str, result: JsonValue = "done") -> ToolReturned:
    return ToolReturned(call=call, tool=tool, tool_call_id=f"call_{call}", result=result, duration_ms=1.0)


def failed(call: str, tool: str, code: str, message: str, duration_ms: float | None = None) -> ToolFailed:
    return ToolFailed(
        call=call, tool=tool, tool_call_id=f"call_{call}", code=code, message=message, duration_ms=duration_ms
    )


def resumed(
    call: str, tool: str, checkpoint: str, kind: Any, verdict: Verdict, response: JsonValue, owner: str | None = None
) -> Resumed:
    return Resumed(
        call=call,
        tool=tool,
        tool_call_id=f"call_{call}",
        checkpoint=checkpoint,
        kind=kind,
        verdict=verdict,
        response=response,
        owner=owner,
    )


def kinds(effects: list[Effect]) -> list[type[Effect]]:
    return [type(effect) for effect in effects]


# Histories that several tests go on from.
WORKING = (started(), responded(FETCH), called("1.0", "fetch"))
ASKING = (started(), responded(SIGN), suspended("1.0", "c1"), QuestionAsked(checkpoint="c1"), Parked(pending=1))
GATED = (started(), responded(DELETE), suspended("1.0", "c1", "approval"), Parked(pending=1))
MIXED = (started(), responded(FETCH, SIGN), called("1.0", "fetch"), suspended("1.1", "c1"))
