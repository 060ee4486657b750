from __future__ import annotations

import numpy as np
import pytest

from model.views.sweep import MAX_IMAGES, draw_grid, plan_steps, sweep_dims


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
    sweep = sweep_dims((3, 1), (-0.5, 0.0, 0.25), 4)
    poses = sweep.poses(pose).reshape(2, 3, 4)
    for row, dim in enumerate((3, 1)):
        for column, delta in enumerate(sweep.steps):
            expected = [x + (delta if place == dim else 0) for place, x in enumerate(pose)]
            assert expected == pytest.approx(poses[row, column].tolist())


def test_images_take_their_poses_places() -> None:
    """Picture m * columns + n stands in row m and column n."""
    images = np.arange(6, dtype=np.float32).reshape(6, 1, 1, 1) * np.ones((3, 2, 4), np.float32)
    grid = sweep_dims((0, 1), (0.0, 0.1, 0.2), 2).on_grid(images)
    assert (2, 3, 3, 2, 4) == grid.shape
    assert [[0, 1, 2], [3, 4, 5]] == grid[:, :, 0, 0, 0].tolist()


def test_the_largest_sweep_is_one_batch() -> None:
    """As many pictures as a batch holds are taken, and one step more is refused."""
    steps = MAX_IMAGES // 16
    assert steps == len(plan_steps(0, (steps - 1) / 64, 1 / 64, rows=16))
    with pytest.raises(ValueError, match="272 pictures; a sweep has at most 256"):
        plan_steps(0, steps / 64, 1 / 64, rows=16)


def test_an_empty_range_is_refused() -> None:
    """A sweep does not run backwards."""
    with pytest.raises(ValueError, match="before its start"):
        plan_steps(0.1, -0.1, 0.05, rows=1)


def test_rows_are_as_wide_as_their_names() -> None:
    """A long name needs more room; the grid itself stays."""
    images = np.zeros((1, 11, 1, 28, 28), np.float32)
    plain, named = (
        draw_grid(images, [name], range(-5, 6), title="7", scale=1)
        for name in ("3", "slant ± 20 degrees")
    )
    assert plain.height == named.height
    assert named.width > plain.width + 40


def test_a_grid_of_colour_images_has_their_shape() -> None:
    """Wide images stand side by side and under one another, in colour."""
    images = np.zeros((2, 3, 3, 24, 32), np.float32)
    images[1, 2, 0] = 1
    grid = draw_grid(images, ["0", "1"], [-0.1, 0.0, 0.1], title="0", scale=2)
    red = np.argwhere((np.asarray(grid) == (255, 0, 0)).all(axis=2))
    assert [48, 64] == (red.max(axis=0) - red.min(axis=0) + 1).tolist()
