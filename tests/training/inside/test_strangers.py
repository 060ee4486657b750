from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from training.data.datasets import Examples
from training.inside import strangers
from training.inside.strangers import draw_strangers


@pytest.fixture
def _clothes(monkeypatch: pytest.MonkeyPatch) -> None:
    """A few grey squares for Fashion-MNIST, and few pictures of each kind."""
    images = np.full((9, 28, 28), 128, np.uint8)
    monkeypatch.setattr(strangers, "load", lambda *_: Examples(images, np.zeros(9, np.uint8)))
    monkeypatch.setattr(strangers, "COUNT", 8)


@pytest.mark.usefixtures("_clothes")
def test_every_kind_has_its_pictures(tmp_path: Path) -> None:
    """Shaped and scaled as the network wants them, no two letters alike."""
    kinds = draw_strangers(28, tmp_path)
    assert {"noise", "blanks", "letters", "clothes"} == kinds.keys()
    for images in kinds.values():
        assert ((8, 1, 28, 28), np.float32) == (images.shape, images.dtype)
        assert 0 <= images.min() <= images.max() <= 1
    assert 8 == len({one.tobytes() for one in kinds["letters"]})
    assert np.ptp(kinds["blanks"][0]) == 0
    assert kinds["letters"].sum(axis=(1, 2, 3)).min() > 20


@pytest.mark.usefixtures("_clothes")
def test_the_same_seed_draws_the_same(tmp_path: Path) -> None:
    """What is reported can be repeated."""
    first, again = draw_strangers(28, tmp_path), draw_strangers(28, tmp_path)
    for kind, images in first.items():
        assert np.array_equal(images, again[kind])


@pytest.mark.usefixtures("_clothes")
def test_to_a_network_of_clothes_digits_are_strange(tmp_path: Path) -> None:
    """What it was trained on is none of its strangers."""
    kinds = draw_strangers(28, tmp_path, known="fashion-mnist")
    assert {"noise", "blanks", "letters", "digits"} == kinds.keys()


@pytest.mark.usefixtures("_clothes")
def test_networks_of_another_size_see_no_clothes(tmp_path: Path) -> None:
    """Pictures are not stretched to fit."""
    kinds = draw_strangers(36, tmp_path)
    assert {"noise", "blanks", "letters"} == kinds.keys()
    assert (8, 1, 36, 36) == kinds["letters"].shape
