from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tritonclient.http as triton
from fastapi.testclient import TestClient

from service import VERSION
from service.settings import Settings
from tests.serving import serve

MODELS = ["mnist-compact", "mnist-compact.decoder", "mnist-compact.routing", "mnist-matrix.routing"]


def test_the_server_says_what_it_is(v2: triton.InferenceServerClient) -> None:
    """Alive, ready, its version, and the extensions that it understands."""
    assert v2.is_server_live()
    assert v2.is_server_ready()
    assert v2.get_server_metadata() == {
        "name": "capsnet-service",
        "version": VERSION,
        "extensions": ["binary_tensor_data"],
    }


@pytest.mark.parametrize("name", MODELS)
def test_every_model_is_ready_and_described(name: str, v2: triton.InferenceServerClient) -> None:
    """Under its name, with tensors whose first axis is the batch."""
    assert v2.is_model_ready(name)
    metadata = v2.get_model_metadata(name)
    assert name == metadata["name"]
    assert {-1} == {tensor["shape"][0] for tensor in metadata["inputs"] + metadata["outputs"]}


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
