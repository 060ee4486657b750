"""Ray's own settings of the tests, for what they start."""

from __future__ import annotations

import importlib
import importlib.util
import secrets
import warnings
from collections.abc import Iterator

import pytest

if not importlib.util.find_spec("ray"):  # the extra has no wheels for this Python
    collect_ignore_glob = ["test_*.py"]


@pytest.fixture(scope="session", autouse=True)
def _own_clusters() -> Iterator[None]:
    """Clusters of the tests have a token of their own, and find none of other people's.

    Ray is imported here: other test processes, which only collect these tests, save the seconds.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it uses pydantic as earlier versions had it
        for name in ("ray.data", "ray.serve"):
            importlib.import_module(name)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAY_AUTH_MODE", "token")
        patch.setenv("RAY_AUTH_TOKEN", secrets.token_hex(32))
        patch.setenv("RAY_raylet_start_wait_time_s", "120")  # machines may be busy
        patch.delenv("RAY_ADDRESS", raising=False)
        yield
