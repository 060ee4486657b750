"""Attacks with what costs the service more than it looks: headers, answers, reads, parsing."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from contextlib import suppress
from itertools import cycle, islice

from tests.attack.bodies import JSON, UNFIT
from tests.attack.cases import Site, attack
from tests.attack.heads import SEVEN, TOO_LONG
from tests.attack.wire import CLOSED, REFUSED, SILENT, Connection, exchange, request, several

PNG = ["Accept: image/png"]
BUSY = (429, 503, 504)
GONE = (CLOSED, REFUSED, SILENT)
_IMAGE = [0.0] * 784
_LIMIT = "X-Request-Timeout: 2"


def _infer(model: str, body: bytes, *headers: str) -> bytes:
    return request(f"/v2/models/{model}/infer", body, headers=headers, kind=JSON)


def _json(name: str, shape: list[int], data: object) -> bytes:
    tensor = {"name": name, "shape": shape, "datatype": "FP32", "data": data}
    return json.dumps({"inputs": [tensor]}, separators=(",", ":")).encode()


async def _leave_unread(site: Site, data: bytes, count: int) -> None:
    """Send a request on each of many connections, and read no answer until the end."""
    opened = []
    for _ in range(count):
        with suppress(OSError):
            opened.append(await Connection.open(site.target, narrow=True))
            await opened[-1].write(data)
    await asyncio.sleep(site.seconds + 10)
    for connection in opened:
        with suppress(TimeoutError):
            async with asyncio.timeout(0.05):
                answer = await connection.read_some(12)
                site.outcomes[int(answer[9:12]) if answer[9:12] else CLOSED] += 1
        connection.close(reset=True)


@attack("400 routings that nobody reads", allowed=(200, *BUSY, *GONE))
async def unread_routings(site: Site) -> None:
    """537 bytes in, 5.2 MB out."""
    image = _json("images", [1, 1, 28, 28], _IMAGE)
    await _leave_unread(site, _infer("mnist.routing", image), 400)


@attack("200 reconstructions that nobody reads", allowed=(200, *BUSY, *GONE))
async def unread_reconstructions(site: Site) -> None:
    """256 poses in, 15 MB of JSON out."""
    inputs = [
        {"name": "poses", "shape": [256, 16], "datatype": "FP32", "data": [0.01] * 256 * 16},
        {"name": "labels", "shape": [256], "datatype": "INT64", "data": [0] * 256},
    ]
    body = json.dumps({"inputs": inputs}).encode()
    await _leave_unread(site, _infer("cifar10.decoder", body), 200)


@attack("10,978 headers", allowed=TOO_LONG, short=True)
async def most_headers(site: Site) -> None:
    """64 KB of the shortest headers, from 64 clients."""
    head = b"GET /livez HTTP/1.1\r\nHost: localhost\r\n" + b"a:\r\n" * 10_978 + b"\r\n"
    await site.flood([head], connections=64)


async def _hurry(site: Site, requests: Sequence[bytes], *, connections: int) -> None:
    """Send requests on kept connections, each as soon as the one before is answered."""
    until = asyncio.get_running_loop().time() + site.seconds

    async def repeat(first: int) -> None:
        connection = await Connection.open(site.target)
        for data in islice(cycle(requests), first, None):
            answer = await connection.exchange(data)
            site.outcomes[answer.outcome] += 1
            if answer.outcome in GONE or asyncio.get_running_loop().time() > until:
                break
        connection.close()

    await asyncio.gather(*(repeat(number) for number in range(connections)))


@attack("64 readers of metrics", allowed=(200, *BUSY))
async def hurried_metrics(site: Site) -> None:
    """After requests of many methods and paths, which leave no trace there."""
    methods = ("DELETE", "PUT", "PATCH", "OPTIONS", "TRACE", "PURGE", "LOCK", "COPY", "BIND")
    paths = ("/classify", "/models", "/livez", "/metrics", "/v2", "/docs", "/sweep", "/routing")
    for method in methods:
        for path in paths:
            await site.send(request(path, method=method))
    site.outcomes.clear()
    await _hurry(site, [request("/metrics")], connections=64)


@attack("64 readers of models", allowed=(200, 422, *BUSY))
async def hurried_models(site: Site) -> None:
    """A manifest, and parameters that are unknown by the thousand."""
    unknown = "&".join(f"a{number}" for number in range(1_400))
    reads = [request("/models/cifar10"), request(f"/models?{unknown}"), request("/models")]
    await _hurry(site, reads, connections=64)


@attack("V2 JSON of 1.5 million values", allowed=UNFIT)
async def many_values(site: Site) -> None:
    """Objects, zeros and 256 images, from twelve clients."""
    shape = [256, 1, 28, 28]
    bodies = [
        _json("images", shape, [{}] * 1_570_000),
        _json("images", shape, [0] * 1_570_000),
        _json("images", shape, [0.12345] * 256 * 784),
    ]
    await site.flood([_infer("mnist", body) for body in bodies], connections=12)


@attack("Content-Type of 64 KB", allowed=(400, 415, 431, CLOSED), short=True)
async def long_types(site: Site) -> None:
    """Semicolons, which took a tenth of a second to read."""
    kind = "multipart/form-data" + ";" * 64_000
    part = b"--b\r\nContent-Disposition: form-data" + b";" * 64_000 + b"\r\n\r\n\r\n--b--"
    form = request("/classify", part, kind="multipart/form-data; boundary=b")
    await site.flood([request("/classify", b"x", kind=kind), form], connections=8)


@attack("6,000 forwarded addresses of 60 KB", allowed=(200, 422, *BUSY))
async def long_addresses(site: Site) -> None:
    """Each another, from the proxy's own address."""
    for number in range(6_000):
        header = f"X-Forwarded-For: {number}" + "x" * 60_000
        await site.send(request("/models", headers=[header]), source="127.0.0.1")


@attack("other hosts and other sites", allowed=(200, 400, 403), required=(400, 403), short=True)
async def other_sites(site: Site) -> None:
    """A name that was rebound to this address, and a form that another page sends."""
    picture = request("/classify", SEVEN)
    await site.send(picture.replace(b"Host: localhost", b"Host: evil.example"))
    await site.send(request("/classify", SEVEN, headers=["Sec-Fetch-Site: cross-site"]))


@attack("legal and expensive", allowed=(200, *BUSY))
async def expensive(site: Site) -> None:
    """Drawings, 256 poses and 256 images, from twelve clients."""
    poses = json.dumps({"label": 7, "poses": [[0.01] * 16] * 256}).encode()
    noise = _json("images", [256, 1, 28, 28], [0.12345] * 256 * 784)
    requests = [
        request("/equivariance?steps=64", SEVEN, headers=PNG),
        request("/occlusion", SEVEN, headers=PNG),
        request("/routing?scale=16", SEVEN, headers=PNG),
        request("/decode", poses, kind=JSON),
        _infer("mnist", noise),
    ]
    await site.flood(requests, connections=12)


@attack(
    "small requests beside large ones",
    allowed=(200, *BUSY, "small: 200"),
    required=("small: 200",),
)
async def small_beside_large(site: Site) -> None:
    """Twelve clients of 256 images; requests of one image with a deadline of two seconds."""
    large = asyncio.ensure_future(site.flood([several("/classify", [SEVEN] * 256)], connections=12))
    small = request("/classify", SEVEN, headers=[_LIMIT])
    await asyncio.sleep(1)
    while not large.done():
        answer = await exchange(site.target, small)
        site.outcomes[f"small: {answer.outcome}"] += 1
        await asyncio.sleep(0.2)
    await large
