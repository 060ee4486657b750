"""`POST /v2/models/{model}/infer`."""

from __future__ import annotations

import asyncio
from typing import Any

from fastapi import Response
from pydantic_core import to_json

from service.api.v2.metadata import ProtocolModelPath, find
from service.api.v2.models import ProtocolModel, Tensors
from service.api.v2.request import Work, read_work
from service.http.middleware import TENSOR_HEADER
from service.http.negotiation import JSON
from service.http.route import Request

BINARY = "application/octet-stream"
_MAX_INLINE_VALUES = 10_000
"""An answer with more values in its JSON is formed off the event loop."""


async def infer(request: Request, query: ProtocolModelPath) -> Response:
    """Compute the outputs of a model."""
    model = find(request, query)
    work = await read_work(request, model)
    outputs = await compute(request, model, work)
    values = sum(work.rows * spec.values for spec, binary in work.outputs if not binary)
    if values > _MAX_INLINE_VALUES:
        return await asyncio.to_thread(_answer, model, work, outputs)
    return _answer(model, work, outputs)


async def compute(request: Request, model: ProtocolModel, work: Work) -> Tensors:
    """The outputs that are wanted, perhaps others too.

    Raises:
        QueueFull: see `Admission.admit`.
        Problem: an image file cannot be read.
    """
    request.pipeline.admit(model.cost(work.rows, work.wanted))
    return await model.compute(request.pipeline, work.inputs, work.wanted)


def _answer(model: ProtocolModel, work: Work, outputs: Tensors) -> Response:
    """Form the JSON, and after it the outputs that are requested as bytes."""
    described: list[dict[str, Any]] = []
    tensors: list[bytes] = []
    for spec, binary in work.outputs:
        shape = [work.rows, *spec.row]
        tensor = outputs[spec.name]
        one: dict[str, Any] = {"name": spec.name, "datatype": spec.datatype, "shape": shape}
        if binary:
            tensors.append(spec.to_bytes(tensor))
            one["parameters"] = {"binary_data_size": len(tensors[-1])}
        else:
            one["data"] = spec.to_json(tensor)
        described.append(one)
    named = {"id": work.id} if work.id else {}
    version = model.manifest.version
    head = {"model_name": model.name, "model_version": version, **named, "outputs": described}
    text = to_json(head)
    if not tensors:
        return Response(text, media_type=JSON)
    return Response(
        b"".join((text, *tensors)), headers={TENSOR_HEADER: str(len(text))}, media_type=BINARY
    )
