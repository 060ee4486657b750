"""Refuse what web pages of other sites make a browser ask of a service without keys."""

from __future__ import annotations

from collections.abc import Mapping
from ipaddress import ip_address

from service.errors import CrossSite, UnknownHost
from service.settings import Settings

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
