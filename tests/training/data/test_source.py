"""Files of published data sets, on disk and from a mirror that a test runs."""

from __future__ import annotations

import gzip
import hashlib
import io
import struct
import tarfile
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from http.server import BaseHTTPRequestHandler, HTTPServer
from itertools import repeat
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from training.data.source import (
    DatasetError,
    File,
    Source,
    download,
    read_cifar,
    read_idx,
)

Asked = list[str]
Serve = Callable[..., tuple[str, Asked]]

IMAGES = np.arange(30, dtype=np.uint8).reshape(5, 2, 3)
LABELS = np.array([3, 1, 4, 1, 5], np.uint8)
CONTENT = bytes(range(256)) * 300
"""More than one chunk."""


def md5(content: bytes) -> str:
    return hashlib.md5(content).hexdigest()


def idx(array: NDArray[np.uint8]) -> bytes:
    """The array as an IDX file."""
    return struct.pack(f">I{array.ndim}I", 0x0800 + array.ndim, *array.shape) + array.tobytes()


def records(*labels: int) -> bytes:
    """Records of CIFAR-10's binary version; a red plane of the label, green of 1, blue of 2."""
    planes = bytes([1]) * 1024 + bytes([2]) * 1024
    return b"".join(bytes([label]) + bytes([label]) * 1024 + planes for label in labels)


CONTENTS = {"train-images": idx(IMAGES), "train-labels": idx(LABELS)}
FILES = {f"{name}.gz": gzip.compress(content) for name, content in CONTENTS.items()}
BATCHES = {"batch_0.bin": records(0, 1), "batch_1.bin": records(1, 2)}


def digits(*mirrors: str) -> Source:
    """Five training images in single files."""
    files = tuple(File(name, 5, md5(content)) for name, content in CONTENTS.items())
    return Source(files={"train": files}, read=read_idx, mirrors=mirrors)


def tar(contents: dict[str, bytes]) -> bytes:
    """A gzip-compressed tar file with the files in a folder."""
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w:gz") as archive:
        for name, content in contents.items():
            member = tarfile.TarInfo(f"batches/{name}")
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return file.getvalue()


ARCHIVE = tar({"readme.html": b"Hello", **BATCHES})


def batches(*mirrors: str) -> Source:
    """Two training files in an archive."""
    return Source(
        files={"train": tuple(File(name, 2) for name in BATCHES)},
        read=read_cifar,
        mirrors=mirrors,
        archive="all.tar.gz",
        archive_md5=md5(ARCHIVE),
    )


def labels(source: Source, directory: Path, *, fetch: bool = True) -> list[int]:
    """The labels of the training split."""
    labels: list[int] = source.columns("train", directory, fetch=fetch)["labels"].tolist()
    return labels


