"""The service with bundles that ship, in a process of its own, and Triton's client for it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import httpx
import numpy as np
import pytest
import tritonclient.http as triton
from fastapi.testclient import TestClient
from PIL import Image

from model.preprocess import Floats
from service.pictures import SAMPLES
from service.settings import Settings
from tests.processes import PATIENCE_S, SOURCE, free_port, running
from tests.serving import serve

BUNDLES = ["mnist-compact", "mnist-matrix", "cifar10"]
MAX_BODY_BYTES = 300_000


@pytest.fixture(scope="session")
def settings() -> Settings:
    """A bundle that ships, in this process."""
    model = BUNDLES[0]
    limits: dict[str, Any] = {"max_body_bytes": 200_000, "max_pictures": 5}
    return Settings(models=(model,), default_model=model, device="cpu", threads=1, **limits)


@pytest.fixture(scope="session")
def client(settings: Settings) -> Iterator[TestClient]:
    """The service with that bundle, in this process."""
    with serve(settings) as client:
        yield client


@pytest.fixture(scope="session")
def grpc_port() -> int:
    """Where the service answers gRPC."""
    return free_port()


@pytest.fixture(scope="session")
def service(grpc_port: int) -> Iterator[httpx.Client]:
    """The service, for requests that Triton's client would not send."""
    environment = {
        "CAPSNET_DEFAULT_MODEL": BUNDLES[0],
        "CAPSNET_DEVICE": "cpu",
        "CAPSNET_GRPC_PORT": str(grpc_port),
        "CAPSNET_MAX_BODY_BYTES": str(MAX_BODY_BYTES),
        "CAPSNET_MAX_PICTURES": "40",
        "CAPSNET_MODELS": json.dumps(BUNDLES),
        "CAPSNET_WORKERS": "1",
    }
    with running(lambda _: SOURCE, environment) as (_, client):
        yield client


@pytest.fixture(scope="session")
def v2(service: httpx.Client) -> Iterator[triton.InferenceServerClient]:
    """Triton's client."""
    address = f"{service.base_url.host}:{service.base_url.port}"
    with triton.InferenceServerClient(
        address, connection_timeout=PATIENCE_S, network_timeout=PATIENCE_S
    ) as client:
        yield client


@pytest.fixture(scope="session")
def images() -> Floats:
    """A real digit of each class, as the network sees it: (10, 1, 28, 28)."""
    pictures = [Image.open(SAMPLES / f"{label}.png") for label in range(10)]
    return np.stack([np.asarray(one, np.float32)[None] / 255 for one in pictures])
