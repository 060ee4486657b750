"""Requests and files that nobody would send, while a quiet client asks."""

from __future__ import annotations

import asyncio
import base64
import io
import json
import math
import random
import struct
import zlib
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import cache
from itertools import islice, product
from typing import Any

import httpx
import hypothesis
import numpy as np
import requests as http
import schemathesis
from hypothesis import strategies
from PIL import Image
from schemathesis import APIOperation, Case, GenerationMode
from schemathesis.checks import CHECKS

from service.api.v2.http import TENSOR_HEADER
from service.pictures import SAMPLES
from tests.attack.runner import HONEST, MAX_MEMORY
from tests.attack.service import Service, started, warm_up
from tests.fire.generator import finish, quiet_client
from tests.fire.load import Table

Body = tuple[str, dict[str, str], bytes]
"""Path, headers and content."""
_LIES = (0, 1, 0x7F, 0xFF, 0x7FFF, 0x8000, 0xFFFF, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF)
"""Lengths, widths and counts that programs trip over."""
_CHECKS = (
    "status_code_conformance",
    "content_type_conformance",
    "response_headers_conformance",
    "response_schema_conformance",
    "negative_data_rejection",
)
_REFUSALS = (400, 401, 403, 404, 405, 406, 408, 409, 413, 415, 422, 429, 503, 504)
"""Answers that are right where the document forbids a request."""
_PNG = b"\x89PNG\r\n\x1a\n"


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
        "that the OpenAPI document allows or forbids": lambda url: ask(url, by_document, seed),
        "with broken image files": lambda url: send(url, islice(broken_files(seed), each)),
        "with broken bodies": lambda url: send(url, islice(broken_bodies(seed), each)),
    }
    with started("open") as service:
        asyncio.run(warm_up(service.target))
        for name, go in kinds.items():
            _add(table, name, service, go)
    return table


def _add(table: Table, name: str, service: Service, go: Callable[[str], Counter[int]]) -> None:
    before, faults, statuses = service.memory_mib(), list[str](), Counter[int]()
    client = quiet_client(service.target)
    try:
        statuses = go(f"http://127.0.0.1:{service.target.port}")
    except (Exception, BaseExceptionGroup) as error:  # noqa: BLE001  of whichever library
        faults.append(f"{type(error).__name__}: {str(error)[:2_000]}")
    seen, after = finish(client), service.memory_mib()
    faults += [f"{count} others: {what}" for what, count in seen.missed.items()]
    if not service.alive:
        faults.append("the service ended")
    if after > MAX_MEMORY * before:
        faults.append(f"memory {before:.0f} to {after:.0f} MiB")
    faults += service.tracebacks(0)[:3]
    told = ", ".join(f"{count:,} x {status}" for status, count in sorted(statuses.items()))
    others = f"{seen.right}, {seen.refused} refused once, {seen.missed.total()} failed"
    memory = f"{before:.0f}, {after:.0f}"
    cells = (f"{statuses.total():,}", told, others, f"{seen.p99_ms:.0f}", memory)
    table.add(name, *cells, faults=faults)


def send(base_url: str, bodies: Iterator[Body]) -> Counter[int]:
    """Send bodies; how often each status came.

    Raises:
        AssertionError: an answer is a 5xx other than 503 and 504; the message has the request.
    """
    statuses: Counter[int] = Counter()
    with httpx.Client(base_url=base_url, timeout=60) as client:
        for path, headers, content in bodies:
            answer = client.post(path, content=content, headers=headers)
            said = f"{answer.status_code} for {path} {headers} {content.hex()}"
            assert answer.status_code < 500 or answer.status_code in HONEST, said
            statuses[answer.status_code] += 1
    return statuses


# files and bodies, broken in one to three ways; the same for a seed