@pytest.fixture
def serve(monkeypatch: pytest.MonkeyPatch) -> Iterator[Serve]:
    """`serve(files, faults=())` starts a server of these files, by name.

    `faults` says how the first, second, ... request is treated: a status code is answered, "cut"
    announces everything and sends half of it. Further requests are served well.

    Returns the base address and the list of the paths of all requests so far.
    """
    monkeypatch.setenv("no_proxy", "*")
    with ExitStack() as stack:

        def start(
            files: dict[str, bytes], *, faults: Iterable[int | str] = ()
        ) -> tuple[str, Asked]:
            asked: Asked = []
            left = iter(faults)

            class Handler(BaseHTTPRequestHandler):
                def do_GET(self) -> None:
                    asked.append(self.path)
                    fault, content = next(left, None), files.get(self.path.removeprefix("/"))
                    if isinstance(fault, int) or content is None:
                        return self.send_error(fault if isinstance(fault, int) else 404)
                    self.send_response(200)
                    self.send_header("Content-Length", str(len(content)))
                    self.end_headers()
                    self.wfile.write(content[: len(content) // 2] if fault == "cut" else content)
                    return None

                def log_message(self, *_: object) -> None:
                    """Say nothing."""

            server = stack.enter_context(HTTPServer(("127.0.0.1", 0), Handler))
            thread = threading.Thread(target=server.serve_forever, args=(0.01,))
            thread.start()
            stack.callback(thread.join)
            stack.callback(server.shutdown)
            return f"http://127.0.0.1:{server.server_port}/", asked

        yield start


def test_the_files_of_a_split_are_downloaded_once(serve: Serve, tmp_path: Path) -> None:
    """What is there then is not asked for again."""
    mirror, asked = serve(FILES)
    for _ in range(2):
        columns = digits(mirror).columns("train", tmp_path, fetch=True)
        np.testing.assert_array_equal(IMAGES[:, None], columns["images"])
        np.testing.assert_array_equal(LABELS, columns["labels"])
    assert 2 == len(asked)


def test_files_on_disk_need_no_server_and_no_compression(tmp_path: Path) -> None:
    """A missing one is named, and where it could be."""
    (tmp_path / "train-labels").write_bytes(CONTENTS["train-labels"])
    with pytest.raises(DatasetError, match=r"train-images\.gz is missing; CAPSNET_DATA_DIR"):
        labels(digits(), tmp_path)
    (tmp_path / "train-images.gz").write_bytes(FILES["train-images.gz"])
    assert LABELS.tolist() == labels(digits(), tmp_path, fetch=False)


def test_files_come_in_an_archive(serve: Serve, tmp_path: Path) -> None:
    """It stays as it was downloaded."""
    mirror, asked = serve({"all.tar.gz": ARCHIVE})
    assert [[0, 1, 1, 2]] * 2 == [labels(batches(mirror), tmp_path) for _ in range(2)]
    assert ["/all.tar.gz"] == asked


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        pytest.param(gzip.compress(idx(IMAGES[::-1])), "MD5 differs", id="other images"),
        pytest.param(FILES["train-images.gz"][:-9], "decompressed", id="cut"),
    ],
)
def test_a_wrong_file_is_refused(serve: Serve, tmp_path: Path, content: bytes, reason: str) -> None:
    """From a mirror it is not kept; on disk it is neither replaced nor removed."""
    mirror, _ = serve({**FILES, "train-images.gz": content})
    with pytest.raises(DatasetError, match=rf"not the published file \(.*{reason}"):
        labels(digits(mirror), tmp_path)
    path = tmp_path / "train-images.gz"
    assert not path.exists()
    path.write_bytes(content)
    with pytest.raises(DatasetError, match=rf"not the published file \(.*{reason}"):
        labels(digits(serve(FILES)[0]), tmp_path)
    assert content == path.read_bytes()


def fetch(target: Path, *mirrors: str) -> None:
    """Download CONTENT from the first mirror that has it."""

    def refuse_others(content: bytes) -> None:
        if content != CONTENT:
            raise ValueError("other bytes")

    download([f"{mirror}file.gz" for mirror in mirrors], target, check=refuse_others, pause_s=0.01)


def test_mirrors_are_asked_in_turn_and_again(serve: Serve, tmp_path: Path) -> None:
    """Corrupt files, cut ones and errors lead to the next mirror; all are asked four times."""
    target = tmp_path / "file.gz"
    good, asked = serve({"file.gz": CONTENT}, faults=[500, "cut"])
    fetch(target, serve({"file.gz": b"x"})[0], serve({})[0], good)
    assert (CONTENT, 3) == (target.read_bytes(), len(asked))
    target.unlink()
    bad, asked = serve({"file.gz": CONTENT}, faults=repeat(503))
    with pytest.raises(DatasetError) as caught:
        fetch(target, serve({})[0], bad)
    first, missing, failing, *advice = str(caught.value).splitlines()
    assert "could not download file.gz:" == first
    assert missing.endswith("HTTP Error 404: Not Found")
    assert failing.endswith("HTTP Error 503: Service Unavailable")
    assert 4 == len(asked)
    assert "CAPSNET_DATA_DIR" in " ".join(advice)
