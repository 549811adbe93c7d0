"""How golden logs are written down, and what is read from them: states, crumbs and messages, as plain data.

A log is a file of lines, one a stored event: its exact bytes (`state`, base64), and beside them what they mean, for
people. What is expected of it stands in a file of its own. Both are for ever.
"""

from __future__ import annotations

import base64
import dataclasses
import json
import types
from pathlib import Path
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel

from bread.domain.checkpoint import CheckpointState
from bread.domain.envelope import Recorded
from bread.domain.events import Event, known_events
from bread.domain.messages import AssistantMessage, ToolMessage, read_turn
from bread.domain.ports import Logged
from bread.domain.run_events import RunStarted
from bread.domain.run_state import RunState, due, status_of
from bread.domain.session import SessionState
from bread.projections.history import messages_of
from bread.projections.render import RunInfo, crumb_of, run_of, subject_of
from bread.runtime.folds import fold_checkpoint, fold_run, fold_session
from bread.transport.codec import decode_event, unpack

HERE = Path(__file__).parent
SESSION = "session:"


def events_of_bread() -> dict[str, type[Event]]:
    """The event classes of the product, without those that other tests have registered."""
    return {name: cls for name, cls in known_events().items() if cls.__module__.startswith("bread.")}


# --- lines ------------------------------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Line:
    """A stored event, as the table holds it."""

    position: int
    stream: str
    version: int
    topic: str
    state: bytes

    def recorded(self) -> Recorded:
        return decode_event(self.stream, self.version, self.topic, self.state, self.position)

    def twin(self) -> dict[str, Any]:
        """What the bytes mean, read without any event class."""
        _, meta, data = unpack(self.state)
        return {"meta": meta, "data": unpack(data)}

    def text(self) -> str:
        fields = dataclasses.asdict(self) | {"state": base64.b64encode(self.state).decode()} | self.twin()
        return json.dumps(fields)


def read_log(file: Path) -> list[tuple[Line, dict[str, Any]]]:
    """The lines of a log with their readable twins."""
    found = []
    for text in file.read_text().splitlines():
        fields = json.loads(text)
        twin = {"meta": fields.pop("meta"), "data": fields.pop("data")}
        found.append((Line(**(fields | {"state": base64.b64decode(fields["state"])})), twin))
    return found


# --- what a log says --------------------------------------------------------------------------------------------------


def reading(log: list[Recorded]) -> dict[str, Any]:
    """The states, crumbs and messages of a whole log."""
    streams: dict[str, list[Recorded]] = {}
    for recorded in log:
        streams.setdefault(recorded.stream, []).append(recorded)
    runs = {stream: events for stream, events in streams.items() if events[-1].event.NAME.startswith("run.")}
    return {
        "states": {stream: state_of(stream, events) for stream, events in streams.items()},
        "crumbs": crumbs_of(log),
        "messages": {stream: [plain(message) for message in messages_of(events)] for stream, events in runs.items()},
    }


def state_of(stream: str, events: list[Recorded]) -> dict[str, Any]:
    """The fold of a stream, by names of our own, which stay when the fields of a state are renamed."""
    if stream.startswith(SESSION):
        return facts_of_session(fold_session(stream.removeprefix(SESSION), events))
    if stream.startswith("cp_"):
        return facts_of_checkpoint(fold_checkpoint(stream, events))
    return facts_of_run(fold_run(stream, events))


def facts_of_session(state: SessionState) -> dict[str, Any]:
    return {"id": state.id, "version": state.version, "status": state.status, "tags": dict(state.tags)}


def facts_of_checkpoint(state: CheckpointState) -> dict[str, Any]:
    return {
        "id": state.id,
        "version": state.version,
        "status": state.status,
        "question": plain(state.question),
        "claim": state.claim,
        "key": plain(state.key),
        "resumed": state.resumed,
    }


def facts_of_run(state: RunState) -> dict[str, Any]:
    return {
        "id": state.id,
        "version": state.version,
        "status": status_of(state),
        "kind": state.kind,
        "agent": state.agent,
        "session": state.session,
        "root": state.root,
        "started": state.started,
        "parent": plain(state.parent),
        "skill": state.skill,
        "key": plain(state.key),
        "owner": state.owner,
        "epoch": state.epoch,
        "max_steps": state.max_steps,
        "turn": state.turn,
        "tool_turns": state.tool_turns,
        "attempt": state.attempt,
        "base": state.base,
        "retry_at": state.retry_at,
        "calls": [plain(call) for call in state.calls],
        "call_ids": sorted(state.call_ids),
        "children": [plain(child) for child in state.children],
        "surfaced": sorted(state.surfaced),
        "parked": state.parked,
        "output_of": state.output_of,
        "output": state.output,
        "code": state.code,
        "message": state.message,
        "questions": list(state.questions),
        "due": [list(effect.key) for effect in due(state)],
    }


