"""Attacks with request lines and headers."""

from __future__ import annotations

import asyncio

from service.pictures import SAMPLES
from tests.attack.cases import Site, attack
from tests.attack.wire import CLOSED, REFUSED, Connection, request

SEVEN = (SAMPLES / "7.png").read_bytes()
GOOD = request("/classify", SEVEN)
TOO_LONG = (400, 408, 413, 414, 431, CLOSED, REFUSED)
NINES = "9" * 5001


async def _side_by_side(site: Site, data: bytes, count: int) -> None:
    await asyncio.gather(*(site.send(data) for _ in range(count)))


@attack("8 heads of 60 MB", allowed=TOO_LONG)
async def long_heads(site: Site) -> None:
    """Headers that never end, as one line."""
    await _side_by_side(
        site, b"GET /livez HTTP/1.1\r\nHost: localhost\r\nX: " + b"x" * 60_000_000, 8
    )


@attack("8 heads of 20 MB in short lines", allowed=TOO_LONG)
async def many_headers(site: Site) -> None:
    """Headers that never end, as four million lines."""
    await _side_by_side(
        site, b"GET /livez HTTP/1.1\r\nHost: localhost\r\n" + b"a: b\r\n" * 3_300_000, 8
    )


@attack("20 heads of 101 headers", allowed=(431,), short=True)
async def refused_twice(site: Site) -> None:
    """Complete, at once: each was refused twice, with a traceback."""
    head = b"GET /livez HTTP/1.1\r\nHost: localhost\r\n" + b"a: b\r\n" * 101 + b"\r\n"
    await _side_by_side(site, head, 20)


@attack("HTTP/0.9 and HTTP/2.0 in a request line", allowed=(400,), short=True)
async def other_versions(site: Site) -> None:
    """They were answered as HTTP/1.1."""
    for version in (b"0.9", b"2.0"):
        await site.send(b"GET /livez HTTP/" + version + b"\r\nHost: localhost\r\n\r\n")


@attack("8 request lines of 60 MB", allowed=TOO_LONG)
async def long_lines(site: Site) -> None:
    """A path that never ends."""
    await _side_by_side(site, b"GET /" + b"x" * 60_000_000, 8)


@attack("heads of 1 MB", allowed=TOO_LONG, short=True)
async def large_heads(site: Site) -> None:
    """Heads that end, but late: a query, a header, a trailer."""
    long = "x" * 1_000_000
    chunked = ["Transfer-Encoding: chunked", "Content-Type: image/png"]
    trailer = request("/classify", method="POST", headers=chunked) + b"0\r\nX: " + long.encode()
    await site.flood(
        [request(f"/models?{long}"), request("/models", headers=[f"X: {long}"]), trailer]
    )


@attack("40 Accept headers of 5 MB", allowed=(406, *TOO_LONG))
async def long_accepts(site: Site) -> None:
    """Headers that a cache keeps for good if they are taken."""
    for number in range(40):
        accept = f"Accept: */*, image/x{number}" + "x" * 5_000_000
        await site.send(request("/perturb?dim=4&delta=0.1", SEVEN, headers=[accept]))


@attack("Accept headers of 60 KB", short=True)
async def intricate_accepts(site: Site) -> None:
    """Thousands of media ranges, each time others, within the limit of a head."""
    headers = [f"Accept: */*,{','.join(f'a{n}/b;q=0.{m}' for m in range(4_000))}" for n in range(8)]
    path = "/perturb?dim=4&delta=0.1"
    await site.flood([request(path, SEVEN, headers=[one]) for one in headers])


@attack("Content-Length of 5,001 digits", allowed=(400, 413, CLOSED), short=True)
async def endless_length(site: Site) -> None:
    """Lengths that are no numbers of bytes: too many digits, several, a sign, a fraction."""
    for length in (NINES, "1, 2", "-1", "+1", "1.0", "0x10", "1_000"):
        head = f"POST /classify HTTP/1.1\r\nHost: localhost\r\nContent-Length: {length}\r\n\r\n"
        await site.send(head.encode())


