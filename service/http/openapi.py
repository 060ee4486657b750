"""Complete FastAPI's OpenAPI document with request bodies, problems and examples."""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Collection, Mapping
from functools import cache, wraps
from itertools import groupby, takewhile
from pathlib import Path
from typing import Annotated, Any

import fastapi
from fastapi import FastAPI

from service.errors import Busy, Problem, RateLimited, ReloadUnderWay, Unavailable
from service.http.middleware import PROBLEM
from service.http.request import FILE_FIELD, JSON, PNG, TIMEOUT_HEADER

Json = dict[str, Any]
EXAMPLES = Path(__file__).with_name("examples.json")
"""Examples of answers by operation id, and of problems.

`make generate` writes the former.
"""
_ENCODED = {"type": "string", "description": "base64 or a data URL"}
_FILE = {"type": "string", "format": "binary"}
TIMEOUT_PARAMETER = {
    "name": TIMEOUT_HEADER,
    "in": "header",
    "required": False,
    "schema": {"type": "number", "exclusiveMinimum": 0},
    "description": "Deadline in seconds (504 after it), at most the service's own. "
    "A request that is expected to wait longer in the queue gets 429 at once.",
}
_RETRY_AFTER = {"description": "Seconds.", "schema": {"type": "integer", "minimum": 0}}


def json_body(schema: Json, **more: Json) -> Json:
    """A request body of JSON or, by media type, of something else."""
    content = {JSON: {"schema": schema}, **more}
    return {"requestBody": {"required": True, "content": content}}


def image_body(*, least: int = 1, most: int = 1, example: str = "/samples/7.png") -> Json:
    """A request body with images, in each way to send so many."""
    several = {"type": "array", "minItems": least, "maxItems": most}
    images = _object("images", {**several, "items": _ENCODED})
    file = _FILE if most == 1 else {**several, "items": _FILE}
    form = {"multipart/form-data": {"schema": _object(FILE_FIELD, file)}}
    if least > 1:
        return json_body(images, **form)
    raw = {"schema": _FILE, "examples": {"sample": {"externalValue": example}}}
    image = _object("image", {**_ENCODED, "minLength": 1})
    kinds = ("image/*", "application/octet-stream")
    return json_body({"oneOf": [image, images]}, **form, **dict.fromkeys(kinds, raw))


def png_answer(description: str) -> dict[int | str, Json]:
    """An answer that is a PNG."""
    return {200: {"content": {PNG: {"schema": {**_FILE, "description": description}}}}}


def describe(handler: Callable[..., Any]) -> tuple[str, str]:
    """Summary and description of a route: the docstring's paragraphs without its sections."""
    summary, *paragraphs = (inspect.getdoc(handler) or "").split("\n\n")
    prose = takewhile(lambda one: not one.startswith(("Args:", "Raises:")), paragraphs)
    return summary.removesuffix("."), "\n\n".join(" ".join(one.split()) for one in prose)


def documented(
    handler: Callable[..., Any], description: str, query: type[Any] | None
) -> Callable[..., Any]:
    """Make a function with the handler's query for FastAPI to document. It is never called."""

    @wraps(handler)
    async def endpoint() -> None:
        raise NotImplementedError

    endpoint.__doc__ = description
    annotation = Annotated[query, fastapi.Query()] if query else None
    parameter = inspect.Parameter("query", inspect.Parameter.KEYWORD_ONLY, annotation=annotation)
    endpoint.__signature__ = inspect.Signature([parameter] if query else [])  # type: ignore[attr-defined]
    return endpoint


def complete(
    app: FastAPI, problems: Mapping[str, Collection[type[Problem]]]
) -> Callable[[str], bytes]:
    """Complete the OpenAPI document when it is first asked for.

    Returns:
        What gives the document as JSON, for a root path.
    """
    plain = app.openapi
    known: list[type[Problem]] = [Problem, *Problem.__subclasses__()]
    known.sort(key=lambda problem: problem.status)

    @cache
    def openapi() -> Json:
        document, examples = plain(), json.loads(EXAMPLES.read_text())
        shared = document["components"].setdefault("responses", {})
        for path, operations in document["paths"].items():
            for operation in operations.values():
                _correct_parameters(path, operation)
                _add_examples(operation, examples.get(operation["operationId"], {}))
                del operation["responses"]["4XX"]
                declared = problems[operation["operationId"]]
                kinds = [problem for problem in known if problem in declared]
                for status, of_status in groupby(kinds, lambda problem: problem.status):
                    response = _problem_response(list(of_status), examples["problems"])
                    name = "-or-".join(response["content"][PROBLEM]["examples"])
                    shared[name] = response
                    reference = {"$ref": f"#/components/responses/{name}"}
                    operation["responses"][str(int(status))] = reference
        return document

    @cache
    def serialise(root_path: str) -> bytes:
        servers = {"servers": [{"url": root_path}]} if root_path else {}
        return json.dumps({**openapi(), **servers}, separators=(",", ":")).encode()

    app.openapi = openapi  # type: ignore[method-assign]  # as FastAPI's documentation says
    return serialise


def _object(name: str, schema: Json) -> Json:
    members = {"required": [name], "properties": {name: schema}}
    return {"type": "object", **members, "additionalProperties": False}


def _correct_parameters(path: str, operation: Json) -> None:
    """Correct parameters: FastAPI takes all for parts of the query, optional ones for nullable."""
    for parameter in operation.get("parameters", ()):
        if f"{{{parameter['name']}}}" in path:
            parameter.update({"in": "path", "required": True})
        schema = parameter["schema"]
        if {"type": "null"} in schema.get("anyOf", ()):
            (kind,) = (option for option in schema.pop("anyOf") if option != {"type": "null"})
            schema.update(kind)


def _add_examples(operation: Json, example: Json) -> None:
    content = {
        "request": operation.get("requestBody", {}).get("content", {}),
        "answer": operation["responses"]["200"]["content"],
    }
    for name, value in example.items():
        next(iter(content[name].values()))["example"] = value


def _problem_response(problems: list[type[Problem]], examples: Json) -> Json:
    """Describe the answer with one status: a problem of one of these types."""
    content = {
        "schema": {"$ref": "#/components/schemas/ProblemDetails"},
        "examples": {
            problem.slug: {
                "summary": problem.title,
                "value": {**problem(**examples[problem.slug]).to_dict(), "request_id": "7c1d0f"},
            }
            for problem in problems
        },
    }
    titles = " or ".join(problem.title for problem in problems)
    response: Json = {"description": f"{titles}.", "content": {PROBLEM: content}}
    if {Busy, RateLimited, ReloadUnderWay, Unavailable} & set(problems):
        response["headers"] = {"Retry-After": _RETRY_AFTER}
    return response
