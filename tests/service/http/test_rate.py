from __future__ import annotations

import base64
import json
import warnings
from collections.abc import Iterator
from pathlib import Path

import grpc
import httpx
import pytest
from fastapi.testclient import TestClient
from tritonclient.grpc import service_pb2

from service import admission
from service.api.v2.grpc import SERVICE
from service.pictures import SAMPLES
from service.settings import Settings
from tests.processes import PATIENCE_S, SOURCE, free_port, running
from tests.serving import serve

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # generated for the protobuf before the one that runs
    import tritonclient.grpc as triton

MODEL = "mnist-compact"
SEVEN = (SAMPLES / "7.png").read_bytes()
FIRST, SECOND, THIRD = "the-first-key-of-three", "the-second-key-of-three", "the-third-of-three"
BURST = 4


@pytest.fixture(scope="module")
def grpc_port() -> int:
    """Where the service answers gRPC."""
    return free_port()


@pytest.fixture(scope="module")
def service(grpc_port: int, tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx.Client]:
    """A service in a process of its own, a row an hour for each of three keys after four."""
    keys: Path = tmp_path_factory.mktemp("keys") / "keys"
    keys.write_text("\n".join((FIRST, SECOND, THIRD)))
    environment = {
        "CAPSNET_API_KEYS_FILE": str(keys),
        "CAPSNET_DEFAULT_MODEL": MODEL,
        "CAPSNET_DEVICE": "cpu",
        "CAPSNET_GRPC_PORT": str(grpc_port),
        "CAPSNET_MODELS": json.dumps([MODEL]),
        "CAPSNET_RATE_BURST_PER_KEY": str(BURST),
        "CAPSNET_RATE_LIMIT_PER_KEY": str(1 / 3600),
        "CAPSNET_WORKERS": "1",
    }
    with running(lambda _: SOURCE, environment) as (_, client):
        yield client


def test_a_key_is_limited_over_http_and_others_are_not(service: httpx.Client) -> None:
    """Images count as rows; probes, metrics and the page are not limited, nor another key."""
    first, second = {"X-API-Key": FIRST}, {"Authorization": f"Bearer {SECOND}"}
    two = [("file", SEVEN)] * 2
    taken = [service.post("/classify", files=two, headers=first) for _ in range(2)]
    assert [200, 200] == [answer.status_code for answer in taken]
    refused = service.post("/classify", files=two, headers=first)
    assert (429, "urn:capsnet:problem:rate-limited") == (
        refused.status_code,
        refused.json()["type"],
    )
    assert 3500 < int(refused.headers["retry-after"]) <= 3600
    assert 429 == service.get("/models", headers=first).status_code
    for path in ("/livez", "/readyz", "/metrics", "/", "/static/page.css"):
        assert 200 == service.get(path, headers=first).status_code
    assert 200 == service.post("/classify", files=two, headers=second).status_code
    metrics = service.get("/metrics", headers=first).text
    assert 'capsnet_rejections_total{reason="rate-limited"} 2.0' in metrics


def test_a_key_is_limited_over_grpc(service: httpx.Client, grpc_port: int) -> None:
    """By the same bucket as over HTTP: RESOURCE_EXHAUSTED, with when to try again."""
    third = {"X-API-Key": THIRD}
    answers = [service.get("/models", headers=third) for _ in range(BURST - 1)]
    assert {200} == {answer.status_code for answer in answers}
    headers = {"x-api-key": THIRD}
    with triton.InferenceServerClient(f"127.0.0.1:{grpc_port}") as client:
        assert MODEL == client.get_model_metadata(MODEL, headers=headers).name
        with pytest.raises(triton.InferenceServerException, match="rows a second") as refused:
            client.get_model_metadata(MODEL, headers=headers)
        assert "StatusCode.RESOURCE_EXHAUSTED" == refused.value.status()
        assert client.is_server_ready()
    request = service_pb2.ModelMetadataRequest(name=MODEL).SerializeToString()
    with grpc.insecure_channel(f"127.0.0.1:{grpc_port}") as channel:
        ask = channel.unary_unary(f"/{SERVICE}/ModelMetadata")
        with pytest.raises(grpc.RpcError) as error:
            ask(request, timeout=PATIENCE_S, metadata=list(headers.items()))
    assert int(dict(error.value.trailing_metadata())["retry-after"]) > 3500
    assert 429 == service.get("/models", headers=third).status_code


@pytest.fixture(scope="module")
def settings() -> Settings:
    """One of the bundles that ship."""
    return Settings(models=(MODEL,), default_model=MODEL, device="cpu", threads=1)


def test_without_keys_an_address_is_limited(settings: Settings) -> None:
    """A proxy that is trusted says whose it is; unknown routes and probes are free."""
    with serve(settings, rate_limit_per_key=1 / 3600, rate_burst_per_key=1) as running:
        client, other = (
            TestClient(running.app, client=(f"10.0.0.{n}", 1), base_url="http://localhost")
            for n in (1, 2)
        )
        assert 200 == client.get("/models").status_code
        assert [429, 404, 200] == [
            client.get(path).status_code for path in ("/models", "/nowhere", "/readyz")
        ]
        assert 200 == other.get("/models").status_code


def test_each_file_that_is_no_picture_costs_a_row(settings: Settings) -> None:
    """Many in one request cost as much as in many."""
    with serve(settings, rate_limit_per_key=1 / 3600, rate_burst_per_key=5) as client:
        files = [("file", b"text")] * 5
        statuses = [client.post("/classify", files=files).status_code for _ in "12"]
        assert [200, 429] == statuses


@pytest.fixture
def a_row_is_a_microsecond(monkeypatch: pytest.MonkeyPatch) -> None:
    """Measured work costs many rows, however fast this machine is."""
    monkeypatch.setattr(admission, "ROW_S", 1e-6)


@pytest.mark.usefixtures("a_row_is_a_microsecond")
def test_a_drawing_is_charged_for_the_time_that_it_takes(settings: Settings) -> None:
    """Its rows are fewer than the burst, so its time makes the next request wait."""
    picture, png = {"file": SEVEN}, {"Accept": "image/png"}
    with serve(settings, rate_limit_per_key=1 / 3600, rate_burst_per_key=20) as client:
        drawn = client.post("/routing", files=picture, headers=png)
        refused = client.get("/models")
    assert [200, 429] == [drawn.status_code, refused.status_code]
    assert int(refused.headers["retry-after"]) > 20 * 3600


def test_a_full_queue_costs_nothing(settings: Settings) -> None:
    """What the service refuses by itself leaves the caller the row that it has not computed."""
    with serve(settings, rate_limit_per_key=1 / 3600, rate_burst_per_key=3) as client:
        client.app.state.admission.waiting_cost = settings.max_waiting_rows
        body = {"images": [base64.b64encode(SEVEN).decode()] * 3}
        assert 429 == client.post("/classify", json=body).status_code
        client.app.state.admission.waiting_cost = 0
        assert 200 == client.post("/classify", json=body).status_code
