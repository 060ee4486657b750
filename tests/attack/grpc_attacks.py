"""Attacks on the gRPC port, which has keys; well-behaved callers are answered during them."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from itertools import cycle
from typing import Any

import grpc
from tritonclient.grpc import service_pb2

from service.api.v2.tensors import LENGTH
from tests.attack.runner import Case, Site
from tests.attack.wire import SEVEN

LABEL, WRONG = "label", "wrong label"
"""Of calls next to an attack: their answer, or another one."""
BESIDE = frozenset({LABEL})
REFUSED = ("INVALID_ARGUMENT", "RESOURCE_EXHAUSTED", "UNAUTHENTICATED", "UNIMPLEMENTED")
METHOD = "/inference.GRPCInferenceService/ModelInfer"
_OWN = [("grpc.max_send_message_length", -1), ("grpc.use_local_subchannel_pool", 1)]
"""Options of a client with a connection of its own."""
_PERIOD_S = 0.2
_ALONE = 5
"""Calls before the attack."""
_PATIENCE_S = 20.0
_SLOW_S, _SLOWER = 4.0, 5.0
"""A call may take this long and, on a busy machine, so many times as long as without an attack."""
Metadata = tuple[tuple[str, str], ...]
Calls = Sequence[tuple[bytes, Metadata]]
"""Serialised messages and the metadata that they are sent with."""


def _classify(image: bytes = SEVEN) -> Any:
    request = service_pb2.ModelInferRequest
    tensor = request.InferInputTensor(name="image", datatype="BYTES", shape=[1])
    label = request.InferRequestedOutputTensor(name="label")
    return request(
        model_name="mnist",
        inputs=[tensor],
        outputs=[label],
        raw_input_contents=[LENGTH.pack(len(image)) + image],
    )


def _field(number: int, content: bytes) -> bytes:
    """A field with a length, of a protobuf message."""
    rest, size = len(content), bytearray()
    while rest >= 128:
        size.append(rest % 128 | 128)
        rest //= 128
    return bytes([number << 3 | 2, *size, rest]) + content


NAMED = _field(1, b"mnist")
EMPTY_INPUTS = NAMED + b"\x2a\0" * 1_000_000
"""2 MB of inputs without a name."""
UNSET_PARAMETER = NAMED + _field(4, b"\x0a\1x\x12\0")


async def _call(site: Site, channel: grpc.aio.Channel, content: bytes, metadata: Metadata) -> None:
    infer = channel.unary_unary(METHOD)
    try:
        await infer(content, metadata=metadata, timeout=_PATIENCE_S)
        site.outcomes["OK"] += 1
    except grpc.aio.AioRpcError as error:
        site.outcomes[error.code().name] += 1


@asynccontextmanager
async def _beside(site: Site) -> AsyncIterator[Metadata]:
    """Within it a client calls five times a second; gives the metadata with the client's key.

    What it waits is compared with what it waited just before, without an attack.
    """
    key = (("x-api-key", site.service.target.key),)
    content, over = _classify().SerializeToString(), asyncio.Event()
    alone: list[float] = []

    async def ask(infer: Any) -> None:
        began = time.monotonic()
        try:
            answer = await infer(content, metadata=key, timeout=_PATIENCE_S)
        except grpc.aio.AioRpcError as error:
            site.outcomes[f"beside: {error.code().name} {error.details()}"] += 1
            return
        read = service_pb2.ModelInferResponse.FromString(answer)
        site.outcomes[LABEL if read.raw_output_contents[0][:1] == b"\7" else WRONG] += 1
        seconds = time.monotonic() - began
        if len(alone) < _ALONE:
            alone.append(seconds)
        elif seconds > max(_SLOW_S, _SLOWER * max(alone)):
            site.outcomes["beside: slow"] += 1

    async def repeat() -> None:
        address = site.service.grpc_address
        async with grpc.aio.insecure_channel(address, options=_OWN) as channel:
            infer, asked = channel.unary_unary(METHOD), set()
            for _ in range(_ALONE):
                await ask(infer)
            begun.set()
            while not over.is_set():
                asked.add(asyncio.ensure_future(ask(infer)))
                await asyncio.sleep(_PERIOD_S)
            await asyncio.gather(*asked)

    repeating, begun = asyncio.ensure_future(repeat()), asyncio.Event()
    try:
        await begun.wait()
        yield key
    finally:
        over.set()
        await repeating


async def _flood(
    site: Site,
    calls: Calls,
    *,
    clients: int = 4,
    compression: grpc.Compression = grpc.Compression.NoCompression,
) -> None:
    """Have so many clients make the calls in turn until the deadline."""
    until = time.monotonic() + site.seconds

    async def repeat(first: int) -> None:
        async with grpc.aio.insecure_channel(
            site.service.grpc_address, options=_OWN, compression=compression
        ) as channel:
            for content, metadata in cycle([*calls[first:], *calls[:first]]):
                await _call(site, channel, content, metadata)
                await asyncio.sleep(0.1)
                if time.monotonic() > until:
                    return

    await asyncio.gather(*(repeat(number % len(calls)) for number in range(clients)))


async def empty_inputs(site: Site) -> None:
    """2 MB, or 3 KB of gzip, without a key and with one."""
    async with _beside(site) as key:
        calls: Calls = [(EMPTY_INPUTS, ()), (EMPTY_INPUTS, key)]
        await _flood(site, calls)
        await _flood(site, calls, compression=grpc.Compression.Gzip)


async def unset_parameters(site: Site) -> None:
    """14 bytes; and messages that are none, or end within a field."""
    broken = [UNSET_PARAMETER, b"", b"\xff" * 40, NAMED[:-1], b"\x0a\xff\xff\xff\xff\x7f", b"\x0b"]
    async with _beside(site) as key:
        calls: Calls = [(one, metadata) for one in broken for metadata in ((), key)]
        await _flood(site, calls)


async def many_fields(site: Site) -> None:
    """Shapes, labels, parameters, names and files that are small on the wire, or very long."""
    image = _field(1, b"image") + _field(2, b"BYTES")
    inputs = [
        _field(3, b"\1" * 15_000_000),
        b"\x18\1" * 5_000_000,
        _field(5, _field(3, b"\1" * 15_000_000)),
        _field(5, b"\x42\0" * 5_000_000),
        _field(5, b"\x35\0\0\0\0" * 3_000_000),
        _field(4, b"\x0a\1x\x12\0") * 1_000_000,
        _field(1, b"x" * 15_000_000),
    ]
    odd = [NAMED + _field(5, image + one) for one in inputs]
    odd += [_field(1, b"\xc3\xa9" * 5_000_000), NAMED + _field(7, b"") * 4_000_000]
    odd += [NAMED + _field(3, b"x" * 15_000_000), NAMED + b"\x6a\0" * 5_000_000]
    async with _beside(site) as key:
        await _flood(site, [(one, key) for one in odd], clients=2)


CASES = [
    *(
        Case(f"gRPC: {title}", attack, {*allowed, *BESIDE}, BESIDE, door="grpc", short=short)
        for title, attack, allowed, short in (
            ("a million empty inputs", empty_inputs, REFUSED, True),
            ("parameters without a value", unset_parameters, (*REFUSED, "NOT_FOUND"), True),
            ("fields without number", many_fields, REFUSED, False),
        )
    ),
]
