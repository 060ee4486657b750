"""Requests and files that nobody would send, while a quiet client asks."""

from __future__ import annotations

import asyncio
import base64
import json
import random
from collections import Counter
from collections.abc import Callable, Iterator
from itertools import islice

import httpx
import numpy as np

from service.http.middleware import TENSOR_HEADER
from service.pictures import SAMPLES
from tests.attack.cases import HONEST
from tests.attack.client import start_client, stop_client
from tests.attack.runner import MAX_MEMORY
from tests.attack.service import Service, started, warm_up
from tests.fire import images, openapi
from tests.fire.table import Table

_BOUNDARY = "boundary"
Body = tuple[str, dict[str, str], bytes]
"""Path, headers and content."""


def fuzz(*, requests: int = 100_000, seed: int = 1) -> Table:
    """Send so many requests: a twentieth by the document, as they take long to make."""
    columns = [
        "requests",
        "how many",
        "answers",
        "others",
        "p99 of others, ms",
        "MiB before, after",
    ]
    table = Table("Fuzzed requests, next to a client of ten requests a second", columns)
    by_document = requests // 20
    each = (requests - by_document) // 2
    kinds: dict[str, Callable[[str], Counter[int]]] = {
        "that the OpenAPI document allows or forbids": lambda url: openapi.fuzz(
            url, by_document, seed
        ),
        "with broken image files": lambda url: images.send(url, requests=each, seed=seed),
        "with broken bodies": lambda url: send(url, requests=each, seed=seed),
    }
    with started("open") as service:
        asyncio.run(warm_up(service.target))
        for name, ask in kinds.items():
            _add(table, name, service, ask)
    return table


def _add(table: Table, name: str, service: Service, ask: Callable[[str], Counter[int]]) -> None:
    before, faults, statuses = service.memory_mib(), list[str](), Counter[int]()
    client = start_client(service.target)
    try:
        statuses = ask(f"http://127.0.0.1:{service.target.port}")
    except (Exception, BaseExceptionGroup) as error:  # noqa: BLE001  of whichever library
        faults.append(f"{type(error).__name__}: {str(error)[:2_000]}")
    seen, after = stop_client(client), service.memory_mib()
    faults += [f"{count} others: {what}" for what, count in seen.failures.items()]
    if not service.alive:
        faults.append("the service ended")
    if after > MAX_MEMORY * before:
        faults.append(f"memory {before:.0f} to {after:.0f} MiB")
    faults += service.tracebacks(0)[:3]
    table.add(
        name,
        f"{statuses.total():,}",
        ", ".join(f"{count:,} x {status}" for status, count in sorted(statuses.items())),
        f"{seen.answered}, {seen.refused} refused once, {sum(seen.failures.values())} failed",
        f"{seen.p99_ms:.0f}",
        f"{before:.0f}, {after:.0f}",
        faults=faults,
    )


def send(base_url: str, *, requests: int, seed: int) -> Counter[int]:
    """Send so many broken bodies; how often each status came.

    Raises:
        AssertionError: an answer is a 5xx other than 503 and 504; the message has the request.
    """
    statuses: Counter[int] = Counter()
    with httpx.Client(base_url=base_url, timeout=60) as client:
        for path, headers, content in islice(bodies(seed), requests):
            answer = client.post(path, content=content, headers=headers)
            said = f"{answer.status_code} for {path} {headers} {content.hex()}"
            assert answer.status_code < 500 or answer.status_code in HONEST, said
            statuses[answer.status_code] += 1
    return statuses


def bodies(seed: int) -> Iterator[Body]:
    """Broken bodies of every kind that the service reads, without end; the same for a seed."""
    rng = random.Random(seed)  # noqa: S311
    whole = originals()
    contents = [content for _, _, content in whole]
    while True:
        path, headers, content = rng.choice(whole)
        for _ in range(rng.randint(0, 3)):
            content = images.mutate(rng, content, contents)
        if TENSOR_HEADER in headers and rng.random() < 0.5:
            lie = rng.choice((-1, 0, 1, 7, len(content), len(content) + 1, 10**9, 10**30))
            headers = {**headers, TENSOR_HEADER: str(lie)}
        yield path, headers, content


def originals() -> list[Body]:
    """Whole bodies."""
    seven = (SAMPLES / "7.png").read_bytes()
    encoded = base64.b64encode(seven).decode()
    part = (
        f'--{_BOUNDARY}\r\nContent-Disposition: form-data; name="file"; filename="7.png"\r\n'
        "Content-Type: image/png\r\n\r\n"
    ).encode()
    form = (part + seven + b"\r\n") * 2 + f"--{_BOUNDARY}--\r\n".encode()
    as_form = {"Content-Type": f"multipart/form-data; boundary={_BOUNDARY}"}
    as_json = {"Content-Type": "application/json"}
    infer = "/v2/models/mnist-compact/infer"
    tensor = {"name": "images", "datatype": "FP32", "shape": [1, 1, 28, 28]}
    values = np.full((1, 1, 28, 28), 0.5, np.float32)
    plain = {"inputs": [{**tensor, "data": values.ravel().tolist()}]}
    binary = {"inputs": [{**tensor, "parameters": {"binary_data_size": values.nbytes}}]}
    file = {"inputs": [{"name": "image", "datatype": "BYTES", "shape": [1, 1], "data": [encoded]}]}
    head = json.dumps(binary).encode()
    lengths = {"Content-Type": "application/octet-stream", TENSOR_HEADER: str(len(head))}
    routes = ("/classify", "/perturb?dim=4&delta=0.1", "/segment", "/neighbours")
    return [
        *((route, as_form, form) for route in routes),
        *((route, as_json, json.dumps({"image": encoded}).encode()) for route in routes),
        ("/classify", as_json, json.dumps({"images": [encoded] * 3}).encode()),
        (infer, as_json, json.dumps(plain).encode()),
        (infer, as_json, json.dumps(file).encode()),
        (infer, lengths, head + values.tobytes()),
    ]
