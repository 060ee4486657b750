"""Ask the service of this container whether it is ready: `python -m service.healthcheck`."""

from __future__ import annotations

import os
import sys
from contextlib import closing
from http import HTTPStatus
from http.client import HTTPConnection, HTTPException

TIMEOUT_S = 2.0


def main() -> None:
    """Exit with 0 if `/readyz` answers 200, else with 1 and the reason.

    Runs every few seconds beside the service, so it reads its port without loading the settings.
    """
    port = os.environ.get("CAPSNET_PORT") or os.environ.get("PORT") or "8000"
    with closing(HTTPConnection("127.0.0.1", int(port), timeout=TIMEOUT_S)) as connection:
        try:
            connection.request("GET", "/readyz")
            status = connection.getresponse().status
        except (OSError, HTTPException) as error:
            sys.exit(f"not ready: {error}")
    sys.exit(None if status == HTTPStatus.OK else f"not ready: {status}")


if __name__ == "__main__":
    main()
