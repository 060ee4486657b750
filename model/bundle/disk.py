"""Files on disk: read within bounds, written in one step.

Sizes are checked before anything is parsed or inflated.
"""

from __future__ import annotations

import errno
import json
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

from pydantic_core import from_json


def open_file(path: Path) -> BinaryIO:
    """Open a file to read, but no pipe or device, on which reading could wait for ever.

    Raises:
        OSError: it cannot be read, or is something else.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(errno.EINVAL, "Not a regular file", str(path))
    return os.fdopen(descriptor, "rb")


def read_bytes(path: Path, most: int) -> bytes:
    """Read a file of at most so many bytes.

    Raises:
        ValueError: it cannot be read, or has more.
    """
    try:
        with open_file(path) as file:
            content = file.read(most + 1)
    except OSError as error:
        raise ValueError(f"{path.name} cannot be read: {error.strerror}") from error
    if len(content) > most:
        raise ValueError(f"{path.name} has more than {most:,} bytes")
    return content


def read_json(path: Path, most: int) -> Any:
    """Read JSON that every client can be sent: finite numbers, and text that UTF-8 can write.

    Args:
        path: the file.
        most: how many bytes it may have.

    Raises:
        ValueError: it cannot be read, is larger, no JSON, nested some 200 deep, or has other
            numbers or texts.
    """
    content = read_bytes(path, most)
    try:
        values = from_json(content, allow_inf_nan=False)
        json.dumps(values, allow_nan=False)  # 1e999 is read as infinity
    except ValueError as error:
        raise ValueError(f"{path.name} is not JSON that can be used: {error}") from error
    return values


@contextmanager
def replacing(path: Path) -> Iterator[BinaryIO]:
    """A new file to write, which takes the place of `path` at the end.

    A kill or an exception before leaves what was there. Only one process may write `path` at a
    time.
    """
    temporary = path.with_name(f"{path.name}.tmp")
    with temporary.open("wb") as file:
        yield file
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)
