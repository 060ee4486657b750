from __future__ import annotations

from typing import Any

import httpx
import pytest

MODEL = "mnist-compact"
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


@pytest.mark.parametrize("name", ["nothing", "mnist", f"{MODEL}.encoder", f"{MODEL}.", ".decoder"])
def test_a_model_that_is_not_loaded_is_not_found(name: str, service: httpx.Client) -> None:
    """Whatever is asked of it."""
    for path, method in (("/infer", "POST"), ("", "GET"), ("/ready", "GET")):
        answer = service.request(method, f"/v2/models/{name}{path}", json=request())
        assert (404, f"there is no model {name!r}") == refusal(answer)
