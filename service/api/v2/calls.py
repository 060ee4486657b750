"""The six methods of the gRPC service. They read and answer protobuf messages as `/v2` does JSON.

`service.api.v2.grpc` makes a request of each call. Nothing of a message is read before its key was
checked, and little of it before its size and its fields were.
"""

from __future__ import annotations

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
from service.api.v2.metadata import ProtocolModelPath, describe_model, describe_server, find
from service.api.v2.models import ProtocolModel, Tensors
from service.api.v2.request import InferRequest, Work, make_work
from service.api.v2.tensors import LENGTH
from service.api.v2.wire import check_fields
from service.errors import InvalidParameter, MalformedRequest, TooLarge
from service.http.problems import invalid
from service.http.request import Request
from service.http.route import Route

MAX_FIELDS = 1_000
"""A message may have this many fields in addition to its image files."""
_CONTENTS = {"FP32": ("fp32_contents", "<f4"), "INT64": ("int64_contents", "<i8")}
"""The message's field and the numpy type of values that are not raw bytes, by datatype."""


class Protobuf(Response):
    """A serialised message."""

    media_type = "application/grpc+proto"


def grpc_routes(max_cost: int) -> list[Route]:
    """Make a route for each method. `max_cost` is the most that an inference may cost."""
    post = partial(Route, "POST", include_in_schema=False)
    probe = partial(post, needs_models=False, permission="public")
    return [
        post(f"/{SERVICE}/ModelInfer", model_infer, max_cost=max_cost),
        post(f"/{SERVICE}/ModelMetadata", model_metadata),
        post(f"/{SERVICE}/ModelReady", model_ready),
        probe(f"/{SERVICE}/ServerLive", server_live),
        probe(f"/{SERVICE}/ServerReady", server_ready),
        post(f"/{SERVICE}/ServerMetadata", server_metadata, needs_models=False),
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
    """Check that a model is loaded."""
    message = await _read(request, "ModelReadyRequest")
    find(request, _query(message.name, message.version))
    return _answer("ModelReadyResponse", ready=True)


async def model_metadata(request: Request) -> Protobuf:
    """Show a model's metadata."""
    message = await _read(request, "ModelMetadataRequest")
    described = await describe_model(request, _query(message.name, message.version))
    metadata = ParseDict(described, messages()["ModelMetadataResponse"]())
    return Protobuf(metadata.SerializeToString())


async def model_infer(request: Request) -> Protobuf:
    """Compute the outputs of a model."""
    message = await _read(request, "ModelInferRequest")
    model = find(request, _query(message.model_name, message.model_version))
    work = await request.context.slow.run_if_large(message.ByteSize(), _make_work, message, model)
    return _to_message(model, work, await compute(request, model, work))


async def _read(request: Request, name: str) -> Any:
    """The message of a call.

    Raises:
        MalformedRequest: it is none of this type.
        TooLarge: see `check_fields`.
    """
    body, max_fields = await request.body(), MAX_FIELDS + request.context.settings.max_pictures
    slow = request.context.slow
    return await slow.run_if_large(len(body), _parse, body, messages()[name], max_fields)


def _parse(body: bytes, kind: Any, max_fields: int) -> Any:
    check_fields(body, kind.DESCRIPTOR, max_fields=max_fields)
    try:
        return kind.FromString(body)
    except DecodeError as error:
        raise MalformedRequest("the message is not of this method's type") from error


def _query(name: str, version: str) -> ProtocolModelPath:
    return ProtocolModelPath(name=name, version=version or None)


def _make_work(message: Any, model: ProtocolModel) -> Work:
    """Check a message to a model and read its tensors, which are raw bytes or lists.

    Raises:
        Problem: a tensor is not one of the model's.
    """
    raw = list(message.raw_input_contents)
    tensors = raw or [_contents(tensor, model) for tensor in message.inputs]
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
    return make_work(request, memoryview(content), model)


def _parameters(message: Any) -> dict[str, Any]:
    kinds = {
        name: parameter.WhichOneof("parameter_choice")
        for name, parameter in message.parameters.items()
    }
    if empty := [name for name, kind in kinds.items() if kind is None]:
        raise InvalidParameter(f"the parameter {empty[0][:64]!r} has no value", parameter=empty[0])
    return {name: getattr(message.parameters[name], kind) for name, kind in kinds.items()}


def _contents(tensor: Any, model: ProtocolModel) -> bytes:
    """Convert a tensor's list of values to raw bytes."""
    if tensor.datatype == "BYTES":
        elements = tensor.contents.bytes_contents
        return b"".join(LENGTH.pack(len(element)) + element for element in elements)
    field, dtype = _CONTENTS.get(tensor.datatype, ("", ""))
    values = getattr(tensor.contents, field) if field else ()
    if len(values) > model.max_values:
        raise TooLarge(f"at most {model.max_values:,} values per tensor")
    return np.array(values, dtype).tobytes() if field else b""


def _to_message(model: ProtocolModel, work: Work, outputs: Tensors) -> Protobuf:
    """The outputs that are asked for, all as raw bytes."""
    output = messages()["InferOutputTensor"]
    specs = [spec for spec, _ in work.outputs]
    return _answer(
        "ModelInferResponse",
        model_name=model.name,
        model_version=model.manifest.version,
        id=work.id or "",
        outputs=[
            output(name=spec.name, datatype=spec.datatype, shape=[work.rows, *spec.row])
            for spec in specs
        ],
        raw_output_contents=[spec.to_bytes(outputs[spec.name]) for spec in specs],
    )


def _answer(kind: str, /, **fields: Any) -> Protobuf:
    return Protobuf(messages()[kind](**fields).SerializeToString())
