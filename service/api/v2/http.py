"""The protocol over HTTP. Its routes are not in the OpenAPI document: the protocol has its own."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any

from fastapi import Response
from pydantic import BaseModel, ConfigDict, Field, ValidationError
from pydantic_core import to_json

from model.views.decode import MAX_POSES
from service import VERSION
from service.api.probes import livez, readyz
from service.api.v2.metadata import ProtocolModel, ProtocolModelPath, find
from service.api.v2.tensors import Tensors, TensorSpec
from service.errors import InvalidParameter, MalformedRequest, TooLarge, UnsupportedFormat
from service.http.middleware import TENSOR_HEADER
from service.http.negotiation import JSON
from service.http.problems import invalid
from service.http.request import Request
from service.http.route import Route
from service.inference.engine import graph_of

BINARY = "application/octet-stream"
_MARKS = (b",", b"[", b"{", b'"')
_MAX_MARKS = 10_000
"""The JSON of a request may have this many marks, and two for each value: parsed lists, strings and
objects take more memory than their bytes."""
_NUMBER = re.compile(r"[0-9]{1,10}")
Size = Annotated[int, Field(strict=True, le=1 << 40)]


class _Strict(BaseModel):
    """A member of a request.

    Unknown members are refused: Triton has some that change a tensor's meaning.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)


class InputParameters(_Strict):
    """The parameters of an input tensor."""

    binary_data_size: Annotated[Size, Field(ge=0)] | None = None


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


@dataclass(frozen=True)
class Work:
    """A request whose every tensor was checked."""

    id: str | None
    rows: int
    inputs: Tensors
    outputs: list[tuple[TensorSpec, bool]]
    """The requested tensors, each with whether it is sent as raw bytes."""

    @property
    def answer_bytes(self) -> int:
        """The bytes of the answer, at most or nearly so."""
        return sum(spec.answer_bytes(self.rows, binary=binary) for spec, binary in self.outputs)


def v2_routes(*, max_pictures: int, grpc: bool = False) -> list[Route]:
    """The routes, those that are asked most first, and with gRPC those of its methods.

    Args:
        max_pictures: of one request; each is encoded and, for its novelty, decoded. A decoder
            takes MAX_POSES poses all the same.
        grpc: whether there is a port for it.
    """
    max_cost = max(2 * max_pictures, MAX_POSES)
    post = partial(Route, "POST", include_in_schema=False)
    get = partial(Route, "GET", include_in_schema=False)
    plain = partial(get, needs_models=False)
    routes = [
        post("/v2/models/{name}/infer", infer, max_cost=max_cost),
        get("/v2/models/{name}", describe_model, fixed=True),
        get("/v2/models/{name}/ready", check_model),
        plain("/v2/health/live", live, permission="public"),
        plain("/v2/health/ready", ready, permission="public"),
        plain("/v2", describe_server),
    ]
    if grpc:
        from service.api.v2.grpc import grpc_routes  # noqa: PLC0415  an extra

        routes += grpc_routes(max_cost)
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
    return {
        "name": "capsnet-service",
        "version": VERSION,
        "extensions": ["binary_tensor_data"],
    }


async def describe_model(request: Request, query: ProtocolModelPath) -> dict[str, Any]:
    """Show a model's metadata."""
    return find(request, query.name).describe()


async def check_model(request: Request, query: ProtocolModelPath) -> dict[str, Any]:
    """Check that a model is loaded."""
    return {"name": find(request, query.name).name, "ready": True}


async def infer(request: Request, query: ProtocolModelPath) -> Response:
    """Compute the outputs of a model."""
    model, slow = find(request, query.name), request.context.slow
    encoding = request.headers.get("content-encoding", "").strip().lower()
    if encoding not in ("", "identity"):
        raise UnsupportedFormat(f"send the body as it is, not as {encoding[:32]}")
    body = await request.body()
    head, tensors = _split(body, request.headers.get(TENSOR_HEADER))
    if head:
        work = await slow.run_if_large(len(head), _read, head, tensors, model)
    else:
        work = Work(None, 1, {"image": [body]}, _choose_outputs(InferRequest(inputs=[]), model))
    outputs = await compute(request, model, work)
    return await slow.run_if_large(work.answer_bytes, _answer, model, work, outputs)


