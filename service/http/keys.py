"""Check who asks: API keys and admin keys, where any are set, and the pages of other sites."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Mapping
from ipaddress import ip_address
from pathlib import Path
from typing import Literal

from fastapi import Security
from fastapi.security import APIKeyHeader, HTTPBearer
from pydantic import SecretStr
from starlette.datastructures import Headers
from starlette.types import Scope

from service.errors import CrossSite, Forbidden, Unauthorized, UnknownHost
from service.settings import Settings, SettingsError

Permission = Literal["public", "key", "admin"]
"""Who may ask a route: anybody, clients with an API key, or clients with an admin key."""
KEY_HEADER = "X-API-Key"
SECURITY_SCHEMES = [
    Security(HTTPBearer(auto_error=False, description="An API key.")),
    Security(APIKeyHeader(name=KEY_HEADER, auto_error=False, description="An API key.")),
]
"""The security schemes of the OpenAPI document."""
_KEY = re.compile(r"[!-~]{16,}")
"""The form of a key: visible ASCII, which an HTTP header carries unchanged."""

_ANY = "*"
_LOOPBACK = ("localhost", "127.0.0.1", "[::1]")


class Sites:
    """The hosts by whose names the service is asked, and the origins of pages that may ask it."""

    def __init__(self, settings: Settings) -> None:
        default = (*_LOOPBACK, settings.host) if _is_loopback(settings.host) else (_ANY,)
        self._hosts = frozenset(settings.allowed_hosts or default)
        self._origins = frozenset(settings.cors_origins)

    def check(self, method: str, headers: Mapping[bytes, bytes]) -> None:
        """Refuse a request that a page of another site causes.

        Links to this service are followed, as nothing of another site sees what they show.

        Raises:
            UnknownHost: it is for a host that this service is not.
            CrossSite: a page of another site sends it, whose origin is not allowed.
        """
        host = headers.get(b"host", b"").decode("latin-1").lower()
        name = host if host.endswith("]") else host.rpartition(":")[0] or host
        if host and _ANY not in self._hosts and name.rstrip(".") not in self._hosts:
            raise UnknownHost(f"this service is not {name[:64]!r}; see CAPSNET_ALLOWED_HOSTS")
        if headers.get(b"sec-fetch-site") != b"cross-site":
            return
        is_link = method == "GET" and headers.get(b"sec-fetch-mode") == b"navigate"
        origin = headers.get(b"origin", b"").decode("latin-1")
        if not (is_link or self._origins & {_ANY, origin}):
            raise CrossSite("pages of other sites may not ask; see CAPSNET_CORS_ORIGINS")


def _is_loopback(host: str) -> bool:
    try:
        return host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        return False


class Access:
    """The API keys and admin keys; only their digests are kept.

    They come from the settings and the files that those name, or from `dumped`.

    The route of a request says who may call it: its attribute `permission`. A route without this
    attribute answers 403. So an included router, whose inner routes are not asked, is never open by
    accident. A path that no route has needs an API key. Admin keys open every route.

    Raises:
        SettingsError: a file cannot be read or is empty, or a key is unfit.
    """

    def __init__(self, settings: Settings, dumped: str | None = None) -> None:
        if dumped:
            self.replace(dumped)
            return
        self.api = _read("API", settings.api_keys, settings.api_keys_file)
        self.admin = _read("admin", settings.admin_keys, settings.admin_keys_file)

    def dump(self) -> str:
        """Return the digests as one line of JSON."""
        return json.dumps([sorted(map(bytes.hex, keys)) for keys in (self.api, self.admin)])

    def replace(self, text: str) -> None:
        """Replace the digests by those that `dump` returned."""
        self.api, self.admin = (frozenset(map(bytes.fromhex, keys)) for keys in json.loads(text))

    def check(self, scope: Scope, permission: Permission | None) -> bytes | None:
        """Check a request's key.

        Args:
            scope: of the request.
            permission: that its route declares.

        Returns:
            The digest of its key; None if it needs none.

        Raises:
            Unauthorized: it needs a key, and brings none that is known.
            Forbidden: it needs an admin key, and brings an API key; or its route declares nothing.
        """
        if not (self.api or self.admin):
            return None
        if permission is None:
            raise Forbidden("this route does not say who may call it")
        if permission == "public" or (permission == "key" and not self.api):
            return None
        headers = Headers(scope=scope)
        scheme, _, token = headers.get("authorization", "").partition(" ")
        sent = token.strip() if scheme.lower() == "bearer" else headers.get(KEY_HEADER)
        if sent is None:
            raise Unauthorized(f"send an API key: Authorization: Bearer ... or {KEY_HEADER}")
        digest = _digest(sent)
        if digest not in self.api | self.admin:
            raise Unauthorized("invalid API key")
        if permission == "admin" and digest not in self.admin:
            raise Forbidden("this route requires an admin key")
        return digest


def _read(kind: str, keys: Iterable[SecretStr], path: Path | None) -> frozenset[bytes]:
    """Hash the given keys and those in a file, if one is named."""
    values = [key.get_secret_value() for key in keys]
    if path:
        try:
            lines = [line.strip() for line in path.read_text().splitlines()]
        except (OSError, UnicodeDecodeError) as error:
            raise SettingsError(f"the file of {kind} keys cannot be read: {error}") from error
        in_file = [line for line in lines if line and not line.startswith("#")]
        if not in_file:
            raise SettingsError(f"the file of {kind} keys is empty: {path}")
        values += in_file
    for number, key in enumerate(values, 1):
        if not _KEY.fullmatch(key):
            raise SettingsError(f"{kind} key {number} is not 16 or more visible ASCII characters")
    return frozenset(map(_digest, values))


def _digest(key: str) -> bytes:
    return hashlib.sha256(key.encode()).digest()
