"""The protocol over gRPC: each call is a request to the app, so every rule of HTTP holds.

The request begins with the metadata of its call, and its body is the message: the key is checked
before any of it is taken. There is no second way through keys, limits, deadlines, metrics and logs.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from functools import partial
from http import HTTPStatus
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

import grpc
from fastapi import Response
from google.protobuf.json_format import ParseDict
from google.protobuf.message import DecodeError
from starlette.types import ASGIApp, Message, Scope
from tritonclient.grpc import service_pb2

from service.admission import Admission
from service.api.v2.http import OPERATIONS
from service.api.v2.models import ProtocolModel, Work, choose_outputs, compute, find, read_work
from service.api.v2.tensors import SentTensor
from service.errors import (
    Busy,
    InvalidParameter,
    MalformedRequest,
    TooLarge,
    Unavailable,
    UnknownModel,
)
from service.http.keys import KEY_HEADER
from service.http.middleware import ARRIVES_WHOLE, REQUEST_ID
from service.http.request import TIMEOUT_HEADER, Request

if TYPE_CHECKING:  # the app makes the routes
    from service.app import Context

log = logging.getLogger(__name__)
SERVICE = "inference.GRPCInferenceService"
MAX_STREAMS = 64
"""A connection may have this many calls at once; others wait."""
CALL_BYTES = 1_000_000
"""A call holds this until its answer is sent, on top of its message and answer.
"""
CONNECTION_AGE_S = 60
"""A connection takes no more calls after this long. Clients open another by themselves."""
_HEADERS = {
    "authorization",
    KEY_HEADER.lower(),
    REQUEST_ID.lower(),
    TIMEOUT_HEADER.lower(),
}
"""The metadata of a call that becomes headers of its request."""
_TOLD = ("retry-after", REQUEST_ID.lower())
"""The headers of an error that become metadata of its call."""
_CODES = {
    401: grpc.StatusCode.UNAUTHENTICATED,
    403: grpc.StatusCode.PERMISSION_DENIED,
    404: grpc.StatusCode.NOT_FOUND,
    408: grpc.StatusCode.DEADLINE_EXCEEDED,
    429: grpc.StatusCode.RESOURCE_EXHAUSTED,
    500: grpc.StatusCode.INTERNAL,
    503: grpc.StatusCode.UNAVAILABLE,
    504: grpc.StatusCode.DEADLINE_EXCEEDED,
}
"""gRPC statuses by HTTP status. Any other refuses what the message says: INVALID_ARGUMENT."""
_RAW_TAG = 7 << 3 | 2
"""What a tensor of raw bytes begins with in a ModelInferRequest."""
MAX_HEAD_BYTES = 16_384
"""All of a message but its raw tensors may have this many bytes: two of them become a hundred."""
_IDENTITY = 1
"""The only compression, none: gRPC inflates a message whatever it becomes."""


@asynccontextmanager
async def serve_grpc(app: ASGIApp, context: Context) -> AsyncIterator[None]:
    """Answer calls once the bundles are loaded. At the end, finish those that are running.

    Until then nothing listens: the port is shared with workers that are ready (SO_REUSEPORT). Calls
    drain at the same time as HTTP requests.

    Args:
        app: answers the requests that calls become.
        context: of the process, which fails if the port cannot be opened.
    """
    settings, ending = context.settings, context.ending
    idle_ms = round(1000 * settings.upload_timeout_s)
    options = {
        "grpc.compression_enabled_algorithms_bitset": _IDENTITY,
        "grpc.max_concurrent_streams": MAX_STREAMS,
        "grpc.max_connection_idle_ms": idle_ms,
        "grpc.max_connection_age_ms": 1000 * CONNECTION_AGE_S,
        # Time for the calls that have begun, and for clients to take the answers.
        "grpc.max_connection_age_grace_ms": idle_ms + round(1000 * settings.request_timeout_s),
        "grpc.server_handshake_timeout_ms": idle_ms,
        "grpc.max_receive_message_length": settings.max_body_bytes,
        "grpc.max_send_message_length": -1,
        "grpc.so_reuseport": 1,
    }
    server = grpc.aio.server(options=list(options.items()))
    # To gRPC, requests and answers are streams of one message: so a call is handled before its
    # message has arrived, and is not over before its answer is sent.
    handlers = {
        name: grpc.stream_stream_rpc_method_handler(partial(_call, app, context.admission, name))
        for name in OPERATIONS
    }
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, handlers),))

    async def start() -> None:
        await context.has_bundles.wait()
        host, port = settings.host, settings.grpc_port
        try:
            server.add_insecure_port(listening_address(host, port))
        except RuntimeError:
            context.fail(f"cannot listen on {host}:{port} for gRPC")
            return
        await server.start()
        log.info("gRPC: listening on %s:%d", host, port)

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


async def _call(
    app: ASGIApp, admission: Admission, method: str, _requests: Any, context: Any
) -> None:
    """Answer a call with a message. A status other than 200 ends the call."""
    claim = admission.claim(client_address(context.peer())[0])
    try:
        try:
            # Methods that need no key leave half of the budget to others.
            is_public = OPERATIONS[method][-1].get("permission") == "public"
            claim.hold(CALL_BYTES, spare_bytes=admission.limit_bytes // 2 if is_public else 0)
        except Busy as busy:
            await context.abort(_CODES[busy.status], busy.detail, (("retry-after", "1"),))
        await _ask(app, _scope(context, f"/{SERVICE}/{method}"), context)
    except grpc.aio.InternalError as error:
        raise asyncio.CancelledError from error  # the client has left
    finally:
        claim.release()


async def _ask(app: ASGIApp, scope: Scope, context: Any) -> None:
    """Have the app answer a request, whose body is the call's message."""
    start: Message = {}
    parts: list[bytes] = []

    async def receive() -> Message:
        with _cancelling():
            message = await context.read()
        return {"type": "http.request", "body": b"" if message is grpc.aio.EOF else message}

    async def send(message: Message) -> None:
        if message["type"] == "http.response.start":
            start.update(message)
            return
        parts.append(message.get("body", b""))
        if start["status"] == HTTPStatus.OK and not message.get("more_body"):
            with _cancelling():
                await context.write(b"".join(parts))

    await app(scope, receive, send)
    if start["status"] != HTTPStatus.OK:
        headers = {name.decode().lower(): value.decode() for name, value in start["headers"]}
        told = tuple((name, headers[name]) for name in _TOLD if name in headers)
        code = _CODES.get(start["status"], grpc.StatusCode.INVALID_ARGUMENT)
        await context.abort(code, json.loads(b"".join(parts))["detail"], told)


