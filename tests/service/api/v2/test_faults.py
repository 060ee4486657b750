from __future__ import annotations

import gzip
import json
from typing import Any

import httpx
import numpy as np
import pytest

MODEL = "mnist-compact"
URL = f"/v2/models/{MODEL}/infer"
IMAGE = np.zeros((1, 1, 28, 28), np.float32)
LENGTH = "Inference-Header-Content-Length"


def an_input(**members: Any) -> dict[str, Any]:
    """One black image as JSON, but for some members."""
    whole = {"name": "images", "shape": [1, 1, 28, 28], "datatype": "FP32", "data": [0] * 784}
    return {**whole, **members}


def a_file(*data: Any) -> dict[str, Any]:
    """The same as a file."""
    return an_input(name="image", datatype="BYTES", shape=[1, 1], data=list(data))


def binary(size: int, **members: Any) -> dict[str, Any]:
    """The same, its values announced as bytes."""
    one = an_input(parameters={"binary_data_size": size}, **members)
    return {name: value for name, value in one.items() if name != "data"}


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
        (request(outputs=[{"name": "poses", "parameters": {"classification": 3}}]), 422, "unknown"),
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


@pytest.mark.parametrize(
    ("length", "cut", "status", "words"),
    [
        (None, 0, 400, "Invalid JSON"),
        ("99999", 0, 400, "the body has"),
        ("true", 1, 400, "1 rows have 3,136 bytes, not 3,135"),
        ("true", -4, 400, "4 bytes follow the last tensor"),
        ("0", 0, 415, "the picture is none of"),
        ("-1", 0, 400, "is a number of bytes"),
    ],
)
def test_headers_that_lie_are_refused(
    length: str | None, cut: int, status: int, words: str, service: httpx.Client
) -> None:
    """The body is cut short or too long, or the JSON ends elsewhere."""
    head = json.dumps(request(binary(3136))).encode()
    tensors = IMAGE.tobytes()[: 3136 - cut] if cut >= 0 else IMAGE.tobytes() + bytes(-cut)
    told = str(len(head)) if length == "true" else length
    headers = {} if told is None else {LENGTH: told}
    content = head + tensors if length != "0" else b"\0" * 100
    found, text = refusal(service.post(URL, content=content, headers=headers))
    assert status == found
    assert words in text


@pytest.mark.parametrize(
    ("labels", "poses", "words"),
    [
        ([10], [0.0] * 16, "labels: values are finite and from 0 to 9; found 10 to 10"),
        (None, [0.0] * 16, "labels is missing"),
        ([1, 2], [0.0] * 16, "the same number of rows"),
    ],
)
def test_poses_and_labels_are_in_range(
    labels: list[Any] | None, poses: list[float], words: str, service: httpx.Client
) -> None:
    """As for `/decode`."""
    inputs = [{"name": "poses", "shape": [1, 16], "datatype": "FP32", "data": poses}]
    if labels:
        shape = [len(labels)]
        inputs += [{"name": "labels", "shape": shape, "datatype": "INT64", "data": labels}]
    body = {"inputs": inputs}
    status, text = refusal(service.post(f"/v2/models/{MODEL}.decoder/infer", json=body))
    assert 422 == status
    assert words in text


@pytest.mark.parametrize("name", ["nothing", "mnist", f"{MODEL}.encoder", f"{MODEL}.", ".decoder"])
def test_a_model_that_is_not_loaded_is_not_found(name: str, service: httpx.Client) -> None:
    """Whatever is asked of it."""
    for path, method in (("/infer", "POST"), ("", "GET"), ("/ready", "GET")):
        answer = service.request(method, f"/v2/models/{name}{path}", json=request())
        assert (404, f"there is no model {name!r}") == refusal(answer)


def test_compressed_bodies_are_refused(service: httpx.Client) -> None:
    """Whatever they would become."""
    headers = {"Content-Encoding": "gzip"}
    assert (415, "send the body as it is, not as gzip") == refusal(
        service.post(URL, content=gzip.compress(b"{}"), headers=headers)
    )
