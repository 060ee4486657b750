from __future__ import annotations

import pytest

from training.data.picture_size import choose_size, describe_crop


@pytest.mark.parametrize(
    ("sizes", "expected"),
    [
        pytest.param([(96, 64)] * 3, (64, 96), id="they keep it"),
        pytest.param([(224, 112)] * 3, (48, 96), id="they are shrunk"),
        pytest.param([(640, 480)] * 3, (72, 96), id="a camera's"),
        pytest.param([(1000, 100)] * 3, (48, 96), id="the ends of a panorama are cropped"),
        pytest.param([(30, 90)] * 3, (60, 30), id="those of a narrow picture too"),
        pytest.param([(50, 40), (30, 60), (90, 80)], (40, 40), id="the median of short sides"),
        pytest.param([(500, 400), (640, 480)], (96, 96), id="photographs"),
    ],
)
def test_the_pictures_decide(sizes: list[tuple[int, int]], expected: tuple[int, int]) -> None:
    """Height and width, of pictures of these widths and heights."""
    assert expected == choose_size(sizes)


@pytest.mark.parametrize(
    ("sizes", "size", "expected"),
    [
        pytest.param([(640, 480)] * 3, (96, 96), None, id="a quarter"),
        pytest.param([(1920, 1080)] * 3, (96, 96), "lose 44 % or more", id="wide pictures"),
        pytest.param(
            [(1000, 100)] * 3, (48, 96), "to 96x48 px, and half of them lose 80 %", id="ends"
        ),
        pytest.param([(100, 100), (100, 100), (900, 100)], (96, 96), None, id="one of three"),
    ],
)
def test_a_folder_s_owner_is_told_what_is_cropped(
    sizes: list[tuple[int, int]], size: tuple[int, int], expected: str | None
) -> None:
    """If half of the pictures lose more than a third."""
    told = describe_crop(sizes, *size)
    assert (expected is None) == (told is None)
    assert (expected or "") in (told or "")
