"""The protocol over HTTP. Its routes are not in the OpenAPI document: the protocol has its own."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Mapping
from functools import partial
from typing import Annotated, Any, Literal

from fastapi import Response
from pydantic import BaseModel, ConfigDict, Field, ValidationError
from pydantic_core import to_json

from model.views.decode import MAX_POSES
from service import VERSION
from service.api.models import ModelPath
from service.api.probes import livez, readyz
from service.api.v2.models import ProtocolModel, Work, choose_outputs, compute, find, read_work
from service.api.v2.tensors import SentTensor, Tensors
from service.errors import InvalidParameter, MalformedRequest, TooLarge
from service.http.request import JSON, Request, invalid
from service.http.route import Route

BINARY = "application/octet-stream"
TENSOR_HEADER = "Inference-Header-Content-Length"
"""The header with the number of bytes of JSON before the tensors."""
_MARKS = (b",", b"[", b"{", b'"')
_MAX_MARKS = 10_000
"""The JSON of a request may have this many marks, and two for each value: parsed lists, strings and
objects take more memory than their bytes."""
Size = Annotated[int, Field(strict=True, ge=0, le=1 << 40)]


class _Strict(BaseModel):
    """A member of a request.

    Unknown members are refused: Triton has some that change a tensor's meaning.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)


class InputTensor(_Strict):
    """An input, its values in `data` or after the JSON."""

    name: str
    shape: Annotated[list[Size], Field(max_length=8, fail_fast=True)]
    datatype: str
    parameters: dict[Literal["binary_data_size"], Size] = {}
    data: list[Any] | None = None


class RequestedOutput(_Strict):
    """An output that is asked for."""

    name: str
    parameters: dict[Literal["binary_data"], bool] = {}


class InferRequest(_Strict):
    """The JSON of a request."""

    id: Annotated[str, Field(max_length=256)] | None = None
    parameters: dict[str, Any] = {}
    """`binary_data_output` is read. Others, such as priorities, are ignored."""
    inputs: Annotated[list[InputTensor], Field(max_length=8, fail_fast=True)]
    outputs: Annotated[list[RequestedOutput], Field(max_length=32, fail_fast=True)] = []


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


async def describe_model(request: Request, query: ModelPath) -> dict[str, Any]:
    """Show a model's metadata."""
    return find(request, query.name).describe()


async def check_model(request: Request, query: ModelPath) -> dict[str, Any]:
    """Check that a model is loaded."""
    return {"name": find(request, query.name).name, "ready": True}


async def infer(request: Request, query: ModelPath) -> Response:
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


_PROBE: dict[str, Any] = {"needs_models": False, "permission": "public"}
OPERATIONS: Mapping[str, tuple[str, str, Callable[..., Awaitable[Any]], dict[str, Any]]] = {
    "ModelInfer": ("POST", "/v2/models/{name}/infer", infer, {}),
    "ModelMetadata": ("GET", "/v2/models/{name}", describe_model, {}),
    "ModelReady": ("GET", "/v2/models/{name}/ready", check_model, {}),
    "ServerLive": ("GET", "/v2/health/live", live, _PROBE),
    "ServerReady": ("GET", "/v2/health/ready", ready, _PROBE),
    "ServerMetadata": ("GET", "/v2", describe_server, {"needs_models": False}),
}
"""By its name in gRPC: the method and path of HTTP, the handler, and the options of both routes.

Those that are asked most stand first.
"""


def v2_routes(*, max_pictures: int, grpc: bool = False) -> list[Route]:
    """The routes of HTTP and, if there is a port for it, of gRPC.

    Args:
        max_pictures: of one request; each is encoded and, for its novelty, decoded. A decoder
            takes MAX_POSES poses all the same.
        grpc: whether there is a port for it.
    """
    max_rows = max(2 * max_pictures, MAX_POSES)
    route = partial(Route, include_in_schema=False, max_rows=max_rows)
    routes = [
        route(method, path, handler, **options)
        for method, path, handler, options in OPERATIONS.values()
    ]
    if grpc:
        from service.api.v2.grpc import SERVICE, handler_of  # noqa: PLC0415  an extra

        routes += [
            route("POST", f"/{SERVICE}/{name}", handler_of(name), **options)
            for name, (*_, options) in OPERATIONS.items()
        ]
    return routes


def _split(body: bytes, length: str | None) -> tuple[bytes, memoryview]:
    """The JSON of a body, which is empty for an image file alone, and what follows it."""
    if length is None:
        return body or b" ", memoryview(b"")
    end = int(length[:20]) if length.isdecimal() else len(body) + 1
    if end > len(body):
        text = f"{TENSOR_HEADER} is the number of bytes of the JSON, at most {len(body):,}"
        raise MalformedRequest(text)
    return body[:end], memoryview(body)[end:]


def _read(head: bytes, tensors: memoryview, model: ProtocolModel) -> Work:
    """The work of a request, from its JSON and the bytes after it."""
    if sum(map(head.count, _MARKS)) > 2 * model.max_values + _MAX_MARKS:
        raise TooLarge(f"at most {model.max_values:,} values per tensor")
    try:
        request = InferRequest.model_validate_json(head)
    except ValidationError as error:
        raise invalid(error) from error
    binary = request.parameters.get("binary_data_output") is True
    names = {one.name: one.parameters.get("binary_data", binary) for one in request.outputs}
    outputs = choose_outputs(model, names, binary=binary)
    return read_work(model, request.id or "", _with_values(request.inputs, tensors), outputs)


def _with_values(inputs: list[InputTensor], content: memoryview) -> Iterator[SentTensor]:
    """Each input with its values, which stand in the JSON or after it.

    Raises:
        InvalidParameter, MalformedRequest: it has none, or bytes follow that are no tensor's.
    """
    for tensor in inputs:
        size, values = tensor.parameters.get("binary_data_size"), tensor.data
        if (size is None) == (values is None):
            text = f"{tensor.name[:64]}: send either data or binary_data_size"
            raise InvalidParameter(text, parameter="inputs")
        sent = content[:size] if values is None else values
        content = content[size or 0 :]
        yield SentTensor(tensor.name, tensor.datatype, tensor.shape, sent)
    if content:
        raise MalformedRequest(f"{len(content):,} bytes follow the last tensor")


def _answer(work: Work, outputs: Tensors) -> Response:
    """Form the JSON, and after it the outputs that are requested as bytes."""
    described: list[dict[str, Any]] = []
    tensors: list[bytes] = []
    for spec, binary in work.outputs:
        described.append({**spec.describe(), "shape": [work.rows, *spec.row]})
        if binary:
            tensors.append(spec.to_bytes(outputs[spec.name]))
            described[-1]["parameters"] = {"binary_data_size": len(tensors[-1])}
        else:
            described[-1]["data"] = outputs[spec.name]
    answer = {
        "model_name": work.model.name,
        "model_version": work.model.manifest.version,
        **({"id": work.id} if work.id else {}),
        "outputs": described,
    }
    text = to_json(answer, fallback=lambda array: array.ravel().tolist())
    if not tensors:
        return Response(text, media_type=JSON)
    return Response(
        b"".join((text, *tensors)), headers={TENSOR_HEADER: str(len(text))}, media_type=BINARY
    )
