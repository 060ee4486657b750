"""Pictures in and out of answers."""

from __future__ import annotations

import base64
import io
from collections.abc import Callable
from importlib.util import find_spec

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image

_NEEDS = {
    "api/v2": ("grpc", "tritonclient"),
    "http/test_openapi.py": ("jsonschema",),
    "http/test_rate.py": ("grpc", "tritonclient"),
    "telemetry/test_secrets.py": ("grpc",),
    "views/test_segment.py": ("torch",),
}
"""The packages besides the extra `cpu` that tests of one module, or folder, need."""


def _is_installed(package: str) -> bool:
    try:
        return find_spec(package) is not None
    except ModuleNotFoundError:  # nor is its parent
        return False


collect_ignore = [
    path for path, packages in _NEEDS.items() if not all(map(_is_installed, packages))
]


_EXPORTED = frozenset(
    {
        "test_a_bundle_without_the_numbers_says_so",
        "test_health_is_shown_in_numbers_and_drawn",
        "test_one_bundle_is_shown_whole",
        "test_the_loaded_bundles_are_listed",
    }
)
"""Tests of sizes and facts that only the bundles have which torch exports."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip tests of bundles that cannot be exported here."""
    if not _is_installed("torch"):
        for item in items:
            if getattr(item, "originalname", "") in _EXPORTED:
                item.add_marker(pytest.mark.skip("torch exports the bundles of this test"))


@pytest.fixture(scope="session")
def pixels() -> Callable[[str | bytes], NDArray[np.int64]]:
    """`pixels(picture)` gives a PNG's grey levels (H, W), from bytes or a data URL."""

    def read(picture: str | bytes) -> NDArray[np.int64]:
        if isinstance(picture, str):
            head, _, encoded = picture.partition(",")
            assert "data:image/png;base64" == head
            picture = base64.b64decode(encoded, validate=True)
        image = Image.open(io.BytesIO(picture), formats=["PNG"])
        assert "L" == image.mode
        return np.asarray(image, np.int64)

    return read


@pytest.fixture(scope="session")
def photo(digits: list[bytes]) -> bytes:
    """A digit on a larger, light ground, as a JPEG of 200x120 pixels."""
    ground = Image.new("L", (200, 120), 230)
    seven = Image.open(io.BytesIO(digits[7])).resize((84, 84))
    ground.paste(20, (50, 20), seven)
    file = io.BytesIO()
    ground.save(file, "JPEG", quality=90)
    return file.getvalue()
