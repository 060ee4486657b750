from __future__ import annotations

from pathlib import Path

import pytest

from model.bundle.atomic_file import replacing


def test_what_goes_wrong_leaves_the_old_file(tmp_path: Path) -> None:
    """Half a file never takes its place."""
    path = tmp_path / "state"
    path.write_bytes(b"old")
    with pytest.raises(TypeError), replacing(path) as file:
        file.write("not bytes")  # type: ignore[arg-type]
    assert b"old" == path.read_bytes()
