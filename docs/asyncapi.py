"""docs/asyncapi.yaml: what bread tells over NATS, for machines. The schemas are those of the crumbs themselves."""

from __future__ import annotations

import json
from importlib.metadata import version
from typing import Any, get_args

import yaml
from pydantic import TypeAdapter

from bread.domain.checkpoint import CheckpointKind
from bread.domain.run_events import Verdict
from bread.projections.crumbs import AnyCrumb, Crumb
from bread.transport import frames
from bread.transport.subjects import KEPT, PREFIX, STREAM, Place

TEXT, WHOLE, NUMBER, YES_NO = ({"type": kind} for kind in ("string", "integer", "number", "boolean"))
HEAD = {
    "v": {"const": frames.VERSION, "description": "The version of the frame; fields may be added to it."},
    "type": {**TEXT, "description": "The type of the crumb."},
    "root": {**TEXT, "description": "The root run; (root, seq) tells what came twice."},
    "run": {**TEXT, "description": "The run that it is about."},
    "seq": {**WHOLE, "minimum": 0, "description": "The number of the event in the tree of the root, from 1 on."},
    "visible": {**YES_NO, "description": "Whether who observes the root is shown it: false for hidden delegations."},
    "at": {**NUMBER, "description": "When it was committed, or said, in unix seconds."},
}
WORDS = {
    "crumbs": "Every crumb of the log, at least once, kept in the stream.",
    "human": "Questions and what became of them, at least once, kept in the stream: once more, and small.",
    "live": "Text as it is said, and hints: at most once, never kept. What counts comes again as a crumb.",
}
PLACES = {
    "tenant": "Whose run it is; `default` where nobody says anything else.",
    "agent": "The agent or the pipeline of the run.",
    "session": "The session of the run.",
    "root": "The root of the run's tree.",
    "run": "The run.",
}
HEADERS = {
    "ce-specversion": "1.0",
    "ce-id": "The root and the seq, as `Nats-Msg-Id`.",
    "ce-source": "`/bread/` and the tenant.",
    "ce-type": "`bread.` and the type of the crumb, with dots.",
    "ce-subject": "The run.",
    "ce-time": "When it was committed.",
    "ce-datacontenttype": frames.MEDIA_TYPE,
    "Nats-Msg-Id": "By which the stream knows what it has.",
}


def text() -> str:
    """The file, the same bytes everywhere."""
    plain = json.loads(json.dumps(document()))  # what stands in several places is written in each
    return yaml.safe_dump(plain, sort_keys=False, allow_unicode=True, width=110)


def document() -> dict[str, Any]:
    kinds = ("crumbs", "human", "live")
    return {
        "asyncapi": "3.0.0",
        "info": {
            "title": "bread over NATS",
            "version": PREFIX.rpartition(".")[2],
            "description": f"What bread {version('bread-runtime')} tells of its runs. In words: docs/nats.md.",
        },
        "defaultContentType": frames.MEDIA_TYPE,
        "channels": {kind: channel(kind) for kind in kinds},
        "operations": {
            f"tell_{kind}": {"action": "send", "channel": ref("channels", kind), "summary": WORDS[kind]}
            for kind in kinds
        },
        "components": {"messages": {kind: message(kind) for kind in kinds}, "schemas": schemas()},
    }


def ref(*path: str) -> dict[str, str]:
    return {"$ref": "/".join(("#", *path))}


def channel(kind: str) -> dict[str, Any]:
    tenant, *rest = (f"{{{name}}}" for name in Place._fields)
    return {
        "address": ".".join((PREFIX, tenant, kind, *rest)),
        "description": WORDS[kind],
        "parameters": {name: {"description": PLACES[name]} for name in Place._fields},
        "messages": {kind: ref("components", "messages", kind)},
        **({"x-jetstream": {"stream": STREAM, "subjects": [*KEPT]}} if kind != "live" else {}),
    }


def message(kind: str) -> dict[str, Any]:
    headers = {name: {**TEXT, "description": says} for name, says in HEADERS.items()}
    return {
        "name": kind,
        "summary": WORDS[kind],
        "contentType": frames.MEDIA_TYPE,
        **({"headers": {"type": "object", "properties": headers}} if kind != "live" else {}),
        "payload": ref("components", "schemas", "Question" if kind == "human" else "Frame"),
    }


def schemas() -> dict[str, Any]:
    crumbs = TypeAdapter(AnyCrumb).json_schema(by_alias=True, ref_template="#/components/schemas/{model}")
    named = crumbs.pop("$defs")
    mapping = crumbs.pop("discriminator")["mapping"]
    return {
        "Frame": {"oneOf": [ref("components", "schemas", name) for name in ("WholeFrame", "CutFrame")]},
        "WholeFrame": frame(
            {"crumb": ref("components", "schemas", "AnyCrumb")},
            "A crumb with all that it has.",
            **{"not": {"required": ["truncated"]}},
        ),
        "CutFrame": frame(
            {
                "crumb": ref("components", "schemas", "Common"),
                "truncated": {"const": True},
                "fetch": closed({"run": TEXT, "after": TEXT}),
            },
            f"A crumb of more than {frames.LIMIT:,} bytes, without what is its own. It is found with bread.observe(run,"
            " after), or GET /runs/{run}/stream?after={after}.",
        ),
        "Question": frame(
            {"agent": TEXT, "session": TEXT, "human": about()}, "What is asked, or what became of a question."
        ),
        "AnyCrumb": crumbs | {"description": f"One of {len(mapping)} types, told apart by `type`."},
        "Common": common(),
        **named,
    }


def frame(own: dict[str, Any], says: str, **more: Any) -> dict[str, Any]:
    return {
        "type": "object",
        "description": says,
        "properties": {**HEAD, **own},
        "required": [*HEAD, *own],
        **more,
    }


def closed(properties: dict[str, Any]) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": [*properties], "additionalProperties": False}


def common() -> dict[str, Any]:
    """What all crumbs carry."""
    found = Crumb.model_json_schema(by_alias=True)
    return {
        "type": "object",
        "properties": {"type": TEXT, **found["properties"]},
        "required": ["type", *found["required"]],
        "additionalProperties": False,
    }


def about() -> dict[str, Any]:
    properties: dict[str, Any] = dict.fromkeys(frames.ABOUT, TEXT)
    properties["kind"] = {"enum": [*get_args(CheckpointKind)]}
    properties["verdict"] = {"enum": [*get_args(Verdict)]}
    properties["deadline"] = {**TEXT, "format": "date-time"}
    return {"type": "object", "properties": properties, "required": ["checkpointId"], "additionalProperties": False}
