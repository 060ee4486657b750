from __future__ import annotations

import io
import struct

import numpy as np
import pytest
from numpy.typing import NDArray

from training.data.formats import (
    Columns,
    parse_idx,
    parse_norb,
    read_cifar,
    read_idx,
    read_norb,
    read_svhn,
)

TWO_BY_THREE = b"\0\0\x08\x02\0\0\0\x02\0\0\0\x03"


def test_images_keep_their_shape_and_order() -> None:
    """Two images of 2x3 pixels come out row by row; 255 stays 255; none can be written to."""
    header = b"\0\0\x08\x03" + b"\0\0\0\x02" + b"\0\0\0\x02" + b"\0\0\0\x03"
    expected = [[[0, 1, 2], [3, 4, 5]], [[6, 7, 8], [9, 10, 255]]]
    images = parse_idx(header + bytes([*range(11), 255]))
    assert (expected, np.uint8) == (images.tolist(), images.dtype)
    assert not images.flags.writeable


def test_labels_are_one_dimensional() -> None:
    """A label file is a plain list of bytes."""
    assert [7, 2, 1] == parse_idx(b"\0\0\x08\x01\0\0\0\x03\x07\x02\x01").tolist()


def test_sizes_are_big_endian() -> None:
    """A size of 00 00 01 02 is 258."""
    assert (258,) == parse_idx(b"\0\0\x08\x01\0\0\x01\x02" + bytes(258)).shape


@pytest.mark.parametrize(
    ("content", "message"),
    [
        pytest.param(b"", "not an IDX file of unsigned bytes", id="empty"),
        pytest.param(b"\0\0\x08", "not an IDX file", id="shorter than the magic number"),
        pytest.param(b"\x1f\x8b\x08\x01\0\0\0\x01\x05", "not an IDX file", id="still compressed"),
        pytest.param(b"\0\0\x0d\x01\0\0\0\x01" + bytes(4), "not an IDX file", id="floats"),
        pytest.param(b"\0\0\x08\x03\0\0\0\x01\0\0", "header is cut off", id="cut header"),
        pytest.param(TWO_BY_THREE + bytes(5), "6 bytes and 5 follow", id="one byte missing"),
        pytest.param(TWO_BY_THREE + bytes(7), "6 bytes and 7 follow", id="one byte too many"),
    ],
)
def test_other_files_are_refused(content: bytes, message: str) -> None:
    """What is no IDX file of bytes, or has another number of them than its header announces."""
    with pytest.raises(ValueError, match=message):
        parse_idx(content)


def assert_columns(expected: Columns, actual: Columns) -> None:
    assert expected.keys() == actual.keys()
    for name, column in expected.items():
        np.testing.assert_array_equal(column, actual[name])


def test_idx_images_have_one_channel() -> None:
    """An image file gives (N, 1, H, W)."""
    assert {"images": (2, 1, 3, 1)} == {
        name: column.shape
        for name, column in read_idx(struct.pack(">4I", 0x0803, 2, 3, 1) + bytes(range(6))).items()
    }


def test_idx_labels_are_int64() -> None:
    """A label file gives (N,)."""
    (labels,) = read_idx(b"\0\0\x08\x01\0\0\0\x02\x07\x02").values()
    assert ([7, 2], np.int64) == (labels.tolist(), labels.dtype)


def test_other_idx_files_are_neither() -> None:
    """A file of two dimensions has no meaning here."""
    with pytest.raises(ValueError, match="2 dimensions"):
        read_idx(struct.pack(">3I", 0x0802, 1, 1) + b"\0")


def cifar(images: NDArray[np.uint8], labels: list[int]) -> bytes:
    """Records of CIFAR-10's binary version."""
    pairs = zip(labels, images, strict=True)
    return b"".join(bytes([label]) + image.tobytes() for label, image in pairs)


def test_cifar_records_are_a_label_and_three_planes() -> None:
    """Red comes first, then green, then blue, each row by row."""
    images = np.random.default_rng(0).integers(0, 256, (3, 3, 32, 32), np.uint8)
    expected = {"images": images, "labels": np.array([9, 0, 4])}
    assert_columns(expected, read_cifar(cifar(images, [9, 0, 4])))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        pytest.param(b"", "0 bytes are no whole number", id="empty"),
        pytest.param(bytes(3072), "3072 bytes are no whole number", id="cut"),
        pytest.param(b"\x0a" + bytes(3072), "label 10", id="CIFAR-100"),
    ],
)
def test_other_cifar_files_are_refused(content: bytes, message: str) -> None:
    """Whole records of ten classes or nothing."""
    with pytest.raises(ValueError, match=message):
        read_cifar(content)


