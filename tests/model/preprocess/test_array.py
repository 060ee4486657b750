from __future__ import annotations

import io
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from model.preprocess import open_image, prepare


def npy(array: NDArray[Any], **options: Any) -> bytes:
    """The array as a `.npy` file."""
    file = io.BytesIO()
    np.save(file, array, **options)
    return file.getvalue()


@pytest.fixture(scope="module")
def cube() -> NDArray[np.float64]:
    """(12, 20, 7) values in [0, 1]."""
    return np.random.default_rng(0).random((12, 20, 7))


@pytest.mark.parametrize("dtype", ["<f4", "<f8", ">f4", "u1", "<u2", ">u2"])
@pytest.mark.parametrize("order", ["C", "F"])
def test_arrays_come_out_as_they_went_in(cube: Any, dtype: str, order: Any) -> None:
    """In [0, 1], whatever their type, byte order and layout."""
    most = {"u1": 255, "u2": 65535}.get(dtype[-2:], 1)
    stored = np.asarray((cube * most).astype(dtype), order=order)
    np.testing.assert_allclose(np.asarray(open_image(npy(stored))), cube, atol=1 / 255)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        pytest.param(npy(np.zeros((4, 5)))[:-1], "truncated", id="cut"),
        pytest.param(npy(np.zeros((4, 5)))[:9], "header is truncated", id="cut header"),
        pytest.param(npy(np.zeros((4, 5))) + b"more", "longer", id="more"),
        pytest.param(npy(np.full((4, 5), 1.5)), "from 0 to 1", id="too bright"),
        pytest.param(npy(np.full((4, 5), np.nan)), "from 0 to 1", id="no number"),
        pytest.param(npy(np.zeros((4, 5), complex)), "one picture", id="complex"),
        pytest.param(npy(np.zeros((2, 4, 5, 3))), "one picture", id="several pictures"),
        pytest.param(npy(np.zeros((4, 5, 17))), "1 to 16 channels", id="many channels"),
        pytest.param(npy(np.zeros((0, 5))), "has pixels", id="empty"),
        pytest.param(npy(np.array([[object()]]), allow_pickle=True), "one picture", id="objects"),
    ],
)
def test_other_arrays_are_refused(content: bytes, message: str) -> None:
    """Objects are never unpickled."""
    with pytest.raises(ValueError, match=message):
        open_image(content)


def test_other_arrays_are_cropped_and_scaled() -> None:
    """The middle half of a wide array, averaged."""
    wide = np.zeros((12, 24, 5), np.float32)
    wide[:, 6:18] = np.arange(5) / 4
    image = prepare(wide, (5, 6, 6), rule="crop").image
    expected = np.broadcast_to((np.arange(5) / 4)[:, None, None], (5, 6, 6))
    np.testing.assert_allclose(image, expected, atol=1e-6)
