"""Who may ask: API keys, where any are set."""

from __future__ import annotations

import hashlib
import hmac
import re
from collections.abc import Iterable
from pathlib import Path

from fastapi import Security
from fastapi.security import APIKeyHeader, HTTPBearer
from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from service.middleware import HttpMiddleware
from service.problems import Unauthorized
from service.settings import Settings, SettingsError

KEY_HEADER = "X-API-Key"
OPEN_PATHS = frozenset({"/", "/livez", "/readyz"})
"""The page and the probes."""
OPEN_FOLDER = "/static/"
"""The page's files."""
SECURITY_SCHEMES = [
    Security(HTTPBearer(auto_error=False, description="An API key.")),
    Security(APIKeyHeader(name=KEY_HEADER, auto_error=False, description="An API key.")),
]
"""What the OpenAPI document says of the keys; it is `Access` that asks for them."""
_KEY = re.compile(r"[!-~]{16,}")
"""Visible ASCII: what an HTTP header carries unchanged."""


class ApiKeys:
    """A set of keys, of which only digests are kept.

    Raises:
        SettingsError: a key is too short or cannot be sent in a header.
    """

    def __init__(self, keys: Iterable[str]) -> None:
        self._digests = [_digest(_checked(key, number)) for number, key in enumerate(keys, 1)]

    def __bool__(self) -> bool:
        return bool(self._digests)

    def admit(self, offered: str) -> bool:
        """Whether this is one of the keys; takes as long whichever it is, or none."""
        digest = _digest(offered)
        return any([hmac.compare_digest(digest, one) for one in self._digests])  # noqa: C419  all of them


def read_keys(settings: Settings) -> ApiKeys:
    """The keys of the settings and of the file that the settings name.

    Raises:
        SettingsError: the file cannot be read or is empty, or a key is unfit.
    """
    keys = [key.get_secret_value() for key in settings.api_keys]
    if settings.api_keys_file is not None:
        keys += _read_file(settings.api_keys_file)
    return ApiKeys(keys)


def _read_file(path: Path) -> list[str]:
    try:
        lines = [line.strip() for line in path.read_text().splitlines()]
    except (OSError, UnicodeDecodeError) as error:
        raise SettingsError(f"the file of API keys cannot be read: {error}") from error
    keys = [line for line in lines if line and not line.startswith("#")]
    if not keys:
        raise SettingsError(f"the file of API keys is empty: {path}")
    return keys


def _checked(key: str, number: int) -> str:
    if not _KEY.fullmatch(key):
        raise SettingsError(f"API key {number} is not 16 or more visible ASCII characters")
    return key


def _digest(key: str) -> bytes:
    return hashlib.sha256(key.encode()).digest()


class Access(HttpMiddleware):
    """Asks for a key everywhere but at the probes, the page and the page's files."""

    def __init__(self, app: ASGIApp, *, keys: ApiKeys) -> None:
        super().__init__(app)
        self._keys = keys

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let the request pass, or raise Unauthorized."""
        path: str = scope["path"]
        if path not in OPEN_PATHS and not path.startswith(OPEN_FOLDER):
            offered = _offered(Headers(scope=scope))
            if offered is None:
                raise Unauthorized(f"send an API key: Authorization: Bearer ... or {KEY_HEADER}")
            if not self._keys.admit(offered):
                raise Unauthorized("the API key is not one of this service's")
        await self.app(scope, receive, send)


def _offered(headers: Headers) -> str | None:
    scheme, _, token = headers.get("authorization", "").partition(" ")
    if scheme.lower() == "bearer":
        return token.strip()
    return headers.get(KEY_HEADER)
