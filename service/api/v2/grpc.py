"""The protocol over gRPC: each call is a request to the app, so every rule of HTTP holds.

The request begins with the metadata of its call, and its body is the message: the key is checked
before any of it is taken. There is no second way through keys, limits, deadlines, metrics and logs;
`service.api.v2.calls` has the handlers.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from functools import partial
from http import HTTPStatus
from typing import Any, NamedTuple
from urllib.parse import unquote

import grpc
from starlette.types import ASGIApp, Message, Scope

from service.admission import Admission
from service.api.v2.messages import SERVICE
from service.errors import Busy
from service.http.body import ARRIVES_WHOLE
from service.http.context import Context
from service.http.keys import KEY_HEADER
from service.http.middleware import TIMEOUT_HEADER
from service.http.problems import REQUEST_ID

log = logging.getLogger(__name__)
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
    400: grpc.StatusCode.INVALID_ARGUMENT,
    401: grpc.StatusCode.UNAUTHENTICATED,
    403: grpc.StatusCode.PERMISSION_DENIED,
    404: grpc.StatusCode.NOT_FOUND,
    408: grpc.StatusCode.DEADLINE_EXCEEDED,
    413: grpc.StatusCode.INVALID_ARGUMENT,
    415: grpc.StatusCode.INVALID_ARGUMENT,
    422: grpc.StatusCode.INVALID_ARGUMENT,
    429: grpc.StatusCode.RESOURCE_EXHAUSTED,
    503: grpc.StatusCode.UNAVAILABLE,
    504: grpc.StatusCode.DEADLINE_EXCEEDED,
}
"""gRPC statuses by HTTP status. Any other status is INTERNAL."""
_METHODS = {
    "ModelInfer": (200,),
    "ModelMetadata": (200,),
    "ModelReady": (200, 404, 503),
    "ServerLive": (200, 503),
    "ServerMetadata": (200,),
    "ServerReady": (200, 503),
}
"""The HTTP statuses that each method answers with a message: 200 with the app's own, any other with
`false`. A status that is not listed ends the call with an error.
"""
_PUBLIC = frozenset({"ServerLive", "ServerReady"})
"""The methods that need no key. They leave half of the budget to others."""
_FALSE = b""
"""A message whose only field is false."""
_IDENTITY = 1
"""The only compression, none: gRPC inflates a message whatever it becomes."""


class Answer(NamedTuple):
    """The app's answer to one call."""

    status: int
    headers: dict[str, str]
    body: bytes


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
    server.add_generic_rpc_handlers((_handlers(app, context.admission),))

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


def _handlers(app: ASGIApp, admission: Admission) -> grpc.GenericRpcHandler:
    """The six methods.

    To gRPC their requests and answers are streams of one message: so a call is handled before its
    message has arrived, and is not over before its answer is sent.
    """
    handlers = {
        name: grpc.stream_stream_rpc_method_handler(partial(_call, app, admission, name, statuses))
        for name, statuses in _METHODS.items()
    }
    return grpc.method_handlers_generic_handler(SERVICE, handlers)


async def _call(
    app: ASGIApp,
    admission: Admission,
    method: str,
    expected: tuple[int, ...],
    _requests: Any,
    context: Any,
) -> None:
    """Answer a call with a message. An unexpected status ends the call."""
    claim = admission.claim(client_address(context.peer())[0])
    try:
        try:
            spare = admission.limit_bytes // 2 if method in _PUBLIC else 0
            claim.hold(CALL_BYTES, spare_bytes=spare)
            scope = _scope(context, f"/{SERVICE}/{method}")
            failure = await _ask(app, scope, context, expected)
        except Busy as busy:
            text = json.dumps(busy.to_dict()).encode()
            failure = Answer(busy.status, {"retry-after": "1"}, text)
        if failure:
            code = _CODES.get(failure.status, grpc.StatusCode.INTERNAL)
            told = tuple((name, failure.headers[name]) for name in _TOLD if name in failure.headers)
            await context.abort(code, json.loads(failure.body)["detail"], told)
    except grpc.aio.InternalError as error:
        raise asyncio.CancelledError from error  # the client has left
    finally:
        claim.release()


async def _ask(
    app: ASGIApp, scope: Scope, context: Any, expected: tuple[int, ...]
) -> Answer | None:
    """Have the app answer a request, whose body is the call's message.

    An answer of an expected status is sent. A call that is cancelled is a client that has left.

    Returns:
        An answer of another status.
    """
    left, taken = asyncio.Event(), False
    start: Message = {}
    parts: list[bytes] = []

    async def receive() -> Message:
        nonlocal taken
        if not taken:
            taken = True
            with _noting_end(left):
                message = await context.read()
                return {"type": "http.request", "body": b"" if message is grpc.aio.EOF else message}
        await left.wait()
        return {"type": "http.disconnect"}

    async def send(message: Message) -> None:
        if message["type"] == "http.response.start":
            start.update(message)
            return
        parts.append(message.get("body", b""))
        if start["status"] in expected and not message.get("more_body"):
            is_ok = start["status"] == HTTPStatus.OK
            with _noting_end(left):
                await context.write(b"".join(parts) if is_ok else _FALSE)

    answering = asyncio.ensure_future(app(scope, receive, send))
    try:
        await asyncio.shield(answering)
    except asyncio.CancelledError:
        left.set()
        raise
    if left.is_set():  # gRPC would log an error if the call went on
        raise asyncio.CancelledError
    if start["status"] in expected:
        return None
    headers = {name.decode().lower(): value.decode() for name, value in start["headers"]}
    return Answer(start["status"], headers, b"".join(parts))


@contextmanager
def _noting_end(left: asyncio.Event) -> Iterator[None]:
    """Set the event if the call has ended, or the server."""
    try:
        yield
    except grpc.aio.BaseError:
        left.set()


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
