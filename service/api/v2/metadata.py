"""Health, metadata and configuration of the protocol."""

from __future__ import annotations

from typing import Any, ClassVar

from pydantic import Field

from model.views.decode import MAX_POSES
from service import VERSION
from service.api.probes import livez, readyz
from service.api.v2.models import Decoder, Encoder, ProtocolModel, Routing
from service.api.v2.tensors import TensorSpec
from service.errors import UnknownModel
from service.http.request import Request
from service.http.route import Query

PLATFORM = "onnxruntime_onnx"


class ProtocolModelPath(Query):
    """The parameters of routes for one model."""

    of_path: ClassVar = frozenset({"name", "version"})
    name: str = Field(examples=["mnist"])
    version: str | None = None


def find(request: Request, query: ProtocolModelPath) -> ProtocolModel:
    """The model of a path, and of a version where one is named.

    Raises:
        UnknownModel: it is not loaded.
    """
    bundle, dot, role = query.name.partition(".")
    kind, rows = {
        "": (Encoder, request.context.settings.max_pictures),
        ".decoder": (Decoder, MAX_POSES),
        ".routing": (Routing, 1),
    }.get(dot + role, (None, 0))
    manifest = request.engine.manifests.get(bundle)
    if manifest is None or kind is None or (kind.needs and kind.needs not in manifest.offers):
        raise UnknownModel(f"there is no model {query.name!r}", parameter="model")
    if query.version not in (None, manifest.version):
        text = f"{query.name!r} is loaded in version {manifest.version}, not {query.version}"
        raise UnknownModel(text, parameter="version")
    return kind(manifest, rows)


async def live(request: Request) -> dict[str, bool]:
    """Check that the process can infer."""
    await livez(request)
    return {"live": True}


async def ready(request: Request) -> dict[str, bool]:
    """Check that the service takes requests."""
    await readyz(request)
    return {"ready": True}


async def describe_server(request: Request) -> dict[str, Any]:
    """Show the server's metadata."""
    del request
    extensions = ["binary_tensor_data", "model_configuration"]
    return {"name": "capsnet-service", "version": VERSION, "extensions": extensions}


async def describe_model(request: Request, query: ProtocolModelPath) -> dict[str, Any]:
    """Show a model's metadata."""
    model = find(request, query)
    return {
        "name": model.name,
        "versions": [model.manifest.version],
        "platform": PLATFORM,
        "inputs": [_describe(spec) for spec in model.inputs],
        "outputs": [_describe(spec) for spec in model.outputs],
    }


async def check_model(request: Request, query: ProtocolModelPath) -> dict[str, Any]:
    """Check that a model is loaded."""
    return {"name": find(request, query).name, "ready": True}


async def show_config(request: Request, query: ProtocolModelPath) -> dict[str, Any]:
    """Show a model's configuration as Triton would."""
    model = find(request, query)
    return {
        "name": model.name,
        "platform": PLATFORM,
        "backend": "onnxruntime",
        "max_batch_size": model.max_rows,
        "input": [{**_configure(spec), "optional": spec.optional} for spec in model.inputs],
        "output": [_configure(spec) for spec in model.outputs],
        "dynamic_batching": {},
    }


def _describe(spec: TensorSpec) -> dict[str, Any]:
    return {"name": spec.name, "datatype": spec.datatype, "shape": [-1, *spec.row]}


def _configure(spec: TensorSpec) -> dict[str, Any]:
    """Describe a tensor without its batch axis. Triton calls BYTES a string there."""
    kind = "STRING" if spec.datatype == "BYTES" else spec.datatype
    return {"name": spec.name, "data_type": f"TYPE_{kind}", "dims": list(spec.row)}
