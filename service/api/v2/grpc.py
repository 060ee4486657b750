"""The protocol over gRPC: each call is a request to the app, so every rule of HTTP holds.

A message becomes the JSON and the bytes that stand for it under `/v2`, and the answer becomes a
message: no second way through keys, limits, deadlines, metrics and logs.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
from itertools import zip_longest
from typing import Any, NamedTuple
from urllib.parse import unquote

import grpc
import numpy as np
from google.protobuf.json_format import ParseDict
from starlette.types import ASGIApp, Message, Scope

from service.api.v2.messages import SERVICE, messages
from service.api.v2.tensors import LENGTH
from service.http.keys import KEY_HEADER
from service.http.middleware import TENSOR_HEADER, TIMEOUT_HEADER
from service.http.problems import REQUEST_ID
from service.settings import Settings

log = logging.getLogger(__name__)
_STREAMS = 64
"""Calls at once on one connection; others wait."""
_CALLS = 512
"""Calls at once on all connections; others are told RESOURCE_EXHAUSTED."""
_HEADERS = {
    "authorization",
    "traceparent",
    "tracestate",
    KEY_HEADER.lower(),
    REQUEST_ID.lower(),
    TIMEOUT_HEADER.lower(),
}
"""Metadata of a call that are headers of its request."""
_TOLD = ("retry-after", REQUEST_ID.lower())
"""Headers of an error that end its call as metadata."""
_CODES = {
    400: grpc.StatusCode.INVALID_ARGUMENT,
    401: grpc.StatusCode.UNAUTHENTICATED,
    403: grpc.StatusCode.PERMISSION_DENIED,
    404: grpc.StatusCode.NOT_FOUND,
    413: grpc.StatusCode.INVALID_ARGUMENT,
    415: grpc.StatusCode.INVALID_ARGUMENT,
    422: grpc.StatusCode.INVALID_ARGUMENT,
    429: grpc.StatusCode.RESOURCE_EXHAUSTED,
    503: grpc.StatusCode.UNAVAILABLE,
    504: grpc.StatusCode.DEADLINE_EXCEEDED,
}
"""By HTTP status; any other is INTERNAL."""
_CONTENTS = {"FP32": ("fp32_contents", "<f4"), "INT64": ("int64_contents", "<i8")}
"""Where a message has values that are not raw bytes, by datatype, and what they are."""


class Answer(NamedTuple):
    """What the app answers."""

    status: int
    headers: dict[str, str]
    body: bytes

    def json(self) -> dict[str, Any]:
        """The JSON of the body, which is all of it or stands before the tensors."""
        length = self.headers.get(TENSOR_HEADER.lower())
        members: dict[str, Any] = json.loads(self.body[: int(length)] if length else self.body)
        return members


@asynccontextmanager
async def serve_grpc(
    app: ASGIApp,
    settings: Settings,
    loaded: asyncio.Event,
    on_fault: Callable[[str], object],
    ending: asyncio.Event | None = None,
) -> AsyncIterator[None]:
    """Answer calls from when the bundles are loaded; then finish those under way.

    Until then nothing listens: the port is shared with workers that are ready (SO_REUSEPORT).

    Args:
        app: answers the requests that calls become.
        settings: the address, the largest message and the time to finish.
        loaded: set once the bundles are.
        on_fault: told why the port cannot be opened.
        ending: set when to stop, so that calls finish while requests do; else the end is that of
            the context.
    """
    options = {
        "grpc.max_concurrent_streams": _STREAMS,
        "grpc.max_receive_message_length": settings.max_body_bytes,
        "grpc.max_send_message_length": -1,
        "grpc.so_reuseport": 1,
    }
    server = grpc.aio.server(options=list(options.items()), maximum_concurrent_rpcs=_CALLS)
    server.add_generic_rpc_handlers((_handlers(app),))

    async def start() -> None:
        await loaded.wait()
        address = f"{settings.host}:{settings.grpc_port}"
        try:
            server.add_insecure_port(address)
        except RuntimeError:
            on_fault(f"cannot listen on {address} for gRPC")
            return
        await server.start()
        log.info("gRPC: listening on %s", address)

    ending = ending or asyncio.Event()

    async def stop() -> None:
        await ending.wait()
        starting.cancel()
        await server.stop(settings.drain_timeout_s)

    starting, stopping = asyncio.ensure_future(start()), asyncio.ensure_future(stop())
    try:
        yield
    finally:
        ending.set()
        await stopping


def _handlers(app: ASGIApp) -> grpc.GenericRpcHandler:
    """The six methods."""
    calls: dict[str, Callable[..., Awaitable[Any]]] = {
        "ServerLive": partial(_check, path="/v2/health/live", field="live"),
        "ServerReady": partial(_check, path="/v2/health/ready", field="ready"),
        "ModelReady": partial(_check, path="/ready", field="ready"),
        "ServerMetadata": partial(_describe, path="/v2"),
        "ModelMetadata": partial(_describe, path=""),
        "ModelInfer": _infer,
    }
    known = messages()
    handlers = {
        name: grpc.unary_unary_rpc_method_handler(
            partial(call, app, known[f"{name}Response"]),
            request_deserializer=known[f"{name}Request"].FromString,
            response_serializer=known[f"{name}Response"].SerializeToString,
        )
        for name, call in calls.items()
    }
    return grpc.method_handlers_generic_handler(SERVICE, handlers)


async def _check(
    app: ASGIApp, response: Any, request: Any, context: Any, *, path: str, field: str
) -> Any:
    """Whether the server or a model is there."""
    answer = await _ask(app, context, "GET", _path(request) + path, expected=(200, 404, 503))
    return response(**{field: answer.status == 200})


async def _describe(app: ASGIApp, response: Any, request: Any, context: Any, *, path: str) -> Any:
    """The metadata of the server or of a model."""
    answer = await _ask(app, context, "GET", _path(request) + path)
    return ParseDict(answer.json(), response())


async def _infer(app: ASGIApp, response: Any, request: Any, context: Any) -> Any:
    """The outputs of a model."""
    head, tensors = _to_http(request)
    answer = await _ask(
        app,
        context,
        "POST",
        f"{_path(request)}/infer",
        headers={TENSOR_HEADER: str(len(head))},
        body=b"".join((head, *tensors)),
    )
    return _to_message(answer, response)


def _path(request: Any) -> str:
    """Of the model that a message names, and of its version; empty if it is about the server."""
    fields = request.DESCRIPTOR.fields_by_name
    prefix = "model_" if "model_name" in fields else ""
    if f"{prefix}name" not in fields:
        return ""
    version = getattr(request, f"{prefix}version")
    path = f"/v2/models/{getattr(request, f'{prefix}name')}"
    return f"{path}/versions/{version}" if version else path


def _to_http(request: Any) -> tuple[bytes, list[bytes]]:
    """The JSON and the tensors of a message, whose values are raw bytes or lists."""
    raw = list(request.raw_input_contents)
    tensors = raw or [_contents(one) for one in request.inputs]
    inputs = [
        {
            "name": one.name,
            "datatype": one.datatype,
            "shape": list(one.shape),
            "parameters": {**_parameters(one), "binary_data_size": len(content or b"")},
        }
        for one, content in zip_longest(request.inputs, tensors[: len(request.inputs)])
    ]
    outputs = [
        {"name": one.name, "parameters": {**_parameters(one), "binary_data": True}}
        for one in request.outputs
    ]
    parameters = {**_parameters(request), "binary_data_output": True}
    body = {"id": request.id, "parameters": parameters, "inputs": inputs, "outputs": outputs}
    return json.dumps(body).encode(), tensors


def _parameters(message: Any) -> dict[str, Any]:
    named = {name: one.WhichOneof("parameter_choice") for name, one in message.parameters.items()}
    return {name: getattr(message.parameters[name], kind or "") for name, kind in named.items()}


def _contents(tensor: Any) -> bytes:
    """The values of a tensor, as they would be as raw bytes; none of a datatype that none has."""
    if tensor.datatype == "BYTES":
        elements = tensor.contents.bytes_contents
        return b"".join(LENGTH.pack(len(one)) + one for one in elements)
    field, dtype = _CONTENTS.get(tensor.datatype, ("", ""))
    return np.array(getattr(tensor.contents, field), dtype).tobytes() if field else b""


def _to_message(answer: Answer, response: Any) -> Any:
    """An answer's JSON and tensors as a message."""
    members = answer.json()
    start = int(answer.headers[TENSOR_HEADER.lower()])
    tensors: list[bytes] = []
    for one in members["outputs"]:
        size = one.pop("parameters")["binary_data_size"]
        tensors.append(answer.body[start : start + size])
        start += size
    message = ParseDict(members, response())
    message.raw_output_contents.extend(tensors)
    return message


