"""The six methods of the gRPC service: protobuf in, protobuf out, else as the routes of `/v2`.

`service.api.v2.grpc` makes a request of each call. Nothing of a message is read before its key was
checked, and little of it before its size and its fields were.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Any

import numpy as np
from fastapi import Response
from google.protobuf.json_format import ParseDict
from google.protobuf.message import DecodeError
from pydantic import ValidationError

from service.api.probes import livez, readyz
from service.api.v2.infer import compute
from service.api.v2.messages import SERVICE, messages
from service.api.v2.metadata import NetworkQuery, describe_network, describe_server, find
from service.api.v2.networks import Network, Tensors
from service.api.v2.request import InferRequest, Work, make_work
from service.api.v2.tensors import LENGTH
from service.api.v2.wire import check_fields
from service.errors import InvalidParameter, MalformedRequest, TooLarge
from service.http.problems import invalid
from service.http.route import Request, Route

_LARGE = 100_000
"""Bytes; a longer message is read off the event loop."""
MAX_FIELDS = 1_000
"""Fields that a message may have beside its image files."""
_CONTENTS = {"FP32": ("fp32_contents", "<f4"), "INT64": ("int64_contents", "<i8")}
"""The message's field and the numpy type of values that are not raw bytes, by datatype."""


class Protobuf(Response):
    """A serialised message."""

    media_type = "application/grpc+proto"


def grpc_routes(most_rows: int) -> list[Route]:
    """A route for each method; `most_rows` is what the most expensive inference admits."""
    post = partial(Route, "POST", include_in_schema=False)
    probe = partial(post, needs_networks=False, permission="open")
    return [
        post(f"/{SERVICE}/ModelInfer", model_infer, most_rows=most_rows),
        post(f"/{SERVICE}/ModelMetadata", model_metadata),
        post(f"/{SERVICE}/ModelReady", model_ready),
        probe(f"/{SERVICE}/ServerLive", server_live),
        probe(f"/{SERVICE}/ServerReady", server_ready),
        post(f"/{SERVICE}/ServerMetadata", server_metadata, needs_networks=False),
    ]


async def server_live(request: Request) -> Protobuf:
    """Check that the process can infer."""
    await livez(request)
    return _answer("ServerLiveResponse", live=True)


async def server_ready(request: Request) -> Protobuf:
    """Check that the service takes requests."""
    await readyz(request)
    return _answer("ServerReadyResponse", ready=True)


async def server_metadata(request: Request) -> Protobuf:
    """Show the server's metadata."""
    return _answer("ServerMetadataResponse", **await describe_server(request))


async def model_ready(request: Request) -> Protobuf:
    """Check that a network is loaded."""
    message = await _read(request, "ModelReadyRequest")
    find(request, _query(message.name, message.version))
    return _answer("ModelReadyResponse", ready=True)


async def model_metadata(request: Request) -> Protobuf:
    """Show a network's metadata."""
    message = await _read(request, "ModelMetadataRequest")
    described = await describe_network(request, _query(message.name, message.version))
    metadata = ParseDict(described, messages()["ModelMetadataResponse"]())
    return Protobuf(metadata.SerializeToString())


async def model_infer(request: Request) -> Protobuf:
    """Compute the outputs of a network."""
    message = await _read(request, "ModelInferRequest")
    network = find(request, _query(message.model_name, message.model_version))
    work = _make_work(message, network)
    return _to_message(network, work, await compute(request, network, work))


async def _read(request: Request, name: str) -> Any:
    """The message of a call.

    Raises:
        MalformedRequest: it is none of this type.
        TooLarge: see `check_fields`.
    """
    body, max_fields = await request.body(), MAX_FIELDS + request.app.state.settings.max_pictures
    if len(body) > _LARGE:
        return await asyncio.to_thread(_parse, body, messages()[name], max_fields)
    return _parse(body, messages()[name], max_fields)


def _parse(body: bytes, kind: Any, max_fields: int) -> Any:
    check_fields(body, kind.DESCRIPTOR, max_fields=max_fields)
    try:
        return kind.FromString(body)
    except DecodeError as error:
        raise MalformedRequest("the message is not of this method's type") from error


def _query(name: str, version: str) -> NetworkQuery:
    return NetworkQuery(name=name, version=version or None)


def _make_work(message: Any, network: Network) -> Work:
    """The work of a message to a network; values are raw bytes or lists.

    Raises:
        Problem: a tensor is not one of the network's.
    """
    raw = list(message.raw_input_contents)
    tensors = raw or [_contents(tensor, network) for tensor in message.inputs]
    sizes = [len(content) for content in tensors[: len(message.inputs)]]
    sizes += [0] * (len(message.inputs) - len(sizes))
    inputs = [
        {
            "name": tensor.name,
            "datatype": tensor.datatype,
            "shape": list(tensor.shape),
            "parameters": {**_parameters(tensor), "binary_data_size": size},
        }
        for tensor, size in zip(message.inputs, sizes, strict=True)
    ]
    outputs = [
        {"name": tensor.name, "parameters": {**_parameters(tensor), "binary_data": True}}
        for tensor in message.outputs
    ]
    try:
        request = InferRequest.model_validate(
            {
                "id": message.id,
                "parameters": {**_parameters(message), "binary_data_output": True},
                "inputs": inputs,
                "outputs": outputs,
            }
        )
    except ValidationError as error:
        raise invalid(error) from error
    content = tensors[0] if len(tensors) == 1 else b"".join(tensors)
    return make_work(request, memoryview(content), network)


def _parameters(message: Any) -> dict[str, Any]:
    kinds = {
        name: parameter.WhichOneof("parameter_choice")
        for name, parameter in message.parameters.items()
    }
    if empty := [name for name, kind in kinds.items() if kind is None]:
        raise InvalidParameter(f"the parameter {empty[0][:64]!r} has no value", parameter=empty[0])
    return {name: getattr(message.parameters[name], kind) for name, kind in kinds.items()}


def _contents(tensor: Any, network: Network) -> bytes:
    """The values of a tensor, as they would be as raw bytes; none of a datatype that none has."""
    if tensor.datatype == "BYTES":
        elements = tensor.contents.bytes_contents
        return b"".join(LENGTH.pack(len(element)) + element for element in elements)
    field, dtype = _CONTENTS.get(tensor.datatype, ("", ""))
    values = getattr(tensor.contents, field) if field else ()
    if len(values) > network.max_values:
        raise TooLarge(f"at most {network.max_values:,} values per tensor")
    return np.array(values, dtype).tobytes() if field else b""


def _to_message(network: Network, work: Work, outputs: Tensors) -> Protobuf:
    """The outputs that are asked for, all as raw bytes."""
    output = messages()["InferOutputTensor"]
    specs = [spec for spec, _ in work.outputs]
    return _answer(
        "ModelInferResponse",
        model_name=network.name,
        model_version=network.manifest.version,
        id=work.id or "",
        outputs=[
            output(name=spec.name, datatype=spec.datatype, shape=[work.rows, *spec.row])
            for spec in specs
        ],
        raw_output_contents=[spec.to_bytes(outputs[spec.name]) for spec in specs],
    )


def _answer(kind: str, /, **fields: Any) -> Protobuf:
    return Protobuf(messages()[kind](**fields).SerializeToString())