async def compute(request: Request, model: ProtocolModel, work: Work) -> Tensors:
    """The outputs that are wanted, perhaps others too.

    Raises:
        Busy, TooLate: see `Claim.admit`.
        Unavailable: there is no room for the answer.
        Problem: an image file cannot be read.
    """
    request.claim.reserve_answer(work.answer_bytes)
    wanted = {spec.name for spec, _ in work.outputs}
    price = request.engine.price(model.manifest.name, graph_of(model.needs))
    request.admit(work.rows * (2 if "novelty" in wanted else 1), price=price)  # it decodes too
    return await model.compute(request, model.manifest, work.inputs, wanted)


def make_work(request: InferRequest, tensors: memoryview, model: ProtocolModel) -> Work:
    """Check a request to a model, and read its tensors, perhaps from the bytes after the JSON.

    Raises:
        Problem: a tensor is not one of the model's.
    """
    inputs, rows = _read_inputs(request.inputs, tensors, model)
    return Work(request.id, rows, inputs, _choose_outputs(request, model))


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
    return make_work(request, tensors, model)


def _read_inputs(
    inputs: list[InputTensor], content: memoryview, model: ProtocolModel
) -> tuple[Tensors, int]:
    """The tensors, and how many rows each has."""
    specs = {spec.name: spec for spec in model.inputs}
    tensors: Tensors = {}
    counts: set[int] = set()
    for tensor in inputs:
        spec = specs.pop(tensor.name, None)
        if spec is None:
            known = ", ".join(spec.name for spec in model.inputs)
            text = f"{tensor.name[:64]!r} is unknown or given twice; inputs: {known}"
            raise InvalidParameter(text, parameter="inputs")
        rows = spec.count_rows(tensor.datatype, tensor.shape, max_rows=model.max_rows)
        counts.add(rows)
        size = tensor.parameters.binary_data_size
        if (size is None) == (tensor.data is None):
            raise spec.refuse("send either data or binary_data_size")
        if tensor.data is not None:
            tensors[tensor.name] = spec.from_json(tensor.data, tensor.shape)
        elif size is not None:
            tensors[tensor.name] = spec.from_bytes(content[:size], rows)
            if size > len(content):
                raise spec.refuse(f"binary_data_size is {size:,}; {len(content):,} bytes are left")
            content = content[size:]
    if content:
        raise MalformedRequest(f"{len(content):,} bytes follow the last tensor")
    if len(counts) != 1:
        raise InvalidParameter("all inputs have the same number of rows", parameter="inputs")
    return tensors, counts.pop()


def _choose_outputs(request: InferRequest, model: ProtocolModel) -> list[tuple[TensorSpec, bool]]:
    """The requested outputs, or the default ones if none is requested."""
    binary = request.parameters.binary_data_output
    if not request.outputs:
        return [(spec, binary) for spec in model.outputs if not spec.optional]
    specs = {spec.name: spec for spec in model.outputs}
    chosen = []
    for output in request.outputs:
        if output.name not in specs:
            known = ", ".join(spec.name for spec in model.outputs)
            text = f"{output.name[:64]!r} is unknown or asked for twice; outputs: {known}"
            raise InvalidParameter(text, parameter="outputs")
        binary_data = output.parameters.binary_data
        chosen.append((specs.pop(output.name), binary if binary_data is None else binary_data))
    return chosen


def _answer(model: ProtocolModel, work: Work, outputs: Tensors) -> Response:
    """Form the JSON, and after it the outputs that are requested as bytes."""
    described: list[bytes] = []
    tensors: list[bytes] = []
    for spec, binary in work.outputs:
        shape = [work.rows, *spec.row]
        tensor = outputs[spec.name]
        output: dict[str, Any] = {"name": spec.name, "datatype": spec.datatype, "shape": shape}
        if binary:
            tensors.append(spec.to_bytes(tensor))
            size = {"binary_data_size": len(tensors[-1])}
            described.append(to_json({**output, "parameters": size}))
        else:
            described.append(to_json(output)[:-1] + b',"data":' + spec.to_json(tensor) + b"}")
    named = {"id": work.id} if work.id else {}
    version = model.manifest.version
    head = to_json({"model_name": model.name, "model_version": version, **named})
    text = head[:-1] + b',"outputs":[' + b",".join(described) + b"]}"
    if not tensors:
        return Response(text, media_type=JSON)
    return Response(
        b"".join((text, *tensors)), headers={TENSOR_HEADER: str(len(text))}, media_type=BINARY
    )
