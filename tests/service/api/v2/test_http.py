"""The protocol over HTTP, as Triton's client and others speak it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
import tritonclient.http as triton
from fastapi.testclient import TestClient
from pydantic import SecretStr

from model.preprocess import Floats
from service import VERSION
from service.pictures import SAMPLES
from service.settings import Settings
from tests.serving import serve

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


def test_the_server_says_what_it_is(v2: triton.InferenceServerClient) -> None:
    """Alive, ready, its version, and the extensions that it understands."""
    assert v2.is_server_live()
    assert v2.is_server_ready()
    assert v2.get_server_metadata() == {
        "name": "capsnet-service",
        "version": VERSION,
        "extensions": ["binary_tensor_data"],
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


URL = f"/v2/models/{MODEL}/infer"


def an_input(**members: Any) -> dict[str, Any]:
    """One black image as JSON, but for some members."""
    whole = {"name": "images", "shape": [1, 1, 28, 28], "datatype": "FP32", "data": [0] * 784}
    return {**whole, **members}


def a_file(*data: Any) -> dict[str, Any]:
    """The same as a file."""
    return an_input(name="image", datatype="BYTES", shape=[1, 1], data=list(data))


def request(*inputs: dict[str, Any], **members: Any) -> dict[str, Any]:
    """A request's JSON."""
    return {"inputs": list(inputs or [an_input()]), **members}


def refusal(answer: httpx.Response) -> tuple[int, str]:
    """The status and the words of an error, which has no other member."""
    assert "application/json" == answer.headers["content-type"]
    ((name, text),) = answer.json().items()
    assert "error" == name
    return answer.status_code, text


@pytest.mark.parametrize(
    ("body", "status", "words"),
    [
        ({}, 422, "inputs is required"),
        (request(inputs=[]), 422, "same number of rows"),
        (request(an_input(name="imgs")), 422, "'imgs' is unknown"),
        (request(an_input(), an_input()), 422, "given twice"),
        (request(an_input(datatype="FP16")), 422, "the datatype is FP32, not FP16"),
        (request(an_input(shape=[1, 784])), 422, "the shape is (N, 1, 28, 28)"),
        (request(an_input(shape=[41, 1, 28, 28])), 413, "at most 40 rows"),
        (request(an_input(data=[0] * 783)), 422, "784 values are announced, not 783"),
        (request(an_input(data=[255] + [0] * 783)), 422, "from -1 to 2; found 0 to 255"),
        (request(an_input(data=[1e300] + [0] * 783)), 422, "found 0 to inf"),
        (request(an_input(data=None)), 422, "either data or binary_data_size"),
        (request(outputs=[{"name": "lengths"}]), 422, "'lengths' is unknown"),
        (
            request(outputs=[{"name": "poses", "parameters": {"classification": 3}}]),
            422,
            "classification",
        ),
        (request(a_file("aGVsbG8=")), 415, "the picture is none of"),
        (request(an_input(), a_file("aGVsbG8=")), 422, "send either images or image"),
    ],
)
def test_a_wrong_tensor_is_refused_in_words(
    body: dict[str, Any], status: int, words: str, service: httpx.Client
) -> None:
    """Names, shapes, datatypes, values and files, each before anything is computed."""
    found, text = refusal(service.post(URL, json=body))
    assert status == found
    assert words in text


def test_a_missing_input_is_named(service: httpx.Client) -> None:
    """Whether another is sent, or an image file alone."""
    url = f"/v2/models/{MODEL}.decoder/infer"
    poses = {"name": "poses", "shape": [1, 16], "datatype": "FP32", "data": [0] * 16}
    answer = service.post(url, json=request(poses))
    assert (422, "the input labels is missing") == refusal(answer)
    answer = service.post(url, content=SEVEN, headers=RAW)
    assert (422, "the input poses is missing") == refusal(answer)


@pytest.mark.parametrize("name", ["nothing", "mnist", f"{MODEL}.encoder", f"{MODEL}.", ".decoder"])
def test_a_model_that_is_not_loaded_is_not_found(name: str, service: httpx.Client) -> None:
    """Whatever is asked of it."""
    for path, method in (("/infer", "POST"), ("", "GET"), ("/ready", "GET")):
        answer = service.request(method, f"/v2/models/{name}{path}", json=request())
        assert (404, f"there is no model {name!r}") == refusal(answer)


KEY = "a-key-of-these-tests"
INFER = f"/v2/models/{MODEL}/infer"
RAW = {"Inference-Header-Content-Length": "0"}
SEVEN = (SAMPLES / "7.png").read_bytes()


def test_health_needs_no_key_and_all_else_does(settings: Settings) -> None:
    """An orchestrator has no key; a client without one learns how to send it."""
    with serve(settings, api_keys=(SecretStr(KEY),)) as client:
        for path in ("/v2/health/live", "/v2/health/ready"):
            assert 200 == client.get(path).status_code
        for path in ("/v2", f"/v2/models/{MODEL}", f"/v2/models/{MODEL}/ready", "/v2/nowhere"):
            answer = client.get(path)
            assert (401, ["error"]) == (answer.status_code, list(answer.json()))
            assert "WWW-Authenticate" in answer.headers
        for header in ({"X-API-Key": KEY}, {"Authorization": f"Bearer {KEY}"}):
            assert 200 == client.get("/v2", headers=header).status_code
            assert 200 == client.post(INFER, content=SEVEN, headers=RAW | header).status_code


ROOT = Path(__file__).parents[4]


@pytest.mark.parametrize("name", ["tritonclient_http", "tritonclient_grpc"])
def test_an_example_reads_a_digit(name: str, service: httpx.Client, grpc_port: int) -> None:
    """Tensors over HTTP, the file over gRPC."""
    code = (ROOT / "examples" / f"{name}.py").read_text()
    port = service.base_url.port if name.endswith("http") else grpc_port
    command = ["-c", code.replace('"mnist"', '"mnist-compact"')]
    ended = subprocess.run(
        [sys.executable, *command, f"127.0.0.1:{port}", SAMPLES / "7.png"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (0, "7\n") == (ended.returncode, ended.stdout), ended.stderr
