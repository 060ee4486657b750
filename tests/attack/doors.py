"""Attacks on keys, and on what nginx keeps from the public."""

from __future__ import annotations

from tests.attack.cases import Site, attack
from tests.attack.service import ADMIN_KEY, KEY
from tests.attack.wire import CLOSED, request

DENIED = (400, 401, 403, 404, 405, 307, 308, CLOSED)
RELOADS = (
    "/models/reload",
    "/models/reload%0A",
    "/models/reload%0a%0a",
    "/models/reload%0d",
    "/models/reload%00",
    "/models/reload%20",
    "/models/reload/",
    "/models/reload?",
    "/models/reload;x",
    "/models%2Freload",
    "/models//reload",
    "/models/./reload",
    "/models/x/../reload",
    "//models/reload",
    "/v1/models/reload",
    "/v1/models/reload%0A",
    "/v1//models/reload",
    "/v1/v1/models/reload%0A",
    "/%76%31/models/reload",
    "/static/../models/reload",
    "/static/%2e%2e/models/reload%0A",
    "http://localhost/models/reload%0A",
)
METRICS = (
    "/metrics",
    "/metrics?",
    "/metrics/",
    "/metrics%0a",
    "/metrics%0A%0A",
    "/metrics%00",
    "//metrics",
    "/./metrics",
    "/%6d%65trics",
    "/static/../metrics",
    "/v1/metrics",
    "/v1/metrics%0a",
    "/v1//metrics",
    "/v1/../metrics",
    "/v1/../v1/metrics",
    "/%76%31/metrics",
    "/v1/v1/metrics",
    "http://localhost/metrics",
)


async def _reload(site: Site, key: str) -> None:
    for path in RELOADS:
        await site.send(request(path, method="POST", key=key))


@attack("reload without a key", door="admin", allowed=DENIED)
async def reload_without_key(site: Site) -> None:
    """Spellings of the admin's route, with no key."""
    await _reload(site, "")


@attack("reload with an API key", door="keys", allowed=DENIED)
async def reload_with_api_key(site: Site) -> None:
    """Spellings of the admin's route, with the key of an ordinary client."""
    await _reload(site, KEY)


@attack("reload through nginx", door="nginx", allowed=(*DENIED, 429), short=True)
async def reload_through_nginx(site: Site) -> None:
    """The same through nginx, which decodes paths before it passes them on."""
    await _reload(site, "")
    await _reload(site, KEY)


@attack("metrics through nginx", door="nginx", allowed=(*DENIED, 429), short=True)
async def metrics_through_nginx(site: Site) -> None:
    """Spellings of the metrics' route, which nginx keeps from the public; asked as an admin."""
    for path in METRICS:
        await site.send(request(path, key=ADMIN_KEY))


@attack("guessed keys", door="keys", allowed=(401, 429, CLOSED))
async def guessed_keys(site: Site) -> None:
    """Keys that are wrong, long, not ASCII, doubled or empty."""
    keys = ["x" * 40, "x" * 60_000, "\xff" * 40, KEY[:-1], f"{KEY}, {KEY}", KEY.upper(), " "]
    guesses = [request("/classify", b"x", key=key) for key in keys]
    await site.flood([*guesses, request("/classify", b"x", headers=["Authorization: Bearer "])])


@attack("pipelined behind a good key", door="keys", allowed=(200, 401, CLOSED))
async def pipelined_after_key(site: Site) -> None:
    """One connection whose first request has a key and whose second has none."""
    for path in ("/models", "/models/reload%0A"):
        answer = await site.send(
            request("/models", key=KEY) + request(path, method="POST" if "reload" in path else "")
        )
        assert answer.outcome == 200
