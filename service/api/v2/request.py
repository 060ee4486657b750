"""The body of `infer`: its JSON, the tensors after it, and its compression."""

from __future__ import annotations

import re
import zlib
from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from service.api.v2.models import ProtocolModel, Tensors
from service.api.v2.tensors import TensorSpec
from service.errors import InvalidParameter, MalformedRequest, TooLarge, UnsupportedFormat
from service.http.middleware import TENSOR_HEADER
from service.http.problems import invalid
from service.http.request import Request

_MEMBERS = 10_000
"""The JSON of a request may have this many quotes and braces, and two quotes for each file. Numbers
take a few times their bytes; strings and objects take more."""
_WINDOWS = {"gzip": 31, "deflate": 15}
"""The window bits that zlib needs for each accepted `Content-Encoding`."""
_FILE = re.compile(rb"\x89PNG|\xff\xd8\xff|RIFF....WEBP", re.DOTALL)
"""The first bytes of a PNG, JPEG or WebP file, which is sent in place of a tensor of pixels."""
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

    @property
    def wanted(self) -> set[str]:
        """The names of the outputs."""
        return {spec.name for spec, _ in self.outputs}


async def read_work(request: Request, model: ProtocolModel) -> Work:
    """Read and check a request to a model.

    Raises:
        Problem: the body cannot be inflated or parsed, or a tensor is not one of the model's.
    """
    body = await read_body(request)
    head, tensors = _split(body, request.headers.get(TENSOR_HEADER))
    if head is None:
        return _read_raw(body, model)
    return await request.context.slow.run_if_large(len(head), _read, head, tensors, model)


async def read_body(request: Request) -> bytes:
    """Read and inflate the body. Its inflated size counts in the budget."""
    body = await request.body()
    encoding = request.headers.get("content-encoding", "").strip().lower() or "identity"
    if encoding == "identity":
        return body
    limit = request.context.settings.max_body_bytes
    inflated, is_whole = await request.context.slow.run(_inflate, body, encoding, limit)
    request.claim.hold(len(inflated) - len(body))
    if len(inflated) > limit:
        raise TooLarge(f"the inflated body exceeds {limit:,} bytes")
    if not is_whole:
        raise MalformedRequest(f"the body ends within or after its {encoding} stream")
    return inflated


def _inflate(body: bytes, encoding: str, limit: int) -> tuple[bytes, bool]:
    """Decompress a body up to one byte beyond the limit.

    Return that, and whether the body was whole.
    """
    if encoding not in _WINDOWS:
        raise UnsupportedFormat(f"Content-Encoding is gzip or deflate, not {encoding[:32]}")
    inflater = zlib.decompressobj(_WINDOWS[encoding])
    try:
        inflated = inflater.decompress(body, limit + 1)
    except zlib.error as error:
        raise MalformedRequest(f"the body is not {encoding}: {error}") from error
    return inflated, inflater.eof and not inflater.unused_data


def _split(body: bytes, length: str | None) -> tuple[bytes | None, memoryview]:
    """The JSON of a body, if it has any, and what follows it."""
    if length is None:
        return body, memoryview(b"")
    if not _NUMBER.fullmatch(length):
        raise MalformedRequest(f"{TENSOR_HEADER} is a number of bytes")
    end = int(length)
    if end > len(body):
        raise MalformedRequest(f"{TENSOR_HEADER}: the body has {len(body):,} bytes, not {end:,}")
    return body[:end] if end else None, memoryview(body)[end:]


def _read(head: bytes, tensors: memoryview, model: ProtocolModel) -> Work:
    """The work of a request, from its JSON and the bytes after it."""
    objects = head.count(b'"') + head.count(b"{")
    if (
        objects > 2 * model.max_rows + _MEMBERS
        or head.count(b"[") > model.max_values // 4 + _MEMBERS  # a list is a row of an image
        or head.count(b",") > 2 * model.max_values + objects
    ):
        raise TooLarge(f"at most {model.max_values:,} values per tensor")
    try:
        request = InferRequest.model_validate_json(head)
    except ValidationError as error:
        raise invalid(error) from error
    return make_work(request, tensors, model)


def make_work(request: InferRequest, tensors: memoryview, model: ProtocolModel) -> Work:
    """The work of a request, from its members and the bytes of its tensors.

    Raises:
        Problem: a tensor is not one of the model's.
    """
    inputs, rows = _read_inputs(request.inputs, tensors, model)
    return Work(request.id, rows, inputs, _choose_outputs(request, model))


def _read_raw(body: bytes, model: ProtocolModel) -> Work:
    """Read a body that is a tensor alone: one image file, or images one after the other."""
    specs = {spec.name: spec for spec in model.inputs}
    if "images" not in specs:
        raise InvalidParameter(f"{model.name!r} has several inputs; send JSON before them")
    outputs = _choose_outputs(InferRequest(inputs=[]), model)
    if _FILE.match(body):
        return Work(None, 1, {"image": [body]}, outputs)
    spec = specs["images"]
    rows = spec.count_rows(
        "FP32", [len(body) // (4 * spec.values), *spec.row], max_rows=model.max_rows
    )
    return Work(None, rows, {"images": spec.from_bytes(memoryview(body), rows)}, outputs)


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
