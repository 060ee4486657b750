from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from capsnet import Limits
from capsnet.images import read_image
from capsnet.transport import form_batches

GREY = np.arange(12, dtype=np.uint8).reshape(3, 4) * 20


def pixels(content: bytes) -> np.ndarray[Any, Any]:
    return np.asarray(Image.open(io.BytesIO(content)))


def test_files_are_sent_as_they_are(tmp_path: Path) -> None:
    """Paths, bytes and open files all give the file's bytes."""
    path = tmp_path / "a.png"
    path.write_bytes(b"content")
    own = b"content"
    sources: tuple[Any, ...] = (str(path), path, own, bytearray(own), memoryview(own))
    assert {own} == {*map(read_image, sources), read_image(io.BytesIO(own))}


@pytest.mark.parametrize("kind", [np.uint8, np.int64, np.float32])
def test_numbers_are_brightness(kind: type) -> None:
    """Integers of whatever size from 0 to 255, floats from 0 to 1, rounded to 8 bits."""
    array = GREY.astype(kind) if issubclass(kind, np.integer) else (GREY / 255).astype(kind)
    np.testing.assert_array_equal(GREY, pixels(read_image(array)))


@pytest.mark.parametrize(
    ("shape", "seen"),
    [
        ((28, 28), (28, 28)),
        ((1, 28, 28), (28, 28)),
        ((20, 30, 3), (20, 30, 3)),
        ((3, 20, 30), (20, 30, 3)),
        ((20, 30, 4), (20, 30, 4)),
    ],
)
def test_channels_come_first_or_last(shape: tuple[int, ...], seen: tuple[int, ...]) -> None:
    """As in torch or as in Pillow."""
    assert seen == pixels(read_image(np.zeros(shape))).shape


@pytest.mark.parametrize(
    ("array", "text"),
    [
        (np.zeros((5, 28, 28)), "list"),
        (np.full((2, 2), 1.5), "0 to 1"),
        (np.full((2, 2), np.nan), "0 to 1"),
        (np.full((2, 2), 256), "0 to 255"),
        (np.full((2, 2), "a"), "numbers"),
    ],
)
def test_other_arrays_are_refused(array: np.ndarray[Any, Any], text: str) -> None:
    """Before anything is sent, with what is expected."""
    with pytest.raises(ValueError, match=text):
        read_image(array)


def test_a_photograph_is_sent_upright() -> None:
    """A PNG of a turned photograph would lose the note that it is turned."""
    photograph, file = Image.new("RGB", (4, 3)), io.BytesIO()
    photograph.getexif()[0x0112] = 6  # to be turned by a quarter
    photograph.save(file, "JPEG", exif=photograph.getexif())
    assert (3, 4) == Image.open(io.BytesIO(read_image(Image.open(file)))).size


@pytest.mark.parametrize(
    ("image", "message"),
    [
        *((one, "an image is a path") for one in (3, None, [1, 2])),
        (io.StringIO("text"), "binary mode"),
    ],
)
def test_what_is_no_image_is_refused(image: Any, message: str) -> None:
    """By its type; of a file of text, with the way to open it."""
    with pytest.raises(TypeError, match=message):
        read_image(image)


def test_batches_have_as_many_images_as_the_service_accepts() -> None:
    """In order, none lost, by number and by bytes."""
    few = form_batches([b"%d" % number for number in range(7)], Limits(images=3, body_bytes=10**9))
    assert [[b"0", b"1", b"2"], [b"3", b"4", b"5"], [b"6"]] == list(few)
    heavy = form_batches([b"x" * 1000] * 5, Limits(images=100, body_bytes=3000))
    assert [2, 2, 1] == [len(batch) for batch in heavy]
