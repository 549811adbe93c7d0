"""The OpenAPI document, with what streams are made of: each item of them is described, too."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from pydantic import TypeAdapter

from ...projections.crumbs import AnyCrumb

OPEN = ("/healthz", "/readyz")
_REF = "#/components/schemas/"


def describe(app: FastAPI, *, asks: bool) -> Callable[[], dict[str, Any]]:
    """The function that gives the document of an app, made once; `asks`: callers have to say who they are."""

    def openapi() -> dict[str, Any]:
        if app.openapi_schema is None:
            document = get_openapi(title=app.title, version=app.version, routes=app.routes, description=app.description)
            document["openapi"] = "3.2.0"
            _add_streams(document)
            if asks:
                _add_keys(document)
            app.openapi_schema = document
        return app.openapi_schema

    return openapi


def _add_streams(document: dict[str, Any]) -> None:
    crumb = TypeAdapter(AnyCrumb).json_schema(mode="serialization", ref_template=_REF + "{model}")
    schemas = document.setdefault("components", {}).setdefault("schemas", {})
    schemas |= crumb.pop("$defs")
    schemas["Crumb"] = crumb
    schemas["CrumbLine"] = {
        "type": "object",
        "description": "A line of application/x-ndjson.",
        "required": ["v", "type", "runId", "seq", "crumb"],
        "properties": {
            "v": {"const": 1},
            "type": {"const": "crumb"},
            "runId": {"type": "string"},
            "seq": {"type": "integer"},
            "crumb": {"$ref": _REF + "Crumb"},
        },
    }
    schemas["CrumbEvent"] = {
        "type": "object",
        "description": "A server-sent event: `id` is the crumb's cursor, `payload` the crumb without its type.",
        "required": ["id", "data"],
        "properties": {
            "id": {"type": "string"},
            "data": {
                "type": "string",
                "contentMediaType": "application/json",
                "contentSchema": {
                    "type": "object",
                    "required": ["type", "payload"],
                    "properties": {"type": {"type": "string"}, "payload": {"type": "object"}},
                },
            },
        },
    }
    items = {"text/event-stream": "CrumbEvent", "application/x-ndjson": "CrumbLine"}
    for path in document["paths"].values():
        for operation in path.values():
            content = operation["responses"].get("200", {}).get("content", {})
            for media, name in items.items():
                if media in content:
                    # A route with a stream gives nothing else: FastAPI's guess at JSON goes.
                    content.pop("application/json", None)
                    # `itemSchema` is OpenAPI 3.2's; who does not know it reads the same off the array.
                    item = {"$ref": _REF + name}
                    content[media] = {"itemSchema": item, "schema": {"type": "array", "items": item}}


def _add_keys(document: dict[str, Any]) -> None:
    document["components"]["securitySchemes"] = {
        "bearer": {"type": "http", "scheme": "bearer"},
        "key": {"type": "apiKey", "in": "header", "name": "X-API-Key"},
    }
    document["security"] = [{"bearer": []}, {"key": []}]
    for path in OPEN:
        document["paths"][path]["get"]["security"] = []
