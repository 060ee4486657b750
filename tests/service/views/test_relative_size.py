from __future__ import annotations

import pytest

from model.preprocess.header import Header
from service.pictures import ImageSpec
from service.pictures.pools import Weighed
from service.views import relative_size

NATIVE, FOUR_TIMES, PHOTOGRAPH = (28, 28), (112, 28), (4000, 3000)


@pytest.mark.parametrize(
    ("fit", "sizes", "expected"),
    [
        ("none", [NATIVE], 1),
        ("none", [NATIVE, FOUR_TIMES, FOUR_TIMES], 3),
        ("none", [PHOTOGRAPH], 4),
        ("auto", [PHOTOGRAPH], 1),
        ("stretch", [PHOTOGRAPH], 1),
        ("none", [], 1),
    ],
)
def test_only_images_that_keep_their_size_cost_more(
    fit: str, sizes: list[tuple[int, int]], expected: int
) -> None:
    """As many times as they have more pixels, on average; a photograph is scaled or refused."""
    files = [Weighed(b"", Header("PNG", width, height)) for width, height in sizes]
    spec = ImageSpec((1, 28, 28), "digit", fit, any_size=True)  # type: ignore[arg-type]
    assert expected == relative_size(files, spec)
    assert 1 == relative_size(files, spec._replace(any_size=False))
