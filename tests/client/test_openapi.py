"""The client is compared with the OpenAPI document, which stays the source."""

from __future__ import annotations

import inspect
from dataclasses import MISSING, fields, is_dataclass
from typing import Any

import pytest
from pydantic import SecretStr

from capsnet import AsyncCapsNet, AsyncDrawings, CapsNet, Drawings, answers, calls
from service.app import create_app
from service.settings import Settings

Json = dict[str, Any]
METHODS = {
    "classify": "classify",
    "reconstruct": "reconstruct",
    "perturb": "perturb",
    "sweep": "sweep",
    "decode": "decode",
    "segment_image": "segment",
    "routing": "routing",
    "equivariance": "equivariance",
    "overlay_images": "overlay",
    "show_sample": "sample",
    "list_samples": "samples",
    "show_sample_of": "sample_of",
    "list_models": "models",
    "show_model": "model",
    "reload_models": "reload",
}
"""The method of each operation."""
LEFT_OUT = {
    "overlay_samples": "overlay(sample(3), sample(5)) does it",
    "livez": "for supervisors",
    "readyz": "for supervisors",
    "metrics": "for Prometheus",
}
NAMES = {"X-Request-Timeout": "timeout_s"}
"""Parameters whose names are taken in Python, or are headers."""
OWN = {"image", "images", "first", "second", "poses"}
"""Parameters that are the body."""


@pytest.fixture(scope="module")
def document() -> Json:
    """The service's, with the route for reloads."""
    settings = Settings(admin_keys=(SecretStr("a-key-of-these-tests"),))
    found: Json = create_app(settings).openapi()
    return found


@pytest.fixture(scope="module")
def operations(document: Json) -> dict[str, Json]:
    """All operations that the client has, by id."""
    found = [one for path in document["paths"].values() for one in path.values()]
    return {one["operationId"]: one for one in found if "/v2" not in one.get("tags", ())}


def test_every_operation_has_a_method(operations: dict[str, Json]) -> None:
    """A route that is added is added to the client, or is said why not."""
    protocol = {name for name, one in operations.items() if "open inference" in str(one["tags"])}
    assert METHODS.keys() | LEFT_OUT.keys() == operations.keys() - protocol


@pytest.mark.parametrize(("operation", "method"), METHODS.items())
def test_parameters_are_those_of_the_document(
    operation: str, method: str, operations: dict[str, Json]
) -> None:
    """All of them, required where they are required there."""
    documented = {
        NAMES.get(one["name"], one["name"]): one["required"]
        for one in operations[operation].get("parameters", ())
    }
    png = "image/png" in operations[operation]["responses"]["200"].get("content", {})
    if png and method not in ("overlay", "sample", "sample_of"):
        documented.pop("scale", None)  # of `draw`
    signature = inspect.signature(getattr(calls, method)).parameters
    taken = {
        name: one.default is inspect.Parameter.empty
        for name, one in signature.items()
        if name not in OWN or name in documented
    }
    taken.pop("label", None) if method == "decode" else None  # of the body
    documented.setdefault("timeout_s", False)  # the client's own, where the service has none
    assert documented == taken


def test_both_clients_have_every_method() -> None:
    """With the same parameters, those that draw too."""
    for method in METHODS.values():
        shapes = [inspect.signature(getattr(one, method)) for one in (CapsNet, AsyncCapsNet)]
        assert shapes[0].parameters.keys() == shapes[1].parameters.keys()
    drawn = {name for name in vars(Drawings) if not name.startswith("_")}
    assert drawn == {name for name in vars(AsyncDrawings) if not name.startswith("_")}


def test_everything_that_is_drawn_can_be_drawn(operations: dict[str, Json]) -> None:
    """Operations that answer with JSON or a PNG have a drawing."""
    both = {
        METHODS[name]
        for name, one in operations.items()
        if {"application/json", "image/png"} <= one["responses"]["200"].get("content", {}).keys()
    }
    assert both == {name for name in vars(Drawings) if not name.startswith("_")}


TYPES = {
    name: kind
    for name, kind in vars(answers).items()
    if is_dataclass(kind) and isinstance(kind, type)
}


@pytest.mark.parametrize(
    "name", sorted(TYPES.keys() - {"BundleAnswer", "CapsuleAnswer"}), ids=lambda name: name
)
def test_members_are_those_of_the_document(name: str, document: Json) -> None:
    """Each answer has all members of its schema, optional where they may be left out."""
    schemas = document["components"]["schemas"]
    schema = schemas[name]
    documented = {one: one in schema.get("required", ()) for one in schema["properties"]}
    if name == "Prediction":  # each has what stands beside all of them
        beside = schemas["ClassifyAnswer"]["properties"].keys() - {"predictions"}
        documented |= dict.fromkeys(beside, True)
    found = {one.name: one.default is MISSING for one in fields(TYPES[name])}
    assert documented.keys() == found.keys()
    needed = {one for one, required in found.items() if required}
    assert needed <= {one for one, required in documented.items() if required}


def test_every_answer_of_the_document_has_a_type(document: Json) -> None:
    """Those of the client's operations, and all that is in them."""
    schemas = document["components"]["schemas"]
    own = {one for one in schemas if one in TYPES}
    inside: set[str] = set()
    for name in own:
        text = str(schemas[name])
        inside |= {one for one in schemas if f"schemas/{one}'" in text}
    assert inside - {"ProblemDetails"} <= own
    assert {"ReconstructAnswer", "SweepAnswer", "RoutingAnswer", "ModelsAnswer"} <= own
