from __future__ import annotations

from pathlib import Path

import pytest

from training.run.plan import TrainingError
from training.table.encoders import Encoder, read_encoders, write_encoders


def test_encoders_survive_being_written(encoders: dict[str, Encoder], tmp_path: Path) -> None:
    """By row; where nothing is there are none."""
    assert {} == read_encoders(tmp_path / "encoders.json")
    write_encoders(encoders.values(), tmp_path / "encoders.json")
    assert encoders == read_encoders(tmp_path / "encoders.json")


@pytest.mark.parametrize("content", ["{", '[{"row": "mnist"}]'])
def test_a_file_of_something_else_is_told(content: str, tmp_path: Path) -> None:
    """Half a file, or one with other keys, is an error that names it."""
    path = tmp_path / "encoders.json"
    path.write_text(content)
    with pytest.raises(TrainingError, match=r"encoders.json does not hold encoders"):
        read_encoders(path)
