"""What a run draws of itself."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from PIL import Image

from model.preprocess import scale
from tests.training.runs import MakeTrainer
from training.data.datasets import Examples
from training.recipes import Recipe
from training.tasks import PREVIEW


def test_images_stand_above_what_the_network_draws(
    make_trainer: MakeTrainer, bars: Examples, tiny: Recipe
) -> None:
    """Held-out images of all classes, twice as large, and their reconstructions."""
    trainer = make_trainer(validation=bars, recipe=replace(tiny, epochs=30))
    trainer.run()
    shown = np.asarray(Image.open(trainer.plan.directory / PREVIEW))
    assert (2 * 2 * 28, 10 * 2 * 28) == shown.shape
    above, below = (half[::2, ::2].reshape(28, 10, 28) for half in np.split(shown, 2))
    images = {image.tobytes() for image in bars.images[:3, 0]}
    assert images == {above[:, column].tobytes() for column in range(10)}
    with torch.inference_mode():
        poses = trainer.network.eval()(torch.from_numpy(scale(bars.images[:1]))).poses
        drawn = trainer.network.decode(poses[:, 0], torch.zeros(1, dtype=torch.int64))
    np.testing.assert_allclose(below[:, 0], 255 * drawn[0, 0].numpy(), atol=1)


@pytest.mark.parametrize(("name", "drawn"), [("tiny", True), ("tiny_baseline", False)])
def test_a_final_run_shows_what_it_is_trained_on(
    make_trainer: MakeTrainer, request: pytest.FixtureRequest, name: str, *, drawn: bool
) -> None:
    """Nothing is held out; a network that has no decoder has no preview."""
    trainer = make_trainer(recipe=request.getfixturevalue(name))
    trainer.run()
    assert drawn == (trainer.plan.directory / PREVIEW).is_file()
