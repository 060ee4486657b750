from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from model.bundle import Manifest
from model.measures import Doubles, Measure
from model.outputs import Encoding
from model.preprocess import Floats
from tests.views.numpy_net import MANIFEST
from training.analysis.directions import (
    LEAST,
    PRINCIPAL,
    Posed,
    fit_class,
    fit_directions,
    measure_objects,
)
from training.analysis.factors import fit_factors
from training.answers import answer_images
from training.data.datasets import Examples

PHOTOGRAPHS = replace(MANIFEST, preprocess="crop", class_dim=3, width=6)
MEASURES = (Measure("first", "px"), Measure("second", ""))


class Mixed:
    """A network whose poses mix the means of three upright strips, and whose decoder unmixes them.

    No dimension changes one strip alone.
    """

    mix = np.array([[1, 0.5, 0], [0, 1, 0.5], [0.5, 0, 1]])
    manifest: Manifest = PHOTOGRAPHS

    @property
    def bundle(self) -> Any:
        """What has the manifest."""
        return self

    def encode(self, images: Floats) -> Encoding[Floats]:
        """The same pose for each class."""
        strips = images.reshape(len(images), 4, 3, 2).mean(axis=(1, 3))
        poses = (strips @ self.mix).astype(np.float32)
        presence = np.tile(np.array([0.9, 0.1], np.float32), (len(images), 1))
        return Encoding(presence, np.stack([poses, poses], axis=1))

    def decode(self, poses: Floats, labels: Any) -> Floats:  # noqa: ARG002
        """Three strips."""
        strips = (poses @ np.linalg.inv(self.mix)).astype(np.float32)
        return strips.repeat(2, axis=1)[:, None, None].repeat(4, axis=2)


def strips(count: int, seed: int = 0) -> Examples:
    """Images of class 0 of three strips."""
    grey = np.random.default_rng(seed).integers(60, 200, (count, 1, 1, 3))
    images = grey.repeat(2, axis=3).repeat(4, axis=2).astype(np.uint8)
    return Examples(images, np.zeros(count, np.int64))


def shown(count: int, seed: int = 0, values: Doubles | None = None) -> Any:
    answers = answer_images(Mixed(), strips(count, seed))  # type: ignore[arg-type]
    measured = measure_objects(Mixed.manifest, answers)
    return measured if values is None else measured._replace(values=values[:, None])


@pytest.fixture(scope="module")
def directions() -> dict[str, Any]:
    found = fit_directions(Mixed(), shown(120), shown(60, 1))  # type: ignore[arg-type]
    return {one.name: one for one in found}


@pytest.mark.parametrize("name", ["brightness", "middle", "left"])
def test_a_direction_changes_one_measure_alone(name: str, directions: dict[str, Any]) -> None:
    """Whatever the dimensions mix; the pose says exactly what the image looks like."""
    quality, reading = directions[name].quality, directions[name].reading
    assert (1, 1) == (pytest.approx(quality.got, abs=0.02), quality.same_way)
    assert quality.largest_other < 0.02
    assert quality.spread < 0.02
    assert reading.r2 > 0.99
    assert abs(directions[name].offset) < 0.01


def test_photographs_have_principal_directions(directions: dict[str, Any]) -> None:
    """They share all of the drawing's change, the largest first, and the pose reads them."""
    changes = [one for name, one in directions.items() if name.startswith("change-")]
    assert 3 == len(changes) < PRINCIPAL
    shares = [one.share for one in changes]
    assert shares == sorted(shares, reverse=True)
    assert 1 == pytest.approx(sum(shares), abs=1e-3)
    assert all(one.quality.got == pytest.approx(1, abs=0.02) for one in changes)
    first = changes[0]
    assert first.read(np.array(first.vector)) - first.read(np.zeros(3)) == pytest.approx(
        1, abs=0.01
    )


def test_a_class_of_few_images_is_left_out() -> None:
    """Held-out images count too."""
    assert [] == list(fit_directions(Mixed(), shown(LEAST - 1)))  # type: ignore[arg-type]
    assert list(fit_directions(Mixed(), shown(LEAST - 4), shown(4, 1)))  # type: ignore[arg-type]


def test_few_images_score_each_other() -> None:
    """Of thirty images, each third is scored by a fit to the others; noise is not read."""
    few = shown(30)
    found = {one.name: one for one in fit_directions(Mixed(), few)}  # type: ignore[arg-type]
    assert found["middle"].offered
    assert found["middle"].reading.r2 > 0.99
    noise = few._replace(values=np.random.default_rng(5).standard_normal(few.values.shape))
    read = [one.reading.r2 for one in fit_directions(Mixed(), noise)]  # type: ignore[arg-type]
    assert max(r2 for r2 in read if r2 != 1) < 0.3


def test_a_direction_that_drags_another_measure_along_is_told() -> None:
    """Two measures that are nearly the same cannot move alone."""
    rng = np.random.default_rng(0)
    poses = rng.standard_normal((100, 3))

    def drawn(poses: Doubles) -> Doubles:
        return np.stack([poses[:, 0], poses[:, 0] + 1e-3 * poses[:, 1]], axis=1)

    rows = np.arange(100)
    posed = Posed(poses, poses[:, :2], [(rows, rows)], rows)
    first, second = fit_class(posed, drawn, measures=MEASURES, label=0)
    assert not first.offered
    assert not second.offered
    assert first.quality.largest_other > 0.3


def test_a_known_factor_gets_a_direction() -> None:
    """An age that the pose holds is read, and moved by as much as is asked for."""
    examples = strips(150)
    ages = examples.images[:, 0, 0, 0].astype(float)[:, None]
    few = shown(150, values=ages)
    ((sentence, age),) = fit_factors(Mixed(), few, None, [Measure("age", "years")])  # type: ignore[arg-type]
    assert "top, age: read with R² 1.00" in sentence
    assert age
    assert ("age", "years", True) == (age.name, age.unit, age.offered)
    strip = Mixed().decode(np.array([age.vector], np.float32), None)[0, 0, 0, 0]
    assert 1 / 255 == pytest.approx(float(strip), rel=0.05)


@pytest.mark.parametrize(("count", "words"), [(20, "too few; 24"), (150, "no relation")])
def test_a_factor_without_direction_says_why(count: int, words: str) -> None:
    """Too few pictures, or nothing that the pose would say."""
    ages = np.random.default_rng(1).standard_normal((count, 1))
    few = shown(count, values=ages)
    ((sentence, direction),) = fit_factors(Mixed(), few, None, [Measure("age", "years")])  # type: ignore[arg-type]
    assert words in sentence
    assert direction is None
