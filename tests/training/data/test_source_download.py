from __future__ import annotations

import socket
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from itertools import repeat
from pathlib import Path
from typing import Any, Literal

import pytest

from training.data.source import DownloadError, download

Serve = Callable[..., tuple[str, list[str | None]]]

CONTENT = bytes(range(256)) * 300
"""More than one chunk."""


@pytest.fixture
def target(tmp_path: Path) -> Path:
    """Where the file shall be; its folder does not exist yet."""
    return tmp_path / "data" / "file.gz"


@pytest.fixture
def part(target: Path) -> Path:
    """Where what has arrived so far is kept."""
    target.parent.mkdir()
    return target.with_name("file.gz.part")


def refuse_others(content: bytes) -> None:
    if content != CONTENT:
        raise ValueError("other bytes")


def fetch(target: Path, *mirrors: str, attempts: int = 4) -> list[float]:
    """Download the file from the first mirror that has it; the pauses made meanwhile."""
    pauses: list[float] = []
    download(
        [f"{mirror}file.gz" for mirror in mirrors],
        target,
        check=refuse_others,
        attempts=attempts,
        timeout_s=5,
        sleep=pauses.append,
    )
    return pauses


def test_a_whole_file_arrives(serve: Serve, target: Path) -> None:
    """The bytes on disk are those served, next to an empty lock; no second mirror is asked."""
    mirror, _ = serve({"file.gz": CONTENT}, faults=["cut"])
    second, asked = serve({"file.gz": CONTENT})
    fetch(target, mirror, second)
    assert (CONTENT, []) == (target.read_bytes(), asked)
    assert {"file.gz": len(CONTENT), "file.gz.lock": 0} == {
        path.name: path.stat().st_size for path in target.parent.iterdir()
    }


def test_of_many_at_once_one_fetches(serve: Serve, target: Path) -> None:
    """Trainings that are started side by side all have the file then, and none has failed."""
    mirror, asked = serve({"file.gz": CONTENT})
    with ThreadPoolExecutor(5) as pool:
        for done in [pool.submit(fetch, target, mirror) for _ in range(5)]:
            done.result()
    assert CONTENT == target.read_bytes()
    assert 1 == len(asked)


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
    arrived: bytes, expected: list[str | None], serve: Serve, target: Path, part: Path
) -> None:
    """A wrong one costs one attempt, and the next starts from nothing."""
    part.write_bytes(arrived)
    mirror, asked = serve({"file.gz": CONTENT})
    fetch(target, mirror)
    assert (CONTENT, expected) == (target.read_bytes(), asked)


def test_what_has_arrived_outlives_a_failure(serve: Serve, target: Path) -> None:
    """When all attempts are used up, the part file stays for the next run."""
    mirror, _ = serve({"file.gz": CONTENT}, faults=["cut"])
    with pytest.raises(DownloadError):
        fetch(target, mirror, attempts=1)
    assert CONTENT[:38400] == target.with_name("file.gz.part").read_bytes()


@pytest.mark.parametrize(
    ("bad", "faults", "expected"),
    [
        pytest.param({"file.gz": CONTENT[::-1]}, [], [None], id="corrupt"),
        pytest.param({"file.gz": CONTENT[:500]}, [], [None], id="published cut"),
        pytest.param({}, [], [None], id="missing"),
        pytest.param(
            {"file.gz": CONTENT[::-1]}, ["cut", 404], ["bytes=38400-", None], id="other compression"
        ),
    ],
)
def test_the_next_mirror_helps_out(
    serve: Serve,
    target: Path,
    bad: dict[str, bytes],
    faults: list[Any],
    expected: list[str | None],
) -> None:
    """Where the first mirror has no good file, the second one's is taken, whole."""
    first, _ = serve(bad, faults=faults)
    second, asked = serve({"file.gz": CONTENT})
    fetch(target, first, second)
    assert (CONTENT, expected) == (target.read_bytes(), asked)


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


@pytest.mark.parametrize("faults", [[], [503], [500, 502], [503, 503, 503]], ids=str)
def test_a_struggling_server_is_asked_again(
    serve: Serve, target: Path, faults: Iterable[int | Literal["cut"]]
) -> None:
    """Before each further attempt the pause doubles."""
    mirror, _ = serve({"file.gz": CONTENT}, faults=faults)
    assert [1.0, 2.0, 4.0][: len(list(faults))] == fetch(target, mirror)


@pytest.mark.parametrize(("status", "attempts"), [(503, 4), (416, 1)])
def test_attempts_are_limited(serve: Serve, target: Path, status: int, attempts: int) -> None:
    """A server that never recovers is asked four times; one that has no such range, once."""
    mirror, asked = serve({"file.gz": CONTENT}, faults=repeat(status))
    with pytest.raises(DownloadError, match=f"HTTP {status}"):
        fetch(target, mirror)
    assert attempts == len(asked)


@pytest.mark.parametrize("listening", [True, False], ids=["silent", "not there"])
def test_a_dead_mirror_is_a_failure(target: Path, *, listening: bool) -> None:
    """A server that never answers, and none at all, end in the download's own error."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"http://127.0.0.1:{server.getsockname()[1]}/file.gz"
        if not listening:
            server.close()
        with pytest.raises(DownloadError, match=address):
            download([address], target, check=len, attempts=1, timeout_s=0.05)
