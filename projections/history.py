"""The conversation of a run, read from its stream: what the model is sent, and what a session shows."""

from __future__ import annotations

import json
from collections.abc import Iterable

from ..domain.envelope import Recorded
from ..domain.events import Event, JsonValue
from ..domain.messages import AnyMessage, AssistantMessage, ToolMessage, UserMessage, read_turn
from ..domain.run_events import ModelResponded, OutputRejected, Resumed, RunStarted, ToolFailed, ToolReturned
from ..domain.run_state import unique_call_id

REJECTED = "Your answer does not fit. Answer again, with nothing but JSON that fits the schema. What is wrong:"


class Conversation:
    """The fold of a run's events into messages; grows by one event at a time.

    Outcomes are kept in the order of their calls, not of their arrival, so that a replay gives the same prompt.
    """

    def __init__(self) -> None:
        self.messages: list[AnyMessage] = []
        self._places: dict[str, tuple[int, ToolMessage]] = {}
        self._seen: set[str] = set()

    def add(self, event: Event) -> None:
        match event:
            case RunStarted():
                self.messages.append(UserMessage(as_text(event.input)))
            case ModelResponded():
                self._turn(event)
            case OutputRejected():
                self.messages.append(UserMessage(f"{REJECTED} {event.message}", author="bread"))
            case ToolReturned():
                self._settle(event.call, event.result, "ok")
            case ToolFailed():
                self._settle(event.call, event.message, "denied" if event.code == "REJECTED" else "error")
            case Resumed(verdict="happened", response=dict(response)):
                self._settle(event.call, response.get("result"), "ok")
            case Resumed(verdict="answered" | "expired") if event.response is not None and event.kind == "input":
                self._settle(event.call, event.response, "ok")

    def _turn(self, event: ModelResponded) -> None:
        turn, ids = read_turn(event.message), []
        for index, use in enumerate(turn.calls):
            unique = unique_call_id(use.id, f"{event.base}.{index}", self._seen)
            self._seen.add(unique)
            ids.append(unique)
        self.messages.append(AssistantMessage(turn.text, turn.calls, tuple(ids), event.message))
        self._places = {}
        for index, (use, unique) in enumerate(zip(turn.calls, ids, strict=True)):
            open_call = ToolMessage(unique, use.id or unique, use.tool, None, "error")
            self._places[f"{event.base}.{index}"] = (len(self.messages) + index, open_call)
        self.messages.extend(message for _, message in self._places.values())

    def _settle(self, call: str, content: JsonValue, outcome: str) -> None:
        place = self._places.get(call)
        if place is not None:
            index, open_call = place
            self.messages[index] = ToolMessage(
                open_call.call_id,
                open_call.provider_id,
                open_call.tool,
                content,
                outcome,  # type: ignore[arg-type]
            )


def messages_of(events: Iterable[Recorded]) -> list[AnyMessage]:
    """The messages of one run, in order."""
    conversation = Conversation()
    for recorded in events:
        conversation.add(recorded.event)
    return conversation.messages


def as_text(value: JsonValue) -> str:
    """What a model reads: text as it is, anything else as JSON."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
