from __future__ import annotations

from typing import Any

import httpx
import numpy as np
import pytest
import tritonclient.http as triton

from model.preprocess import Floats

MODEL = "mnist-compact"


def tensor(
    name: str, values: Any, datatype: str = "FP32", *, binary: bool = True
) -> triton.InferInput:
    """An input with its values."""
    one = triton.InferInput(name, list(values.shape), datatype)
    return one.set_data_from_numpy(values, binary_data=binary)


def files(*contents: bytes) -> Any:
    """Image files as the client wants them."""
    return np.array(contents, np.object_)


@pytest.fixture(scope="session")
def classified(service: httpx.Client, digits: list[bytes]) -> list[dict[str, Any]]:
    """What `/classify` says of a digit of each class."""
    pictures = [("file", one) for one in digits]
    query = {"model": MODEL, "poses": "true", "novelty": "true"}
    predictions: list[dict[str, Any]] = service.post(
        "/classify", params=query, files=pictures
    ).json()["predictions"]
    return predictions


def check(result: triton.InferResult, classified: list[dict[str, Any]]) -> None:
    """Compare presence and poses with the answers of `/classify`."""
    lengths = [one["lengths"] for one in classified]
    poses = [one["poses"] for one in classified]
    np.testing.assert_allclose(result.as_numpy("presence"), lengths, atol=1e-5)
    np.testing.assert_allclose(result.as_numpy("poses"), poses, atol=1e-5)


@pytest.mark.parametrize("wanted", [None, True, False], ids=["all", "binary", "JSON"])
@pytest.mark.parametrize("binary", [True, False], ids=["binary", "JSON"])
def test_answers_are_those_of_classify(
    *,
    binary: bool,
    wanted: bool | None,
    v2: triton.InferenceServerClient,
    images: Floats,
    classified: list[dict[str, Any]],
) -> None:
    """A batch of ten, as bytes and as JSON, in and out."""
    outputs = [
        triton.InferRequestedOutput(name, binary_data=bool(wanted))
        for name in ("poses", "presence")
    ]
    result = v2.infer(
        MODEL,
        [tensor("images", images, binary=binary)],
        request_id="ten",
        outputs=None if wanted is None else outputs,
    )
    check(result, classified)
    answer = result.get_response()
    assert ("ten", MODEL) == (answer["id"], answer["model_name"])
    assert {"poses", "presence"} == {one["name"] for one in answer["outputs"]}


def test_files_need_no_tensor_code(
    v2: triton.InferenceServerClient, digits: list[bytes], classified: list[dict[str, Any]]
) -> None:
    """PNG files in, labels, names and novelty out."""
    names = ("label", "class_name", "novelty", "presence", "poses")
    result = v2.infer(
        MODEL,
        [tensor("image", files(*digits)[:, None], "BYTES")],
        outputs=[triton.InferRequestedOutput(name) for name in names],
    )
    check(result, classified)
    assert [[one["label"]] for one in classified] == result.as_numpy("label").tolist()
    named = [[one["class_name"].encode()] for one in classified]
    assert named == result.as_numpy("class_name").tolist()
    scores = [[one["novelty"]["score"]] for one in classified]
    np.testing.assert_allclose(result.as_numpy("novelty"), scores, atol=1e-6)


@pytest.mark.parametrize("number", [3, 7])
def test_a_file_may_be_the_whole_body(
    number: int, service: httpx.Client, digits: list[bytes], classified: list[dict[str, Any]]
) -> None:
    """A header of no length: curl needs no JSON, and gets JSON."""
    answer = service.post(
        f"/v2/models/{MODEL}/infer",
        content=digits[number],
        headers={"Inference-Header-Content-Length": "0"},
    ).json()
    presence = answer["outputs"][0]
    assert ("presence", [1, 10], "FP32") == tuple(
        presence[k] for k in ("name", "shape", "datatype")
    )
    np.testing.assert_allclose(presence["data"], classified[number]["lengths"], atol=1e-5)


@pytest.mark.parametrize("model", [MODEL, "mnist-matrix"])
@pytest.mark.parametrize("binary", [True, False], ids=["binary", "JSON"])
def test_routing_is_that_of_its_route(
    *,
    binary: bool,
    model: str,
    v2: triton.InferenceServerClient,
    service: httpx.Client,
    digits: list[bytes],
) -> None:
    """Every array has the shape that the metadata announce; couplings are those of `/routing`."""
    specs = v2.get_model_metadata(f"{model}.routing")["outputs"]
    outputs = [triton.InferRequestedOutput(one["name"], binary_data=binary) for one in specs]
    image = tensor("image", files(digits[4]), "BYTES")
    result = v2.infer(f"{model}.routing", [image], outputs=outputs)
    shapes = {one["name"]: one["shape"][1:] for one in specs}
    found = {name: result.as_numpy(name) for name in shapes}
    assert shapes == {name: list(array.shape[1:]) for name, array in found.items()}
    picture = {"file": digits[4]}
    routing = service.post("/routing", params={"model": model}, files=picture).json()
    couplings = [one["couplings"] for one in routing["iterations"]]
    np.testing.assert_allclose(found["couplings"][0], couplings, atol=1e-5)
    for layer in routing["layers"]:
        maps = [one["maps"] for one in layer["iterations"]]
        np.testing.assert_allclose(found[f"{layer['name']}.presence"][0], maps, atol=1e-5)
