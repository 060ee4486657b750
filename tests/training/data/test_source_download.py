from __future__ import annotations

import socket
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from itertools import repeat
from pathlib import Path
from typing import Literal

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


def fetch(target: Path, *mirrors: str, attempts: int = 4) -> list[float]:
    """Download the file from the first mirror that has it; the pauses made meanwhile."""
    pauses: list[float] = []
    download(
        [f"{mirror}file.gz" for mirror in mirrors],
        target,
        verify=lambda content: content == CONTENT,
        attempts=attempts,
        timeout_s=5,
        sleep=pauses.append,
    )
    return pauses


def test_a_whole_file_arrives(serve: Serve, target: Path) -> None:
    """The bytes on disk are the bytes served."""
    mirror, _ = serve({"file.gz": CONTENT})
    fetch(target, mirror)
    assert CONTENT == target.read_bytes()


def test_nothing_else_is_left_behind(serve: Serve, target: Path) -> None:
    """After success the folder holds the file and its empty lock alone."""
    mirror, _ = serve({"file.gz": CONTENT}, faults=["cut"])
    fetch(target, mirror)
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


def test_a_cut_transfer_continues_where_it_stopped(serve: Serve, target: Path) -> None:
    """Each further request asks for the rest only, and the parts make up the file."""
    mirror, asked = serve({"file.gz": CONTENT}, faults=["cut", "cut"])
    fetch(target, mirror)
    assert (CONTENT, [None, "bytes=38400-", "bytes=57600-"]) == (target.read_bytes(), asked)


def test_a_server_without_ranges_starts_over(serve: Serve, target: Path) -> None:
    """A whole file in answer to a Range replaces what had arrived."""
    mirror, asked = serve({"file.gz": CONTENT}, faults=["cut"], ranges=False)
    fetch(target, mirror)
    assert (CONTENT, [None, "bytes=38400-"]) == (target.read_bytes(), asked)


def test_an_earlier_run_is_continued(serve: Serve, target: Path, part: Path) -> None:
    """A part file from an interrupted run is completed, not fetched again."""
    part.write_bytes(CONTENT[:1000])
    mirror, asked = serve({"file.gz": CONTENT})
    fetch(target, mirror)
    assert (CONTENT, ["bytes=1000-"]) == (target.read_bytes(), asked)


def test_what_has_arrived_outlives_a_failure(serve: Serve, target: Path) -> None:
    """When all attempts are used up, the part file stays for the next run."""
    mirror, _ = serve({"file.gz": CONTENT}, faults=["cut"])
    with pytest.raises(DownloadError):
        fetch(target, mirror, attempts=1)
    assert CONTENT[:38400] == target.with_name("file.gz.part").read_bytes()


def test_a_complete_part_needs_no_more_bytes(serve: Serve, target: Path, part: Path) -> None:
    """A server that has no more to give (416) ends the transfer well."""
    part.write_bytes(CONTENT)
    mirror, asked = serve({"file.gz": CONTENT})
    fetch(target, mirror)
    assert (CONTENT, ["bytes=76800-"]) == (target.read_bytes(), asked)


def test_a_part_of_another_file_is_thrown_away(serve: Serve, target: Path, part: Path) -> None:
    """A wrong part file costs one attempt and the next starts from nothing."""
    part.write_bytes(bytes(2 * len(CONTENT)))
    mirror, asked = serve({"file.gz": CONTENT})
    fetch(target, mirror)
    assert (CONTENT, ["bytes=153600-", None]) == (target.read_bytes(), asked)


def test_a_416_without_a_part_is_a_failure(serve: Serve, target: Path) -> None:
    """A server that refuses a request without a Range as out of range has no file for us."""
    mirror, _ = serve({"file.gz": CONTENT}, faults=repeat(416))
    with pytest.raises(DownloadError, match="HTTP 416"):
        fetch(target, mirror)


def test_corrupt_bytes_are_not_kept(serve: Serve, target: Path) -> None:
    """Bytes that fail the check leave neither a file nor a part."""
    mirror, _ = serve({"file.gz": CONTENT[::-1]})
    with pytest.raises(DownloadError, match="not the published file"):
        fetch(target, mirror)
    assert ["file.gz.lock"] == [path.name for path in target.parent.iterdir()]


@pytest.mark.parametrize(
    "bad",
    [
        pytest.param({"file.gz": CONTENT[::-1]}, id="corrupt"),
        pytest.param({"file.gz": CONTENT[:500]}, id="published cut"),
        pytest.param({}, id="missing"),
    ],
)
def test_the_next_mirror_helps_out(serve: Serve, target: Path, bad: dict[str, bytes]) -> None:
    """Where the first mirror has no good file, the second one's is taken."""
    first, _ = serve(bad)
    second, asked = serve({"file.gz": CONTENT})
    fetch(target, first, second)
    assert (CONTENT, [None]) == (target.read_bytes(), asked)


def test_a_mirror_that_compresses_differently_helps_out(serve: Serve, target: Path) -> None:
    """The first mirror's part does not fit the second's file, which is then fetched whole."""
    first, _ = serve({"file.gz": CONTENT[::-1]}, faults=["cut", 404])
    second, asked = serve({"file.gz": CONTENT})
    fetch(target, first, second)
    assert (CONTENT, ["bytes=38400-", None]) == (target.read_bytes(), asked)


def test_later_mirrors_are_left_alone(serve: Serve, target: Path) -> None:
    """The second mirror is not asked when the first has the file."""
    first, _ = serve({"file.gz": CONTENT})
    second, asked = serve({"file.gz": CONTENT})
    fetch(target, first, second)
    assert [] == asked


def test_a_missing_file_is_not_asked_for_again(serve: Serve, target: Path) -> None:
    """404 is a mirror's last word."""
    mirror, asked = serve({})
    with pytest.raises(DownloadError):
        fetch(target, mirror)
    assert [None] == asked


def test_failure_names_every_address(serve: Serve, target: Path) -> None:
    """The message says for each mirror what went wrong there."""
    mirrors = [serve({})[0] for _ in range(2)]
    with pytest.raises(DownloadError) as caught:
        fetch(target, *mirrors)
    expected = [f"  {mirror}file.gz: HTTP 404 Not Found" for mirror in mirrors]
    assert ["could not download file.gz:", *expected] == str(caught.value).splitlines()


@pytest.mark.parametrize("faults", [[], [503], [500, 502], [503, 503, 503]], ids=str)
def test_a_struggling_server_is_asked_again(
    serve: Serve, target: Path, faults: Iterable[int | Literal["cut"]]
) -> None:
    """Before each further attempt the pause doubles."""
    mirror, _ = serve({"file.gz": CONTENT}, faults=faults)
    assert [1.0, 2.0, 4.0][: len(list(faults))] == fetch(target, mirror)


def test_attempts_are_limited(serve: Serve, target: Path) -> None:
    """A server that never recovers is asked four times."""
    mirror, asked = serve({"file.gz": CONTENT}, faults=repeat(503))
    with pytest.raises(DownloadError, match="HTTP 503"):
        fetch(target, mirror)
    assert 4 == len(asked)


@pytest.mark.parametrize("listening", [True, False], ids=["silent", "not there"])
def test_a_dead_mirror_is_a_failure(target: Path, *, listening: bool) -> None:
    """A server that never answers, and none at all, end in the download's own error."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"http://127.0.0.1:{server.getsockname()[1]}/file.gz"
        if not listening:
            server.close()
        with pytest.raises(DownloadError, match=address):
            download([address], target, verify=bool, attempts=1, timeout_s=0.05)
