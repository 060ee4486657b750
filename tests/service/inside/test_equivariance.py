from __future__ import annotations

import numpy as np
import pytest

from service.inside.affine import Transform
from service.inside.equivariance import DEFAULTS, LIMITS, angles_deg, plan_walk


@pytest.mark.parametrize("transform", LIMITS)
def test_the_default_walk_passes_the_unmoved_picture(transform: Transform) -> None:
    """Thirteen steps between the defaults hold the value that changes nothing."""
    walk = plan_walk(transform, start=None, stop=None, steps=13)
    assert DEFAULTS[transform] == (walk.values[0], walk.values[-1])
    assert (1 if transform == "scale" else 0) in walk.values


@pytest.mark.parametrize(
    ("transform", "start", "stop"),
    [("turn", 10, 10), ("turn", 20, -20), ("scale", 0, 1), ("shift-x", -15, 0), ("scale", 1, 5)],
)
def test_a_walk_outside_the_limits_is_refused(
    transform: Transform, start: float, stop: float
) -> None:
    """The message names the transform and its limits."""
    with pytest.raises(ValueError, match=f"{transform} goes from"):
        plan_walk(transform, start=start, stop=stop, steps=5)


def test_a_walk_holds_the_picture_at_every_step() -> None:
    """Images follow the values in order."""
    image = np.zeros((1, 9, 9), np.float32)
    image[0, 4, 4] = 1
    images = plan_walk("shift-x", start=-2, stop=2, steps=5).images(image)
    assert [2, 3, 4, 5, 6] == [int(one[0, 4].argmax()) for one in images]


def test_angles_are_between_directions() -> None:
    """Right angles, opposite and equal directions, whatever the lengths."""
    poses = np.array([[2.0, 0], [0, 0.1], [-3, 0], [1, 1]], np.float32)
    found = angles_deg(poses, np.array([0.5, 0], np.float32))
    assert [0, 90, 180, 45] == pytest.approx(found.tolist(), abs=1e-3)
