"""Write files atomically."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO


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
