"""`POST /v2/models/{model}/infer`."""

from __future__ import annotations

from typing import Any

from fastapi import Response
from pydantic_core import to_json

from service.api.v2.metadata import ProtocolModelPath, find
from service.api.v2.models import ProtocolModel, Tensors
from service.api.v2.request import Work, read_work
from service.http.middleware import TENSOR_HEADER
from service.http.negotiation import JSON
from service.http.request import Request
from service.inference.engine import graph_of

BINARY = "application/octet-stream"


async def infer(request: Request, query: ProtocolModelPath) -> Response:
    """Compute the outputs of a model."""
    model = find(request, query)
    work = await read_work(request, model)
    outputs = await compute(request, model, work)
    slow = request.context.slow
    return await slow.run_if_large(work.answer_bytes, _answer, model, work, outputs)


async def compute(request: Request, model: ProtocolModel, work: Work) -> Tensors:
    """The outputs that are wanted, perhaps others too.

    Raises:
        Busy, TooLate: see `Claim.admit`.
        Unavailable: there is no room for the answer.
        Problem: an image file cannot be read.
    """
    request.claim.reserve_answer(work.answer_bytes)
    price = request.engine.price(model.manifest.name, graph_of(model.needs))
    request.admit(model.cost(work.rows, work.wanted), price=price)
    return await model.compute(request, work.inputs, work.wanted)


def _answer(model: ProtocolModel, work: Work, outputs: Tensors) -> Response:
    """Form the JSON, and after it the outputs that are requested as bytes."""
    described: list[bytes] = []
    tensors: list[bytes] = []
    for spec, binary in work.outputs:
        shape = [work.rows, *spec.row]
        tensor = outputs[spec.name]
        one: dict[str, Any] = {"name": spec.name, "datatype": spec.datatype, "shape": shape}
        if binary:
            tensors.append(spec.to_bytes(tensor))
            described.append(to_json({**one, "parameters": {"binary_data_size": len(tensors[-1])}}))
        else:
            described.append(to_json(one)[:-1] + b',"data":' + spec.to_json(tensor) + b"}")
    named = {"id": work.id} if work.id else {}
    version = model.manifest.version
    head = to_json({"model_name": model.name, "model_version": version, **named})
    text = head[:-1] + b',"outputs":[' + b",".join(described) + b"]}"
    if not tensors:
        return Response(text, media_type=JSON)
    return Response(
        b"".join((text, *tensors)), headers={TENSOR_HEADER: str(len(text))}, media_type=BINARY
    )
