from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from model.bundle import Bundle
from model.loaded import fit_picture
from model.runtime import Runtime
from training.analysis.bundle import analyse_factors
from training.analysis.factors import read_factors
from training.data.source import DatasetError


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Sixty pictures of a digit with a stroke that grows, in a subfolder of its class."""
    (tmp_path / "1").mkdir()
    rng = np.random.default_rng(0)
    for row in range(60):
        pixels = np.zeros((28, 28), np.uint8)
        pixels[4:24, 12 : 13 + row // 10] = rng.integers(150, 255)
        Image.fromarray(pixels).save(tmp_path / "1" / f"{row}.png")
    return tmp_path


def write(folder: Path, head: str, *rows: str) -> Path:
    table = folder / "factors.csv"
    table.write_text("\n".join([head, *rows]))
    return table


def test_a_table_is_read_with_its_pictures(folder: Path, runtime: Runtime) -> None:
    """The class is that of the subfolder, the unit stands in brackets."""
    table = write(folder, "file, dose (mg),age", "1/0.png,2.5,40", "1/59.png,1,50")
    columns, shown = read_factors(runtime, table, folder)
    assert [("dose", "mg"), ("age", "")] == [one[:2] for one in columns]
    assert [[1], [1]] == shown.labels.tolist()
    assert [[[2.5, 40]], [[1, 50]]] == shown.values.tolist()
    files = [folder / "1" / f"{row}.png" for row in (0, 59)]
    images = [fit_picture(runtime.bundle.manifest, file).image for file in files]
    assert np.allclose(runtime.encode(np.stack(images)).poses, shown.poses)


@pytest.mark.parametrize(
    ("lines", "words"),
    [
        (["name,age", "1/0.png,3"], "the first line is `file`"),
        (["file"], "the first line is `file`"),
        (["file,age"], "has no rows"),
        (["file,age", "1/0.png,old"], "line 2: could not convert"),
        (["file,age", "1/0.png,nan"], "line 2: 1 numbers follow"),
        (["file,age", "1/0.png,1,2"], "line 2: 1 numbers follow"),
        (["file,age", "1/none.png,1"], "No such file"),
        (["file,slant", "1/0.png,1"], "measures slant itself"),
        (["file,change-1", "1/0.png,1"], "measures change-1 itself"),
        (["file,(mg)", "1/0.png,1"], "is no name of a column"),
    ],
)
def test_a_table_that_cannot_be_used_says_why(
    lines: list[str], words: str, folder: Path, runtime: Runtime
) -> None:
    """The line, the column or the file is named."""
    with pytest.raises(DatasetError, match=words):
        read_factors(runtime, write(folder, *lines), folder)


def test_directions_of_factors_join_the_others(folder: Path, bundle: Bundle) -> None:
    """They are in the manifest that is read back; a factor by chance is not."""
    rng = np.random.default_rng(1)
    rows = [f"1/{row}.png,{row},{rng.standard_normal()}" for row in range(60)]
    table = write(folder, "file,growth (days),luck", *rows)
    _, sentences = analyse_factors(bundle, table, folder=None)
    assert any("1, luck: no relation" in one for one in sentences)
    found = {one.name for one in Bundle.open(bundle.path).manifest.directions}
    assert "luck" not in found
    growth = [one for one in sentences if "growth" in one]
    assert ["growth"] == list(found) or "no relation" in growth[0]
