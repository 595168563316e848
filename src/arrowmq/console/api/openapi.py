"""The API's description in OpenAPI 3.1, made from the declarations that serve it."""

from __future__ import annotations

import functools
from importlib.metadata import version
from typing import Any

import msgspec
from starlette.responses import Response

from arrowmq.console.api.declare import ENDPOINTS, Endpoint

_ERROR = {
    "description": "What went wrong, in a sentence",
    "content": {
        "application/json": {
            "schema": {
                "type": "object",
                "properties": {"error": {"type": "string"}},
                "required": ["error"],
            }
        }
    },
}
_STATUSES = ("400", "401", "403", "404", "408", "409", "413", "415", "422", "429", "501", "502", "504")


@functools.cache
def description() -> bytes:
    every = (kind for each in ENDPOINTS for kind in (each.query, each.body, each.answer))
    kinds = [kind for kind in every if kind is not None and kind is not Response]
    schemas, components = msgspec.json.schema_components(kinds, ref_template="#/components/schemas/{name}")
    by_kind = dict(zip(map(id, kinds), schemas, strict=True))
    paths: dict[str, dict[str, Any]] = {}
    for each in ENDPOINTS:
        path = each.path.replace(":path}", "}")
        paths.setdefault(path, {})[each.method.lower()] = _operation(each, by_kind, components)
    return msgspec.json.encode(
        {
            "openapi": "3.1.0",
            "info": {
                "title": "ArrowMQ console",
                "version": version("arrowmq"),
                "description": "Everything the pages show and do. Changes need the X-CSRF-Token header that "
                "GET /api/session gives, or Authorization: Bearer TOKEN. Lists take format=csv.",
            },
            "paths": paths,
            "components": {
                "schemas": components,
                "securitySchemes": {"bearer": {"type": "http", "scheme": "bearer"}},
            },
        }
    )


def _operation(each: Endpoint, by_kind: dict[int, dict[str, Any]], components: dict[str, Any]) -> dict[str, Any]:
    first, _, rest = each.summary.partition("\n")
    operation: dict[str, Any] = {
        "tags": [each.tag],
        "summary": first,
        "operationId": each.handler.__name__,
        "responses": {"200": _answer(each, by_kind)} | dict.fromkeys(_STATUSES, _ERROR),
    }
    if rest.strip():
        operation["description"] = rest.strip()
    parameters = []
    if each.query is not None:
        schema = components[each.query.__name__]
        for name, field in schema["properties"].items():
            is_path = name in each.path_names
            parameters.append(
                {
                    "name": name,
                    "in": "path" if is_path else "query",
                    "required": is_path or name in schema.get("required", []),
                    "schema": field,
                }
            )
    if parameters:
        operation["parameters"] = parameters
    if each.body is not None:
        operation["requestBody"] = {
            "required": True,
            "content": {"application/json": {"schema": by_kind[id(each.body)]}},
        }
    return operation


def _answer(each: Endpoint, by_kind: dict[int, dict[str, Any]]) -> dict[str, Any]:
    if each.answer is Response:
        return {"description": "Done", "content": {"*/*": {"schema": {"type": "string", "format": "binary"}}}}
    content: dict[str, Any] = {"application/json": {"schema": by_kind[id(each.answer)]}}
    kind = each.answer
    if isinstance(kind, type) and "rows" in getattr(kind, "__struct_fields__", ()):
        content["text/csv"] = {"schema": {"type": "string"}}
    return {"description": "Done", "content": content}
