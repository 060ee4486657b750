from __future__ import annotations

from typing import Any

import httpx
import numpy as np
import pytest
import tritonclient.http as triton
from fastapi.testclient import TestClient

from service import VERSION
from service.settings import Settings
from tests.serving import serve

ENCODER = [
    {"name": "presence", "datatype": "FP32", "shape": [-1, 10]},
    {"name": "poses", "datatype": "FP32", "shape": [-1, 10, 16]},
    {"name": "label", "datatype": "INT64", "shape": [-1, 1]},
    {"name": "class_name", "datatype": "BYTES", "shape": [-1, 1]},
    {"name": "novelty", "datatype": "FP32", "shape": [-1, 1]},
]
MODELS = ["mnist-compact", "mnist-compact.decoder", "mnist-compact.routing", "mnist-matrix.routing"]


def test_the_server_says_what_it_is(v2: triton.InferenceServerClient) -> None:
    """Alive, ready, its version, and the extensions that it understands."""
    assert v2.is_server_live()
    assert v2.is_server_ready()
    assert v2.get_server_metadata() == {
        "name": "capsnet-service",
        "version": VERSION,
        "extensions": ["binary_tensor_data", "model_configuration"],
    }


def test_metadata_name_all_tensors(v2: triton.InferenceServerClient, service: httpx.Client) -> None:
    """The first axis is the batch; the version is that of the weights."""
    found = v2.get_model_metadata("mnist-compact")
    assert [service.get("/models/mnist-compact").json()["version"]] == found["versions"]
    assert ENCODER == found["outputs"]
    assert found["inputs"] == [
        {"name": "images", "datatype": "FP32", "shape": [-1, 1, 28, 28]},
        {"name": "image", "datatype": "BYTES", "shape": [-1, 1]},
    ]


@pytest.mark.parametrize("name", MODELS)
def test_every_model_is_ready_and_configured(name: str, v2: triton.InferenceServerClient) -> None:
    """The configuration has the metadata's tensors, without the batch axis."""
    (version,) = v2.get_model_metadata(name)["versions"]
    assert v2.is_model_ready(name)
    assert v2.is_model_ready(name, version)
    assert not v2.is_model_ready(name, "1")
    metadata, config = v2.get_model_metadata(name, version), v2.get_model_config(name, version)
    assert (name, name) == (metadata["name"], config["name"])
    assert config["max_batch_size"] >= 1
    for side in ("input", "output"):
        types = {one["name"]: one["data_type"] for one in config[side]}
        dims = {one["name"]: [-1, *one["dims"]] for one in config[side]}
        assert dims == {one["name"]: one["shape"] for one in metadata[f"{side}s"]}
        assert types == {
            one["name"]: "TYPE_" + one["datatype"].replace("BYTES", "STRING")
            for one in metadata[f"{side}s"]
        }


@pytest.fixture(scope="module")
def families(settings: Settings, family_bundles: Any) -> TestClient:
    """An untrained bundle of each family."""
    return serve(settings, bundles=family_bundles, models=(), default_model="tiny-dynamic")


@pytest.mark.parametrize("family", ["dynamic", "attention", "shared", "matrix", "baseline"])
def test_outputs_are_those_of_the_metadata(family: str, families: TestClient) -> None:
    """For every family: their names in order, shapes and numbers of values."""
    offers = families.get(f"/models/tiny-{family}").json()["offers"]
    graphs = {"decode": ".decoder", "trace": ".routing"}
    roles = ["", *[graphs[one] for one in offers if one in graphs]]
    for role in roles:
        url = f"/v2/models/tiny-{family}{role}"
        metadata = families.get(url).json()
        inputs = [
            {**one, "shape": [1, *one["shape"][1:]], "data": [0] * int(np.prod(one["shape"][1:]))}
            for one in metadata["inputs"]
            if one["name"] != "image"
        ]
        outputs = [{"name": one["name"]} for one in metadata["outputs"]]
        body = {"inputs": inputs, "outputs": outputs}
        answer = families.post(f"{url}/infer", json=body).json()["outputs"]
        shapes = [{**one, "shape": [1, *one["shape"][1:]]} for one in metadata["outputs"]]
        assert shapes == [{k: one[k] for k in ("name", "datatype", "shape")} for one in answer]
        counts = [int(np.prod(one["shape"])) for one in answer]
        assert counts == [len(one["data"]) for one in answer]


def test_a_network_without_poses_offers_none(families: TestClient) -> None:
    """Neither as an output, nor as a decoder."""
    names = [one["name"] for one in families.get("/v2/models/tiny-baseline").json()["outputs"]]
    assert ["presence", "label", "class_name"] == names
    assert 404 == families.get("/v2/models/tiny-baseline.decoder").status_code


@pytest.mark.parametrize("query", ["version=x", "name=x", "version="])
def test_a_query_selects_nothing(query: str, service: httpx.Client) -> None:
    """Model and version are in the path alone."""
    for path in ("", "/ready", "/config"):
        answer = service.get(f"/v2/models/{MODELS[0]}{path}?{query}")
        assert httpx.codes.UNPROCESSABLE_ENTITY == answer.status_code
        assert answer.json()["error"].startswith("unknown parameter")