@contextmanager
def _cancelling() -> Iterator[None]:
    """Cancel a request if its call has ended, or the server."""
    try:
        yield
    except grpc.aio.BaseError as error:
        raise asyncio.CancelledError from error


def listening_address(host: str, port: int) -> str:
    """The address of a host as gRPC writes it: `127.0.0.1:9000`, `[::1]:9000`."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def client_address(peer: str) -> tuple[str, int]:
    """The address, by which bodies are counted, and port of `ipv4:127.0.0.1:1234`."""
    address, _, port = peer.partition(":")[2].rpartition(":")
    return unquote(address).strip("[]"), int(port) if port.isdecimal() else 0


def _scope(context: Any, path: str) -> Scope:
    """Make an ASGI scope of a call, with the call's deadline."""
    metadata = {name: value for name, value in context.invocation_metadata() if name in _HEADERS}
    seconds = context.time_remaining()
    limit = {} if seconds is None else {TIMEOUT_HEADER.lower(): f"{max(seconds, 1e-3):.3f}"}
    return {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "2",
        "scheme": "http",
        "method": "POST",
        "path": path,
        "raw_path": path.encode(),
        "query_string": b"",
        "root_path": "",
        "headers": [
            (name.lower().encode(), value.encode()) for name, value in {**limit, **metadata}.items()
        ],
        "client": client_address(context.peer()),
        "server": None,
        "extensions": {ARRIVES_WHOLE: {}},
    }


