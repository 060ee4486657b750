"""The protocol over HTTP. Its routes are not in the OpenAPI document: the protocol has its own."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import partial
from typing import Annotated, Any, ClassVar

from fastapi import Response
from pydantic import BaseModel, ConfigDict, Field, ValidationError
from pydantic_core import to_json

from model.views.decode import MAX_POSES
from service import VERSION
from service.api.probes import livez, readyz
from service.api.v2.models import ProtocolModel, Work, choose_outputs, compute, find, read_inputs
from service.api.v2.tensors import SentTensor, Tensors
from service.errors import InvalidParameter, MalformedRequest, TooLarge
from service.http.request import JSON, Request, invalid
from service.http.route import Query, Route

BINARY = "application/octet-stream"
TENSOR_HEADER = "Inference-Header-Content-Length"
"""The header with the number of bytes of JSON before the tensors."""
_MARKS = (b",", b"[", b"{", b'"')
_MAX_MARKS = 10_000
"""The JSON of a request may have this many marks, and two for each value: parsed lists, strings and
objects take more memory than their bytes."""
_NUMBER = re.compile(r"[0-9]{1,10}")
Size = Annotated[int, Field(strict=True, ge=0, le=1 << 40)]


class ProtocolModelPath(Query):
    """The parameters of routes for one model."""

    of_path: ClassVar = frozenset({"name"})
    name: str = Field(examples=["mnist"])


class _Strict(BaseModel):
    """A member of a request.

    Unknown members are refused: Triton has some that change a tensor's meaning.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)


class InputParameters(_Strict):
    """The parameters of an input tensor."""

    binary_data_size: Size | None = None


class OutputParameters(_Strict):
    """The parameters of a requested output tensor."""

    binary_data: bool | None = None


class InputTensor(_Strict):
    """An input, its values in `data` or after the JSON."""

    name: str
    shape: Annotated[list[Size], Field(max_length=8, fail_fast=True)]
    datatype: str
    parameters: InputParameters = InputParameters()
    data: list[Any] | None = None


class RequestedOutput(_Strict):
    """An output that is asked for."""

    name: str
    parameters: OutputParameters = OutputParameters()


class RequestParameters(BaseModel):
    """The parameters of a request. Others, such as priorities, are ignored."""

    binary_data_output: bool = False


class InferRequest(_Strict):
    """The JSON of a request."""

    id: Annotated[str, Field(max_length=256)] | None = None
    parameters: RequestParameters = RequestParameters()
    inputs: Annotated[list[InputTensor], Field(max_length=8, fail_fast=True)]
    outputs: Annotated[list[RequestedOutput], Field(max_length=32, fail_fast=True)] = []


def v2_routes(*, max_pictures: int, grpc: bool = False) -> list[Route]:
    """The routes, those that are asked most first, and with gRPC those of its methods.

    Args:
        max_pictures: of one request; each is encoded and, for its novelty, decoded. A decoder
            takes MAX_POSES poses all the same.
        grpc: whether there is a port for it.
    """
    max_rows = max(2 * max_pictures, MAX_POSES)
    get = partial(Route, "GET", include_in_schema=False)
    plain = partial(get, needs_models=False)
    infer_path = "/v2/models/{name}/infer"
    routes = [
        Route("POST", infer_path, infer, max_rows=max_rows, include_in_schema=False),
        get("/v2/models/{name}", describe_model, fixed=True),
        get("/v2/models/{name}/ready", check_model),
        plain("/v2/health/live", live, permission="public"),
        plain("/v2/health/ready", ready, permission="public"),
        plain("/v2", describe_server),
    ]
    if grpc:
        from service.api.v2.grpc import grpc_routes  # noqa: PLC0415  an extra

        routes += grpc_routes(max_rows)
    return routes


async def live(request: Request) -> dict[str, bool]:
    """Check that the process can infer."""
    await livez(request)
    return {"live": True}


async def ready(request: Request) -> dict[str, bool]:
    """Check that the service takes requests."""
    await readyz(request)
    return {"ready": True}


async def describe_server(_request: Request) -> dict[str, Any]:
    """Show the server's metadata."""
    return {"name": "capsnet-service", "version": VERSION, "extensions": ["binary_tensor_data"]}