@cache
def files() -> list[bytes]:
    """Whole files of every format and variant that pillow writes."""
    grey = Image.open(SAMPLES / "7.png").resize((37, 29))
    colour = Image.merge("RGB", (grey, grey.rotate(90, expand=False), grey.rotate(180)))
    clear = colour.copy()
    clear.putalpha(grey)
    exif = Image.Exif()
    exif[0x0112] = 6  # to be turned
    frames = {"save_all": True, "append_images": [colour.rotate(30), colour.rotate(60)]}
    variants: list[tuple[str, Image.Image, dict[str, Any]]] = [
        *((kind, grey, {}) for kind in ("PNG", "JPEG", "BMP", "GIF")),
        *((kind, colour, {}) for kind in ("WEBP", "BMP")),
        *((kind, colour, frames) for kind in ("PNG", "WEBP", "GIF")),
        ("PNG", colour, {"compress_level": 0}),
        ("PNG", clear, {}),
        ("PNG", colour.quantize(16), {"bits": 4}),
        ("PNG", grey.convert("I;16"), {}),
        ("PNG", grey.convert("1"), {}),
        ("BMP", grey.convert("1"), {}),
        ("JPEG", colour, {"exif": exif, "quality": 60}),
        ("JPEG", colour, {"progressive": True}),
        ("JPEG", colour.convert("CMYK"), {}),
        ("JPEG", colour, {"restart_marker_rows": 1}),
        ("WEBP", clear, {"lossless": True, "exif": exif}),
    ]
    written = []
    for kind, image, options in variants:
        file = io.BytesIO()
        image.save(file, kind, **options)
        written.append(file.getvalue())
    return written


def broken_files(seed: int) -> Iterator[Body]:
    """Broken image files, to be classified, without end.

    Of PNG files, half have the checksums of what they became, so that readers do not stop at the
    first chunk.
    """
    rng = random.Random(seed)  # noqa: S311
    while True:
        content = rng.choice(files())
        for _ in range(rng.randint(1, 3)):
            content = mutate(rng, content, files())
        if content.startswith(_PNG) and rng.random() < 0.5:
            content = _with_checksums(content)
        yield "/classify", {"Content-Type": "application/octet-stream"}, content


def broken_bodies(seed: int) -> Iterator[Body]:
    """Broken bodies of every kind that the service reads, without end."""
    rng = random.Random(seed)  # noqa: S311
    whole = bodies()
    while True:
        path, headers, content = rng.choice(whole)
        for _ in range(rng.randint(0, 3)):
            content = mutate(rng, content, [content for _, _, content in whole])
        if TENSOR_HEADER in headers and rng.random() < 0.5:
            lie = rng.choice((-1, 0, 1, 7, len(content), len(content) + 1, 10**9, 10**30))
            headers = {**headers, TENSOR_HEADER: str(lie)}
        yield path, headers, content


def bodies() -> list[Body]:
    """Whole bodies."""
    seven = (SAMPLES / "7.png").read_bytes()
    encoded = base64.b64encode(seven).decode()
    part = b'--b\r\nContent-Disposition: form-data; name="file"; filename="7.png"\r\n\r\n' + seven
    form = part + b"\r\n" + part + b"\r\n--b--\r\n"
    as_form = {"Content-Type": "multipart/form-data; boundary=b"}
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


def mutate(rng: random.Random, content: bytes, others: list[bytes]) -> bytes:
    """Any bytes, broken in one way; rather at the beginning, where headers are."""
    position = int(len(content) * rng.random() ** 2)
    start, end = sorted(rng.choices(range(len(content) + 1), k=2))
    kind = rng.choice(("bits", "truncate", "duplicate", "remove", "lie", "splice"))
    if kind == "bits":
        changed = bytearray(content)
        for _ in range(rng.randint(1, 16) if changed else 0):
            changed[int(len(changed) * rng.random() ** 2)] ^= 1 << rng.randrange(8)
        return bytes(changed)
    if kind == "truncate":
        return content[: max(1, position)]
    if kind == "duplicate":
        if starts := _chunk_starts(content):
            start, end = sorted(rng.choices([*starts, len(content)], k=2))
        return content[:end] + content[start:end] * rng.choice((1, 1, 2, 100)) + content[end:]
    if kind == "remove":
        return content[:start] + content[min(end, start + 64) :]
    if kind == "lie":
        code = rng.choice(("B", ">H", "<H", ">I", "<I"))
        size = struct.calcsize(code)
        lie = struct.pack(code, rng.choice(_LIES) & ((1 << 8 * size) - 1))
        return content[:position] + lie + content[position + size :]
    other = rng.choice(others)
    return content[: max(1, position)] + other[rng.randrange(len(other)) :]


