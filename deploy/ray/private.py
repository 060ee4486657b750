"""Ray's files on this machine are its user's alone; Ray itself lets every user change them."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import ray

_OTHERS = 0o077
"""The rights of other users."""


@contextmanager
def started_privately(*, cpus: int, store_bytes: int) -> Iterator[None]:
    """Start Ray on this machine, not in a cluster that runs here, and stop it at the end.

    Args:
        cpus: how many Ray may count with.
        store_bytes: of its shared memory.
    """
    with private_folder() as folder:
        ray.init(
            "local",
            num_cpus=cpus,
            include_dashboard=False,
            object_store_memory=store_bytes,
            _temp_dir=str(folder / "ray"),
        )
        try:
            yield
        finally:
            ray.shutdown()


@contextmanager
def private_folder() -> Iterator[Path]:
    """Make a temporary folder for Ray's session, and let this process write for its user alone.

    Ray writes the token of its calls to `~/.ray/auth_token`, and makes its session's folders
    writable for all. Therefore other users get no rights on what this process and its children
    write, and the session's folders lie in a folder that nobody else may enter.
    """
    os.umask(_OTHERS)
    with suppress(FileNotFoundError):  # of an earlier start
        (Path.home() / ".ray" / "auth_token").chmod(0o600)
    with tempfile.TemporaryDirectory(prefix="ray-", ignore_cleanup_errors=True) as folder:
        yield Path(folder)
