"""`POST /v2/models/{model}/infer`."""

from __future__ import annotations

import asyncio
from typing import Any

from fastapi import Response
from pydantic_core import to_json

from service.api.v2.metadata import NetworkQuery, find
from service.api.v2.networks import Network, Tensors
from service.api.v2.request import Work, read_work
from service.http.middleware import TENSOR_HEADER
from service.http.negotiation import JSON
from service.http.route import Request

BINARY = "application/octet-stream"
_LARGE = 10_000
"""Values; an answer with more in its JSON is not formed on the event loop."""


async def infer(request: Request, query: NetworkQuery) -> Response:
    """Compute the outputs of a network."""
    network = find(request, query)
    work = await read_work(request, network)
    outputs = await compute(request, network, work)
    values = sum(work.rows * spec.values for spec, binary in work.outputs if not binary)
    if values > _LARGE:
        return await asyncio.to_thread(_answer, network, work, outputs)
    return _answer(network, work, outputs)


async def compute(request: Request, network: Network, work: Work) -> Tensors:
    """The outputs that are wanted, perhaps others too.

    Raises:
        QueueFull: see `Admission.admit`.
        Problem: an image file cannot be read.
    """
    request.pipeline.admit(network.cost(work.rows, work.wanted))
    return await network.compute(request.pipeline, work.inputs, work.wanted)


def _answer(network: Network, work: Work, outputs: Tensors) -> Response:
    """JSON, and after it the outputs that are wanted as bytes."""
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
    version = network.manifest.version
    head = {"model_name": network.name, "model_version": version, **named, "outputs": described}
    text = to_json(head)
    if not tensors:
        return Response(text, media_type=JSON)
    return Response(
        b"".join((text, *tensors)), headers={TENSOR_HEADER: str(len(text))}, media_type=BINARY
    )
