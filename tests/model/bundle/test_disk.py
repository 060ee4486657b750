from __future__ import annotations

import io
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from model.bundle.disk import read_bytes, read_json, replacing
from model.bundle.poses import Arrays


def test_a_file_is_bounded_before_it_is_parsed(tmp_path: Path) -> None:
    """A file of exactly the most bytes is read, and one more byte is refused."""
    (tmp_path / "a.json").write_bytes(b"[1, 2]")
    assert [1, 2] == read_json(tmp_path / "a.json", 6)
    for read in (read_bytes, read_json):
        with pytest.raises(ValueError, match=r"a.json has more than 5 bytes"):
            read(tmp_path / "a.json", 5)


@pytest.mark.parametrize(
    "text",
    [
        "[NaN]",
        "[-Infinity]",
        "[1e999]",
        '["\\ud800"]',
        "[" * 300 + "]" * 300,
        "[" * 100_000,
        "{",
        "\ud800".encode("utf-8", "surrogatepass"),
    ],
    ids=["nan", "infinity", "overflow", "surrogate", "deep", "very deep", "cut", "no utf-8"],
)
def test_json_that_no_client_can_be_sent_is_refused(text: str | bytes, tmp_path: Path) -> None:
    """Numbers that are none, halves of characters, and deep nesting would fail in an answer."""
    (tmp_path / "a.json").write_bytes(text.encode() if isinstance(text, str) else text)
    with pytest.raises(ValueError, match="is not JSON that can be used"):
        read_json(tmp_path / "a.json", 1_000_000)


@dataclass(frozen=True, eq=False)
class One(Arrays):
    """A file of one array."""

    kinds = "u"
    a: NDArray[np.uint8]


def packed(**arrays: Any) -> bytes:
    file = io.BytesIO()
    np.savez_compressed(file, **arrays)
    return file.getvalue()


def test_arrays_are_bounded_before_they_are_inflated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A kilobyte may become gigabytes; what an archive announces counts."""
    (tmp_path / "a.npz").write_bytes(packed(a=np.zeros(1_000_000, np.uint8)))
    monkeypatch.setattr("model.bundle.poses.MAX_ARRAYS_BYTES", 1_000_000)
    with pytest.raises(ValueError, match="more than 1,000,000 bytes"):
        One.load(tmp_path / "a.npz")
    monkeypatch.setattr("model.bundle.poses.MAX_ARRAYS_BYTES", 1_001_000)
    assert 1_000_000 == One.load(tmp_path / "a.npz").a.size


def lie(content: bytes) -> bytes:
    """An array that announces more numbers than its archive holds."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive, archive.open("a.npy", "w") as member:
        head = {"descr": "|u1", "fortran_order": False, "shape": (10**15,)}
        np.lib.format.write_array_header_1_0(member, head)
        member.write(content)
    return file.getvalue()


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"neither",
        packed(b=np.zeros(3)),
        packed(a=np.array([{}], object)),
        packed(a=np.zeros(3))[:-40],
        packed(a=np.arange(1000)).replace(b"\x02", b"\x03"),
        lie(b"few"),
    ],
    ids=["empty", "text", "another name", "pickled", "cut", "altered", "lying"],
)
def test_files_that_are_no_arrays_are_refused_in_words(content: bytes, tmp_path: Path) -> None:
    """Whatever `zipfile` and `numpy` raise, the reader raises one kind of error."""
    (tmp_path / "a.npz").write_bytes(content)
    with pytest.raises(ValueError, match=r"it is no \.npz file of a"):
        One.load(tmp_path / "a.npz")


def test_what_goes_wrong_leaves_the_old_file(tmp_path: Path) -> None:
    """Half a file never takes its place."""
    path = tmp_path / "state"
    path.write_bytes(b"old")
    with pytest.raises(TypeError), replacing(path) as file:
        file.write("not bytes")  # type: ignore[call-overload]
    assert b"old" == path.read_bytes()
