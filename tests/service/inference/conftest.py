"""Coroutine tests run on asyncio."""

from __future__ import annotations

import pytest


@pytest.fixture
def anyio_backend() -> str:
    """What the service runs on."""
    return "asyncio"
