from __future__ import annotations

import pytest

from training.data.picture_size import choose_size


@pytest.mark.parametrize(
    ("sizes", "expected"),
    [
        pytest.param([(96, 64)] * 3, (64, 96), id="they keep it"),
        pytest.param([(224, 112)] * 3, (48, 96), id="they are shrunk"),
        pytest.param([(1000, 1)] * 3, (1, 96), id="something is left"),
        pytest.param([(50, 40), (30, 60), (90, 80)], (40, 40), id="the median of short sides"),
        pytest.param([(500, 400), (640, 480)], (96, 96), id="photographs"),
    ],
)
def test_the_pictures_decide(sizes: list[tuple[int, int]], expected: tuple[int, int]) -> None:
    """Height and width, of pictures of these widths and heights."""
    assert expected == choose_size(sizes)
