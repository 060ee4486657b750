"""Attacks over HTTP: what is sent, and what the service may say to it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

from tests.attack.runner import Attack, Case, Site
from tests.attack.service import ADMIN_KEY, KEY
from tests.attack.wire import (
    ATTACKER,
    CLOSED,
    GOOD,
    REFUSED,
    SEVEN,
    Connection,
    exchange,
    held,
    request,
    several,
)
from tests.costly import (
    chunk,
    png,
    profile,
    progressive_jpeg,
    rle_bmp,
    webp,
)

BUSY = (429, 503, 504)
UNFIT = (400, 413, 415, 422, *BUSY, CLOSED)
TOO_LONG = (400, 406, 408, 413, 414, 415, 431, CLOSED, REFUSED)
DENIED = (307, 308, 400, 401, 403, 404, 405, 429, CLOSED)
STILL_OPEN = "still open"
JSON, FORM = "application/json", "multipart/form-data; boundary=b"
PNG = ["Accept: image/png"]
NINES = "9" * 5_001
START = b"GET /livez HTTP/1.1\r\nHost: localhost\r\n"
Make = Callable[[], list[bytes]]
"""Requests, which are large and made when they are needed."""


def flood(make: Make, connections: int = 4) -> Attack:
    """So many clients send the requests in turn."""

    async def attack(site: Site) -> None:
        await site.flood(make(), connections=connections)

    return attack


def at_once(make: Make) -> Attack:
    """Each request once, all at the same time."""

    async def attack(site: Site) -> None:
        await asyncio.gather(*(site.send(data) for data in make()))

    return attack


def in_turn(make: Make, source: str = ATTACKER) -> Attack:
    """Each request once, one after the other."""

    async def attack(site: Site) -> None:
        for data in make():
            await site.send(data, source=source)

    return attack


def keyed(make: Callable[[str], list[bytes]], key: str) -> Attack:
    """Each request once, with a key."""
    return in_turn(lambda: make(key))


def linger(count: int, step: Callable[[Connection, int], Awaitable[object]]) -> Attack:
    """Take a step on each connection every second, and see which the service ends."""

    async def attack(site: Site) -> None:
        opened = [await Connection.open(site.target, narrow=True) for _ in range(count)]
        for second in range(int(site.seconds)):
            lingering = held(site.target)
            for connection in opened:
                if connection.port in lingering:
                    with suppress(ConnectionError, TimeoutError):
                        await step(connection, second)
            await asyncio.sleep(1)
        lingering = held(site.target)
        for connection in opened:
            site.outcomes[STILL_OPEN if connection.port in lingering else CLOSED] += 1
            connection.close()

    return attack


def a_byte_a_second(data: bytes, start: int = 0) -> Callable[[Connection, int], Awaitable[object]]:
    """A step that sends the next byte; what is before the start goes with the first one."""

    def step(connection: Connection, second: int) -> Awaitable[object]:
        first = 0 if second == 0 else start + second
        return connection.write(data[first : start + second + 1])

    return step


# requests


def unframed() -> list[bytes]:
    """Versions and hosts that are none, lengths that are no numbers, bodies with two lengths."""
    versions = [b"GET /livez HTTP/%b\r\nHost: localhost\r\n\r\n" % one for one in (b"0.9", b"2.0")]
    hosts = [b"GET /livez HTTP/1.1\r\n" + one + b"\r\n" for one in (b"", b"Host: a\r\nHost: b\r\n")]
    lengths = (NINES, "1, 2", "-1", "+1", "1.0", "0x10", "1_000")
    framings = [
        *((f"Content-Length: {length}", b"") for length in lengths),
        ("Content-Length: 5\r\nTransfer-Encoding: chunked", b"0\r\n\r\n"),
        ("Transfer-Encoding: chunked", b"f" * 400 + b"\r\n"),
        ("Transfer-Encoding: chunked", b"-1\r\n\r\n"),
        ("Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked", b"zz\r\n"),
        ("Content-Length: 1\r\nContent-Length: 2", b"xx"),
        ("Content-Length : 1", b"x"),
    ]
    start = b"POST /classify HTTP/1.1\r\nHost: localhost\r\n"
    bodies = [start + framing.encode() + b"\r\n\r\n" + body for framing, body in framings]
    return [*versions, *hosts, *bodies]


def intricate_heads() -> list[bytes]:
    """Accept headers of thousands of ranges, deadlines that are none, ranges of files."""
    accepts = [f"Accept: */*,{','.join(f'a{n}/b;q=0.{m}' for m in range(4_000))}" for n in range(4)]
    values = ("nan", "inf", "-1", "1e308", "1e-308", "0", NINES, "9" * 400, "1_0", "", "٣")
    timeouts = [f"X-Request-Timeout: {value}".encode().decode("latin-1") for value in values]
    ranges = ",".join(f"{n}-{n}" for n in range(0, 20_000, 2))[:60_000]
    found = [request("/perturb?dim=4&delta=0.1", SEVEN, headers=[one]) for one in accepts]
    found += [request("/classify", SEVEN, headers=[one]) for one in timeouts]
    return [*found, request("/static/main.js", headers=[f"Range: bytes={ranges}"])]


def nested_json() -> list[bytes]:
    """JSON that is deep, long or escaped; poses that are too many, too large, or none."""
    rows = [
        [[1e308] * 16] * 10,
        [[0] * 100_000],
        [[]] * 100_000,
        [[float("nan")] * 16],
        "x" * 10**6,
    ]
    bodies = [
        b"[" * 4_000_000,
        b'{"a":' * 1_000_000,
        b'{"image":' + b"9" * 4_000_000 + b"}",
        b'{"image":1e99999999}',
        b'{"images":["' + b"\\u0041" * 1_000_000 + b'"]}',
        b'{"images":[' + b'"",' * 255 + b'""]}',
        b'{"image":"a","image":"' + b"A" * 4_000_000 + b'"}',
        b"{" + b"".join(b'"%d":0,' % number for number in range(500)) + b'"image":""}',
    ]
    found = [request("/classify", body, kind=JSON) for body in bodies]
    return found + [
        request("/decode", json.dumps({"poses": one}).encode(), kind=JSON) for one in rows
    ]


def forms() -> list[bytes]:
    """Forms of thousands of parts, of endless headers, of no end, of almost a boundary."""
    part = b'--b\r\nContent-Disposition: form-data; name="file"; filename="f"\r\n\r\n%b\r\n'
    field = b'--b\r\nContent-Disposition: form-data; name="file"\r\n\r\nx\r\n'
    bodies = [
        part % b"x" * 100_000 + b"--b--",
        field * 100_000 + b"--b--",
        b"--b\r\n" + b"A: b\r\n" * 800_000,
        b"--b\r\nContent-Disposition: form-data; " + b"x" * 5_000_000,
        b"--b\r\nContent-Disposition: form-data" + b";" * 64_000 + b"\r\n\r\n\r\n--b--",
        b"\r\n" * 2_500_000,
        part % (b"\r\n--" * 1_250_000),
        part % (b"\r" * 5_000_000),
    ]
    return [request("/classify", one, kind=FORM) for one in bodies]


def chunks() -> list[bytes]:
    """A good picture in chunks of a byte, with long extensions; and a megabyte of such chunks."""
    headers = ["Transfer-Encoding: chunked", "Content-Type: image/png"]
    head = request("/classify", method="POST", headers=headers)
    good = b"".join(b"1;%b\r\n%c\r\n" % (b"x" * 200, byte) for byte in SEVEN) + b"0\r\n\r\n"
    return [head + good, head + b"1\r\nx\r\n" * 170_000 + b"0\r\n\r\n"]


def commented_jpeg(comments: int) -> bytes:
    """A JPEG of empty comments."""
    return b"\xff\xd8" + b"\xff\xfe\0\2" * comments + b"\xff\xd9"


def commented_gif(comments: int) -> bytes:
    """A GIF with a comment of one letter, many times."""
    return b"GIF89a\x1c\0\x1c\0\x80\0\0" + bytes(6) + b"\x21\xfe\x01c\0" * comments + b"\x3b"


def allowed_files() -> list[bytes]:
    """As many pixels, scans and chunks, and as long a side, as may be; alone and together."""
    text = chunk(b"tEXt", b"k\0v")
    made = [progressive_jpeg(5_000, 100), progressive_jpeg(5_000, 6_300), png(5_000, 5_000)]
    made += [png(16_384, 1_525, colour=6), webp(5_000), png(28, 28, *[text] * 9_990)]
    made += [png(28, 28, profile()), commented_gif(190_000)]
    together = [[webp(5_000)] * 16, [progressive_jpeg(999, 100)] * 64]
    alone = [request("/classify", one) for one in made]
    return alone + [several("/classify", one) for one in together]


def infer(body: bytes, *headers: str, model: str = "mnist") -> bytes:
    """A request to the routes of the open inference protocol."""
    return request(f"/v2/models/{model}/infer", body, headers=headers, kind=JSON)


def tensors(*inputs: dict[str, Any], **members: Any) -> bytes:
    """The JSON of such a request."""
    return json.dumps({"inputs": list(inputs), **members}, separators=(",", ":")).encode()


def image(**members: Any) -> dict[str, Any]:
    """One black image, its values announced as bytes, but for some members."""
    size = {"parameters": {"binary_data_size": 4 * 784}}
    return {"name": "images", "shape": [1, 1, 28, 28], "datatype": "FP32", **size, **members}


def values(shape: list[int], data: object) -> dict[str, Any]:
    """Images with their values."""
    return {"name": "images", "shape": shape, "datatype": "FP32", "data": data}


def odd_values() -> list[bytes]:
    """Values that are deep, long, strings or no numbers; inputs and parameters without number."""
    head = b'{"inputs":[{"name":"images","shape":[1,1,28,28],"datatype":"FP32","data":'
    bodies = [
        head + b"[" * 4_000_000,
        head + b"[" * 2_000_000 + b"]" * 2_000_000 + b"}]}",
        head + b"[" + b"0," * 4_000_000 + b"0]}]}",
        head + b"[" + b"[]," * 2_000_000 + b"[]]}]}",
        head + b"[" + b"1e99999999," * 783 + b"0]}]}",
        head + b"9" * 4_000_000 + b"}]}",
        tensors(values([256, 1, 28, 28], [{}] * 1_570_000)),
        tensors(*[image(data=[0])] * 100_000),
        tensors(image(), outputs=[{"name": str(number)} for number in range(100_000)]),
        tensors(image(), parameters={str(number): number for number in range(100_000)}),
    ]
    strings = {
        8: ["x" * 88_000, *["x"] * 6_271],
        255: ["x"] * 399_840,
        4: [[0] * 784, "x" * 1_000_000, [0] * 784, [0] * 784],
        2: [None, *[0] * 1_566, "x" * 1_000_000],
    }
    found = [infer(body) for body in bodies]
    return found + [infer(tensors(values([n, 1, 28, 28], data))) for n, data in strings.items()]


def expensive() -> list[bytes]:
    """Drawings, 256 poses and 256 images."""
    poses = json.dumps({"label": 7, "poses": [[0.01] * 16] * 256}).encode()
    return [
        request("/equivariance?steps=64", SEVEN, headers=PNG),
        request("/occlusion", SEVEN, headers=PNG),
        request("/routing?scale=16", SEVEN, headers=PNG),
        request("/decode", poses, kind=JSON),
        infer(tensors(values([256, 1, 28, 28], [0.12345] * 256 * 784))),
    ]


SPELLINGS = (
    *("/{0}", "/{0}%0A", "/{0}%0a%0a", "/{0}%0d", "/{0}%00", "/{0}%20", "/{0}/", "/{0}?", "/{0};x"),
    *("//{0}", "/./{0}", "/x/../{0}", "/v1/{0}", "/v1/{0}%0A", "/v1//{0}", "/v1/v1/{0}%0A"),
    *("/%76%31/{0}", "/static/../{0}", "/static/%2e%2e/{0}%0A", "http://localhost/{0}%0A"),
)
"""Ways to write a path."""


def reload(key: str) -> list[bytes]:
    """The administrators' route."""
    paths = [one.format("models/reload") for one in SPELLINGS]
    paths += ["/models%2Freload", "/models//reload", "/models/./reload", "/models/x/../reload"]
    return [request(path, method="POST", key=key) for path in paths]


