"""The service in this process."""

from __future__ import annotations

import warnings
from typing import Any

from fastapi import FastAPI

from service.app import create_app
from service.inference.bundles import load_runtimes
from service.inference.engine import open_engine
from service.settings import Settings

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # Starlette would rather have httpx2; httpx does the same
    from fastapi.testclient import TestClient


class Served(TestClient):
    """A client of the service, which runs while the client is entered."""

    app: FastAPI


def serve(settings: Settings, **changes: Any) -> Served:
    """A client of the service with some settings, of which a few are changed."""
    own = settings.model_copy(update=changes)
    engine = open_engine(load_runtimes(own))
    return Served(create_app(own, engine), base_url="http://localhost")
