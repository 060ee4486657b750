from __future__ import annotations

import numpy as np
import pytest

from training.data.idx import parse_idx


def test_images_keep_their_shape_and_order() -> None:
    """Two images of 2x3 pixels come out row by row."""
    header = b"\0\0\x08\x03" + b"\0\0\0\x02" + b"\0\0\0\x02" + b"\0\0\0\x03"
    expected = [[[0, 1, 2], [3, 4, 5]], [[6, 7, 8], [9, 10, 255]]]
    assert expected == parse_idx(header + bytes([*range(11), 255])).tolist()


def test_labels_are_one_dimensional() -> None:
    """A label file is a plain list of bytes."""
    assert [7, 2, 1] == parse_idx(b"\0\0\x08\x01\0\0\0\x03\x07\x02\x01").tolist()


def test_sizes_are_big_endian() -> None:
    """A size of 00 00 01 02 is 258."""
    assert (258,) == parse_idx(b"\0\0\x08\x01\0\0\x01\x02" + bytes(258)).shape


def test_values_are_unsigned_bytes() -> None:
    """The array's type is uint8, so that 255 stays 255."""
    assert np.uint8 == parse_idx(b"\0\0\x08\x01\0\0\0\x01\xff").dtype


def test_the_array_is_read_only() -> None:
    """The array lies over the file's bytes and cannot be written to."""
    assert not parse_idx(b"\0\0\x08\x01\0\0\0\x01\x05").flags.writeable


@pytest.mark.parametrize(
    "content",
    [
        pytest.param(b"", id="empty"),
        pytest.param(b"\0\0\x08", id="shorter than the magic number"),
        pytest.param(b"\x1f\x8b\x08\x01\0\0\0\x01\x05", id="still compressed"),
        pytest.param(b"\0\0\x0d\x01\0\0\0\x01" + bytes(4), id="floats"),
    ],
)
def test_other_files_are_refused(content: bytes) -> None:
    """What does not start like an IDX file of bytes is not read."""
    with pytest.raises(ValueError, match="not an IDX file of unsigned bytes"):
        parse_idx(content)


def test_a_cut_header_is_refused() -> None:
    """A file that ends within its sizes is not read."""
    with pytest.raises(ValueError, match="header is cut off"):
        parse_idx(b"\0\0\x08\x03\0\0\0\x01\0\0")


@pytest.mark.parametrize(
    "size", [pytest.param(5, id="one byte missing"), pytest.param(7, id="one byte too many")]
)
def test_a_wrong_number_of_bytes_is_refused(size: int) -> None:
    """The message names the announced and the found number of bytes."""
    header = b"\0\0\x08\x02\0\0\0\x02\0\0\0\x03"
    with pytest.raises(ValueError, match=f"announces 6 bytes and {size} follow"):
        parse_idx(header + bytes(size))