@attack("a good request, then garbage", required=(200,), allowed=(200,), short=True)
async def garbage_behind(site: Site) -> None:
    """The first request is answered, whatever comes after it."""
    for garbage in (b"\0garbage\r\n\r\n", b"GET\r\n\r\n", b"\x16\x03\x01\x02\0", b"x" * 100_000):
        await site.send(GOOD + garbage)


@attack("no Host, two Hosts", allowed=(400,), short=True)
async def other_hosts(site: Site) -> None:
    """HTTP/1.1 wants one Host (RFC 9112, section 3.2)."""
    await site.send(b"GET /livez HTTP/1.1\r\n\r\n")
    await site.send(b"GET /livez HTTP/1.1\r\nHost: one\r\nHost: two\r\n\r\n")


@attack("a Host in redirects", allowed=(200, 307, 308, 400, 401, 404, 405), short=True)
async def redirected_host(site: Site) -> None:
    """A slash too many is no reason to send people to another host."""
    for path in ("/classify/", "/models/", "/v1/models/", "/static", "/docs/"):
        answer = await site.send(f"GET {path} HTTP/1.1\r\nHost: evil.example\r\n\r\n".encode())
        if b"evil.example" in answer.head:
            site.outcomes["sent to another host"] += 1


@attack("timeouts that are no numbers", short=True)
async def odd_timeouts(site: Site) -> None:
    """Deadlines that are not, or overflow."""
    values = ("nan", "inf", "-1", "1e308", "1e-308", "0", NINES, "9" * 400, "1_0", "", "٣")
    headers = [f"X-Request-Timeout: {value}".encode().decode("latin-1") for value in values]
    await site.flood([request("/classify", SEVEN, headers=[one]) for one in headers])


@attack("ranges of files", short=True)
async def many_ranges(site: Site) -> None:
    """Thousands of pieces of one file."""
    ranges = ",".join(f"{n}-{n}" for n in range(0, 20_000, 2))
    files = ("/static/page.css", "/static/main.js", "/static/index.html", "/")
    await site.flood([request(path, headers=[f"Range: bytes={ranges[:60_000]}"]) for path in files])


@attack("pipelined upgrades", allowed=(200, 400, 431, CLOSED), short=True)
async def many_upgrades(site: Site) -> None:
    """Requests that offer HTTP/2, a megabyte at once: each is parsed twice."""
    one = request("/livez", headers=["Connection: Upgrade", "Upgrade: h2c"])
    await site.flood([one * (1_000_000 // len(one))])


@attack("pipelined requests", allowed=(200, 429, 503, CLOSED), short=True)
async def many_pipelined(site: Site) -> None:
    """Thousands of requests at once on each of four connections, of which one answer is read."""
    await site.flood([GOOD * 1_000, request("/livez") * 5_000])


@attack("smuggled requests", allowed=(400, 411, 413, 501, CLOSED), short=True)
async def smuggled(site: Site) -> None:
    """Bodies with two lengths, or chunks that are none."""
    for framing, body in (
        ("Content-Length: 5\r\nTransfer-Encoding: chunked", b"0\r\n\r\n"),
        ("Transfer-Encoding: chunked", b"f" * 400 + b"\r\n"),
        ("Transfer-Encoding: chunked", b"-1\r\n\r\n"),
        ("Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked", b"zz\r\n"),
        ("Content-Length: 1\r\nContent-Length: 2", b"xx"),
        ("Content-Length : 1", b"x"),
    ):
        await site.send(
            b"POST /classify HTTP/1.1\r\nHost: localhost\r\n"
            + framing.encode()
            + b"\r\n\r\n"
            + body
        )


@attack("resets", short=True)
async def resets(site: Site) -> None:
    """Connections that break off in the middle of a request, one after the other."""
    loop = asyncio.get_running_loop()
    until = loop.time() + site.seconds
    while loop.time() < until:
        connections = [await Connection.open(site.target) for _ in range(20)]
        for number, connection in enumerate(connections):
            await connection.write(GOOD[: 1 + number * len(GOOD) // 19])
            connection.close(reset=True)
        site.outcomes["reset"] += len(connections)
        await asyncio.sleep(0.05)
