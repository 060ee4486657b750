from __future__ import annotations

import gzip
import json
import struct
from typing import Any

import httpx
import numpy as np
import pytest
import tritonclient.http as triton

from tests.service.api.v2.conftest import MAX_BODY_BYTES

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
        (request(an_input(shape=[])), 422, "the shape is"),
        (request(an_input(shape=[1])), 422, "the shape is (N, 1, 28, 28)"),
        (request(an_input(shape=[0, 1, 28, 28], data=[])), 422, "N >= 1"),
        (request(an_input(shape=[-1, 1, 28, 28])), 422, "N >= 1"),
        (request(an_input(shape=[41, 1, 28, 28])), 413, "at most 40 rows"),
        (request(an_input(shape=[10**30, 1, 28, 28])), 422, "shape.0: Input should be less"),
        (request(an_input(shape=["1", 1, 28, 28])), 422, "shape"),
        (request(an_input(data=[0] * 783)), 422, "data has the shape (783,)"),
        (request(an_input(data=[[0] * 28] * 28)), 422, "data has the shape (28, 28)"),
        (request(an_input(data=[[0], [0, 1]])), 422, "differ in length or depth"),
        (request(an_input(data=["0"] * 784)), 422, "not FP32"),
        (request(an_input(data=[None] * 784)), 422, "not FP32"),
        (request(an_input(data=["x" * 95_000, *["x"] * 783])), 422, "not FP32"),
        (request(an_input(data=["x"] * 1_000)), 422, "not FP32"),
        (request(an_input(data=["x"] * 62_000)), 413, "values per tensor"),
        (request(an_input(data=[0] * 783 + [[0]])), 422, "differ in length or depth"),
        (request(an_input(data=[[[0]] * 784])), 422, "data has the shape (1, 784, 1)"),
        (request(an_input(data=[[]] * 30_000)), 413, "values per tensor"),
        (request(an_input(data=[])), 422, "data has the shape (0,)"),
        (request(an_input(data=[False] * 784)), 422, "not FP32"),
        (request(an_input(data=[255] + [0] * 783)), 422, "from -1 to 2; found 0 to 255"),
        (request(an_input(data=[10**300] + [0] * 783)), 422, "found 0 to inf"),
        (request(an_input(data=[1e300] + [0] * 783)), 422, "found 0 to inf"),
        (request(an_input(data=None)), 422, "either data or binary_data_size"),
        (request(an_input(parameters={"binary_data_size": 8})), 422, "either data or"),
        (request(an_input(parameters={"shared_memory_region": "x"})), 422, "unknown parameter"),
        (request(an_input(more=1)), 422, "unknown parameter inputs.0.more"),
        (request(an_input(), image=1), 422, "unknown parameter image"),
        (request(outputs=[{"name": "lengths"}]), 422, "'lengths' is unknown"),
        (request(outputs=[{"name": "poses"}] * 2), 422, "asked for twice"),
        (request(outputs=[{"name": "poses", "parameters": {"classification": 3}}]), 422, "unknown"),
        (request(binary(9)), 400, "1 rows have 3,136 bytes, not 0"),
        (request(id=7), 422, "id"),
        (request(a_file("$")), 400, "not base64"),
        (request(a_file(7)), 400, "base64 string"),
        (request(a_file("", "")), 422, "1 elements are announced, not 2"),
        (request(a_file("aGVsbG8=")), 415, "the picture is none of"),
        (request(a_file("iVBORw0KGgoAAAA=")), 422, "truncated or corrupt"),
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


@pytest.mark.parametrize("value", ["NaN", "Infinity", "-Infinity"])
def test_numbers_are_finite(
    value: str, service: httpx.Client, v2: triton.InferenceServerClient
) -> None:
    """Some JSON writers send what JSON has not; in bytes it does not reach the batch of others."""
    body = json.dumps(request(an_input(data=["x"] + [0] * 783))).replace('"x"', value)
    status, text = refusal(service.post(URL, content=body))
    assert 422 == status
    assert "values are finite" in text
    image = triton.InferInput("images", list(IMAGE.shape), "FP32")
    with pytest.raises(triton.InferenceServerException, match="values are finite") as refused:
        v2.infer(MODEL, [image.set_data_from_numpy(IMAGE + np.float32(value))])
    assert "422" == refused.value.status()


def test_a_tensor_is_as_long_as_it_says(service: httpx.Client) -> None:
    """A larger size is no way to say all that is left."""
    head = json.dumps(request(binary(10**9))).encode()
    headers = {LENGTH: str(len(head))}
    status, text = refusal(service.post(URL, content=head + IMAGE.tobytes(), headers=headers))
    assert 422 == status
    assert "binary_data_size is 1,000,000,000; 3,136 bytes are left" in text