async def _ask(
    app: ASGIApp,
    context: Any,
    method: str,
    path: str,
    *,
    headers: dict[str, str] | None = None,
    body: bytes = b"",
    expected: tuple[int, ...] = (200,),
) -> Answer:
    """The app's answer to a request; one with another status than expected ends the call.

    A call that is cancelled is a client that has left.
    """
    left, sent = asyncio.Event(), False
    start: Message = {}
    parts: list[bytes] = []

    async def receive() -> Message:
        nonlocal sent
        if sent:
            await left.wait()
            return {"type": "http.disconnect"}
        sent = True
        return {"type": "http.request", "body": body}

    async def send(message: Message) -> None:
        if message["type"] == "http.response.start":
            start.update(message)
        else:
            parts.append(message.get("body", b""))

    scope = _scope(context, method, path, headers or {})
    answering = asyncio.ensure_future(app(scope, receive, send))
    try:
        await asyncio.shield(answering)
    except asyncio.CancelledError:
        left.set()
        raise
    told = {name.decode().lower(): value.decode() for name, value in start["headers"]}
    answer = Answer(start["status"], told, b"".join(parts))
    if answer.status not in expected:
        code = _CODES.get(answer.status, grpc.StatusCode.INTERNAL)
        trailing = tuple((name, told[name]) for name in _TOLD if name in told)
        await context.abort(code, answer.json()["error"], trailing)
    return answer


def _client(peer: str) -> tuple[str, int]:
    """The address, by which bodies are counted, and port of `ipv4:127.0.0.1:1234`."""
    address, _, port = peer.partition(":")[2].rpartition(":")
    return unquote(address).strip("[]"), int(port) if port.isdecimal() else 0


def _scope(context: Any, method: str, path: str, headers: dict[str, str]) -> Scope:
    """A request as ASGI has it; the call's deadline is that of the request."""
    metadata = {name: value for name, value in context.invocation_metadata() if name in _HEADERS}
    seconds = context.time_remaining()
    limit = {} if seconds is None else {TIMEOUT_HEADER.lower(): f"{max(seconds, 1e-3):.3f}"}
    return {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "2",
        "scheme": "http",
        "method": method,
        "path": path,
        "raw_path": path.encode(),
        "query_string": b"",
        "root_path": "",
        "headers": [
            (name.lower().encode(), value.encode())
            for name, value in {**limit, **metadata, **headers}.items()
        ],
        "client": _client(context.peer()),
        "server": None,
    }
