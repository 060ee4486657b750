"""Rendered objects whose factors are known."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from training.data import assemblies
from training.data.assemblies import (
    CLASSES,
    LAMPS,
    VIEWS,
    RenderedSource,
    View,
    assemble,
    list_factors,
    render_lamps,
)
from training.data.datasets import DATASETS, load

SIDE = 24


def draw(label: int, *, instance: int = 0, azimuth: int = 40, size: float = 1.0) -> np.ndarray:
    """One view by all lamps, as floats."""
    view = View(azimuth, 45, size)
    return render_lamps(assemble(label, instance), view, size_px=SIDE).astype(float)


def test_objects_are_light_on_black_and_whole() -> None:
    """The largest instances touch no edge, from any side."""
    for label in range(len(CLASSES)):
        images = draw(label, azimuth=60 * label, size=1.2)
        assert (images.max(axis=(1, 2)) > 150).all()
        assert not images[:, [0, -1]].any()
        assert not images[..., [0, -1]].any()


def test_the_turntable_turns_the_object_and_not_the_lamps() -> None:
    """A lamp in front of the object is brighter than one behind it, at every azimuth."""
    for azimuth in (0, 80, 160, 240, 320):
        images = draw(0, azimuth=azimuth)
        front, behind = (np.argmin([abs(lamp[0] - side) for lamp in LAMPS]) for side in (0, 140))
        assert images[front].mean() > 1.2 * images[behind].mean()


@pytest.mark.parametrize("split", ["train", "test"])
def test_factors_are_of_every_image_in_order(split: str) -> None:
    """Each instance is seen from every azimuth and elevation, by every lamp."""
    factors = list_factors(split)  # type: ignore[arg-type]
    classes, instances = len(CLASSES), len(assemblies.INSTANCES[split])  # type: ignore[index]
    assert classes * instances * VIEWS == len(factors.label)
    seen = np.stack((factors.instance, factors.label, factors.azimuth, factors.elevation))
    assert len(factors.label) == len(np.unique(np.vstack((seen, factors.lamp)), axis=1).T)
    assert 0.8 <= factors.size.min() < factors.size.max() <= 1.2


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    """One instance of each split from two sides."""
    monkeypatch.setattr(assemblies, "INSTANCES", {"train": range(2), "test": range(2, 3)})
    monkeypatch.setattr(assemblies, "AZIMUTHS", (0, 20))
    monkeypatch.setattr(assemblies, "ELEVATIONS", (30,))
    monkeypatch.setattr(assemblies, "VIEWS", 2 * 6)


@pytest.mark.usefixtures("few")
def test_images_are_rendered_once(tmp_path: Path) -> None:
    """Into the folder of data sets; the next read takes the file."""
    source = RenderedSource(size_px=16)
    first = source.columns("test", tmp_path, fetch=True)
    assert ((5 * 2 * 6, 1, 16, 16), np.uint8) == (first["images"].shape, first["images"].dtype)
    assert [0, 1, 2, 3, 4] == sorted(set(first["labels"].tolist()))
    again = source.columns("test", tmp_path, fetch=False)
    assert np.array_equal(first["images"], again["images"])
    label, instance = 3, 2
    views = render_lamps(
        assemble(label, instance), View(0, 30, list_factors("test").size[36]), size_px=16
    )
    assert np.array_equal(views, first["images"][36:42, 0])


@pytest.mark.usefixtures("few")
def test_images_know_which_object_they_show(tmp_path: Path) -> None:
    """Halves of them share none, though each object has images of six lamps from two sides."""
    source = RenderedSource(size_px=16)
    dataset = replace(DATASETS["assemblies"], image_shape=(1, 16, 16), source=source)
    examples = load(dataset, "test", tmp_path)
    assert examples.objects is not None
    assert np.array_equal(examples.labels, examples.objects)
    one, other = examples.halves(seed=1)
    assert not set(one.labels) & set(other.labels)
    assert 60 == len(one.images) + len(other.images)
