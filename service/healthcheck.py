"""Ask the service of this container whether it is ready: `python -m service.healthcheck`."""

from __future__ import annotations

import os
import sys
from contextlib import closing
from http import HTTPStatus
from http.client import HTTPConnection, HTTPException

TIMEOUT_S = 2.0
_LOOPBACK = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104  asked, not bound
"""Loopback addresses of servers that listen on all addresses."""


def main() -> None:
    """Exit with 0 if `/readyz` answers 200, else with 1 and the reason.

    Runs every few seconds next to the service, so it reads the address without the settings.
    """
    host = os.environ.get("CAPSNET_HOST") or "127.0.0.1"
    port = int(os.environ.get("CAPSNET_PORT") or 8000)
    with closing(HTTPConnection(_LOOPBACK.get(host, host), port, timeout=TIMEOUT_S)) as connection:
        try:
            connection.request("GET", "/readyz")
            status = connection.getresponse().status
        except (OSError, HTTPException) as error:
            sys.exit(f"not ready: {error}")
    sys.exit(None if status == HTTPStatus.OK else f"not ready: {status}")


if __name__ == "__main__":
    main()