def _chunk_starts(content: bytes) -> list[int]:
    """Where the chunks of a PNG begin, as far as their lengths lead."""
    starts, position = [], len(_PNG)
    while content.startswith(_PNG) and position + 12 <= len(content):
        starts.append(position)
        position += 12 + int.from_bytes(content[position : position + 4], "big")
    return starts


def _with_checksums(content: bytes) -> bytes:
    """A PNG whose chunks have the right checksums."""
    changed = bytearray(content)
    for start in _chunk_starts(content):
        end = start + 8 + int.from_bytes(content[start : start + 4], "big")
        if end + 4 <= len(content):
            changed[end : end + 4] = zlib.crc32(content[start + 4 : end]).to_bytes(4, "big")
    return bytes(changed)


# requests that follow from the OpenAPI document, and ones that it forbids, by schemathesis


def ask(base_url: str, requests: int, seed: int) -> Counter[int]:
    """Send so many requests or a few more, half of them forbidden; how often each status came.

    Raises:
        AssertionError: an answer is a 5xx other than 503 and 504.
        schemathesis.core.failures.FailureGroup: an answer is none that the document names, or a
            forbidden request was not refused. Both name the request.
    """
    images = strategies.sampled_from(files())
    schemathesis.openapi.format("binary", images)
    schemathesis.openapi.media_type("image/*", images)
    schema = schemathesis.openapi.from_url(f"{base_url}/openapi.json")
    schema.config.checks.negative_data_rejection.expected_statuses = list(map(str, _REFUSALS))
    every = (one.ok() for one in schema.get_all_operations())  # type: ignore[union-attr]
    kinds = list(product(every, GenerationMode))
    statuses: Counter[int] = Counter()
    rng = random.Random(seed)  # noqa: S311
    with http.Session() as session:
        session.trust_env = False
        while statuses.total() < requests:
            each = min(50, math.ceil((requests - statuses.total()) / len(kinds)))
            for operation, mode in kinds:
                call = _caller(base_url, session, operation, mode, rng)
                with suppress(hypothesis.errors.Unsatisfiable):  # there is nothing to do wrong
                    call(each, statuses)
    return statuses


def _caller(
    base_url: str,
    session: http.Session,
    operation: APIOperation,
    mode: GenerationMode,
    rng: random.Random,
) -> Callable[[int, Counter[int]], None]:
    """Sends up to so many requests of one kind to one route."""

    def call(requests: int, statuses: Counter[int]) -> None:
        @hypothesis.seed(rng.getrandbits(64))
        @hypothesis.settings(
            max_examples=requests,
            database=None,
            deadline=None,
            phases=[hypothesis.Phase.generate],
            suppress_health_check=list(hypothesis.HealthCheck),
        )
        @hypothesis.given(case=operation.as_strategy(generation_mode=mode))
        def once(case: Case) -> None:
            if mode is GenerationMode.POSITIVE and rng.random() < 0.8:
                _make_likely(case, rng)
            answer = case.call(base_url=base_url, session=session, timeout=60)
            statuses[answer.status_code] += 1
            told = f"{answer.status_code}: {case.as_curl_command()}"
            assert answer.status_code < 500 or answer.status_code in HONEST, told
            if answer.status_code != 414:  # refused before any route
                checks: Any = CHECKS.get_by_names(_CHECKS)
                case.validate_response(answer, checks=checks)

        once()

    return call


def _make_likely(case: Case, rng: random.Random) -> None:
    """Name no model, and send images that are some: chance finds neither."""
    if case.query:
        case.query.pop("model", None)
    body: Any = case.body
    if isinstance(body, dict):
        images = [base64.b64encode(one).decode() for one in files()]
        if isinstance(body.get("image"), str):
            body["image"] = rng.choice(images)
        if isinstance(body.get("images"), list) and isinstance(body["images"][0], str):
            body["images"] = [rng.choice(images) for _ in body["images"][:4]]