@pytest.mark.parametrize(
    ("length", "cut", "status", "words"),
    [
        (None, 0, 400, "Invalid JSON"),
        ("5", 0, 400, "Invalid JSON"),
        ("99999", 0, 400, "the body has"),
        ("-1", 0, 400, "is a number of bytes"),
        ("1e2", 0, 400, "is a number of bytes"),
        ("9" * 5000, 0, 400, "is a number of bytes"),
        ("true", 1, 400, "1 rows have 3,136 bytes, not 3,135"),
        ("true", 3136, 400, "1 rows have 3,136 bytes, not 0"),
        ("true", -4, 400, "4 bytes follow the last tensor"),
        ("0", 0, 422, "the shape is"),
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
    "content",
    [b"", b"\x05\0\0", struct.pack("<I", 9) + b"short", struct.pack("<I", 0) + b"more"],
    ids=["none", "half a length", "too short", "too long"],
)
def test_elements_of_bytes_have_their_lengths(content: bytes, service: httpx.Client) -> None:
    """Of datatype BYTES, whose elements differ in size."""
    image = binary(len(content), name="image", shape=[1], datatype="BYTES")
    head = json.dumps(request(image)).encode()
    answer = service.post(URL, content=head + content, headers={LENGTH: str(len(head))})
    status, text = refusal(answer)
    assert 400 == status
    assert "are not 1 elements" in text


@pytest.mark.parametrize(
    ("labels", "poses", "words"),
    [
        ([10], [0.0] * 16, "labels: values are finite and from 0 to 9; found 10 to 10"),
        ([-1], [0.0] * 16, "from 0 to 9"),
        ([1.0], [0.0] * 16, "not INT64"),
        ([1], [10.5] * 16, "from -10 to 10"),
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
    for path, method in (("/infer", "POST"), ("", "GET"), ("/ready", "GET"), ("/config", "GET")):
        answer = service.request(method, f"/v2/models/{name}{path}", json=request())
        assert (404, f"there is no model {name!r}") == refusal(answer)


@pytest.mark.parametrize(
    ("encoding", "content", "status", "words"),
    [
        ("br", b"", 415, "gzip or deflate, not br"),
        ("gzip", b"{}", 400, "the body is not gzip"),
        ("deflate", gzip.compress(b"{}", mtime=0), 400, "the body is not deflate"),
        ("gzip", gzip.compress(bytes(9999), mtime=0)[:-20], 400, "ends within or after"),
        ("gzip", gzip.compress(b"{}", mtime=0) + b"more", 400, "ends within or after"),
        (
            "gzip",
            gzip.compress(bytes(MAX_BODY_BYTES + 1), mtime=0),
            413,
            "inflated body exceeds 300,000",
        ),
        ("gzip", gzip.compress(bytes(50_000_000), mtime=0), 413, "inflated body exceeds 300,000"),
    ],
)
def test_compressed_bodies_are_limited(
    encoding: str, content: bytes, status: int, words: str, service: httpx.Client
) -> None:
    """Streams that end early or late, and ones that inflate to more than a body may have."""
    answer = service.post(URL, content=content, headers={"Content-Encoding": encoding})
    found, text = refusal(answer)
    assert status == found
    assert words in text


@pytest.mark.parametrize("encoding", ["identity", "Identity", ""])
def test_a_body_may_be_sent_as_it_is(encoding: str, service: httpx.Client) -> None:
    """Names of encodings have no case, and an empty list of them has none (RFC 9110, 8.4)."""
    headers = {"Content-Encoding": encoding}
    assert 200 == service.post(URL, json=request(), headers=headers).status_code


def test_a_body_counts_as_what_it_inflates_to(service: httpx.Client) -> None:
    """Not as that and its compressed bytes together, which may be more than a body may have."""
    noise = np.random.default_rng(0).random((40, 1, 28, 28), np.float32)
    content = gzip.compress(noise.tobytes())
    assert 2 * len(content) > MAX_BODY_BYTES - len(noise.tobytes())
    headers = {"Content-Encoding": "gzip", LENGTH: "0"}
    assert 200 == service.post(URL, content=content, headers=headers).status_code


def test_a_million_small_values_are_not_parsed(service: httpx.Client) -> None:
    """More values than the largest tensor has are refused by their commas alone."""
    body = b'{"inputs": [' + b"{}," * 70_000 + b"{}]}"
    status, text = refusal(service.post(URL, content=body))
    assert 413 == status
    assert "values per tensor" in text


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [("GET", "/v2/nowhere", 404), ("GET", URL, 405), ("POST", "/v2", 405)],
)
def test_paths_that_are_none_have_errors_of_the_protocol(
    method: str, path: str, status: int, service: httpx.Client
) -> None:
    """Everything under /v2 has."""
    assert status == refusal(service.request(method, path))[0]


@pytest.mark.parametrize("limit", ["0", "nan", "soon"])
def test_a_deadline_that_is_none_is_refused(limit: str, service: httpx.Client) -> None:
    """`X-Request-Timeout` counts here too."""
    answer = service.post(URL, json=request(), headers={"X-Request-Timeout": limit})
    assert (422, "X-Request-Timeout is a positive number of seconds") == refusal(answer)
