"""The messages of the gRPC service, as the protocol's own client publishes them."""

from __future__ import annotations

from typing import Any

from tritonclient.grpc import service_pb2

SERVICE = "inference.GRPCInferenceService"


_NESTED = (
    service_pb2.ModelInferRequest.InferInputTensor,
    service_pb2.ModelInferRequest.InferRequestedOutputTensor,
    service_pb2.ModelInferResponse.InferOutputTensor,
)


def messages() -> dict[str, Any]:
    """The classes of the messages, by name."""
    return {**vars(service_pb2), **{kind.DESCRIPTOR.name: kind for kind in _NESTED}}