def svhn(**variables: NDArray[np.uint8]) -> bytes:
    """A MATLAB 5 file, compressed as SVHN's are."""
    from scipy.io import savemat  # noqa: PLC0415  slow to import

    file = io.BytesIO()
    savemat(file, variables, do_compression=True)
    return file.getvalue()


def test_svhn_digits_come_last_axis_first() -> None:
    """X is (row, column, colour, example), and label 10 means the digit 0."""
    images = np.random.default_rng(0).integers(0, 256, (4, 3, 32, 32), np.uint8)
    content = svhn(X=images.transpose(2, 3, 1, 0), y=np.array([[10], [1], [9], [10]], np.uint8))
    assert_columns({"images": images, "labels": np.array([0, 1, 9, 0])}, read_svhn(content))


@pytest.mark.parametrize(
    ("variables", "message"),
    [
        pytest.param({"X": np.zeros((32, 32, 3, 2), np.uint8)}, "'y'", id="no labels"),
        pytest.param(
            {"X": np.zeros((32, 32, 3, 2), np.uint8), "y": np.ones((3, 1), np.uint8)},
            "does not belong to 3 labels",
            id="too many labels",
        ),
        pytest.param(
            {"X": np.zeros((32, 32, 3, 1), np.uint8), "y": np.array([[11]], np.uint8)},
            "1 to 10",
            id="label 11",
        ),
    ],
)
def test_other_svhn_files_are_refused(
    variables: dict[str, NDArray[np.uint8]], message: str
) -> None:
    """The message says what is wrong with the variables."""
    with pytest.raises(ValueError, match=message):
        read_svhn(svhn(**variables))


@pytest.mark.parametrize("content", [b"", b"no MATLAB file" * 20, bytes(500)], ids=len)
def test_other_files_are_not_matlabs(content: bytes) -> None:
    """Whatever the library makes of them, they are refused."""
    with pytest.raises(ValueError, match="not a MATLAB 5 file"):
        read_svhn(content)


def norb(array: NDArray[np.generic]) -> bytes:
    """The array as a binary matrix, whose header has three sizes at least."""
    magic = 0x1E3D4C55 if array.dtype == np.uint8 else 0x1E3D4C54
    sizes = (*array.shape, 1, 1, 1)[: max(3, array.ndim)]
    return struct.pack(f"<{2 + len(sizes)}I", magic, array.ndim, *sizes) + array.tobytes()


def test_norb_images_are_the_first_cameras_at_half_the_size() -> None:
    """Each pixel is the rounded mean of four."""
    pairs = np.zeros((1, 2, 2, 4), np.uint8)
    pairs[0, 0] = [[0, 1, 255, 255], [2, 3, 255, 254]]
    pairs[0, 1] = 77
    assert [[[[2, 255]]]] == read_norb(norb(pairs))["images"].tolist()


def test_norb_labels_and_toys_have_files_of_their_own() -> None:
    """The classes are a list, and the toy is the first of four numbers that describe a view."""
    assert_columns({"labels": np.array([4, 0])}, read_norb(norb(np.array([4, 0], "<i4"))))
    views = np.array([[8, 1, 2, 3], [6, 4, 5, 6]], "<i4")
    assert_columns({"groups": np.array([8, 6])}, read_norb(norb(views)))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        pytest.param(b"", "not a binary matrix", id="empty"),
        pytest.param(norb(np.zeros(3, "<i4"))[:15], "header is cut off", id="cut header"),
        pytest.param(norb(np.zeros(3, "<i4"))[:-1], "12 bytes and 11 follow", id="cut"),
        pytest.param(struct.pack("<5I", 0x1E3D4C53, 1, 1, 1, 1), "not a binary", id="doubles"),
    ],
)
def test_other_matrices_are_refused(content: bytes, message: str) -> None:
    """As with IDX files, header and size must agree."""
    with pytest.raises(ValueError, match=message):
        parse_norb(content)


def test_a_matrix_of_three_dimensions_is_none_of_smallnorbs() -> None:
    """It would be neither pictures nor classes nor views."""
    with pytest.raises(ValueError, match=r"shape \(1, 2, 3\)"):
        read_norb(norb(np.zeros((1, 2, 3), np.uint8)))
