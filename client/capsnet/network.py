"""A connection ends at a moment, whatever arrives on it: `httpcore` only limits each single read.

The transport takes `httpx.Timeout`'s limits for connecting, reading and writing as moments of
`time.monotonic`. Therefore a server that sends one byte a second cannot hold a caller beyond the
deadline.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from ssl import SSLContext
from typing import Any
from urllib.request import getproxies, proxy_bypass

import httpcore
import httpx

_PIECE_BYTES = 16_384
"""A body is written in pieces, each of which checks the moment."""
_CONNECTIONS = 100


class DeadlineTransport(httpx.BaseTransport):
    """Sends requests to one server, through the proxy that the environment names for it.

    Args:
        url: of the server.
    """

    def __init__(self, url: httpx.URL) -> None:
        options: dict[str, Any] = {
            "ssl_context": httpx.create_ssl_context() if url.scheme == "https" else None,
            "max_connections": _CONNECTIONS,
            "network_backend": _Backend(),
        }
        proxy = _proxy(url)
        self._pool: httpcore.ConnectionPool
        if not proxy:
            self._pool = httpcore.ConnectionPool(**options)
        elif proxy.startswith("socks"):
            self._pool = httpcore.SOCKSProxy(proxy, **options)
        else:
            given = httpx.Proxy(proxy)
            self._pool = httpcore.HTTPProxy(str(given.url), proxy_auth=given.raw_auth, **options)

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        """Send one request, and return its response before its body has been read."""
        url = request.url
        target = httpcore.URL(
            scheme=url.raw_scheme, host=url.raw_host, port=url.port, target=url.raw_path
        )
        asked = httpcore.Request(
            method=request.method,
            url=target,
            headers=request.headers.raw,
            content=request.stream,
            extensions=request.extensions,
        )
        with _of_httpx():
            response = self._pool.handle_request(asked)
        return httpx.Response(
            status_code=response.status,
            headers=response.headers,
            stream=_Body(response),
            extensions=response.extensions,
        )

    def close(self) -> None:
        """Close all connections."""
        self._pool.close()


class _Body(httpx.SyncByteStream):
    def __init__(self, response: httpcore.Response) -> None:
        self._response = response

    def __iter__(self) -> Iterator[bytes]:
        with _of_httpx():
            yield from self._response.iter_stream()

    def close(self) -> None:
        self._response.close()


class _Backend(httpcore.NetworkBackend):
    """Python's sockets, whose timeouts are moments."""

    def __init__(self) -> None:
        self._backend = httpcore.SyncBackend()

    def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[Any] | None = None,
    ) -> httpcore.NetworkStream:
        left_s = _left_s(timeout, httpcore.ConnectTimeout)
        stream = self._backend.connect_tcp(host, port, left_s, local_address, socket_options)
        return _Stream(stream)


class _Stream(httpcore.NetworkStream):
    def __init__(self, stream: httpcore.NetworkStream) -> None:
        self._stream = stream

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        return self._stream.read(max_bytes, _left_s(timeout, httpcore.ReadTimeout))

    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        for start in range(0, len(buffer), _PIECE_BYTES):
            left_s = _left_s(timeout, httpcore.WriteTimeout)
            self._stream.write(buffer[start : start + _PIECE_BYTES], left_s)

    def close(self) -> None:
        self._stream.close()

    def start_tls(
        self,
        ssl_context: SSLContext,
        server_hostname: str | None = None,
        timeout: float | None = None,
    ) -> httpcore.NetworkStream:
        left_s = _left_s(timeout, httpcore.ConnectTimeout)
        return _Stream(self._stream.start_tls(ssl_context, server_hostname, left_s))

    def get_extra_info(self, info: str) -> Any:
        return self._stream.get_extra_info(info)


def _left_s(moment: float | None, late: type[Exception]) -> float | None:
    """The seconds until a moment.

    Raises:
        late: it has passed.
    """
    if moment is None:
        return None
    left_s = moment - time.monotonic()
    if left_s <= 0:
        raise late("the deadline has passed")
    return left_s


def _proxy(url: httpx.URL) -> str | None:
    """The proxy that the environment names for a server (`HTTP_PROXY`, `NO_PROXY` and others)."""
    if proxy_bypass(url.host):
        return None
    proxies = getproxies()
    proxy = proxies.get(url.scheme) or proxies.get("all")
    return proxy if not proxy or "://" in proxy else f"http://{proxy}"


@contextmanager
def _of_httpx() -> Iterator[None]:
    """Errors of httpcore become those of httpx with the same name."""
    try:
        yield
    except (
        httpcore.TimeoutException,
        httpcore.NetworkError,
        httpcore.ProtocolError,
        httpcore.ProxyError,
        httpcore.UnsupportedProtocol,
    ) as error:
        raise getattr(httpx, type(error).__name__)(str(error)) from error