def metrics(key: str) -> list[bytes]:
    """The route that nginx keeps from the public."""
    paths = [*(one.format("metrics") for one in SPELLINGS), "/%6d%65trics", "/v1/../v1/metrics"]
    return [request(path, key=key) for path in paths]


# attacks with a course of their own


async def breaking_off(site: Site) -> None:
    """Connections that end in the middle of a request, or before the answer."""
    loop = asyncio.get_running_loop()
    until = loop.time() + site.seconds
    whole = [GOOD, request("/equivariance", SEVEN)]
    while loop.time() < until:
        for data in [*whole, *(GOOD[: 1 + number * len(GOOD) // 19] for number in range(18))]:
            with suppress(OSError):
                connection = await Connection.open(site.target)
                await connection.write(data)
                connection.close(reset=True)
            site.outcomes["broken off"] += 1
        await asyncio.sleep(0.1)


def bare_lines() -> Attack:
    """An empty line is no request, but was enough to stop the timer."""
    parts = {0: request("/livez"), 1: b"\r\n"}
    return linger(50, lambda connection, second: connection.write(parts.get(second, b"")))


async def small_beside_large(site: Site) -> None:
    """Twelve clients of 256 images; requests of one image with a deadline of two seconds."""
    large = asyncio.ensure_future(site.flood([several("/classify", [SEVEN] * 256)], connections=12))
    small = request("/classify", SEVEN, headers=["X-Request-Timeout: 2"])
    await asyncio.sleep(1)
    while not large.done():
        answer = await exchange(site.target, small)
        site.outcomes[f"small: {answer.outcome}"] += 1
        await asyncio.sleep(0.2)
    await large


async def pipelined_after_key(site: Site) -> None:
    """One connection whose first request has a key and whose second has none."""
    for path in ("/models", "/models/reload%0A"):
        second = request(path, method="POST" if "reload" in path else "")
        connection = await Connection.open(site.target)
        await connection.write(request("/models", key=KEY) + second)
        site.outcomes[f"first: {(await connection.read()).outcome}"] += 1
        site.outcomes[(await connection.read()).outcome] += 1
        connection.close()


SMALL = ("small: 200", *(f"small: {status}" for status in BUSY))
HASTE = ["X-Request-Timeout: 1"]

CASES = [
    Case("no attack", lambda site: asyncio.sleep(site.seconds), short=True, alone=True),
    # heads
    Case("8 heads of 60 MB", at_once(lambda: [START + b"X: " + b"x" * 60_000_000] * 8), TOO_LONG),
    Case("heads that take long to read", flood(intricate_heads), short=True),
    Case("heads that are none", in_turn(unframed), (400, 411, 413, 501, CLOSED), short=True),
    Case("connections that break off", breaking_off, short=True),
    # connections
    *(
        Case(title, attack, (CLOSED,), patient=True)
        for title, attack in {
            "500 connections without a request": linger(500, lambda one, _: one.write(b"")),
            "50 bare CRLFs after an answer": bare_lines(),
            "200 heads of a byte a second": linger(
                200, a_byte_a_second(START + b"X:" + b"x" * 999)
            ),
            "100 bodies of a byte a second": linger(
                100, a_byte_a_second(GOOD, len(GOOD) - len(SEVEN))
            ),
        }.items()
    ),
    # bodies
    Case("nested JSON", flood(nested_json, 2), (200, *UNFIT), short=True),
    Case("forms of many parts", flood(forms, 2), UNFIT, short=True),
    Case("chunks of a byte", flood(chunks), short=True),
    Case("tensors of odd values", flood(odd_values, 4), (200, *UNFIT)),
    # pictures
    Case(
        "2 progressive JPEGs of 6,300 scans",
        flood(lambda: [request("/classify", progressive_jpeg(7_070, 6_300), headers=HASTE)], 2),
        (200, *UNFIT),
        short=True,
        alone=True,
    ),
    Case(
        "BMP of one row of 50 million",
        flood(lambda: [request("/classify", rle_bmp(50_000_000, 1), headers=HASTE)]),
        (200, *UNFIT),
        short=True,
        alone=True,
    ),
    Case(
        "256 JPEGs of 499 comments in one JSON",
        flood(lambda: [several("/classify", [commented_jpeg(499)] * 256)], 30),
        (200, *UNFIT),
        short=True,
        alone=True,
    ),
    Case("files just within the limits", flood(allowed_files, 12), (200, *UNFIT)),
    Case(
        "24 pictures of 16 megapixels",
        flood(lambda: [request("/classify", png(4_000, 4_000))], 24),
        (200, *UNFIT),
    ),
    # work
    Case("legal and expensive", flood(expensive, 12), (200, *BUSY)),
    Case(
        "small requests beside large ones",
        small_beside_large,
        (200, *BUSY, *SMALL),
        ("small: 200",),
    ),
    # keys
    Case(
        "pipelined behind a good key",
        pipelined_after_key,
        ("first: 200", 400, 401, CLOSED),
        ("first: 200",),
        door="keys",
    ),
    Case("reload through nginx", keyed(reload, KEY), DENIED, door="nginx", short=True),
    Case("metrics through nginx", keyed(metrics, ADMIN_KEY), DENIED, door="nginx", short=True),
]
