from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from model.bundle import Bundle, BundleError
from model.bundle.figures import EXPLAINED, FIGURES, Figure
from tests.figures import draw_explained


@pytest.fixture
def copy(bundle_path: Path, tmp_path: Path) -> Path:
    """A bundle that the test may change."""
    return Path(shutil.copytree(bundle_path, tmp_path / "copy"))


def test_a_bundle_brings_the_figures_of_its_card(copy: Path) -> None:
    """In the order of the card. Other pictures of its folder are none."""
    png = draw_explained(copy)
    for file in ("health.png", "curves.png", "wrong.png", "mine.png"):
        shutil.copy(copy / EXPLAINED, copy / file)
    expected = [
        Figure(file, FIGURES[file], png) for file in ("curves.png", EXPLAINED, "health.png")
    ]
    assert expected == list(Bundle.open(copy).figures)


def test_a_figure_that_is_no_png_is_named(copy: Path) -> None:
    """The bundle is refused in a sentence that says which file is wrong."""
    (copy / EXPLAINED).write_text("<svg/>")
    with pytest.raises(BundleError, match=r"copy: explained\.png is no PNG"):
        Bundle.open(copy)
