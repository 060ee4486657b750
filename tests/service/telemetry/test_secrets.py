from __future__ import annotations

import json
import socket
from collections.abc import Iterator

import grpc
import httpx
import pytest
from tritonclient.grpc import service_pb2

from service.api.v2.grpc import SERVICE
from service.pictures import SAMPLES
from tests.processes import PATIENCE_S, SOURCE, free_port, patch_workers, running

MODEL = "mnist-compact"
SEVEN = (SAMPLES / "7.png").read_bytes()
API_KEY, ADMIN_KEY = "4ac1a9d5f0e1-an-api-key", "7be2c8aa9d10-an-admin-key"
UNKNOWN_KEY = "c0ffee123456-nobody-s-key"
KEYS = (API_KEY, ADMIN_KEY, UNKNOWN_KEY)
BREAK_ROUTING = """
def trace(*_arguments):
    raise RuntimeError("broken by a test")

Runtime.trace = trace
"""


@pytest.fixture(scope="module")
def traces(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """What a service with keys has written of keys everywhere: log and metrics.

    And the rights of others to its files, as bytes in the octal system.
    """
    folder = tmp_path_factory.mktemp("secrets")
    temporary = tmp_path_factory.mktemp("temporary")
    grpc_port, log = free_port(), folder / "log"
    with log.open("wb") as file:
        environment = {
            "CAPSNET_ADMIN_KEYS": json.dumps([ADMIN_KEY]),
            "CAPSNET_API_KEYS": json.dumps([API_KEY]),
            "CAPSNET_DEFAULT_MODEL": MODEL,
            "CAPSNET_DEVICE": "cpu",
            "CAPSNET_GRPC_PORT": str(grpc_port),
            "CAPSNET_MODELS": json.dumps([MODEL]),
            "CAPSNET_WORKERS": "1",
            "TMPDIR": str(temporary),
            **patch_workers(folder, BREAK_ROUTING),
        }
        started = running(lambda _: SOURCE, environment, stdout=file, stderr=file)
        with started as (_, client):
            statuses = {status for key in KEYS for status in send_everywhere(client, key)}
            codes = {code for key in KEYS for code in call_with(grpc_port, key)}
            metrics = client.get("/metrics", headers={"X-API-Key": API_KEY}).content
            rights = [f"{path.stat().st_mode & 0o077:o}" for path in temporary.iterdir()]
    assert {200, 400, 401, 403, 404, 405, 406, 415, 422, 500} <= statuses
    assert {"OK", "UNAUTHENTICATED", "NOT_FOUND", "INVALID_ARGUMENT"} <= codes
    disk = " ".join(rights).encode()
    return {"log": log.read_bytes(), "metrics": metrics, "disk": disk}


def send_everywhere(client: httpx.Client, key: str) -> Iterator[int]:
    """Statuses of requests with a key in every place where somebody might put it."""
    seven = {"file": SEVEN}
    for good in ({"X-API-Key": key}, {"X-API-Key": API_KEY}):
        yield client.post("/classify", files=seven, headers=good).status_code
        for path in (f"/{key}", f"/models/{key}", f"/static/{key}", f"/v2/models/{key}"):
            yield client.get(path, headers=good).status_code
        for query in ({"api_key": key}, {key: "1"}, {"model": key}, {"dim": key}):
            yield client.post("/perturb", params=query, files=seven, headers=good).status_code
        yield client.get("/models", params={"key": key}, headers=good).status_code
        bodies = ({"image": key}, {key: key}, {"images": [key]}, key)
        yield from (client.post("/classify", json=one, headers=good).status_code for one in bodies)
        yield client.post("/classify", files={key: (key, SEVEN)}, headers=good).status_code
        yield client.post("/classify", files={"file": (key, key)}, headers=good).status_code
        for header in ("Accept", "Content-Type", "X-Request-Timeout", "User-Agent", "Cookie"):
            headers = {**good, header: key}
            yield client.post("/classify", content=SEVEN, headers=headers).status_code
        yield client.post("/routing", params={}, files=seven, headers=good).status_code
        yield client.put("/models", headers=good).status_code
        yield client.post("/models/reload", headers=good).status_code
    for value in (f"Bearer {key}", key, f"Basic {key}", f"Bearer {key} {key}", f"Token {key}"):
        yield client.get("/models", headers={"Authorization": value}).status_code
    yield client.get("/models", auth=(key, key)).status_code
    for request in (f"GET /?{key} FTP\r\n\r\n", f"{key} / HTTP/1.1\r\n\r\n", f"{key}\r\n\r\n"):
        with socket.create_connection((client.base_url.host, client.base_url.port)) as connection:
            connection.sendall(request.encode())
            yield int(connection.makefile("rb").readline().split()[1])


def call_with(port: int, key: str) -> Iterator[str]:
    """Codes of gRPC calls with a key in every place."""
    named = service_pb2.ModelInferRequest(model_name=key, id=key).SerializeToString()
    wrong = service_pb2.ModelInferRequest(model_name=MODEL, id=key)
    wrong.parameters[key].string_param = key
    request = wrong.SerializeToString()
    with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
        for name in ("x-api-key", "authorization", "api-key"):
            value = f"Bearer {key}" if name == "authorization" else key
            metadata = {"x-api-key": API_KEY, name: value}
            for method, body in (
                ("ServerMetadata", b""),
                ("ModelInfer", named),
                ("ModelInfer", request),
                ("ModelInfer", key.encode()),
                (key, b""),
            ):
                call = channel.unary_unary(f"/{SERVICE}/{method}")
                try:
                    call(body, timeout=PATIENCE_S, metadata=list(metadata.items()))
                except grpc.RpcError as error:
                    yield error.code().name
                else:
                    yield "OK"


@pytest.mark.parametrize("key", KEYS)
@pytest.mark.parametrize(
    ("place", "sign"),
    [
        ("log", b"POST /routing 500"),
        ("metrics", b'capsnet_rejections_total{reason="unauthorized"}'),
    ],
)
def test_no_key_is_written(place: str, sign: bytes, key: str, traces: dict[str, bytes]) -> None:
    """Good, privileged or wrong, wherever it was sent: what is kept of requests has none."""
    assert sign in traces[place]
    assert key.encode() not in traces[place]


def test_what_is_kept_on_disk_is_the_user_s_alone(traces: dict[str, bytes]) -> None:
    """Copies of bundles, digests of keys, counts: no other user may open the folder."""
    assert {b"0"} == set(traces["disk"].split())
