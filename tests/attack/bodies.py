"""Attacks with bodies: held back, nested, divided, compressed."""

from __future__ import annotations

import asyncio
import base64
import gzip
import json

from tests.attack.cases import Site, addresses, attack
from tests.attack.heads import GOOD, SEVEN
from tests.attack.wire import ATTACKER, CLOSED, REFUSED, SILENT, Connection, request

LARGEST = 20_000_000
"""The default of `CAPSNET_MAX_BODY_BYTES`."""
SIZES = [LARGEST] * 25 + [4_000_000] * 10 + [800_000] * 15 + [100_000] * 20 + [10_000] * 30
JSON = "application/json"
FORM = "multipart/form-data; boundary=b"
UNFIT = (400, 413, 415, 422, 429, 503, 504, CLOSED)


async def _withhold(site: Site, sources: list[str]) -> None:
    """Send all but the last bytes of bodies, large ones first, and wait."""
    patience_s = site.seconds + 6

    async def hold(number: int, size: int) -> None:
        data = request("/classify", bytes(size))[:-10]
        source = sources[number % len(sources)]
        await site.send(data, source=source, patience_s=patience_s)

    async with asyncio.TaskGroup() as group:
        for number, size in enumerate(SIZES):
            group.create_task(hold(number, size))
            await asyncio.sleep(0.02)


HELD = (408, 413, 429, 503, SILENT, CLOSED, REFUSED)


@attack("100 bodies without their last bytes", allowed=HELD)
async def withheld_bodies(site: Site) -> None:
    """One address fills the memory that all bodies may take."""
    await _withhold(site, [ATTACKER])


@attack("the same from 50 addresses", allowed=HELD)
async def withheld_everywhere(site: Site) -> None:
    """Many addresses do, two bodies each."""
    await _withhold(site, addresses(50))


@attack("nested JSON", allowed=(200, *UNFIT), short=True)
async def nested_json(site: Site) -> None:
    """JSON that is deep, long or escaped."""
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
    await site.flood([request("/classify", body, kind=JSON) for body in bodies], connections=2)


@attack("8 JSON bodies of 20 MB", allowed=UNFIT)
async def large_json(site: Site) -> None:
    """Base64 as long as a body may be, which is no picture."""
    body = b'{"image":"' + base64.b64encode(bytes(LARGEST * 3 // 4 - 60)) + b'"}'
    await site.flood([request("/classify", body, kind=JSON)], connections=8)


@attack("forms of many parts", allowed=UNFIT, short=True)
async def many_parts(site: Site) -> None:
    """Forms of thousands of parts, of endless headers, of no end, of almost a boundary."""
    part = b'--b\r\nContent-Disposition: form-data; name="file"; filename="f"\r\n\r\n%b\r\n'
    field = b'--b\r\nContent-Disposition: form-data; name="file"\r\n\r\nx\r\n'
    bodies = [
        part % b"x" * 100_000 + b"--b--",
        field * 100_000 + b"--b--",
        b"--b\r\n" + b"A: b\r\n" * 800_000,
        b"--b\r\nContent-Disposition: form-data; " + b"x" * 5_000_000,
        b"\r\n" * 2_500_000,
        part % (b"\r\n--" * 1_250_000),
        part % (b"\r" * 5_000_000),
    ]
    await site.flood([request("/classify", one, kind=FORM) for one in bodies], connections=2)


@attack("compressed bodies", allowed=UNFIT, short=True)
async def compressed(site: Site) -> None:
    """A bomb, for a service that would unpack it."""
    bomb = gzip.compress(bytes(50_000_000))
    headers = ["Content-Encoding: gzip"]
    await site.flood(
        [request("/classify", bomb, headers=headers, kind=kind) for kind in (JSON, "image/png")]
    )


@attack("chunks of a byte", short=True)
async def tiny_chunks(site: Site) -> None:
    """A good picture in chunks of a byte, with long extensions; and a megabyte of such chunks."""
    head = request(
        "/classify",
        method="POST",
        headers=["Transfer-Encoding: chunked", "Content-Type: image/png"],
    )
    good = b"".join(b"1;%b\r\n%c\r\n" % (b"x" * 200, byte) for byte in SEVEN) + b"0\r\n\r\n"
    await site.flood([head + good, head + b"1\r\nx\r\n" * 170_000 + b"0\r\n\r\n"])


@attack("poses that are none", allowed=UNFIT, short=True)
async def odd_poses(site: Site) -> None:
    """`/decode` with numbers that are too many, too large, or none."""
    rows = [
        [[1e308] * 16] * 10,
        [[0] * 100_000],
        [[]] * 100_000,
        [[float("nan")] * 16],
        "x" * 1_000_000,
    ]
    bodies = [json.dumps({"poses": one}).encode() for one in rows]
    await site.flood([request("/decode", body, kind=JSON) for body in bodies], connections=2)


@attack("clients that leave", short=True)
async def leavers(site: Site) -> None:
    """Complete requests whose answer nobody waits for."""
    loop = asyncio.get_running_loop()
    until = loop.time() + site.seconds
    expensive = request("/equivariance", SEVEN)
    while loop.time() < until:
        for data in [GOOD, expensive] * 8:
            try:
                connection = await Connection.open(site.target)
            except OSError:
                site.outcomes[REFUSED] += 1
                continue
            await connection.write(data)
            connection.close(reset=True)
            site.outcomes["left"] += 1
        await asyncio.sleep(0.2)