async def _infer(request: Request, message: Any) -> Any:
    """Compute the outputs of a model."""
    model = find(request, message.model_name)
    work = await request.context.slow.run_if_large(message.ByteSize(), _check, message, model)
    outputs = await compute(request, work)
    answer = service_pb2.ModelInferResponse(
        model_name=model.name,
        model_version=model.manifest.version,
        id=work.id,
        raw_output_contents=[spec.to_bytes(outputs[spec.name]) for spec, _ in work.outputs],
    )
    for spec, _ in work.outputs:
        answer.outputs.add(name=spec.name, datatype=spec.datatype, shape=[work.rows, *spec.row])
    return answer


def handler_of(name: str) -> Callable[[Request], Awaitable[Response]]:
    """Make the handler of a method from that of HTTP, for which a message is the query."""
    handler = _infer if name == "ModelInfer" else OPERATIONS[name][2]
    asked = getattr(service_pb2, f"{name}Request")
    answered = getattr(service_pb2, f"{name}Response")

    async def handle(request: Request) -> Response:
        # A message without fields is not even read: some of its senders have no key.
        query = [await _read(request, asked)] if asked.DESCRIPTOR.fields else []
        try:
            answer = await handler(request, *query)
        except (Unavailable, UnknownModel):
            if not name.endswith(("Live", "Ready")):
                raise
            answer = {}  # it is not
        if isinstance(answer, dict):
            answer = ParseDict(answer, answered(), ignore_unknown_fields=True)
        return Response(answer.SerializeToString(), media_type="application/grpc+proto")

    return handle


async def _read(request: Request, kind: Any) -> Any:
    """The message of a call.

    Raises:
        MalformedRequest: it is none of this type.
        TooLarge: it has more than MAX_HEAD_BYTES.
    """
    body = await request.body()
    try:
        _check_head(body)
        return kind.FromString(body)
    except DecodeError as error:
        raise MalformedRequest("the message is not of this method's type") from error


def _check_head(message: bytes) -> None:
    """Check how much of a message is no raw tensor. All fields of the requests have a length."""
    position, head_bytes = 0, 0
    while position < len(message):
        tag, start = _read_varint(message, position)
        size, start = _read_varint(message, start)
        end = start + size
        if tag & 7 != 2 or end > len(message):
            raise DecodeError
        head_bytes += start - position + (0 if tag == _RAW_TAG else size)
        if head_bytes > MAX_HEAD_BYTES:
            text = f"a message has at most {MAX_HEAD_BYTES:,} bytes besides raw_input_contents"
            raise TooLarge(text)
        position = end


def _read_varint(message: bytes, position: int) -> tuple[int, int]:
    """An integer of 7 bits a byte, and where it ends."""
    value = 0
    for shift, byte in enumerate(message[position : position + 5]):
        value |= (byte & 0x7F) << 7 * shift
        if byte < 0x80:
            return value, position + shift + 1
    raise DecodeError


def _check(message: Any, model: ProtocolModel) -> Work:
    """Check a message to a model and read its tensors, which are raw bytes.

    Raises:
        Problem: a tensor is not one of the model's.
    """
    contents = message.raw_input_contents
    if len(contents) != len(message.inputs):
        text = f"raw_input_contents has {len(contents)} tensors for {len(message.inputs)} inputs"
        raise InvalidParameter(text, parameter="raw_input_contents")
    for tensor in (*message.inputs, *message.outputs):
        for name in tensor.parameters:
            raise InvalidParameter(f"unknown parameter {name[:64]}", parameter=name)
    sent = (
        SentTensor(tensor.name, tensor.datatype, list(tensor.shape), memoryview(content))
        for tensor, content in zip(message.inputs, contents, strict=True)
    )
    outputs = choose_outputs(model, {tensor.name: True for tensor in message.outputs}, binary=True)
    return read_work(model, message.id, sent, outputs)
