from __future__ import annotations

import socket
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import repeat
from pathlib import Path
from typing import Any

import pytest

from training.data import source
from training.data.source import DownloadError, download

Serve = Callable[..., tuple[str, list[str | None]]]

CONTENT = bytes(range(256)) * 300
"""More than one chunk."""


@pytest.fixture
def target(tmp_path: Path) -> Path:
    """Where the file shall be; its folder does not exist yet."""
    return tmp_path / "data" / "file.gz"


def refuse_others(content: bytes) -> None:
    if content != CONTENT:
        raise ValueError("other bytes")


def fetch(target: Path, *mirrors: str) -> list[float]:
    """Download the file from the first mirror that has it; the pauses made meanwhile."""
    pauses: list[float] = []
    urls = [f"{mirror}file.gz" for mirror in mirrors]
    download(urls, target, check=refuse_others, sleep=pauses.append)
    return pauses


def test_of_many_at_once_one_fetches(serve: Serve, target: Path) -> None:
    """Trainings that are started side by side all have the file then, and none has failed."""
    mirror, asked = serve({"file.gz": CONTENT})
    with ThreadPoolExecutor(5) as pool:
        for done in [pool.submit(fetch, target, mirror) for _ in range(5)]:
            done.result()
    assert (CONTENT, 1) == (target.read_bytes(), len(asked))
    assert {"file.gz", "file.gz.lock"} == {path.name for path in target.parent.iterdir()}


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        pytest.param({"faults": ["cut", "cut"]}, ["bytes=38400-", "bytes=57600-"], id="two cuts"),
        pytest.param({"faults": ["cut"], "ranges": False}, ["bytes=38400-"], id="without ranges"),
    ],
)
def test_a_cut_transfer_continues_where_it_stopped(
    options: dict[str, Any], expected: list[str], serve: Serve, target: Path
) -> None:
    """Further requests ask for the rest; a whole file in answer replaces what had arrived."""
    mirror, asked = serve({"file.gz": CONTENT}, **options)
    fetch(target, mirror)
    assert (CONTENT, [None, *expected]) == (target.read_bytes(), asked)


@pytest.mark.parametrize(
    ("arrived", "expected"),
    [
        pytest.param(CONTENT[:1000], ["bytes=1000-"], id="an interrupted run's is completed"),
        pytest.param(CONTENT, ["bytes=76800-"], id="a whole one needs no more bytes (416)"),
        pytest.param(bytes(2 * len(CONTENT)), ["bytes=153600-", None], id="another file's"),
    ],
)
def test_a_part_file_of_an_earlier_run_is_used(
    arrived: bytes, expected: list[str | None], serve: Serve, target: Path
) -> None:
    """A wrong one costs one attempt, and the next starts from nothing."""
    target.parent.mkdir()
    target.with_name("file.gz.part").write_bytes(arrived)
    mirror, asked = serve({"file.gz": CONTENT})
    fetch(target, mirror)
    assert (CONTENT, expected) == (target.read_bytes(), asked)


@pytest.mark.parametrize("bad", [{"file.gz": CONTENT[::-1]}, {}], ids=["corrupt", "missing"])
def test_the_next_mirror_helps_out(serve: Serve, target: Path, bad: dict[str, bytes]) -> None:
    """Where the first mirror has no good file, the second one's is taken, whole."""
    first, _ = serve(bad)
    second, asked = serve({"file.gz": CONTENT})
    fetch(target, first, second)
    assert (CONTENT, [None]) == (target.read_bytes(), asked)


def test_failure_names_every_address(serve: Serve, target: Path) -> None:
    """The message says for each mirror what went wrong there; 404 is a mirror's last word."""
    mirrors, asked = zip(*(serve({}) for _ in range(2)), strict=True)
    with pytest.raises(DownloadError) as caught:
        fetch(target, *mirrors)
    expected = [f"  {mirror}file.gz: HTTP 404 Not Found" for mirror in mirrors]
    first, *lines, advice = str(caught.value).splitlines()
    assert ("could not download file.gz:", expected) == (first, lines)
    assert "CAPSNET_DATA_DIR" in advice
    assert ([None], [None]) == asked


def test_a_struggling_server_is_asked_again(serve: Serve, target: Path) -> None:
    """Before each further attempt the pause doubles; there are four attempts."""
    mirror, _ = serve({"file.gz": CONTENT}, faults=[500, 502])
    assert [1.0, 2.0] == fetch(target, mirror)
    target.unlink()
    mirror, asked = serve({"file.gz": CONTENT}, faults=repeat(503))
    with pytest.raises(DownloadError, match="HTTP 503"):
        fetch(target, mirror)
    assert 4 == len(asked)


def test_a_dead_mirror_is_a_failure(target: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that never answers ends in the download's own error."""
    monkeypatch.setattr(source, "_TIMEOUT_S", 0.05)
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"http://127.0.0.1:{server.getsockname()[1]}/"
        with pytest.raises(DownloadError, match=address):
            fetch(target, address)