def crumbs_of(log: list[Recorded]) -> dict[str, list[dict[str, Any]]]:
    """The crumbs of every root, in the order of their numbers, as they go over the wire."""
    by_place = {(recorded.stream, recorded.version): recorded for recorded in log}
    infos: dict[str, RunInfo] = {}
    for recorded in log:
        if isinstance(event := recorded.event, RunStarted):
            infos[recorded.stream] = RunInfo(recorded.stream, event.root, event.session, event.agent)
    shown: dict[str, list[dict[str, Any]]] = {}
    for recorded in log:
        if recorded.meta.root is None:
            continue
        where = subject_of(recorded)
        entry = Logged(recorded, by_place.get(where) if where else None)
        run_id = run_of(entry)
        if run_id is None:
            continue
        erased = RunInfo(run_id, recorded.meta.root, recorded.meta.session or "", "")
        crumb = crumb_of(entry, infos.get(run_id, erased), str(recorded.meta.seq))
        if crumb is not None:
            shown.setdefault(recorded.meta.root, []).append(crumb.wire())
    return {root: sorted(crumbs, key=lambda crumb: int(crumb["seq"])) for root, crumbs in shown.items()}


def plain(value: Any) -> Any:
    """Plain data of a message, a model or a record."""
    match value:
        case AssistantMessage():
            turn = read_turn(value.message)
            calls = [
                {"id": call_id, "tool": use.tool, "args": use.args}
                for call_id, use in zip(value.call_ids, value.calls, strict=True)
            ]
            return {"role": "assistant", "text": value.text, "reasoning": turn.reasoning, "calls": calls}
        case ToolMessage():
            return dataclasses.asdict(value)
        case BaseModel():
            return value.model_dump(mode="json")
        case _ if dataclasses.is_dataclass(value) and not isinstance(value, type):
            return dataclasses.asdict(value)
    return value


def holds(expected: Any, actual: Any, where: str = "") -> list[str]:
    """The places where something is not as expected. What is not expected may be there: later releases say more."""
    if isinstance(expected, dict) and isinstance(actual, dict):
        missing = [f"{where}.{key}: missing" for key in expected if key not in actual]
        return missing + [
            found for key in expected if key in actual for found in holds(expected[key], actual[key], f"{where}.{key}")
        ]
    if isinstance(expected, list) and isinstance(actual, list) and len(expected) == len(actual):
        pairs = enumerate(zip(expected, actual, strict=True))
        return [found for index, (one, other) in pairs for found in holds(one, other, f"{where}[{index}]")]
    same = expected == actual and type(expected) is type(actual)
    return [] if same else [f"{where}: expected {expected!r}, got {actual!r}"]


# --- what an event is -------------------------------------------------------------------------------------------------


def shape_of(model: type[BaseModel]) -> dict[str, Any]:
    """The fields of a model with their types and defaults, which are stored too: by being left out."""
    shape: dict[str, Any] = {}
    for name, field in model.model_fields.items():
        shape[name] = {"type": spelled(field.annotation)}
        if not field.is_required():
            shape[name]["default"] = plain(field.get_default(call_default_factory=True))
    return shape


def spelled(annotation: Any) -> Any:
    """A type in words that no release of Python or pydantic changes."""
    if annotation is None or annotation is type(None):
        return "null"
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return shape_of(annotation)
    if getattr(annotation, "__name__", "") == "JsonValue":
        return "json"
    origin, parts = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return spelled(parts[0])
    if origin in (Union, types.UnionType):
        return {"one of": [spelled(part) for part in parts]}
    if origin is Literal:
        return {"literal": list(parts)}
    if origin is dict:
        return {"map of": spelled(parts[1])}
    if annotation in (str, int, float, bool):
        return str(annotation.__name__)
    raise TypeError(f"no word for {annotation!r}: golden logs cannot describe it")


def shapes() -> dict[str, Any]:
    """Every event of the product as name@version with its fields."""
    return {f"{name}@{cls.VERSION}": shape_of(cls) for name, cls in sorted(events_of_bread().items())}
