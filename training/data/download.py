"""Fetch one file over HTTP: mirrors, retries, resumption, a progress bar and a check."""

from __future__ import annotations

import http.client
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Sequence
from pathlib import Path

from filelock import FileLock
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn

_CHUNK_BYTES = 1 << 16
_PARTIAL_CONTENT = 206
_RANGE_NOT_SATISFIABLE = 416
_PERMANENT = range(400, 500)


class DownloadError(Exception):
    """No mirror gave the file; the message names each address and what went wrong there."""


def download(
    urls: Sequence[str],
    target: Path,
    *,
    verify: Callable[[bytes], bool],
    attempts: int = 4,
    timeout_s: float = 30,
    sleep: Callable[[float], None] = time.sleep,
) -> None:
    """Write the first address's file that passes `verify` to `target`, which is not there yet.

    An interrupted transfer continues where it stopped (in `target` + `.part`), also in a later
    run. `target` appears only whole and verified. Of several processes that want it one fetches it,
    and the others wait; an empty `target` + `.lock` stays.

    Args:
        urls: mirrors of the same file, tried in order.
        verify: says whether these bytes are the wanted file.
        attempts: tries per mirror, with doubling pauses between them.
        timeout_s: how long a mirror may stay silent.
        sleep: for tests.

    Raises:
        DownloadError: every mirror failed.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(target.with_name(f"{target.name}.lock")):
        if not target.exists():
            _fetch(urls, target, verify=verify, attempts=attempts, timeout_s=timeout_s, sleep=sleep)


def _fetch(
    urls: Sequence[str],
    target: Path,
    *,
    verify: Callable[[bytes], bool],
    attempts: int,
    timeout_s: float,
    sleep: Callable[[float], None],
) -> None:
    part = target.with_name(f"{target.name}.part")
    failures = []
    for url in urls:
        for attempt in range(attempts):
            if attempt:
                sleep(2.0 ** (attempt - 1))
            try:
                _transfer(url, part, timeout_s=timeout_s)
            except urllib.error.HTTPError as error:
                failures.append(f"{url}: HTTP {error.code} {error.reason}")
                if error.code in _PERMANENT:
                    break
                continue
            except (OSError, http.client.HTTPException) as error:
                failures.append(f"{url}: {error or type(error).__name__}")
                continue
            if verify(part.read_bytes()):
                part.replace(target)
                return
            part.unlink()
            failures.append(f"{url}: not the published file")
    raise DownloadError(f"could not download {target.name}:\n  " + "\n  ".join(failures))


def _transfer(url: str, part: Path, *, timeout_s: float) -> None:
    """Append to `part` what is missing of `url`."""
    have = part.stat().st_size if part.exists() else 0
    request = urllib.request.Request(url)  # noqa: S310  the mirrors are ours to name
    if have:
        request.add_header("Range", f"bytes={have}-")
    try:
        response = urllib.request.urlopen(request, timeout=timeout_s)  # noqa: S310
    except urllib.error.HTTPError as error:
        if have and error.code == _RANGE_NOT_SATISFIABLE:
            return  # nothing is missing; the caller's check decides
        raise
    with response, _progress() as progress:
        resumed = response.status == _PARTIAL_CONTENT
        remaining = response.headers.get("Content-Length")
        start = have if resumed else 0
        total = start + int(remaining) if remaining else None
        bar = progress.add_task(part.stem, total=total, completed=start)
        with part.open("ab" if resumed else "wb") as file:
            while chunk := response.read(_CHUNK_BYTES):
                file.write(chunk)
                progress.advance(bar, len(chunk))
            if total is not None and file.tell() < total:
                raise http.client.IncompleteRead(b"", total - file.tell())


def _progress() -> Progress:
    return Progress(
        TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TransferSpeedColumn()
    )
