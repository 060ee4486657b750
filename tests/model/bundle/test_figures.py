from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

import model
from model.bundle import CARD, Bundle, BundleError
from model.bundle.figures import EXPLAINED, FIGURES, MAX_FIGURE_BYTES, Figure
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


@pytest.mark.parametrize("size", [None, MAX_FIGURE_BYTES + 1], ids=["missing", "too large"])
def test_a_bundle_may_have_no_figures(copy: Path, size: int | None) -> None:
    """As older bundles; a large figure is no reason to refuse a network."""
    (copy / EXPLAINED).unlink()
    if size:
        (copy / EXPLAINED).write_bytes(bytes(size))
    assert () == Bundle.open(copy).figures


def test_a_figure_that_is_no_png_is_named(copy: Path) -> None:
    """The bundle is refused in a sentence that says which file is wrong."""
    (copy / EXPLAINED).write_text("<svg/>")
    with pytest.raises(BundleError, match=r"copy: explained\.png is no PNG"):
        Bundle.open(copy)


@pytest.mark.parametrize("folder", sorted(model.SHIPPED.glob("*/")), ids=lambda path: path.name)
def test_figures_show_what_the_card_says(folder: Path) -> None:
    """Each picture of a shipped card is a figure with the card's words, except wrong answers."""
    shown = re.findall(r"!\[(.*)\]\((.*)\)", (folder / CARD).read_text())
    assert {(FIGURES[file], file) for _, file in shown if file != "wrong.png"} | {
        ("images with wrong answers", "wrong.png")
    } == set(shown)
    assert EXPLAINED in {figure.file for figure in Bundle.open(folder).figures}
