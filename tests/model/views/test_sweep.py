from __future__ import annotations

import numpy as np
import pytest

from model.views.sweep import plan_steps, sweep_dims


def test_the_paper_s_sweep() -> None:
    """Eleven round deltas from -0.25 to 0.25, with a zero in the middle."""
    steps = plan_steps(-0.25, 0.25, 0.05, rows=16)
    expected = (-0.25, -0.2, -0.15, -0.1, -0.05, 0.0, 0.05, 0.1, 0.15, 0.2, 0.25)
    assert expected == steps
    thirds = plan_steps(-0.9, 0.3, 0.3, rows=1)
    assert ["-0.9", "-0.6", "-0.3", "0.0", "0.3"] == [str(delta) for delta in thirds]


@pytest.mark.parametrize(
    ("start", "stop", "step", "expected"),
    [
        (0.0, 0.0, 0.1, (0.0,)),
        (0.0, 0.25, 0.1, (0.0, 0.1, 0.2)),
        (-1.0, 1.0, 2.0, (-1.0, 1.0)),
        (0.1, 0.7, 0.1, (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7)),
        (0.0, 0.1999, 0.1, (0.0, 0.1)),
        (0.0, 0.03125, 0.015625, (0.0, 0.015625, 0.03125)),
    ],
)
def test_both_ends_belong_to_the_sweep(
    start: float, stop: float, step: float, expected: tuple[float, ...]
) -> None:
    """The end is there where steps reach it, whatever floating point makes of them."""
    assert expected == plan_steps(start, stop, step, rows=1)


def test_every_pose_moves_in_its_row_s_dimension() -> None:
    """Pose m, n is the pose with deltas[n] added to dims[m] and nothing else."""
    pose = np.linspace(-1, 1, 4, dtype=np.float32)
    sweep = sweep_dims(pose, (3, 1), (-0.5, 0.0, 0.25))
    for row, dim in enumerate((3, 1)):
        for column, delta in enumerate(sweep.steps):
            expected = [x + (delta if place == dim else 0) for place, x in enumerate(pose)]
            assert expected == pytest.approx(sweep.poses[row, column].tolist())