async def describe_model(request: Request, query: ProtocolModelPath) -> dict[str, Any]:
    """Show a model's metadata."""
    return find(request, query.name).describe()


async def check_model(request: Request, query: ProtocolModelPath) -> dict[str, Any]:
    """Check that a model is loaded."""
    return {"name": find(request, query.name).name, "ready": True}


async def infer(request: Request, query: ProtocolModelPath) -> Response:
    """Compute the outputs of a model."""
    model, slow = find(request, query.name), request.context.slow
    body = await request.body()
    head, tensors = _split(body, request.headers.get(TENSOR_HEADER))
    if head:
        work = await slow.run_if_large(len(head), _read, head, tensors, model)
    else:  # an image file alone
        work = Work(model, "", 1, {"image": [body]}, choose_outputs(model, {}))
    outputs = await compute(request, work)
    return await slow.run_if_large(work.answer_bytes, _answer, work, outputs)


def _split(body: bytes, length: str | None) -> tuple[bytes, memoryview]:
    """The JSON of a body, which is empty for an image file alone, and what follows it."""
    if length is None:
        return body or b" ", memoryview(b"")
    if not _NUMBER.fullmatch(length):
        raise MalformedRequest(f"{TENSOR_HEADER} is a number of bytes")
    end = int(length)
    if end > len(body):
        raise MalformedRequest(f"{TENSOR_HEADER}: the body has {len(body):,} bytes, not {end:,}")
    return body[:end], memoryview(body)[end:]


def _read(head: bytes, tensors: memoryview, model: ProtocolModel) -> Work:
    """The work of a request, from its JSON and the bytes after it."""
    if sum(map(head.count, _MARKS)) > 2 * model.max_values + _MAX_MARKS:
        raise TooLarge(f"at most {model.max_values:,} values per tensor")
    try:
        request = InferRequest.model_validate_json(head)
    except ValidationError as error:
        raise invalid(error) from error
    rows, inputs = read_inputs(model, _with_values(request.inputs, tensors))
    names = {output.name: output.parameters.binary_data for output in request.outputs}
    outputs = choose_outputs(model, names, binary=request.parameters.binary_data_output)
    return Work(model, request.id or "", rows, inputs, outputs)


def _with_values(inputs: list[InputTensor], content: memoryview) -> Iterator[SentTensor]:
    """Each input with its values, which stand in the JSON or after it.

    Raises:
        InvalidParameter, MalformedRequest: it has none, or too few or too many bytes follow.
    """
    for tensor in inputs:
        size, values = tensor.parameters.binary_data_size, tensor.data
        if (size is None) == (values is None):
            text = f"{tensor.name[:64]}: send either data or binary_data_size"
            raise InvalidParameter(text, parameter="inputs")
        raw = content[: size or 0]
        if len(raw) < (size or 0):
            text = f"{tensor.name[:64]}: binary_data_size is {size:,}; {len(raw):,} bytes are left"
            raise InvalidParameter(text, parameter="inputs")
        content = content[len(raw) :]
        sent = raw if values is None else values
        yield SentTensor(tensor.name, tensor.datatype, tensor.shape, sent)
    if content:
        raise MalformedRequest(f"{len(content):,} bytes follow the last tensor")


def _answer(work: Work, outputs: Tensors) -> Response:
    """Form the JSON, and after it the outputs that are requested as bytes."""
    described: list[bytes] = []
    tensors: list[bytes] = []
    for spec, binary in work.outputs:
        output = {**spec.describe(), "shape": [work.rows, *spec.row]}
        tensor = outputs[spec.name]
        if binary:
            tensors.append(spec.to_bytes(tensor))
            size = {"binary_data_size": len(tensors[-1])}
            described.append(to_json({**output, "parameters": size}))
        else:
            described.append(to_json(output)[:-1] + b',"data":' + spec.to_json(tensor) + b"}")
    named = {"id": work.id} if work.id else {}
    version = work.model.manifest.version
    head = to_json({"model_name": work.model.name, "model_version": version, **named})
    text = head[:-1] + b',"outputs":[' + b",".join(described) + b"]}"
    if not tensors:
        return Response(text, media_type=JSON)
    return Response(
        b"".join((text, *tensors)), headers={TENSOR_HEADER: str(len(text))}, media_type=BINARY
    )
