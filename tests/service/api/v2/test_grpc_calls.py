"""gRPC calls that are cancelled, interrupted by the end of the service, or too many."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import grpc
import pytest
from starlette.types import Receive, Scope, Send
from tritonclient.grpc import service_pb2

from service.admission import Admission
from service.api.v2 import grpc as server
from service.api.v2.grpc import SERVICE, serve_grpc
from service.app import Context
from service.settings import Settings
from tests.attack.wire import DATA, END_STREAM, PREFACE, SETTINGS, frame, head, message
from tests.processes import free_port

PATIENCE_S = 20
pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


class App:
    """Answers each request when the test allows it, and notes the calls in between."""

    def __init__(self) -> None:
        self.scopes: list[Scope] = []
        self.asked, self.let, self.cancelled = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle a request."""
        self.scopes.append(scope)
        await receive()
        self.asked.set()
        try:
            await self.let.wait()
        except asyncio.CancelledError:
            self.cancelled.set()
            raise
        await send({"type": "http.response.start", "status": 200, "headers": []})
        ready = service_pb2.ServerReadyResponse(ready=True)
        await send({"type": "http.response.body", "body": ready.SerializeToString()})


@asynccontextmanager
async def serving(
    app: App,
    channel_to: list[grpc.aio.Channel],
    *,
    admission: Admission | None = None,
    host: str = "127.0.0.1",
    **limits: float,
) -> AsyncIterator[int]:
    """The app behind gRPC, and its port; a channel to it is added to the list and outlives it."""
    port = free_port()
    context = Context(Settings(host=host, grpc_port=port, drain_timeout_s=PATIENCE_S, **limits))  # type: ignore[arg-type]
    context.admission = admission or context.admission
    context.has_bundles.set()
    async with serve_grpc(app, context):
        channel = grpc.aio.insecure_channel(server.listening_address(host, port))
        channel_to.append(channel)
        await asyncio.wait_for(channel.channel_ready(), PATIENCE_S)
        yield port
    assert context.failure is None


def is_ready(channel: grpc.aio.Channel, of: str = "Server") -> grpc.aio.UnaryUnaryCall:
    """Ask whether the server, which needs no key, or its model is ready."""
    ask = channel.unary_unary(
        f"/{SERVICE}/{of}Ready",
        request_serializer=getattr(service_pb2, f"{of}ReadyRequest").SerializeToString,
        response_deserializer=getattr(service_pb2, f"{of}ReadyResponse").FromString,
    )
    return ask(getattr(service_pb2, f"{of}ReadyRequest")(), timeout=PATIENCE_S)


async def test_a_cancelled_call_is_a_client_that_has_left() -> None:
    """The app's task is cancelled, as over HTTP: it stops, and counts status 499."""
    app, channels = App(), list[grpc.aio.Channel]()
    async with serving(app, channels):
        call = is_ready(channels[0])
        await asyncio.wait_for(app.asked.wait(), PATIENCE_S)
        call.cancel()
        await asyncio.wait_for(app.cancelled.wait(), PATIENCE_S)
    await channels[0].close()


async def test_the_end_of_the_service_waits_for_calls() -> None:
    """A call under way is answered; a new one is refused."""
    app, channels = App(), list[grpc.aio.Channel]()
    async with serving(app, channels):
        call = is_ready(channels[0])
        await asyncio.wait_for(app.asked.wait(), PATIENCE_S)
        asyncio.get_running_loop().call_later(0.3, app.let.set)
    assert (await call).ready
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await is_ready(channels[0])
    assert grpc.StatusCode.UNAVAILABLE == refused.value.code()
    await channels[0].close()


async def test_too_many_calls_are_refused() -> None:
    """Those that are accepted are answered; one address may hold half of all."""
    app, channels = App(), list[grpc.aio.Channel]()
    async with serving(app, channels, admission=Admission(4 * server.CALL_BYTES, 1)):
        first, second = is_ready(channels[0], "Model"), is_ready(channels[0], "Model")
        async with asyncio.timeout(PATIENCE_S):
            while len(app.scopes) < 2:  # noqa: ASYNC110  as many as are let in
                await asyncio.sleep(0.01)
            with pytest.raises(grpc.aio.AioRpcError) as refused:
                await is_ready(channels[0], "Model")
        assert grpc.StatusCode.RESOURCE_EXHAUSTED == refused.value.code()
        app.let.set()
        assert (await first).ready
        assert (await second).ready
    await channels[0].close()


async def test_calls_of_a_connection_take_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those over the limit of streams wait, and are answered."""
    monkeypatch.setattr(server, "MAX_STREAMS", 2)
    app, channels = App(), list[grpc.aio.Channel]()
    async with serving(app, channels):
        calls = [is_ready(channels[0]) for _ in range(3)]
        async with asyncio.timeout(PATIENCE_S):
            while len(app.scopes) < 2:  # noqa: ASYNC110  as many as are let in
                await asyncio.sleep(0.01)
            app.let.set()
            assert [True] * 3 == [(await one).ready for one in calls]
    await channels[0].close()


async def test_an_answer_that_nobody_takes_counts_until_its_connection_ends(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its sender has a flow-control window of 0, and answers to nothing.

    The last test: what gRPC still reports of the connection would reach the loop of the next one.
    """
    monkeypatch.setattr(server, "CONNECTION_AGE_S", 1)
    app, channels = App(), list[grpc.aio.Channel]()
    admission = Admission(10 * server.CALL_BYTES, 1)
    app.let.set()
    async with serving(
        app, channels, admission=admission, request_timeout_s=0.5, upload_timeout_s=0.5
    ) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        no_window = frame(SETTINGS, 0, struct.pack(">HI", 4, 0))
        call = head(1, path=f"/{SERVICE}/ServerReady") + frame(DATA, 1, message(b""), END_STREAM)
        writer.write(PREFACE + no_window + call)
        async with asyncio.timeout(PATIENCE_S):
            await app.asked.wait()
            await asyncio.sleep(0.1)
            assert server.CALL_BYTES == admission.held_bytes
            while await reader.read(4_096):
                pass
            while admission.held_bytes:  # noqa: ASYNC110  the server sets no event
                await asyncio.sleep(0.01)
        writer.close()
    await channels[0].close()
