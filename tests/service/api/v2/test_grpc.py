from __future__ import annotations

import asyncio
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import grpc
import httpx
import numpy as np
import pytest
from pydantic import SecretStr

from model.preprocess import Floats
from service.api.v2.grpc import SERVICE
from service.app import create_app
from service.inference.bundles import load_runtimes
from service.inference.engine import open_engine
from service.settings import Settings
from tests.processes import PATIENCE_S, free_port

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # generated for the protobuf before the one that runs
    import tritonclient.grpc as triton

MODEL = "mnist-compact"


def tensor(name: str, values: Any, datatype: str = "FP32") -> triton.InferInput:
    """An input with its values."""
    return triton.InferInput(name, list(values.shape), datatype).set_data_from_numpy(values)


@contextmanager
def ended() -> Iterator[threading.Event]:
    """An event that is set at the end."""
    event = threading.Event()
    try:
        yield event
    finally:
        event.set()


@pytest.fixture(scope="module")
def v2(service: httpx.Client, grpc_port: int) -> Iterator[triton.InferenceServerClient]:
    """Triton's client for gRPC."""
    assert service.get("/readyz").is_success
    with triton.InferenceServerClient(f"127.0.0.1:{grpc_port}") as client:
        yield client


def test_the_server_and_its_models_are_described(v2: triton.InferenceServerClient) -> None:
    """Five of the six methods."""
    assert v2.is_server_live()
    assert v2.is_server_ready()
    assert v2.is_model_ready(MODEL)
    assert not v2.is_model_ready("nothing")
    assert "binary_tensor_data" in v2.get_server_metadata().extensions
    found = v2.get_model_metadata(f"{MODEL}.decoder", as_json=True)
    shapes = {one["name"]: one["shape"] for one in found["inputs"]}
    assert {"poses": ["-1", "16"], "labels": ["-1", "1"]} == shapes


def test_answers_are_those_over_http(
    v2: triton.InferenceServerClient, service: httpx.Client, images: Floats
) -> None:
    """The same numbers to the last bit."""
    result = v2.infer(MODEL, [tensor("images", images)], request_id="ten")
    sent = {"name": "images", "datatype": "FP32", "shape": [10, 1, 28, 28]}
    body = {"inputs": [{**sent, "data": images.ravel().tolist()}]}
    answer = service.post(f"/v2/models/{MODEL}/infer", json=body).json()
    assert "ten" == result.get_response().id
    for output in answer["outputs"]:
        expected = np.array(output["data"], np.float32).reshape(output["shape"])
        np.testing.assert_array_equal(expected, result.as_numpy(output["name"]))


@pytest.mark.parametrize(
    ("model", "inputs", "code", "words"),
    [
        ("nothing", [np.zeros((1, 1, 28, 28), np.float32)], "NOT_FOUND", "there is no model"),
        (MODEL, [np.zeros((1, 784), np.float32)], "INVALID_ARGUMENT", "the shape is"),
        (MODEL, [np.full((1, 1, 28, 28), np.nan, np.float32)], "INVALID_ARGUMENT", "finite"),
        (MODEL, [np.zeros((41, 1, 28, 28), np.float32)], "INVALID_ARGUMENT", "at most 40 rows"),
        (MODEL, [], "INVALID_ARGUMENT", "same number of rows"),
    ],
)
def test_errors_have_codes_and_words(
    model: str, inputs: list[Any], code: str, words: str, v2: triton.InferenceServerClient
) -> None:
    """The words are those over HTTP."""
    with pytest.raises(triton.InferenceServerException, match=words) as refused:
        v2.infer(model, [tensor("images", one) for one in inputs])
    assert f"StatusCode.{code}" == refused.value.status()


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"\x2a\x00" * 100_000, "a message has at most 16,384 bytes besides raw_input_contents"),
        (b"\x3a\x00" * 100_000, "a message has at most 16,384 bytes besides raw_input_contents"),
        (b"\xff", "the message is not of this method's type"),
        (b"\x2a\x05", "the message is not of this method's type"),
        (b"\x1a\x01\xff", "the message is not of this method's type"),
    ],
)
def test_messages_are_refused_in_words(
    content: bytes, words: str, grpc_port: int, service: httpx.Client
) -> None:
    """Those that are none, and those that would become large."""
    del service
    body = b"\x0a" + bytes([len(MODEL)]) + MODEL.encode() + content
    with grpc.insecure_channel(f"127.0.0.1:{grpc_port}") as channel:
        infer = channel.unary_unary(f"/{SERVICE}/ModelInfer")
        with pytest.raises(grpc.RpcError) as refused:
            infer(body, timeout=PATIENCE_S)
    assert grpc.StatusCode.INVALID_ARGUMENT == refused.value.code()
    assert words in refused.value.details()


def test_keys_hold_for_grpc_too(settings: Settings) -> None:
    """Health needs none; all else does, as metadata, before any of the message is there."""
    key, port = "a-key-of-these-tests", free_port()
    update = {"api_keys": (SecretStr(key),), "grpc_port": port}
    locked = settings.model_copy(update=update)
    app = create_app(locked, open_engine(load_runtimes(locked)))

    async def ask() -> None:
        async with app.router.lifespan_context(app):
            await asyncio.wait_for(asyncio.to_thread(check), PATIENCE_S)

    def check() -> None:
        with triton.InferenceServerClient(f"127.0.0.1:{port}") as client:
            assert client.is_server_ready(client_timeout=PATIENCE_S)
            with pytest.raises(triton.InferenceServerException, match="send an API key") as refused:
                client.get_model_metadata(MODEL)
            assert "StatusCode.UNAUTHENTICATED" == refused.value.status()
            with grpc.insecure_channel(f"127.0.0.1:{port}") as channel, ended() as over:
                infer = channel.stream_unary(f"/{SERVICE}/ModelInfer")
                with pytest.raises(grpc.RpcError, match="send an API key"):
                    infer(iter(over.wait, None), timeout=PATIENCE_S)
            for headers in ({"x-api-key": key}, {"authorization": f"Bearer {key}"}):
                assert MODEL == client.get_model_metadata(MODEL, headers=headers).name

    asyncio.run(ask())
